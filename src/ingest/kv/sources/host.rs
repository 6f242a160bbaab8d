//! The engine's own host, and which ways of naming a host mean it.
//!
//! Invariant: an endpoint is made of this host and a port, never of a host that an engine named.

use std::net::IpAddr;

/// An `http_url` without a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a URL with a host")]
pub struct BadUrl(String);

/// Where an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As it is dialled: an IPv6 address in brackets.
    text: String,
    address: Option<IpAddr>,
}

impl Host {
    /// The host of a URL.
    ///
    /// # Errors
    /// Text that is no URL, or one without a host.
    pub fn of_url(url: &str) -> Result<Self, BadUrl> {
        let parsed = reqwest::Url::parse(url).ok();
        let text = parsed.as_ref().and_then(reqwest::Url::host_str).ok_or_else(|| BadUrl(url.to_owned()))?;
        Ok(Self { text: text.to_owned(), address: address(text) })
    }

    /// The endpoint of a port here.
    pub fn endpoint(&self, port: u16) -> String {
        format!("tcp://{}:{port}", self.text)
    }

    /// The port of an endpoint that the engine said of itself.
    ///
    /// # Errors
    /// Why it is none on this host, in words.
    pub fn port_of(&self, endpoint: &str) -> Result<u16, String> {
        let rest = endpoint.strip_prefix("tcp://").ok_or("only `tcp://HOST:PORT` is accepted")?;
        let (host, port) = rest.rsplit_once(':').ok_or("it has no port")?;
        if !self.is(host) {
            return Err(format!(
                "only the engine's own host is accepted: `{}`, `*`, `0.0.0.0`, `::`",
                self.text
            ));
        }
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port: &u16| digits && *port > 0);
        port.ok_or_else(|| "its port is none of 1-65535".to_owned())
    }

    /// Whether an engine here may call itself that: every address of it, it by its name or address, or its
    /// loopback device where we are on the same host.
    fn is(&self, named: &str) -> bool {
        let address = address(named);
        let anywhere = named == "*" || address.is_some_and(|address| address.is_unspecified());
        let equal = match (address, self.address) {
            (Some(named), Some(own)) => named == own,
            _ => named.eq_ignore_ascii_case(&self.text),
        };
        anywhere || equal || (is_loopback(named) && is_loopback(&self.text))
    }
}

/// An IP address, in brackets or not; IPv4 in IPv6 is IPv4.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    Some(bare.parse::<IpAddr>().ok()?.to_canonical())
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || address(host).is_some_and(|address| address.is_loopback())
}
