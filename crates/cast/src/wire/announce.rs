//! ANNOUNCE, from the sender to the group: the session, its contents, and how to join. It consists of typed values, so that it
//! can be extended: unknown values are skipped, and the first value of each type counts.
//!
//! WELCOME carries the same values over the reliable channel. Must never accept a session that this version cannot
//! decode (another symbol size or code).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use platter_image::{BlockId, Score};

use super::format::{HEADER_BYTES, Header, Reader, TAG_BYTES, begin, put_value, text};
use crate::coding::{CODE_ID, REPAIR_SYMBOLS};
use crate::family;
use crate::marks::Mark;
use crate::session::{
    CHUNKS_MAX, NAME_BYTES_MAX, OFFER_BYTES_MAX, SECRET_BYTES_MAX, SEGMENTS_MAX, SYMBOL_BYTES, SYMBOLS_MAX,
    Segment, SessionId, SessionSecret,
};

const SESSION: u16 = 1;
const SCORE: u16 = 2;
const NAME: u16 = 3;
const SYMBOLS: u16 = 4;
const CHUNKS: u16 = 5;
const DIRECTORY_HASH: u16 = 6;
const GROUP: u16 = 7;
const JOIN: u16 = 8;
const FEEDBACK: u16 = 9;
const TIMERS: u16 = 10;
const SEGMENTS: u16 = 11;
const OFFER: u16 = 12;
/// Only in a WELCOME, never in a datagram.
const SECRET: u16 = 13;
const MARK: u16 = 14;

const FAMILY_IPV4: u8 = 4;
const FAMILY_IPV6: u8 = 6;

/// The contents of an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announce {
    /// The session.
    pub session: SessionId,
    /// The score of the recipe.
    pub score: Score,
    /// The image's name.
    pub name: String,
    /// What receivers need to verify who signed the image; empty if it is not signed.
    pub offer: Vec<u8>,
    /// What receivers need to decode the contents; in datagrams always empty.
    pub secret: SessionSecret,
    /// Number of content chunks.
    pub content_chunks: u32,
    /// Number of segments.
    pub segments: u32,
    /// The first segment.
    pub first_segment: Segment,
    /// Length of the disk range that a segment covers, in bytes.
    pub segment_length: u64,
    /// BLAKE3 hash of the directory. Its length is eight bytes per segment and four per content chunk.
    pub directory_hash: [u8; 32],
    /// The multicast group of the data.
    pub group: SocketAddr,
    /// The address for joins (TCP).
    pub join: SocketAddr,
    /// The address for requests and reports (UDP).
    pub feedback: SocketAddr,
    /// Feedback timing.
    pub timers: FeedbackTimers,
    /// The last mark that the sender has passed.
    pub mark: Mark,
}

/// Feedback parameters: how receivers space their datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedbackTimers {
    /// Time between two reports of all spokesmen together, in microseconds: with `n` of them, each reports every `n` times as long.
    pub spokesmen_us: u32,
    /// A request waits a random part of this time, in microseconds, because a plan may make the request unnecessary.
    pub backoff_us_max: u32,
    /// Time between two reports of a receiver that is no spokesman, in microseconds.
    pub others_us: u32,
}

/// The interval of receivers that are no spokesmen grows by this for each receiver: together they send 20 reports a second.
pub(crate) const OTHERS_US_OF_EACH: u32 = 50_000;

impl FeedbackTimers {
    /// Returns the number of receivers that the interval of others implies.
    pub(crate) fn receivers(&self) -> u32 {
        (self.others_us / OTHERS_US_OF_EACH).max(1)
    }
}

impl Announce {
    /// Checks that group and addresses are of one family. The format allows others, and no sender uses them.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn check_addresses(&self) -> Result<(), String> {
        family::check(self.group, self.join, self.feedback)
    }

    /// Encodes the datagram.
    pub(crate) fn write(&self, header: &Header, to: &mut Vec<u8>) {
        begin(to, header);
        self.put_values(to);
    }

    /// Returns the announcement in a datagram, without verifying its tag.
    pub(crate) fn of_datagram(datagram: &[u8]) -> Option<Self> {
        let (front, _) = datagram.split_last_chunk::<TAG_BYTES>()?;
        Self::parse(Reader::new(front.get(HEADER_BYTES..)?))
    }

    /// Encodes the secret, for a message that only the receiver can read.
    pub(crate) fn put_secret(&self, to: &mut Vec<u8>) {
        if !self.secret.0.is_empty() {
            put_value(to, SECRET, &self.secret.0);
        }
    }

    /// Encodes only the typed values, without the secret.
    pub(crate) fn put_values(&self, to: &mut Vec<u8>) {
        put_value(to, SESSION, &self.session.0);
        put_value(to, SCORE, &self.score.0.0);
        put_value(to, NAME, self.name.as_bytes());
        let mut symbols = [0; 8];
        symbols[..2].copy_from_slice(&(SYMBOL_BYTES as u16).to_le_bytes());
        symbols[2..4].copy_from_slice(&(SYMBOLS_MAX as u16).to_le_bytes());
        symbols[4..6].copy_from_slice(&(REPAIR_SYMBOLS as u16).to_le_bytes());
        symbols[6..].copy_from_slice(&CODE_ID.to_le_bytes());
        put_value(to, SYMBOLS, &symbols);
        put_value(to, CHUNKS, &self.content_chunks.to_le_bytes());
        put_value(to, DIRECTORY_HASH, &self.directory_hash);
        put_value(to, GROUP, &address_bytes(self.group));
        put_value(to, JOIN, &address_bytes(self.join));
        put_value(to, FEEDBACK, &address_bytes(self.feedback));
        let mut timers = [0; 12];
        timers[..8].copy_from_slice(&pair(self.timers.spokesmen_us, self.timers.backoff_us_max));
        timers[8..].copy_from_slice(&self.timers.others_us.to_le_bytes());
        put_value(to, TIMERS, &timers);
        let mut segments = [0; 20];
        segments[..8].copy_from_slice(&self.segment_length.to_le_bytes());
        segments[8..12].copy_from_slice(&self.segments.to_le_bytes());
        segments[12..].copy_from_slice(&pair(self.first_segment.chunks, self.first_segment.recipe_chunks));
        put_value(to, SEGMENTS, &segments);
        if !self.offer.is_empty() {
            put_value(to, OFFER, &self.offer);
        }
        put_value(to, MARK, &[&self.mark.index.to_le_bytes()[..], &self.mark.value].concat());
    }

    /// Parses the typed values. `None` when one is missing or invalid, or the code is another one.
    pub(crate) fn parse(mut reader: Reader<'_>) -> Option<Self> {
        let mut values: [Option<&[u8]>; MARK as usize + 1] = [None; MARK as usize + 1];
        while let Some((number, value)) = reader.value() {
            if let Some(slot) = values.get_mut(usize::from(number)) {
                slot.get_or_insert(value);
            }
        }
        let value = |number: u16| values[usize::from(number)].map(Reader::new);
        let mut symbols = value(SYMBOLS)?;
        let understood = usize::from(symbols.u16()?) == SYMBOL_BYTES
            && usize::from(symbols.u16()?) == SYMBOLS_MAX
            && usize::from(symbols.u16()?) == REPAIR_SYMBOLS
            && symbols.u16()? == CODE_ID;
        let content_chunks = value(CHUNKS)?.u32()?;
        let mut segmentation = value(SEGMENTS)?;
        let (segment_length, segments) = (segmentation.u64()?, segmentation.u32()?);
        let first_segment = Segment { chunks: segmentation.u32()?, recipe_chunks: segmentation.u32()? };
        let possible = (1..=CHUNKS_MAX).contains(&content_chunks)
            && (1..=SEGMENTS_MAX).contains(&segments)
            && first_segment.chunks <= content_chunks
            && first_segment.recipe_chunks <= first_segment.chunks
            && segment_length > 0;
        let name = values[usize::from(NAME)].filter(|name| name.len() <= NAME_BYTES_MAX)?;
        let offer = values[usize::from(OFFER)].unwrap_or_default();
        let secret = values[usize::from(SECRET)].unwrap_or_default();
        if offer.len() > OFFER_BYTES_MAX || secret.len() > SECRET_BYTES_MAX {
            return None;
        }
        let (mut timers, mut mark) = (value(TIMERS)?, value(MARK)?);
        let announce = Self {
            session: SessionId(value(SESSION)?.array()?),
            score: Score(BlockId(value(SCORE)?.array()?)),
            name: text(name)?,
            offer: offer.to_vec(),
            secret: SessionSecret(secret.to_vec()),
            content_chunks,
            segments,
            first_segment,
            segment_length,
            directory_hash: value(DIRECTORY_HASH)?.array()?,
            group: parse_address(value(GROUP)?)?,
            join: parse_address(value(JOIN)?)?,
            feedback: parse_address(value(FEEDBACK)?)?,
            timers: FeedbackTimers {
                spokesmen_us: timers.u32()?,
                backoff_us_max: timers.u32()?,
                others_us: timers.u32()?,
            },
            mark: Mark { index: mark.u32()?, value: mark.array()? },
        };
        (understood && possible).then_some(announce)
    }
}

fn pair(first: u32, second: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_le_bytes());
    bytes[4..].copy_from_slice(&second.to_le_bytes());
    bytes
}

/// Encodes an address: family 1, port 2, address 4 or 16 bytes. A scope id is not encoded: it means something only on its own machine.
pub(crate) fn address_bytes(address: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![if address.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 }];
    bytes.extend_from_slice(&address.port().to_le_bytes());
    match address.ip() {
        IpAddr::V4(ip) => bytes.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
    }
    bytes
}

/// Parses an address, as [`address_bytes`] encodes it.
pub(crate) fn parse_address(mut reader: Reader<'_>) -> Option<SocketAddr> {
    let family = reader.u8()?;
    let port = reader.u16()?;
    let ip = match family {
        FAMILY_IPV4 => IpAddr::V4(Ipv4Addr::from(reader.array::<4>()?)),
        FAMILY_IPV6 => IpAddr::V6(Ipv6Addr::from(reader.array::<16>()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::format::{BODY_END_MAX, MessageType};
    use super::*;

    pub(crate) fn sample() -> Announce {
        Announce {
            session: SessionId(*b"0123456789abcdef"),
            score: Score(BlockId([9; 32])),
            name: "lab/debian12".into(),
            offer: b"signed".to_vec(),
            secret: SessionSecret::default(),
            content_chunks: 1000,
            segments: 2,
            first_segment: Segment { chunks: 600, recipe_chunks: 3 },
            segment_length: 1 << 36,
            directory_hash: [5; 32],
            group: "239.255.80.76:7580".parse().unwrap(),
            join: "[2001:db8::7]:7580".parse().unwrap(),
            feedback: "10.0.0.1:999".parse().unwrap(),
            timers: FeedbackTimers { spokesmen_us: 10_000, backoff_us_max: 4_000, others_us: 500_000 },
            mark: Mark { index: 17, value: [8; 32] },
        }
    }

    #[test]
    fn it_round_trips_and_skips_unknown_values() {
        let header = Header { message: MessageType::Announce, session: 1, packet: 2, sent_us: 3 };
        let mut longest = sample();
        longest.name = "n".repeat(NAME_BYTES_MAX);
        longest.offer = vec![7; OFFER_BYTES_MAX];
        for announce in [sample(), longest] {
            let mut bytes = Vec::new();
            announce.write(&header, &mut bytes);
            put_value(&mut bytes, 500, b"from the future");
            assert!(bytes.len() <= BODY_END_MAX);
            let (parsed_header, rest) = Header::parse(&bytes).unwrap();
            assert_eq!(parsed_header, header);
            assert_eq!(Announce::parse(rest), Some(announce));
        }
    }

    #[test]
    fn the_scope_of_an_address_is_not_sent() {
        let mut bytes = Vec::new();
        Announce { join: "[fe80::1%3]:7580".parse().unwrap(), ..sample() }.put_values(&mut bytes);
        let parsed = Announce::parse(Reader::new(&bytes)).unwrap();
        assert_eq!(parsed.join, "[fe80::1]:7580".parse().unwrap());
        assert!(parsed.check_addresses().is_err(), "group and feedback of the sample are of IPv4");
    }

    #[test]
    fn another_code_or_an_impossible_table_is_refused() {
        let mut bytes = Vec::new();
        put_value(&mut bytes, SYMBOLS, &[0; 8]);
        sample().put_values(&mut bytes);
        assert_eq!(Announce::parse(Reader::new(&bytes)), None);
        for (content_chunks, recipe_chunks) in [(0, 0), (CHUNKS_MAX + 1, 0), (5, 6)] {
            let mut bytes = Vec::new();
            Announce { content_chunks, first_segment: Segment { chunks: 1, recipe_chunks }, ..sample() }
                .put_values(&mut bytes);
            assert_eq!(Announce::parse(Reader::new(&bytes)), None);
        }
    }
}
