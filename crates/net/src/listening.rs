//! Where a receiver listens for announcements: at one interface, in each family that this machine has there, IPv4 first.
//!
//! A machine that has just started may have no address yet, or one of a family only: what is missing is looked for again while the
//! receiver waits for a sender. If nobody has named the interface, it changes when the sender becomes known. Owns the sockets that do not
//! depend on the sender.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use platter_cast::Family;
use platter_image::{Error, ErrorKind, Result};

use crate::batch::BatchSocket;
use crate::devices::{CastPlace, devices, discovery, interface_towards, places};
use crate::multicast_socket::{feedback_socket, group_socket};
use crate::options::ReceiveOptions;
use crate::wake::Interest;

/// Time between two looks for an address.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Time after which the group of announcements is joined anew while nobody is joined: a switch that no router asks for members forgets them
/// after 260 s (IGMP and MLD), and receivers may be started long before the sender.
const RENEW_INTERVAL: Duration = Duration::from_secs(60);
/// How long a receiver that would wait for ever for a sender waits for an address, and each one for an address of a known sender's
/// family: a server of addresses may be slow.
const ADDRESS_TIME: Duration = Duration::from_secs(30);

/// The sockets of one family.
pub(crate) struct FamilySockets {
    pub(crate) place: CastPlace,
    /// Receives announcements.
    pub(crate) discovery: BatchSocket,
    /// Sends requests and reports.
    pub(crate) feedback: UdpSocket,
}

impl FamilySockets {
    fn open(place: CastPlace, port: u16) -> Result<Self> {
        let discovery = group_socket(&place, discovery(place.family(), port))?;
        let feedback = feedback_socket(&place)?;
        Ok(Self { discovery: BatchSocket::new(discovery)?, feedback, place })
    }
}

/// Whether a new address or interface may mend this: there is none, or it has just gone.
fn lacks_address(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    match error.kind() {
        ErrorKind::Refused | ErrorKind::Transient => true,
        _ => source
            .and_then(std::io::Error::raw_os_error)
            .is_some_and(|code| [Errno::EADDRNOTAVAIL, Errno::ENODEV].contains(&Errno::from_raw(code))),
    }
}

/// The interface on which a receiver listens now, the first of these that there is:
/// 1. the one that is named;
/// 2. the one over which it reaches the sender, if that is known and its address is not one of a link;
/// 3. the one over which it reaches the origin that names the sender.
///
/// `None`: the routes decide.
pub fn interface_of(options: &ReceiveOptions) -> Option<String> {
    let named = options.interface.clone();
    named
        .or_else(|| interface_towards(options.known_sender().as_slice()))
        .or_else(|| interface_towards(&options.origin))
}

/// The sockets of a receiver, as far as they do not depend on the sender.
pub(crate) struct Listening<'a> {
    options: &'a ReceiveOptions,
    /// The interface, unless the routes decide; and the sender that was known when it was determined.
    interface: Option<String>,
    sender: Option<SocketAddr>,
    families: Vec<FamilySockets>,
    look_at: Duration,
    /// When everything is opened anew.
    renew_at: Duration,
    /// The families in which something was open before: their addresses may come back, however long that takes.
    were_open: Vec<Family>,
    /// How long any address is waited for, and one of a known sender's family.
    longest: Duration,
    longest_family: Duration,
    /// Since when the family of a known sender is missing.
    lacking_since: Option<Duration>,
    /// Why a family is missing.
    reason: Option<Error>,
}

impl<'a> Listening<'a> {
    /// Opens what is possible now.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub(crate) fn new(options: &'a ReceiveOptions) -> Result<Self> {
        let mut listening = Self {
            options,
            interface: None,
            sender: None,
            families: Vec::new(),
            look_at: Duration::ZERO,
            renew_at: RENEW_INTERVAL,
            were_open: Vec::new(),
            longest: options.give_up.unwrap_or(ADDRESS_TIME),
            longest_family: options.give_up.map_or(ADDRESS_TIME, |give_up| give_up.min(ADDRESS_TIME)),
            lacking_since: None,
            reason: None,
        };
        listening.look(Duration::ZERO)?;
        Ok(listening)
    }

    /// Opens what was missing, and closes what stands at an address that has gone or at another interface, if that was not looked for a
    /// moment ago and the sender is the same. Returns the places where nothing was open before.
    ///
    /// # Errors
    /// What no new address mends, such as a port that another program uses: of IPv4, and of IPv6 if nothing else is heard.
    pub(crate) fn look(&mut self, now: Duration) -> Result<Vec<CastPlace>> {
        let sender = self.options.known_sender();
        if now < self.look_at && sender == self.sender {
            return Ok(Vec::new());
        }
        (self.look_at, self.sender, self.reason) = (now + LOOK_INTERVAL, sender, None);
        // While no route leads there, the last one stays.
        self.interface = interface_of(self.options).or_else(|| self.interface.take());
        let places = match places(self.interface.as_deref()) {
            Ok(places) => places,
            Err(error) => {
                self.forgive(error)?;
                Vec::new()
            }
        };
        let before: Vec<CastPlace> = self.families.iter().map(|sockets| sockets.place.clone()).collect();
        let devices = devices();
        let is_here = |place: &CastPlace| {
            self.options.interface.is_some()
                || self.interface.is_none()
                || place.name() == self.interface.as_deref()
        };
        self.families.retain(|sockets| sockets.place.is_there(&devices) && is_here(&sockets.place));
        if now >= self.renew_at && !places.is_empty() {
            self.renew_at = now + RENEW_INTERVAL;
            // Closed first: the kernel tells the network only of its first member of a group, and of the end of its last one. What has no
            // place now stays.
            self.families
                .retain(|sockets| places.iter().all(|place| place.family() != sockets.place.family()));
        }
        places.into_iter().try_for_each(|place| self.open(place))?;
        let open = self.families.iter().map(|sockets| &sockets.place);
        let new_families = open.clone().map(CastPlace::family).filter(|it| !self.were_open.contains(it));
        self.were_open.extend(new_families.collect::<Vec<_>>());
        Ok(open.filter(|place| !before.contains(place)).cloned().collect())
    }

    /// Whether the address has gone from which a joined sender is asked, if that was not looked for a moment ago.
    pub(crate) fn has_lost(&mut self, now: Duration, sender: SocketAddr) -> bool {
        if now < self.look_at {
            return false;
        }
        self.look_at = now + LOOK_INTERVAL;
        self.of(sender).is_some_and(|sockets| !sockets.place.is_there(&devices()))
    }

    /// Takes note of what a new address or interface may mend; of everything, if something was open before.
    fn forgive(&mut self, error: Error) -> Result<()> {
        if self.were_open.is_empty() && !lacks_address(&error) {
            return Err(error);
        }
        self.reason = Some(error);
        Ok(())
    }

    /// Opens everything anew at the next look: switches learn from a join which machines want a group, and may forget it.
    pub(crate) fn renew(&mut self) {
        (self.renew_at, self.look_at) = (Duration::ZERO, Duration::ZERO);
    }

    /// Opens the sockets of a place, unless its family has some. IPv4 comes first.
    fn open(&mut self, place: CastPlace) -> Result<()> {
        if self.families.iter().any(|sockets| sockets.place.family() == place.family()) {
            return Ok(());
        }
        let family = place.family();
        match FamilySockets::open(place, self.options.port) {
            Ok(sockets) => self.families.push(sockets),
            // Casts over IPv4 are heard.
            Err(error) if family == Family::Ipv6 && !self.families.is_empty() => self.reason = Some(error),
            Err(error) => self.forgive(error)?,
        }
        Ok(())
    }

    /// Why this machine hears nothing at all; `None` if it does hear.
    pub(crate) fn deafness(&self) -> Option<String> {
        self.families.is_empty().then(|| self.reason.as_ref().map_or_else(String::new, Error::with_causes))
    }

    /// Ends the search for an address, if it took too long: for any, or for one of the family of a known sender. Not of one that this machine
    /// had before.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn check(&mut self, now: Duration, sender: Option<SocketAddr>) -> Result<()> {
        if self.families.is_empty() && self.were_open.is_empty() && now >= self.longest {
            return Err(self.lacks_all());
        }
        let had = |sender: &SocketAddr| self.were_open.contains(&Family::of(sender.ip()));
        let missing = sender.filter(|sender| !self.families.is_empty() && !had(sender));
        let Some(sender) = missing else {
            self.lacking_since = None;
            return Ok(());
        };
        // The sender may have become known a moment ago, and the address may have come after the last look.
        let since = *self.lacking_since.get_or_insert(now);
        if now < since + self.longest_family { Ok(()) } else { Err(self.lacks(sender)) }
    }

    /// The error of a machine that hears nothing at all.
    pub(crate) fn lacks_all(&mut self) -> Error {
        self.reason.take().unwrap_or_else(|| Error::refused("no interface has an address"))
    }

    /// The error of a machine without an address of the family of this one.
    pub(crate) fn lacks(&self, other: SocketAddr) -> Error {
        let interface =
            self.interface.as_deref().map_or_else(String::new, |name| format!(" on interface {name}"));
        let family = Family::of(other.ip());
        Error::refused(format!(
            "the cast uses {family} ({other}), and this machine has no {family} address{interface}"
        ))
    }

    /// The sockets of this address's family.
    pub(crate) fn of(&self, address: SocketAddr) -> Option<&FamilySockets> {
        self.families.iter().find(|sockets| sockets.place.family() == Family::of(address.ip()))
    }

    /// An address of another machine as this one uses it. `None` if it has no address of that family.
    pub(crate) fn scoped(&self, address: SocketAddr) -> Option<SocketAddr> {
        Some(self.of(address)?.place.scoped(address))
    }

    /// Passes the waiting announcements to `handle`.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn receive(&mut self, mut handle: impl FnMut(&[u8])) -> Result<()> {
        for sockets in &mut self.families {
            sockets.discovery.receive(&mut handle)?;
        }
        Ok(())
    }

    /// Sends a request or a report. What cannot be sent counts as lost.
    pub(crate) fn send(&self, to: SocketAddr, datagram: &[u8]) {
        if let Some(sockets) = self.of(to) {
            let _ = sockets.feedback.send_to(datagram, sockets.place.scoped(to));
        }
    }

    /// The sockets of each family that is there.
    pub(crate) fn families(&self) -> &[FamilySockets] {
        &self.families
    }

    /// Closes all sockets but those of this address's family, and returns these.
    pub(crate) fn into_sockets(self, address: SocketAddr) -> Option<FamilySockets> {
        self.families.into_iter().find(|sockets| sockets.place.family() == Family::of(address.ip()))
    }

    /// What to wait for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        self.families.iter().map(|sockets| Interest {
            descriptor: sockets.discovery.socket.as_fd(),
            to_read: true,
            to_write: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the loopback device, at a port that only this test uses.
    fn options() -> ReceiveOptions {
        let port = 61_080 + (std::process::id() % 1_000) as u16;
        ReceiveOptions { interface: Some("127.0.0.1".into()), port, ..ReceiveOptions::default() }
    }

    #[test]
    fn everything_is_opened_anew_each_minute_and_on_request() {
        let options = options();
        let mut listening = Listening::new(&options).unwrap();
        // Whoever gets a socket of the same number and port would look like the old one.
        let mut last = 0;
        let mut is_new = |listening: &Listening| {
            let port = listening.families()[0].feedback.local_addr().unwrap().port();
            std::mem::replace(&mut last, port) != port
        };
        assert!(is_new(&listening));
        for (second, renewed) in [(1, false), (59, false), (60, true), (61, false), (119, false), (120, true)]
        {
            assert!(listening.look(Duration::from_secs(second)).unwrap().is_empty(), "the place is not new");
            assert_eq!(is_new(&listening), renewed, "{second} s");
        }
        listening.renew();
        listening.look(Duration::from_secs(121)).unwrap();
        assert!(is_new(&listening));
        listening.look(Duration::from_secs(180)).unwrap();
        assert!(!is_new(&listening), "a minute has not passed");
    }

    #[test]
    fn an_address_that_was_there_is_waited_for() {
        let options = options();
        let mut listening = Listening::new(&options).unwrap();
        let [ipv4, ipv6] =
            ["10.0.0.1:7580", "[fd78::1]:7580"].map(|text| text.parse::<SocketAddr>().unwrap());
        let check = |listening: &mut Listening, seconds, sender| {
            let at = Duration::from_secs(seconds);
            listening.check(at, Some(sender)).map_err(|error| error.to_string())
        };
        // This family was never there.
        assert_eq!(check(&mut listening, 100, ipv6), Ok(()));
        assert_eq!(check(&mut listening, 129, ipv6), Ok(()));
        assert!(
            check(&mut listening, 130, ipv6).unwrap_err().contains("no IPv6 address on interface 127.0.0.1")
        );
        // Of a machine that had it, and keeps only the other one.
        listening.were_open.push(Family::Ipv6);
        assert_eq!(check(&mut listening, 900, ipv6), Ok(()));
        // Of one that keeps none.
        listening.families.clear();
        assert_eq!(check(&mut listening, 900, ipv4), Ok(()));
        listening.look(Duration::from_secs(900)).unwrap();
        assert_eq!(listening.were_open, [Family::Ipv4, Family::Ipv6], "each is listed once");
    }
}
