//! The source of a connection: what distinguishes one client from another.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What counts as one client: an IPv4 address, an IPv6 /64 network (a host may use any address in it) or address, or all
/// unix sockets together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An IPv4 address, also if given as IPv6 (`::ffff:192.0.2.1`).
    V4(Ipv4Addr),
    /// The first 64 bits of an IPv6 address.
    V6([u8; 8]),
    /// A whole IPv6 address, where all clients are in one network.
    Host(Ipv6Addr),
    /// A unix socket; anyone who can open its file.
    Unix,
}

impl Source {
    /// The source of a connection within one network, such as to a sender of a cast: there, all clients have the same first 64 bits, as of
    /// link-local addresses, and would count as one.
    pub fn of_host(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::Host(address),
        }
    }
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_source() {
        let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("2001:db8:0:1::1"), source("2001:db8:0:1:ffff::2"));
        assert_ne!(source("2001:db8:0:1::1"), source("2001:db8:0:2::1"));
    }

    #[test]
    fn the_hosts_of_one_network_are_several_sources() {
        let source = |text: &str| Source::of_host(text.parse::<IpAddr>().unwrap());
        assert_ne!(source("fe80::1"), source("fe80::2"));
        assert_eq!(source("fe80::1"), source("fe80::1"));
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
        assert_ne!(source("fe80::1"), Source::from("fe80::1".parse::<IpAddr>().unwrap()));
    }
}
