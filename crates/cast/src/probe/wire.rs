//! PROBE datagrams, and the messages of a probe over the reliable channel.
//!
//! Owns their layout (docs/formats/cast-wire.md). A cast ignores them: their numbers are not used there.

use std::net::SocketAddr;

use super::series::{Arrivals, PACKET_BYTES, ProbeCounts, ProbeSent, ProbeSeries, SERIES};
use crate::family::Family;
use crate::wire::announce::{address_bytes, parse_address};
use crate::wire::format::{Reader, TAG_BYTES, VERSION, cut_text, put_short_text, put_u48};

/// The type of a PROBE datagram.
const PROBE: u8 = 6;
const BEGIN: u8 = 11;
const WELCOME: u8 = 12;
const SENT: u8 = 13;
const COUNTS: u8 = 14;
/// Payload of the datagrams that test whether anything arrives.
pub(super) const SMALL_BYTES: usize = 64;
/// Maximum length of the name that a receiver gives itself, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A PROBE datagram without its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeDatagram {
    pub(super) session: u32,
    pub(super) packet: u64,
    pub(super) series: ProbeSeries,
    pub(super) number: u32,
    /// The join address in an announcement.
    pub(super) join: Option<SocketAddr>,
    /// The receiver, if it sends this.
    pub(super) receiver: u32,
}

impl ProbeDatagram {
    /// Appends a datagram that has `bytes` with its tag, which the caller appends.
    pub(super) fn append(&self, to: &mut Vec<u8>, bytes: usize) {
        let start = to.len();
        to.extend_from_slice(&[VERSION, PROBE, 0, 0]);
        to.extend_from_slice(&self.session.to_le_bytes());
        put_u48(to, self.packet);
        to.extend_from_slice(&[0; 4]);
        to.push(self.series as u8);
        to.extend_from_slice(&self.number.to_le_bytes());
        to.extend_from_slice(&self.receiver.to_le_bytes());
        if let Some(join) = self.join {
            to.extend_from_slice(&address_bytes(join));
        }
        to.resize(start + bytes.saturating_sub(TAG_BYTES), 0);
    }

    /// Parses the bytes of a datagram without its tag. Says nothing about the tag.
    pub(super) fn parse(datagram: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(datagram);
        if reader.u8()? != VERSION || reader.u8()? != PROBE {
            return None;
        }
        let (_flags, 0) = (reader.u8()?, reader.u8()?) else { return None };
        let (session, packet, _time) = (reader.u32()?, reader.u48()?, reader.u32()?);
        let series = ProbeSeries::from_u8(reader.u8()?)?;
        let (number, receiver) = (reader.u32()?, reader.u32()?);
        let join = match series {
            ProbeSeries::Announcement => Some(parse_address(reader)?),
            _ => None,
        };
        Some(Self { session, packet, series, number, join, receiver })
    }
}

/// The length of the payload that is tried, in both families.
pub(super) fn payload_bytes(number: u32) -> usize {
    usize::from(PACKET_BYTES[number as usize % PACKET_BYTES.len()]) - Family::Ipv4.header_bytes()
}

/// A message of the reliable channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProbeMessage {
    /// Receiver: takes part. Datagrams to it go to this port.
    Begin { port: u16, name: String },
    /// Sender: its key and its addresses.
    Welcome { session: u32, key: [u8; 32], receiver: u32, group: SocketAddr, feedback: SocketAddr },
    /// Sender: has sent everything, and asks for the counts.
    Sent(ProbeSent),
    /// Receiver: the counts.
    Counts(ProbeCounts),
}

impl ProbeMessage {
    /// Encodes the length and the message.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut to = vec![0, 0, 0, 0, VERSION];
        match self {
            Self::Begin { port, name } => {
                to.push(BEGIN);
                to.extend_from_slice(&port.to_le_bytes());
                put_short_text(&mut to, cut_text(name, NAME_BYTES_MAX));
            }
            Self::Welcome { session, key, receiver, group, feedback } => {
                to.push(WELCOME);
                to.extend_from_slice(&session.to_le_bytes());
                to.extend_from_slice(key);
                to.extend_from_slice(&receiver.to_le_bytes());
                for address in [group, feedback] {
                    let bytes = address_bytes(*address);
                    to.push(bytes.len() as u8);
                    to.extend_from_slice(&bytes);
                }
            }
            Self::Sent(sent) => {
                to.push(SENT);
                to.extend_from_slice(&sent.bits_per_second.to_le_bytes());
                to.extend_from_slice(&sent.feedback_received.to_le_bytes());
                sent.numbers.iter().for_each(|number| to.extend_from_slice(&number.to_le_bytes()));
            }
            Self::Counts(counts) => {
                to.push(COUNTS);
                to.push(counts.has_querier.map_or(0, |has| 1 + u8::from(has)));
                to.extend_from_slice(&counts.packet_bytes_max.to_le_bytes());
                for Arrivals { received, repeated, overtaken } in counts.arrivals {
                    for number in [received, repeated, overtaken] {
                        to.extend_from_slice(&number.to_le_bytes());
                    }
                }
            }
        }
        let length = (to.len() - 4) as u32;
        to[..4].copy_from_slice(&length.to_le_bytes());
        to
    }

    /// Parses one message without its length.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(message);
        if reader.u8()? != VERSION {
            return None;
        }
        match reader.u8()? {
            BEGIN => {
                let (port, name) = (reader.u16()?, reader.short_text()?);
                Some(Self::Begin { port, name: cut_text(&name, NAME_BYTES_MAX).to_owned() })
            }
            WELCOME => Some(Self::Welcome {
                session: reader.u32()?,
                key: reader.array()?,
                receiver: reader.u32()?,
                group: short_address(&mut reader)?,
                feedback: short_address(&mut reader)?,
            }),
            SENT => {
                let (bits_per_second, feedback_received) = (reader.u64()?, reader.u32()?);
                let mut numbers = [0; SERIES];
                for number in &mut numbers {
                    *number = reader.u32()?;
                }
                Some(Self::Sent(ProbeSent {
                    numbers,
                    bits_per_second,
                    feedback_received,
                    family: Family::default(),
                }))
            }
            COUNTS => {
                let has_querier = match reader.u8()? {
                    0 => None,
                    answer => Some(answer == 2),
                };
                let packet_bytes_max = reader.u16()?;
                let mut arrivals = [Arrivals::default(); SERIES];
                for series in &mut arrivals {
                    let (received, repeated, overtaken) = (reader.u32()?, reader.u32()?, reader.u32()?);
                    *series = Arrivals { received, repeated, overtaken };
                }
                Some(Self::Counts(ProbeCounts { arrivals, packet_bytes_max, has_querier }))
            }
            _ => None,
        }
    }
}

fn short_address(reader: &mut Reader<'_>) -> Option<SocketAddr> {
    let length = usize::from(reader.u8()?);
    parse_address(Reader::new(reader.bytes(length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages are read as they were written; anything else is refused, and nothing panics.
    #[test]
    fn messages_are_read_as_written_and_damaged_ones_do_no_harm() {
        let address: SocketAddr = "239.1.2.3:7440".parse().unwrap();
        let counts =
            ProbeCounts { packet_bytes_max: 1476, has_querier: Some(true), ..ProbeCounts::default() };
        let messages = [
            ProbeMessage::Begin { port: 9, name: "receiver-1".into() },
            ProbeMessage::Welcome {
                session: 7,
                key: [3; 32],
                receiver: 2,
                group: address,
                feedback: address,
            },
            ProbeMessage::Sent(ProbeSent {
                numbers: [5; SERIES],
                bits_per_second: 1,
                feedback_received: 2,
                family: Family::Ipv4,
            }),
            ProbeMessage::Counts(counts),
        ];
        for message in messages {
            let bytes = message.to_bytes()[4..].to_vec();
            assert_eq!(ProbeMessage::parse(&bytes), Some(message));
            for at in 0..bytes.len() {
                assert_eq!(ProbeMessage::parse(&bytes[..at]), None, "cut at {at}");
                for bit in 0..8 {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= 1 << bit;
                    let _ = ProbeMessage::parse(&damaged);
                    let _ = ProbeDatagram::parse(&damaged);
                }
            }
        }
    }
}
