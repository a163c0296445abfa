//! The series of datagrams of a probe, and the count of what arrives.
//!
//! Owns the limit of a series, which bounds the memory of a count.

use crate::family::Family;
use crate::wire::format::DATAGRAM_BYTES_MAX;

/// Number of series.
pub(super) const SERIES: usize = 8;
/// Most datagrams of a series.
pub(super) const NUMBERS_MAX: u32 = 1 << 20;
/// Lengths of IPv4 packets that are tried, ascending; IPv6 packets with the same payload are 20 longer. The last one is that of a cast.
pub(super) const PACKET_BYTES: [u16; 5] = [576, 1000, 1280, 1400, 1476];

/// The length of a cast's packet.
pub(super) fn cast_packet_bytes(family: Family) -> u16 {
    (DATAGRAM_BYTES_MAX + family.header_bytes()) as u16
}

/// What a series of datagrams tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProbeSeries {
    /// Announcements, to the discovery address.
    Announcement = 0,
    /// To a group that switches pass to every port (RFC 4541): 224.0.0.254, for experiments (RFC 4727), or all nodes of the link, ff02::1.
    LinkLocal = 1,
    /// To the receiver's address, with the usual time to live.
    Unicast = 2,
    /// The same with a time to live of 1, as a cast has: it passes no router.
    Neighbour = 3,
    /// Packets of several lengths, to the group, which may not be fragmented.
    Lengths = 4,
    /// Datagrams of a cast, to the group, at a tenth of the rate.
    Slow = 5,
    /// The same at the rate.
    Full = 6,
    /// From a receiver to the sender.
    Feedback = 7,
}

impl ProbeSeries {
    pub(super) fn from_u8(value: u8) -> Option<Self> {
        use ProbeSeries::{Announcement, Feedback, Full, Lengths, LinkLocal, Neighbour, Slow, Unicast};
        [Announcement, LinkLocal, Unicast, Neighbour, Lengths, Slow, Full, Feedback]
            .into_iter()
            .find(|series| *series as u8 == value)
    }
}

/// Which datagrams of a series arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Different ones.
    pub received: u32,
    /// Copies of them.
    pub repeated: u32,
    /// Those that arrived after one with a higher number.
    pub overtaken: u32,
}

/// What a receiver counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    pub(super) arrivals: [Arrivals; SERIES],
    /// The longest packet of the group that arrived; 0 if none did.
    pub packet_bytes_max: u16,
    /// Whether a multicast querier was heard. `None`: the receiver may not listen for one.
    pub has_querier: Option<bool>,
}

impl ProbeCounts {
    /// What arrived of a series.
    pub fn of(&self, series: ProbeSeries) -> Arrivals {
        self.arrivals[series as usize]
    }
}

/// What the sender did for one receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeSent {
    pub(super) numbers: [u32; SERIES],
    /// The rate of the last series on the wire, in bits per second.
    pub bits_per_second: u64,
    /// Datagrams of the receiver that arrived at the sender.
    pub feedback_received: u32,
    /// The family of the group. It is not sent: both sides know the group.
    pub family: Family,
}

impl ProbeSent {
    /// How many datagrams of a series were sent.
    pub fn of(&self, series: ProbeSeries) -> u32 {
        self.numbers[series as usize]
    }

    /// The share of a series that did not arrive: 0 to 1.
    pub fn loss(&self, counts: &ProbeCounts, series: ProbeSeries) -> f64 {
        let sent = self.of(series);
        f64::from(sent.saturating_sub(counts.of(series).received)) / f64::from(sent.max(1))
    }
}

/// Counts a series.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) arrivals: Arrivals,
    /// A bit for each number that arrived.
    seen: Vec<u64>,
    /// One more than the highest number that arrived.
    end: u32,
}

impl Tally {
    pub(super) fn add(&mut self, number: u32) {
        if number >= NUMBERS_MAX {
            return;
        }
        let (word, bit) = (number as usize / 64, 1u64 << (number % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.arrivals.repeated = self.arrivals.repeated.saturating_add(1);
            return;
        }
        self.seen[word] |= bit;
        self.arrivals.received += 1;
        self.arrivals.overtaken += u32::from(number < self.end);
        self.end = self.end.max(number + 1);
    }
}
