//! Addresses that requests may be sent to on the word of the API server.
//!
//! Whoever may write EndpointSlices or pods chooses them, so what can't be a pod is refused: an engine on our own
//! loopback, or a cloud's metadata service, would be asked for `/metrics` and sent prompts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Metadata services of clouds that are not on link-local addresses: of Azure, Alibaba and Oracle, and of AWS on IPv6.
const METADATA: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Which addresses may be pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Also those of this machine's loopback.
    loopback: bool,
}

impl Addresses {
    /// Loopback is for engines on the same machine, which only a router that listens there as well can mean.
    pub fn for_listener(listen: SocketAddr) -> Self {
        Self { loopback: listen.ip().is_loopback() }
    }

    /// The address of a pod.
    ///
    /// # Errors
    /// Why it can be none, in words.
    pub fn read(self, text: &str) -> Result<IpAddr, &'static str> {
        // What is IPv4 in an IPv6 address is judged as IPv4.
        let address = text.parse::<IpAddr>().map_err(|_| "no IP address")?.to_canonical();
        let why = match address {
            _ if address.is_unspecified() => "unspecified",
            _ if address.is_multicast() => "multicast",
            _ if METADATA.contains(&address) => "a metadata service",
            _ if address.is_loopback() && !self.loopback => "loopback",
            IpAddr::V4(v4) if v4.is_link_local() => "link-local",
            IpAddr::V4(v4) if v4.is_broadcast() || v4.octets()[0] == 0 => "reserved",
            IpAddr::V6(v6) if v6.is_unicast_link_local() => "link-local",
            IpAddr::V6(v6) if leads_to_v4(v6) => "an IPv4 address behind a translator",
            _ => return Ok(address),
        };
        Err(why)
    }
}

/// What a NAT64, 6to4 or other translator turns into an IPv4 address: no pod has one, and it may be any of those above.
fn leads_to_v4(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0x64, 0xff9b, ..] | [0x2002, ..] => true,
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => {
            !address.is_loopback() && !address.is_unspecified()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_pod_is_read() {
        let anywhere = Addresses::for_listener("0.0.0.0:9002".parse().unwrap());
        for good in ["10.0.0.1", "100.64.0.7", "fd00::1", "2001:db8::1", "192.168.0.255"] {
            assert_eq!(anywhere.read(good), Ok(good.parse().unwrap()), "{good}");
        }
        let bad = [
            ("", "no IP address"),
            ("10.0.0", "no IP address"),
            ("10.0.0.1:80", "no IP address"),
            ("fe80::1%eth0", "no IP address"),
            ("engine.local", "no IP address"),
            ("0.0.0.0", "unspecified"),
            ("::", "unspecified"),
            ("224.0.0.1", "multicast"),
            ("ff02::1", "multicast"),
            ("169.254.169.254", "link-local"),
            ("::ffff:169.254.169.254", "link-local"),
            ("fe80::1", "link-local"),
            ("fd00:ec2::254", "a metadata service"),
            ("168.63.129.16", "a metadata service"),
            ("64:ff9b::a9fe:a9fe", "an IPv4 address behind a translator"),
            ("64:ff9b:1::a9fe:a9fe", "an IPv4 address behind a translator"),
            ("2002:a9fe:a9fe::1", "an IPv4 address behind a translator"),
            ("::169.254.169.254", "an IPv4 address behind a translator"),
            ("::ffff:0:a9fe:a9fe", "an IPv4 address behind a translator"),
            ("0.1.2.3", "reserved"),
            ("255.255.255.255", "reserved"),
            ("127.0.0.1", "loopback"),
            ("127.8.9.1", "loopback"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
        ];
        for (text, why) in bad {
            assert_eq!(anywhere.read(text), Err(why), "{text}");
        }
    }

    #[test]
    fn loopback_is_for_routers_on_loopback() {
        for listen in ["127.0.0.1:0", "[::1]:9002"] {
            let here = Addresses::for_listener(listen.parse().unwrap());
            assert_eq!(here.read("::ffff:127.0.0.1"), Ok(Ipv4Addr::LOCALHOST.into()));
            assert_eq!(here.read("169.254.169.254"), Err("link-local"));
        }
    }
}
