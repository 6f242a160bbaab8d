//! Who may change something over `admin_listen`: programs of this machine, and no web page that is open on it. Pure.
//!
//! Invariant: whatever is not known to be one of the former is refused. A forwarded port of a pod counts as this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::http::{HeaderMap, header, uri::Authority};

/// The header that a change comes with, set to `1`. A page of another origin can't send it: we answer no preflight.
pub const CHANGE_HEADER: &str = "x-kinference-admin";

/// Why a change is not taken, if it is not.
pub(super) fn refusal(peer: SocketAddr, headers: &HeaderMap) -> Option<String> {
    let ip = peer.ip().to_canonical();
    // From other loopback addresses comes what proxies beside a container hand on, such as Istio's from 127.0.0.6.
    if ![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)].contains(&ip) {
        return Some(format!(
            "changes are taken from the machine or pod itself only, and this comes from {ip}"
        ));
    }
    if headers.get(CHANGE_HEADER).is_none_or(|value| value != "1") {
        return Some(format!("changes are taken only with the header `{CHANGE_HEADER}: 1`"));
    }
    // A name may have been made to lead here by the page that uses it.
    if !headers.get(header::HOST).and_then(|host| host.to_str().ok()).is_some_and(is_no_name) {
        return Some("changes are taken only where the Host is an IP address or `localhost`".into());
    }
    None
}

/// Whether a host, with or without a port, is one that no name server is asked for.
fn is_no_name(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let ip = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || ip.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: Option<&str>, change: Option<&str>) -> HeaderMap {
        let mut out = HeaderMap::new();
        host.into_iter().for_each(|host| drop(out.insert(header::HOST, host.parse().unwrap())));
        change.into_iter().for_each(|value| drop(out.insert(CHANGE_HEADER, value.parse().unwrap())));
        out
    }

    fn refused(peer: &str, host: Option<&str>, change: Option<&str>) -> Option<String> {
        refusal(format!("{peer}:1").parse().unwrap(), &headers(host, change))
    }

    #[test]
    fn programs_of_this_machine_may() {
        for peer in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"] {
            for host in
                ["127.0.0.1:9003", "127.0.0.1", "[::1]:9003", "[::1]", "localhost:1", "LocalHost", "10.0.0.1"]
            {
                assert_eq!(refused(peer, Some(host), Some("1")), None, "{peer} {host}");
            }
        }
    }

    #[test]
    fn whoever_else_may_not() {
        for peer in ["10.0.0.1", "127.0.0.6", "[2001:db8::1]", "[::ffff:10.0.0.1]", "0.0.0.0"] {
            let why = refused(peer, Some("127.0.0.1"), Some("1")).unwrap();
            assert!(why.contains("from the machine or pod itself only"), "{peer}: {why}");
        }
        for change in [None, Some("0"), Some(""), Some("11"), Some("true")] {
            let why = refused("127.0.0.1", Some("127.0.0.1"), change).unwrap();
            assert!(why.contains("`x-kinference-admin: 1`"), "{change:?}: {why}");
        }
        let hosts = [
            "kinference.example.com",
            "localhost.example.com:80",
            "127.0.0.1.example.com",
            "localhost@example.com",
            "",
            "[",
        ];
        for host in hosts.map(Some).into_iter().chain([None]) {
            let why = refused("127.0.0.1", host, Some("1")).unwrap();
            assert!(why.contains("the Host is an IP address"), "{host:?}: {why}");
        }
    }
}
