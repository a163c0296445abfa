//! Addresses with an interface after `%` (RFC 4007), as people write and read them: `[fe80::1%eth0]:7580`.
//!
//! Never sent: an interface means something only on its own machine.

use std::fmt;
use std::net::{SocketAddr, SocketAddrV6};

use platter_image::{Error, Result};

use crate::devices::{devices, is_of_link};

/// The name or the index of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone<'a>(&'a str);

impl<'a> Zone<'a> {
    /// Splits a text at the `%`.
    pub(crate) fn split(text: &'a str) -> (&'a str, Option<Self>) {
        match text.split_once('%') {
            Some((address, zone)) => (address, Some(Self(zone))),
            None => (text, None),
        }
    }

    /// Whether it means the interface with this name and index.
    pub(crate) fn is_of(self, name: &str, index: u32) -> bool {
        self.0 == name || self.0.parse() == Ok(index)
    }
}

/// The address of a sender, as a person writes it: `ADDRESS:PORT`, and `[ADDRESS%INTERFACE]:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderAddress {
    /// The address, without interface.
    pub address: SocketAddr,
    /// The interface over which it is reached.
    pub interface: Option<String>,
}

impl std::str::FromStr for SenderAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || Error::refused(format!("{text:?} is not ADDRESS:PORT or [ADDRESS%INTERFACE]:PORT"));
        let (before, zone) = match text.split_once('%') {
            None => (text.to_owned(), None),
            Some((before, rest)) => {
                let (zone, after) = rest.split_once(']').ok_or_else(refused)?;
                (format!("{before}]{after}"), Some(zone))
            }
        };
        let mut address: SocketAddr = before.parse().map_err(|_| refused())?;
        // An address of IPv4 may be written as one of IPv6; it is used over IPv4.
        address.set_ip(address.ip().to_canonical());
        let interface = match (zone, address) {
            (None, _) => None,
            (Some(zone), SocketAddr::V6(v6)) if is_of_link(*v6.ip()) && !zone.is_empty() => {
                Some(name_of(zone)?)
            }
            _ => return Err(refused()),
        };
        if address.ip().is_multicast() || address.ip().is_unspecified() || address.port() == 0 {
            return Err(Error::refused(format!("{text:?} is not the address of a machine")));
        }
        Ok(Self { address, interface })
    }
}

/// The name of the interface that a zone means.
fn name_of(zone: &str) -> Result<String> {
    let Ok(index) = zone.parse::<u32>() else { return Ok(zone.to_owned()) };
    let found = devices().into_iter().find(|device| device.index == index);
    found
        .map(|device| device.name)
        .ok_or_else(|| Error::refused(format!("there is no interface with the number {index}")))
}

impl fmt::Display for SenderAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.interface, self.address) {
            (Some(name), SocketAddr::V6(v6)) => write!(f, "[{}%{name}]:{}", v6.ip(), v6.port()),
            (_, address) => fmt::Display::fmt(&address, f),
        }
    }
}

impl From<SocketAddr> for SenderAddress {
    /// Names the interface of an address of this machine.
    fn from(address: SocketAddr) -> Self {
        let scope = match address {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let device = devices().into_iter().find(|device| scope != 0 && device.index == scope);
        Self { address: unscoped(address), interface: device.map(|device| device.name) }
    }
}

/// An address as other machines are told of it.
pub fn unscoped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, 0).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_printed_as_it_is_parsed() {
        for text in ["10.0.0.1:7580", "[fd78::1]:7580", "[fe80::1%eth0]:7580", "[fe80::1]:7580"] {
            assert_eq!(text.parse::<SenderAddress>().unwrap().to_string(), text);
        }
        let mapped = "[::ffff:10.0.0.5]:7580".parse::<SenderAddress>().unwrap();
        assert_eq!(mapped.to_string(), "10.0.0.5:7580");
        let ours = SocketAddr::from(SocketAddrV6::new("fe80::1".parse().unwrap(), 5, 0, 1));
        assert_eq!(SenderAddress::from(ours).to_string(), "[fe80::1%lo]:5");
        assert_eq!("[fe80::1%1]:5".parse::<SenderAddress>().unwrap().interface.as_deref(), Some("lo"));
        for text in [
            "fe80::1%eth0",
            "[fe80::1%]:1",
            "[fd78::1%eth0]:1",
            "10.0.0.1%eth0:1",
            "[10.0.0.1%eth0]:1",
            "[fe80::1%eth0]",
            "[ff12::1]:1",
            "239.255.0.1:1",
            "[::]:1",
            "0.0.0.0:1",
            "10.0.0.1:0",
            "[fe80::1%4294967295]:1",
            "[fe80::1%eth0:1",
        ] {
            assert!(text.parse::<SenderAddress>().is_err(), "{text}");
        }
    }
}
