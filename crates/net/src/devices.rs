//! The interfaces of this machine, and the address of each family from which it takes part in casts.
//!
//! The kernel is asked each time: interfaces appear, and addresses change. A link-local IPv6 address means nothing without its
//! interface, so a [`CastPlace`] knows the interface's index, and adds it to every such address that is used here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::SockaddrStorage;
use platter_cast::Family;
use platter_image::{Error, ErrorKind, Result};
use socket2::{Domain, Protocol, Socket, Type};

use crate::options::{DISCOVERY, DISCOVERY_IPV6};
use crate::scope::Zone;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) index: u32,
    /// It is up, connected to a network of several machines, and passes multicast.
    is_suitable: bool,
    is_loopback: bool,
    addresses: Vec<IpAddr>,
}

impl Device {
    /// Whether the interface has an address of this family.
    fn has(&self, family: Family) -> bool {
        self.addresses.iter().any(|address| Family::of(*address) == family)
    }
}

/// Lists the interfaces. None, if the kernel does not say: a service may not be allowed to ask.
pub(crate) fn devices() -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for InterfaceAddress { interface_name, flags, address, .. } in getifaddrs().into_iter().flatten() {
        // An IPv4 address may have a label: the name of its interface, a colon and anything.
        let name = interface_name.split(':').next().unwrap_or_default();
        let known = devices.iter().position(|device| device.name == name);
        let device = match known {
            Some(at) => &mut devices[at],
            None => {
                devices.push(Device::new(name, flags));
                let last = devices.len() - 1;
                &mut devices[last]
            }
        };
        let address = address.as_ref();
        if let Some(link) = address.and_then(SockaddrStorage::as_link_addr) {
            device.index = link.ifindex() as u32;
        } else if let Some(ipv4) = address.and_then(SockaddrStorage::as_sockaddr_in) {
            device.addresses.push(ipv4.ip().into());
        } else if let Some(ipv6) = address.and_then(SockaddrStorage::as_sockaddr_in6) {
            device.addresses.push(ipv6.ip().into());
        }
    }
    devices
}

/// The interface with this name, or with this alternative name, which only the kernel knows.
fn named<'a>(name: &str, devices: &'a [Device]) -> Option<&'a Device> {
    devices.iter().find(|device| device.name == name).or_else(|| {
        let index = if_nametoindex(name).ok()?;
        devices.iter().find(|device| device.index == index)
    })
}

impl Device {
    fn new(name: &str, flags: InterfaceFlags) -> Self {
        let wanted = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING | InterfaceFlags::IFF_MULTICAST;
        let others = InterfaceFlags::IFF_LOOPBACK | InterfaceFlags::IFF_POINTOPOINT;
        Self {
            name: name.to_owned(),
            index: 0,
            is_suitable: flags.contains(wanted) && !flags.intersects(others),
            is_loopback: flags.contains(InterfaceFlags::IFF_LOOPBACK),
            addresses: Vec::new(),
        }
    }
}

/// Where this machine takes part in casts of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CastPlace {
    /// The name and the index of the interface. IPv6 needs it; with IPv4, `None` if the kernel does not say.
    device: Option<(String, u32)>,
    pub(crate) address: IpAddr,
}

impl CastPlace {
    /// The name of the interface.
    pub(crate) fn name(&self) -> Option<&str> {
        self.device.as_ref().map(|(name, _)| &**name)
    }

    /// The index of the interface; 0: any.
    pub(crate) fn index(&self) -> u32 {
        self.device.as_ref().map_or(0, |(_, index)| *index)
    }

    /// Whether its interface still has its address, as far as is known. One that was made anew with the same name is another one: the
    /// memberships of sockets are those of an index.
    pub(crate) fn is_there(&self, devices: &[Device]) -> bool {
        let Some((name, index)) = &self.device else { return true };
        let is_it = |device: &Device| device.name == *name && device.index == *index;
        devices.is_empty()
            || devices.iter().any(|device| is_it(device) && device.addresses.contains(&self.address))
    }

    pub(crate) fn family(&self) -> Family {
        Family::of(self.address)
    }

    /// The same interface with another one of its addresses.
    pub(crate) fn with_address(&self, address: IpAddr) -> Self {
        Self { device: self.device.clone(), address }
    }

    /// The address of this machine with that port.
    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        self.scoped(SocketAddr::new(self.address, port))
    }

    /// An address as this machine uses it: one that is valid only on a link is that of this interface's link.
    pub(crate) fn scoped(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V6(v6) if is_of_link(*v6.ip()) => {
                SocketAddrV6::new(*v6.ip(), v6.port(), 0, self.index()).into()
            }
            address => address,
        }
    }
}

/// Whether an address is valid only on its link, and needs an interface.
pub(crate) fn is_of_link(address: Ipv6Addr) -> bool {
    let is_link_group = address.is_multicast() && address.octets()[1] & 15 <= 2;
    is_link_group || address.is_unicast_link_local()
}

/// The places of this machine, IPv4 first, at most one for each family: at the named interface (name or address), or that to which the
/// route for an IPv4 group points.
///
/// Without either, IPv6 decides: the only suitable interface, or the one of the default route. A machine with an IPv4 address that only
/// lacks a route is refused, as it would miss all casts over IPv4 in silence.
///
/// # Errors
/// `Refused` when there is none, with what to do; `Transient` when the kernel is not sure of the only address yet.
pub(crate) fn places(interface: Option<&str>) -> Result<Vec<CastPlace>> {
    let devices = devices();
    let (ipv4, ipv6) = match interface.map(Zone::split) {
        Some((address, _)) if address.parse::<Ipv4Addr>().is_ok() => {
            return Ok(vec![ipv4(interface, &devices)?]);
        }
        Some((address, _)) if address.parse::<Ipv6Addr>().is_ok() => {
            return Ok(vec![ipv6(interface, &devices, None)?]);
        }
        _ => {
            let ipv4 = ipv4(interface, &devices);
            let lacks_route =
                interface.is_none() && devices.iter().any(|it| it.is_suitable && it.has(Family::Ipv4));
            if lacks_route && let Err(error) = ipv4 {
                return Err(error);
            }
            let same = ipv4.as_ref().ok().and_then(CastPlace::name).map(str::to_owned);
            let ipv6 = match (&ipv4, same) {
                // Another interface than that of IPv4 would be a surprise.
                (Ok(_), None) => Err(Error::refused("the interface of the IPv4 address is not known")),
                (_, same) => ipv6(interface, &devices, same.as_deref()),
            };
            (ipv4, ipv6)
        }
    };
    match (ipv4, ipv6) {
        (Err(ipv4), Err(ipv6)) => Err(neither(interface, &devices, ipv4, &ipv6)),
        (ipv4, ipv6) => Ok([ipv4, ipv6].into_iter().flatten().collect()),
    }
}

/// The error of a machine that has no place of either family.
fn neither(interface: Option<&str>, devices: &[Device], ipv4: Error, ipv6: &Error) -> Error {
    match interface {
        _ if ipv6.kind() == ErrorKind::Transient => Error::transient(format!("{ipv4}; {ipv6}")),
        Some(name) if named(name, devices).is_some() => {
            Error::refused(format!("interface {name} has no IPv4 address, and over IPv6: {ipv6}"))
        }
        Some(_) => ipv4,
        None => Error::refused(format!("{ipv4}; over IPv6: {ipv6}")),
    }
}

/// The place of one family.
///
/// # Errors
/// As [`places`].
pub(crate) fn place_of(family: Family, interface: Option<&str>) -> Result<CastPlace> {
    let devices = devices();
    match family {
        Family::Ipv4 => ipv4(interface, &devices),
        Family::Ipv6 => {
            let same = interface.is_none().then(|| ipv4(None, &devices).ok()).flatten();
            ipv6(interface, &devices, same.as_ref().and_then(CastPlace::name))
        }
    }
}

/// The place over IPv4: at the named interface, or that to which the route for a group points.
fn ipv4(interface: Option<&str>, devices: &[Device]) -> Result<CastPlace> {
    let address = match interface.map(|text| (text, text.parse::<Ipv4Addr>())) {
        Some((_, Ok(address))) => address,
        Some((text, _)) if Zone::split(text).0.parse::<Ipv6Addr>().is_ok() => {
            return Err(Error::refused(format!(
                "{text} is an IPv6 address, and the cast uses IPv4: name the interface"
            )));
        }
        // A probe over the loopback device would get the address of another interface, and send there.
        Some((name, _)) if named(name, devices).is_some_and(|it| it.is_loopback) => Ipv4Addr::LOCALHOST,
        Some((name, _)) => return of_interface(name, source_of_groups(interface)?, devices),
        None => source_of_groups(None)?,
    };
    let device = devices.iter().find(|device| device.addresses.contains(&address.into()));
    Ok(CastPlace { device: device.map(|it| (it.name.clone(), it.index)), address: address.into() })
}

/// The place at the named interface with the address that the kernel has chosen for it. If the interface has none, the kernel chooses one
/// of any other interface.
fn of_interface(name: &str, address: Ipv4Addr, devices: &[Device]) -> Result<CastPlace> {
    let address = IpAddr::from(address);
    let is_owner = |device: &&Device| device.addresses.contains(&address);
    let device = named(name, devices);
    if device.is_some_and(|it| !is_owner(&it)) && devices.iter().any(|it| is_owner(&it)) {
        return Err(Error::refused(format!("interface {name} has no IPv4 address")));
    }
    let owner = device.filter(is_owner);
    Ok(CastPlace { device: owner.map(|it| (it.name.clone(), it.index)), address })
}

/// The address from which the kernel sends to IPv4 groups.
fn source_of_groups(interface: Option<&str>) -> Result<Ipv4Addr> {
    let probe = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))
        .map_err(|error| Error::io("opening a UDP socket", error))?;
    if let Some(name) = interface {
        probe.bind_device(Some(name.as_bytes())).map_err(|error| {
            Error::refused(format!("interface {name} does not exist or cannot be used")).with_source(error)
        })?;
    }
    probe.connect(&SocketAddr::V4(DISCOVERY).into()).map_err(|error| {
        let name = interface.unwrap_or("any interface");
        Error::refused(format!(
            "no route to {DISCOVERY} over {name}: choose an interface with an IPv4 address"
        ))
        .with_source(error)
    })?;
    let address =
        probe.local_addr().map_err(|error| Error::io("reading the address of a probe socket", error))?;
    match address.as_socket_ipv4() {
        Some(address) if !address.ip().is_unspecified() => Ok(*address.ip()),
        _ => Err(Error::refused(format!(
            "interface {} has no IPv4 address",
            interface.unwrap_or("of the default route")
        ))),
    }
}

/// The place over IPv6: at the named interface, or at the `same` one as over IPv4, or at the only one that is possible.
fn ipv6(interface: Option<&str>, devices: &[Device], same: Option<&str>) -> Result<CastPlace> {
    let split = interface.map(|text| (text, Zone::split(text)));
    if let Some((text, (address, zone))) = split
        && let Ok(address) = address.parse::<IpAddr>()
    {
        if address.is_ipv4() {
            return Err(Error::refused(format!(
                "{text} is an IPv4 address, and the cast uses IPv6: name the interface"
            )));
        }
        let place = at_address(text, address, zone, devices)?;
        return if is_usable(&place) {
            Ok(place)
        } else {
            Err(Error::transient(format!(
                "the address {text} cannot be used, or not yet (the kernel looks for duplicates of new ones)"
            )))
        };
    }
    let device = match interface.or(same) {
        Some(name) => named(name, devices)
            .ok_or_else(|| Error::refused(format!("interface {name} does not exist or cannot be used")))?,
        None => only(devices)?,
    };
    let mut addresses: Vec<IpAddr> = device.addresses.iter().filter(|it| it.is_ipv6()).copied().collect();
    // Every machine of a link has a link-local address and reaches those of the others; it is no secret, and does not change.
    addresses.sort_by_key(|address| !matches!(address, IpAddr::V6(ip) if is_of_link(*ip)));
    let mut places = addresses
        .iter()
        .map(|address| CastPlace { device: Some((device.name.clone(), device.index)), address: *address });
    match places.find(is_usable) {
        Some(place) => Ok(place),
        None if addresses.is_empty() => {
            Err(Error::refused(format!("interface {} has no IPv6 address", device.name)))
        }
        None => Err(Error::transient(format!(
            "the IPv6 addresses of interface {} cannot be used, or not yet (the kernel looks for duplicates of new ones)",
            device.name
        ))),
    }
}

/// The place with an IPv6 address that the caller has named, possibly with its interface. It may not be usable yet.
fn at_address(text: &str, address: IpAddr, zone: Option<Zone<'_>>, devices: &[Device]) -> Result<CastPlace> {
    let owns = |device: &&Device| {
        device.addresses.contains(&address) && zone.is_none_or(|zone| zone.is_of(&device.name, device.index))
    };
    let mut owners = devices.iter().filter(owns);
    match (owners.next(), owners.next()) {
        (Some(device), None) => Ok(CastPlace { device: Some((device.name.clone(), device.index)), address }),
        (Some(_), Some(_)) => Err(Error::refused(format!(
            "several interfaces have the address {text}: write it as {address}%INTERFACE"
        ))),
        _ => Err(Error::refused(format!("no interface has the address {text}"))),
    }
}

/// The interface for IPv6 if nobody names one: the only suitable one, or that of the default route.
fn only(devices: &[Device]) -> Result<&Device> {
    let suitable = || devices.iter().filter(|device| device.is_suitable && device.has(Family::Ipv6));
    let mut some = suitable();
    match (some.next(), some.next()) {
        (None, _) => Err(Error::refused("no interface has an IPv6 address: choose one with --interface")),
        (Some(only), None) => Ok(only),
        _ => {
            let source = source_of_default_route();
            let of_route = suitable().find(|it| source.is_some_and(|source| it.addresses.contains(&source)));
            of_route.ok_or_else(|| {
                let names: Vec<&str> = suitable().map(|device| &*device.name).collect();
                Error::refused(format!(
                    "several interfaces have IPv6 ({}): choose one with --interface",
                    names.join(", ")
                ))
            })
        }
    }
}

/// The address from which the kernel sends over the default route of IPv6. Nothing is sent.
fn source_of_default_route() -> Option<IpAddr> {
    // A global address that belongs to nobody near (the first of those that are assigned).
    address_towards(SocketAddrV6::new(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 1), 9, 0, 0).into())
}

/// The address of this machine from which it reaches another one.
fn address_towards(other: SocketAddr) -> Option<IpAddr> {
    let probe = Socket::new(Domain::for_address(other), Type::DGRAM, Some(Protocol::UDP)).ok()?;
    probe.connect(&other.into()).ok()?;
    probe.local_addr().ok()?.as_socket().map(|address| address.ip())
}

/// Whether the kernel lets the address be used: not while it looks for a duplicate of it, nor after it has found one.
fn is_usable(place: &CastPlace) -> bool {
    let socket = Socket::new(Domain::for_address(place.at(0)), Type::DGRAM, Some(Protocol::UDP));
    socket.is_ok_and(|socket| socket.bind(&place.at(0).into()).is_ok())
}

/// Checks that groups can be reached over an interface.
///
/// # Errors
/// `Refused` when it does not exist or has no address.
pub fn check_interface(interface: &str) -> Result<()> {
    match places(Some(interface)) {
        Err(error) if error.kind() != ErrorKind::Transient => Err(error),
        _ => Ok(()),
    }
}

/// The families in which this machine can take part in casts, the preferred one first.
pub fn families(interface: Option<&str>) -> Vec<Family> {
    places(interface).map_or_else(|_| Vec::new(), |places| places.iter().map(CastPlace::family).collect())
}

/// The families in which this machine can cast: a sender waits for an address that the kernel still checks, which is one of IPv6.
pub fn families_to_cast(interface: &str) -> Vec<Family> {
    match places(Some(interface)) {
        Ok(places) => places.iter().map(CastPlace::family).collect(),
        Err(error) if error.kind() == ErrorKind::Transient => vec![Family::Ipv6],
        Err(_) => Vec::new(),
    }
}

/// Whether an interface exists.
pub fn exists(interface: &str) -> bool {
    let (address, _) = Zone::split(interface);
    address.parse::<IpAddr>().is_ok() || named(address, &devices()).is_some()
}

/// The interface over which this machine reaches another one, at the first of its addresses, those of IPv4 before those of IPv6, to which a
/// suitable one leads. `None` if there is none: over a loopback device or a tunnel between two machines, no cast comes.
pub(crate) fn interface_towards(others: &[SocketAddr]) -> Option<String> {
    let devices = devices();
    let mut others = others.to_vec();
    others.sort_by_key(SocketAddr::is_ipv6);
    others.into_iter().find_map(|other| {
        let address = address_towards(other)?;
        Some(owner(address, &devices)?.name.clone())
    })
}

/// The suitable interface with this address.
fn owner(address: IpAddr, devices: &[Device]) -> Option<&Device> {
    devices.iter().find(|device| device.is_suitable && device.addresses.contains(&address))
}

/// The default address for announcements of that family, with this port.
pub(crate) fn discovery(family: Family, port: u16) -> SocketAddr {
    match family {
        Family::Ipv4 => SocketAddrV4::new(*DISCOVERY.ip(), port).into(),
        Family::Ipv6 => SocketAddrV6::new(*DISCOVERY_IPV6.ip(), port, 0, 0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, index: u32, addresses: &[&str]) -> Device {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Device { name: name.into(), index, is_suitable: true, is_loopback: false, addresses }
    }

    #[test]
    fn the_loopback_device_has_its_own_address() {
        let ipv4 = |interface| place_of(Family::Ipv4, Some(interface));
        assert_eq!(ipv4("lo").unwrap().address, Ipv4Addr::LOCALHOST);
        assert_eq!(ipv4("127.0.0.1").unwrap().name(), Some("lo"));
        assert_eq!(ipv4("10.1.2.3").unwrap().address, Ipv4Addr::new(10, 1, 2, 3));
        assert!(ipv4("none-such").is_err());
    }

    #[test]
    fn an_interface_does_not_get_the_ipv4_address_of_another_one() {
        let devices = [device("eth0", 2, &["fe80::1"]), device("docker0", 3, &["172.17.0.1"])];
        let docker = Ipv4Addr::new(172, 17, 0, 1);
        let error = of_interface("eth0", docker, &devices).unwrap_err();
        assert!(error.to_string().contains("eth0 has no IPv4 address"), "{error}");
        assert_eq!(of_interface("docker0", docker, &devices).unwrap().name(), Some("docker0"));
        // Two interfaces may have the same address.
        let devices = [device("eth0", 2, &["172.17.0.1"]), device("docker0", 3, &["172.17.0.1"])];
        assert_eq!(of_interface("docker0", docker, &devices).unwrap().index(), 3);
        // The kernel may not say whose address it is.
        assert_eq!(of_interface("eth0", docker, &[]).unwrap().name(), None);
    }

    #[test]
    fn an_interface_that_is_named_by_an_address_has_one_family() {
        let devices = [device("eth0", 2, &["10.0.0.1", "fe80::1", "fd78::1"])];
        let at = |text, devices| {
            let (address, zone) = Zone::split(text);
            at_address(text, address.parse().unwrap(), zone, devices)
        };
        for text in ["fe80::1", "fd78::1", "fe80::1%eth0", "fe80::1%2"] {
            let place = at(text, &devices).unwrap();
            // The machine that runs this test cannot use it.
            assert_eq!(ipv6(Some(text), &devices, None).unwrap_err().kind(), ErrorKind::Transient);
            assert_eq!((place.name(), place.index()), (Some("eth0"), 2), "{text}");
            assert!(ipv4(Some(text), &devices).unwrap_err().to_string().contains("name the interface"));
        }
        assert!(
            ipv6(Some("10.0.0.1"), &devices, None).unwrap_err().to_string().contains("name the interface")
        );
        for text in ["fe80::2", "fe80::1%eth1", "fe80::1%3", "none-such"] {
            assert_eq!(ipv6(Some(text), &devices, None).unwrap_err().kind(), ErrorKind::Refused, "{text}");
        }
        let twice = [device("eth0", 2, &["fe80::1"]), device("eth1", 3, &["fe80::1"])];
        let error = at("fe80::1", &twice).unwrap_err().to_string();
        assert!(error.contains("fe80::1%INTERFACE"), "{error}");
        assert_eq!(at("fe80::1%eth1", &twice).unwrap().index(), 3);
    }

    #[test]
    fn one_of_several_interfaces_has_to_be_named() {
        let mut devices = vec![device("eth0", 2, &["fe80::1"]), device("eth1", 3, &["fe80::2"])];
        let error = only(&devices).unwrap_err().to_string();
        assert!(error.contains("eth0, eth1") && error.contains("--interface"), "{error}");
        devices[0].is_suitable = false;
        assert_eq!(only(&devices).unwrap().name, "eth1");
        devices[1].addresses = vec![Ipv4Addr::LOCALHOST.into()];
        assert!(only(&devices).is_err());
    }

    #[test]
    fn a_place_is_gone_with_its_address_or_its_interface() {
        let place = CastPlace { device: Some(("usb0".into(), 7)), address: "10.0.0.1".parse().unwrap() };
        let other = device("eth0", 2, &["10.0.0.1"]);
        assert!(place.is_there(&[other.clone(), device("usb0", 7, &["fe80::1", "10.0.0.1"])]));
        assert!(!place.is_there(&[other.clone(), device("usb0", 7, &["fe80::1", "10.0.0.2"])]));
        assert!(!place.is_there(&[other.clone(), device("usb0", 9, &["10.0.0.1"])]), "made anew");
        assert!(!place.is_there(&[other.clone(), device("usb1", 7, &["10.0.0.1"])]));
        assert!(!place.is_there(std::slice::from_ref(&other)));
        // The kernel may not say which interfaces there are.
        assert!(place.is_there(&[]));
        assert!(CastPlace { device: None, ..place }.is_there(&[other]));
    }

    #[test]
    fn a_tunnel_leads_to_nobody_who_casts() {
        let mut devices = vec![device("wg0", 2, &["10.9.0.1"]), device("eth0", 3, &["10.0.0.1"])];
        let name = |devices: &[Device], text: &str| Some(owner(text.parse().unwrap(), devices)?.name.clone());
        assert_eq!(name(&devices, "10.9.0.1").as_deref(), Some("wg0"));
        devices[0].is_suitable = Device::new("wg0", InterfaceFlags::all()).is_suitable;
        assert_eq!(name(&devices, "10.9.0.1"), None);
        assert_eq!(name(&devices, "10.0.0.1").as_deref(), Some("eth0"));
        assert_eq!(interface_towards(&["127.0.0.1:7580".parse().unwrap()]), None);
    }

    #[test]
    fn only_addresses_of_a_link_get_a_scope() {
        let place = CastPlace { device: Some(("eth0".into(), 7)), address: "fe80::1".parse().unwrap() };
        let scoped = |text: &str| place.scoped(text.parse().unwrap()).to_string();
        assert_eq!(scoped("[fe80::2]:1"), "[fe80::2%7]:1");
        assert_eq!(scoped("[fe80::2%3]:1"), "[fe80::2%7]:1", "another machine's scope means nothing here");
        assert_eq!(scoped("[ff12::1]:1"), "[ff12::1%7]:1");
        assert_eq!(scoped("[ff15::1]:1"), "[ff15::1]:1");
        assert_eq!(scoped("[fd78::1]:1"), "[fd78::1]:1");
        assert_eq!(scoped("10.0.0.1:1"), "10.0.0.1:1");
        assert_eq!(place.at(5).to_string(), "[fe80::1%7]:5");
    }
}
