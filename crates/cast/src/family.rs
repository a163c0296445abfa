//! The address family of a cast: that of its group, and so of all its addresses.
//!
//! Must never let addresses of two families take part in one cast.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A family of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Both, in the order in which they are preferred.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }

    /// Returns the length of a packet's headers before its UDP payload, in bytes. IPv6: 40 and 8; IPv4: 20 and 8.
    pub(crate) fn header_bytes(self) -> usize {
        match self {
            Self::Ipv4 => 28,
            Self::Ipv6 => 48,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

/// Checks the addresses of a cast: a group, and two addresses of one machine, all of one family.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn check(group: SocketAddr, join: SocketAddr, feedback: SocketAddr) -> Result<(), String> {
    let family = Family::of(group.ip());
    if !group.ip().is_multicast() {
        return Err(format!("its group {group} is no multicast address"));
    }
    for address in [join, feedback] {
        // An IPv4 address that is written as IPv6 would be compared and counted as another one.
        let mapped = matches!(address.ip(), IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
        if Family::of(address.ip()) != family || mapped {
            return Err(format!(
                "it mixes address families: its group is {group}, and its address {address}"
            ));
        }
        if address.ip().is_multicast() || address.ip().is_unspecified() {
            return Err(format!("{address} is no address of a machine"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(group: &str, join: &str, feedback: &str) -> Result<(), String> {
        let [group, join, feedback] = [group, join, feedback].map(|text| text.parse().unwrap());
        check(group, join, feedback)
    }

    #[test]
    fn a_cast_has_addresses_of_one_family() {
        checked("239.255.0.1:1", "10.0.0.1:2", "10.0.0.1:3").unwrap();
        checked("[ff12::1]:1", "[fe80::1]:2", "[fe80::1]:3").unwrap();
        for (group, join, feedback) in [
            ("239.255.0.1:1", "10.0.0.1:2", "[fe80::1]:3"),
            ("239.255.0.1:1", "[fe80::1]:2", "10.0.0.1:3"),
            ("[ff12::1]:1", "10.0.0.1:2", "10.0.0.1:3"),
            ("[ff12::1]:1", "[::ffff:10.0.0.1]:2", "[fe80::1]:3"),
            ("[ff12::1]:1", "[fe80::1]:2", "[::]:3"),
            ("[ff12::1]:1", "[ff12::1]:2", "[fe80::1]:3"),
            ("[fe80::1]:1", "[fe80::1]:2", "[fe80::1]:3"),
            ("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"),
        ] {
            assert!(checked(group, join, feedback).is_err(), "{group} {join} {feedback}");
        }
    }
}
