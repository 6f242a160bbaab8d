//! Kinds of values that are addresses: bind addresses, `host:port`, URLs, ZeroMQ endpoints, header names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use toml::Value;

use super::kind::{Checked, Kind, checked};

/// An address to bind.
pub(super) struct Bind;

impl Kind for Bind {
    type Value = SocketAddr;

    fn read(&self, raw: &Value) -> Option<SocketAddr> {
        let text = raw.as_str()?;
        match text.strip_prefix("localhost:") {
            // Not looked up: where we listen must not depend on a resolver.
            Some(port) => Some((Ipv4Addr::LOCALHOST, decimal_port(port)?).into()),
            None => text.parse().ok(),
        }
    }

    fn show(&self, value: &SocketAddr) -> Value {
        Value::String(value.to_string())
    }

    fn accepted(&self) -> String {
        "an IP address and a port, such as \"0.0.0.0:9002\", \"[::]:9002\" or \"localhost:9002\"".into()
    }
}

/// `host:port`, where somebody can be reached.
pub(super) const fn host_port<T>() -> Checked<T> {
    checked("`host:port` (an IPv6 address in brackets)", |text| is_host_port(text).then(|| text.to_owned()))
}

/// An `http://` or `https://` URL, as written.
pub(super) const fn url<T>() -> Checked<T> {
    checked("an http:// or https:// URL", |text| http_url(text).map(|_| text.to_owned()))
}

/// A URL that paths are appended to: without query, fragment and trailing slash.
pub(super) const fn base_url<T>() -> Checked<T> {
    checked("an http:// or https:// URL without query and fragment", |text| {
        let url = http_url(text)?;
        (url.query().is_none() && url.fragment().is_none()).then(|| text.trim_end_matches('/').to_owned())
    })
}

/// Where a ZeroMQ socket connects to.
pub(super) const fn zmq<T>() -> Checked<T> {
    checked("`tcp://host:port` or `ipc://path`", |text| {
        let tcp = text.strip_prefix("tcp://").is_some_and(is_host_port);
        let ipc = text.strip_prefix("ipc://").is_some_and(|path| !path.is_empty() && !path.contains('\0'));
        (tcp || ipc).then(|| text.to_owned())
    })
}

/// The name of an HTTP header, in lower case.
pub(super) const fn header() -> Checked<String> {
    checked("the name of an HTTP header", |text| {
        http::HeaderName::try_from(text).ok().map(|name| name.as_str().to_owned())
    })
}

/// The `host:port` that an URL points at, with the scheme's port when it names none.
pub(super) fn endpoint_of(url: &str) -> Option<String> {
    let url = http_url(url)?;
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

fn http_url(text: &str) -> Option<Url> {
    // The parser would trim, and take other schemes and a missing `//`.
    let (scheme, rest) = text.split_once("://")?;
    let known = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let odd = rest.starts_with('/') || rest.contains(|c: char| c.is_whitespace() || c.is_control());
    if !known || odd {
        return None;
    }
    Url::parse(text).ok().filter(|url| url.has_host() && url.port() != Some(0))
}

fn is_host_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    is_host(host) && decimal_port(port).is_some_and(|port| port > 0)
}

fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[') {
        return inner.strip_suffix(']').is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok());
    }
    let looks_like_ip = host.chars().all(|c| c.is_ascii_digit() || c == '.');
    let of_a_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !host.is_empty() && host.chars().all(of_a_name) && (!looks_like_ip || host.parse::<IpAddr>().is_ok())
}

fn decimal_port(text: &str) -> Option<u16> {
    text.chars().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken<T>(kind: &impl Kind<Value = T>, text: &str) -> Option<T> {
        kind.read(&Value::String(text.into()))
    }

    #[test]
    fn bind_addresses() {
        for (text, want) in [
            ("0.0.0.0:9002", "0.0.0.0:9002"),
            ("[::]:9002", "[::]:9002"),
            ("localhost:0", "127.0.0.1:0"),
            ("[::1]:65535", "[::1]:65535"),
        ] {
            assert_eq!(taken(&Bind, text).map(|a| a.to_string()).as_deref(), Some(want), "{text}");
        }
        for text in [
            "",
            "9002",
            ":9002",
            "0.0.0.0",
            "::1:9002x",
            "localhost:",
            "localhost:+1",
            "1.2.3.4:65536",
            "host:1",
        ] {
            assert_eq!(taken(&Bind, text), None, "{text}");
        }
    }

    #[test]
    fn hosts_and_ports() {
        for text in ["10.0.0.1:8000", "engine-0.svc.local:8000", "[fd00::1]:80", "a_b:1"] {
            assert_eq!(taken(&host_port::<String>(), text).as_deref(), Some(text));
        }
        for text in [
            "",
            "a",
            "a:",
            ":1",
            "a:0",
            "a:65536",
            "http://a:1",
            "fd00::1:80",
            "[a]:1",
            "*:1",
            "a b:1",
            "1.2.3:4",
            "a:+1",
        ] {
            assert_eq!(taken(&host_port::<String>(), text), None, "{text}");
        }
    }

    #[test]
    fn urls() {
        for text in ["http://a:8000/metrics", "HTTPS://a", "http://[::1]:8000", "http://a/x?y=1"] {
            assert_eq!(taken(&url::<String>(), text).as_deref(), Some(text));
        }
        for text in [
            "",
            "a:8000",
            "ftp://a",
            "http://",
            "http:///a",
            "http://a:99999",
            "http://a:0",
            "http://a b",
            " http://a",
        ] {
            assert_eq!(taken(&url::<String>(), text), None, "{text}");
        }
        assert_eq!(taken(&base_url::<String>(), "http://a:1/v/").as_deref(), Some("http://a:1/v"));
        assert_eq!(taken(&base_url::<String>(), "http://a:1/?x"), None);
    }

    #[test]
    fn endpoints_derive_from_urls() {
        for (url, want) in [
            ("http://engine-0:8000/base", "engine-0:8000"),
            ("http://engine-0", "engine-0:80"),
            ("https://10.0.0.1/", "10.0.0.1:443"),
            ("http://[fd00::1]:8000", "[fd00::1]:8000"),
            ("http://user:word@a:81", "a:81"),
        ] {
            assert_eq!(endpoint_of(url).as_deref(), Some(want), "{url}");
        }
    }

    #[test]
    fn zmq_endpoints_and_headers() {
        for text in ["tcp://a:5557", "tcp://[::1]:5557", "ipc:///tmp/kv"] {
            assert_eq!(taken(&zmq::<String>(), text).as_deref(), Some(text));
        }
        for text in ["", "a:5557", "tcp://a", "tcp://*:5557", "ipc://", "udp://a:1", "http://a:1"] {
            assert_eq!(taken(&zmq::<String>(), text), None, "{text}");
        }
        assert_eq!(taken(&header(), "X-Tenant").as_deref(), Some("x-tenant"));
        assert_eq!(taken(&header(), ":path"), None);
        assert_eq!(taken(&header(), "a b"), None);
    }
}
