//! What counts mean, in plain words, and what to do about it.
//!
//! Owns the thresholds.

use super::series::{ProbeCounts, ProbeSent, ProbeSeries, cast_packet_bytes};
use crate::family::Family;

/// Loss, reordering or duplication up to this share is normal.
const SHARE_TOLERATED: f64 = 0.01;
/// With more loss than this at a tenth of the rate, a cast takes too long to be of use.
const SHARE_REPAIRED: f64 = 0.5;

/// Something that an operator should know about the network between sender and receiver.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeFinding {
    /// The receiver joined, and then said nothing.
    Silent,
    /// Unicast arrives, but not with the time to live of a cast.
    Router,
    /// No UDP datagram arrives, while TCP works.
    NoUdp,
    /// Unicast arrives, and no multicast does.
    NoMulticast,
    /// Link-local multicast arrives, and other groups do not.
    GroupFiltered,
    /// The sender gets no datagrams of the receiver.
    NoFeedback,
    /// Only shorter packets than those of a cast arrive, up to this length in bytes.
    ShortPackets(u16),
    /// This share is lost even at a tenth of the rate.
    Lossy(f64),
    /// At the rate that was sent, only this many bits per second arrive.
    Overrun(u64),
    /// This share is overtaken.
    Reordered(f64),
    /// This share arrives more than once.
    Repeated(f64),
    /// Announcements do not arrive, while other groups do.
    NotAnnounced,
    /// Nothing keeps the memberships of switches alive.
    NoQuerier,
}

impl ProbeFinding {
    /// Returns what the counts of a receiver say. Nothing: a cast works.
    pub fn of(sent: &ProbeSent, counts: Option<&ProbeCounts>) -> Vec<Self> {
        let Some(counts) = counts else { return vec![Self::Silent] };
        let heard = |series| counts.of(series).received > 0;
        let is_cast_heard = heard(ProbeSeries::Slow) || heard(ProbeSeries::Full);
        let mut findings = Vec::new();
        if sent.feedback_received == 0 {
            findings.push(Self::NoFeedback);
        }
        if !is_cast_heard && !heard(ProbeSeries::Lengths) {
            findings.push(match () {
                () if !heard(ProbeSeries::Unicast) && !heard(ProbeSeries::LinkLocal) => Self::NoUdp,
                () if heard(ProbeSeries::Unicast) && !heard(ProbeSeries::Neighbour) => Self::Router,
                () if heard(ProbeSeries::LinkLocal) => Self::GroupFiltered,
                () => Self::NoMulticast,
            });
            return findings;
        }
        if counts.packet_bytes_max < cast_packet_bytes(sent.family) {
            findings.push(Self::ShortPackets(counts.packet_bytes_max));
            return findings;
        }
        let [slow, full] = [ProbeSeries::Slow, ProbeSeries::Full].map(|series| sent.loss(counts, series));
        if slow > SHARE_TOLERATED {
            findings.push(Self::Lossy(slow));
        } else if full > SHARE_TOLERATED {
            findings.push(Self::Overrun((sent.bits_per_second as f64 * (1.0 - full)) as u64));
        }
        let all = counts.of(ProbeSeries::Full);
        let share = |part: u32| f64::from(part) / f64::from(all.received.max(1));
        if share(all.overtaken) > SHARE_TOLERATED {
            findings.push(Self::Reordered(share(all.overtaken)));
        }
        if share(all.repeated) > SHARE_TOLERATED {
            findings.push(Self::Repeated(share(all.repeated)));
        }
        if !heard(ProbeSeries::Announcement) {
            findings.push(Self::NotAnnounced);
        }
        if counts.has_querier == Some(false) {
            findings.push(Self::NoQuerier);
        }
        findings
    }

    /// Whether a cast cannot reach the receiver.
    pub fn prevents_casts(&self) -> bool {
        use ProbeFinding::{
            GroupFiltered, Lossy, NoFeedback, NoMulticast, NoUdp, Router, ShortPackets, Silent,
        };
        match self {
            Silent | Router | NoUdp | NoMulticast | GroupFiltered | NoFeedback | ShortPackets(_) => true,
            Lossy(share) => *share > SHARE_REPAIRED,
            _ => false,
        }
    }

    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Router => "router",
            Self::NoUdp => "no_udp",
            Self::NoMulticast => "no_multicast",
            Self::GroupFiltered => "group_filtered",
            Self::NoFeedback => "no_feedback",
            Self::ShortPackets(_) => "short_packets",
            Self::Lossy(_) => "lossy",
            Self::Overrun(_) => "overrun",
            Self::Reordered(_) => "reordered",
            Self::Repeated(_) => "repeated",
            Self::NotAnnounced => "not_announced",
            Self::NoQuerier => "no_querier",
        }
    }
}

/// What the texts name, in one family.
struct Words {
    groups: &'static str,
    all_groups: &'static str,
    discovery: &'static str,
    protocol: &'static str,
    limit: &'static str,
}

fn words(family: Family) -> Words {
    match family {
        Family::Ipv4 => Words {
            groups: "239.255.0.0/16",
            all_groups: "224.0.0.0/4",
            discovery: "239.255.80.76",
            protocol: "IGMP",
            limit: "time to live",
        },
        Family::Ipv6 => Words {
            groups: "ff12::efff:0/112",
            all_groups: "ff00::/8",
            discovery: "ff12::efff:504c",
            protocol: "MLD",
            limit: "hop limit",
        },
    }
}

impl ProbeFinding {
    /// Returns what it means, and what to do about it, in a network of that family.
    pub fn advice(&self, family: Family) -> String {
        let Words { groups, all_groups, discovery, protocol, limit } = words(family);
        match self {
            Self::Silent => {
                "the connection ended before the counts arrived. Look at the output of `platter receive --probe` on that machine".into()
            }
            Self::Router => format!(
                "a router lies between: unicast arrives, but nothing with a {limit} of 1, which all casts have. Cast from a machine in \
                 the receivers' own network",
            ),
            Self::NoUdp => format!(
                "no UDP datagram arrives, while TCP does: a firewall drops UDP. Allow UDP to this machine, to port 7580 (or --port) of \
                 {all_groups}",
            ),
            Self::NoMulticast => format!(
                "unicast arrives, but no multicast at all: a firewall of this machine drops it, or the network blocks it (wireless access \
                 points and virtual switches often do). Allow UDP to {groups} here, and multicast on the switch or access point",
            ),
            Self::GroupFiltered => format!(
                "the switch passes link-local multicast, but not the group of the cast: that is {protocol} snooping which has not learned who \
                 receives. Turn on an {protocol} querier in this VLAN, or turn off {protocol} snooping in it. Otherwise a firewall drops {groups}",
            ),
            Self::NoFeedback => {
                "the sender gets no UDP datagrams of this machine: a cast would count it as silent. Allow TCP and UDP from the receivers on the \
                 sender, to the port of its address that it names: 7580 or --port, or if another process casts at that, one of the next 99".into()
            }
            Self::ShortPackets(bytes) => format!(
                "packets of more than {bytes} bytes do not arrive, and a cast has {}. Set an MTU of 1500 on the sender's \
                 interface, on every switch, VLAN and tunnel on the way, and on the receiver",
                cast_packet_bytes(family),
            ),
            Self::Lossy(share) if *share > SHARE_REPAIRED => format!(
                "{:.1} % of the datagrams are lost even at a tenth of the rate, too many for a cast. Look for storm control or a limit for \
                 multicast on the switches, and for wireless links",
                share * 100.0
            ),
            Self::Lossy(share) => format!(
                "{:.1} % of the datagrams are lost even at a tenth of the rate. A cast repairs that, and is slower. Look for a bad cable, \
                 a port at 100 Mbit/s or half duplex, wireless links, and a busy machine",
                share * 100.0
            ),
            Self::Overrun(bits) => format!(
                "the network does not take this rate: {} Mbit/s arrive. A cast finds the rate by itself, and is smoother with --rate {}M",
                bits / 1_000_000,
                (bits / 1_000_000).max(1)
            ),
            Self::Reordered(share) => format!(
                "{:.1} % of the datagrams are overtaken by later ones, as if there were two paths. A cast does not mind",
                share * 100.0
            ),
            Self::Repeated(share) => format!(
                "{:.1} % of the datagrams arrive more than once. A cast does not mind, but look for a loop or a second bridge between the \
                 switches",
                share * 100.0
            ),
            Self::NotAnnounced => format!(
                "announcements do not arrive, while the group of the cast does. Name the sender on this machine with --sender ADDRESS:PORT, \
                 or allow multicast to {discovery}",
            ),
            Self::NoQuerier => format!(
                "no {protocol} querier answers in this network. If a switch does {protocol} snooping, it forgets its receivers after about four \
                 minutes, and the cast stops. Turn on an {protocol} querier in this VLAN, or turn off {protocol} snooping in it",
            ),
        }
    }
}
