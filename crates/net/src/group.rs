//! The multicast groups of casts: which may be used, and which one a cast takes by itself.
//!
//! Must never use a group that belongs to others: only groups that nobody has registered.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use platter_cast::Family;
use platter_image::{Error, Result};

/// The first 16 bits of IPv6 groups: not registered (flag T of RFC 4291), of one link.
const LINK_GROUPS: u16 = 0xff12;
/// The first 16 bits of IPv4 groups (RFC 2365), and of the last 32 bits of IPv6 groups: of those, a machine may choose the ones
/// with the highest bit set (RFC 3307). Only these 32 bits are in the Ethernet address.
const IPV4_GROUPS: u16 = 0xefff;

/// A multicast group that a person chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(IpAddr);

impl Group {
    /// The address.
    pub fn address(self) -> IpAddr {
        self.0
    }
}

impl FromStr for Group {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.contains('%') {
            return Err(Error::refused(format!(
                "{text}: a group has no interface: choose it with --interface"
            )));
        }
        let address = text.parse().map_err(|_| {
            Error::refused(format!(
                "{text:?} is not an address: a group is written as 239.255.1.2, or as ff12::8000:1"
            ))
        })?;
        check(address).map(|()| Self(address))
    }
}

/// Checks that casts may use a group.
///
/// # Errors
/// `Refused`, with the reason.
pub(crate) fn check(group: IpAddr) -> Result<()> {
    let IpAddr::V6(ipv6) = group else {
        return match group.is_multicast() {
            true => Ok(()),
            false => Err(Error::refused(format!(
                "{group} is not a multicast group (224.0.0.0 to 239.255.255.255)"
            ))),
        };
    };
    let (flags, scope) = (ipv6.octets()[1] >> 4, ipv6.octets()[1] & 15);
    let refused = |why: &str| {
        Err(Error::refused(format!("{group} {why}: use one that begins with ff12, as ff12::8000:1")))
    };
    match () {
        () if !ipv6.is_multicast() => refused("is not a multicast group"),
        () if flags & 1 == 0 => refused("is a registered group, or reserved for registration"),
        () if !(2..=14).contains(&scope) => refused("does not leave this machine, or is reserved"),
        () => Ok(()),
    }
}

/// The group of a cast that nobody has chosen, made from its random bytes, on the port of announcements.
pub(crate) fn of_seed(family: Family, seed: &[u8; 32], port: u16) -> SocketAddr {
    let last = u16::from_be_bytes([seed[0], seed[1]]);
    match family {
        Family::Ipv4 => (Ipv4Addr::from(u32::from(IPV4_GROUPS) << 16 | u32::from(last)), port).into(),
        Family::Ipv6 => (Ipv6Addr::new(LINK_GROUPS, 0, 0, 0, 0, 0, IPV4_GROUPS, last), port).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{DISCOVERY, DISCOVERY_IPV6};

    #[test]
    fn only_groups_that_nobody_registered_are_used() {
        for text in ["239.255.1.2", "224.0.0.9", "ff12::1", "ff15::8000:1", "ff1e::1", "ff32::1"] {
            assert_eq!(text.parse::<Group>().unwrap().address().to_string(), text);
        }
        for text in [
            "10.0.0.1",
            "fe80::1",
            "::1",
            "ff02::1",
            "ff11::1",
            "ff10::1",
            "ff1f::1",
            "ff12::1%eth0",
            "[ff12::1]",
            "eth0",
            "",
        ] {
            assert!(text.parse::<Group>().is_err(), "{text}");
        }
    }

    #[test]
    fn groups_of_casts_and_of_announcements_have_the_same_last_32_bits_in_both_families() {
        let mut seed = [0; 32];
        (seed[0], seed[1]) = (80, 76);
        assert_eq!(of_seed(Family::Ipv4, &seed, 7580), DISCOVERY.into());
        assert_eq!(of_seed(Family::Ipv6, &seed, 7580), DISCOVERY_IPV6.into());
        Family::ALL.iter().for_each(|family| check(of_seed(*family, &[255; 32], 1).ip()).unwrap());
    }
}
