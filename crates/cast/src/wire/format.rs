//! The parts that all messages share: the header of a datagram, a bounds-checked reader, and typed values.
//!
//! Owns the protocol version and the numbers of message types. Everything is little-endian. Must never index without a check.

use std::time::Duration;

/// Version of the datagrams and of the messages of the reliable channel.
pub(crate) const VERSION: u8 = 1;
/// Length of the header in bytes.
pub(crate) const HEADER_BYTES: usize = 18;
/// Maximum length of a datagram's payload in bytes: fits IPv6 (40) and UDP (8) in 1,500 bytes, with 4 to spare.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 1448;
/// Bytes of the authentication tag at the end of every datagram.
pub(crate) const TAG_BYTES: usize = 16;
/// Maximum length of a datagram without its tag in bytes.
pub(crate) const BODY_END_MAX: usize = DATAGRAM_BYTES_MAX - TAG_BYTES;
/// Flag: the cast has a join key. Announcements are authenticated by it, all other datagrams are encrypted.
pub(crate) const FLAG_JOIN_KEY: u8 = 1;
/// Maximum packet number: 48 bits.
pub(crate) const PACKET_NUMBER_MAX: u64 = (1 << 48) - 1;

/// The type of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MessageType {
    Announce = 1,
    Data = 2,
    Plan = 3,
    Request = 4,
    Report = 5,
    /// Only in a message of the reliable channel. Number 6 is taken by probes.
    Resume = 7,
}

impl MessageType {
    fn from_u8(value: u8) -> Option<Self> {
        [Self::Announce, Self::Data, Self::Plan, Self::Request, Self::Report, Self::Resume]
            .into_iter()
            .find(|kind| *kind as u8 == value)
    }
}

/// The header of every datagram: version 1, type 1, flags 1, key epoch 1, session 4, packet number 6, send time 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) message: MessageType,
    /// The session's short id.
    pub(crate) session: u32,
    /// Number of this datagram, counted per sender or receiver from 1; at most [`PACKET_NUMBER_MAX`].
    pub(crate) packet: u64,
    /// The low 32 bits of the sender's clock in microseconds.
    pub(crate) sent_us: u32,
}

impl Header {
    /// Writes the header into the first [`HEADER_BYTES`] bytes.
    pub(crate) fn write(&self, to: &mut [u8; HEADER_BYTES]) {
        to[0] = VERSION;
        to[1] = self.message as u8;
        to[2] = 0;
        to[3] = 0;
        to[4..8].copy_from_slice(&self.session.to_le_bytes());
        to[8..14].copy_from_slice(&self.packet.to_le_bytes()[..6]);
        to[14..18].copy_from_slice(&self.sent_us.to_le_bytes());
    }

    /// Parses the header. Returns it with a reader for the bytes after it. `None`: not our protocol, another version, or flags
    /// that this version does not support. Says nothing about the tag.
    pub(crate) fn parse(datagram: &[u8]) -> Option<(Self, Reader<'_>)> {
        if datagram.len() > DATAGRAM_BYTES_MAX {
            return None;
        }
        let mut reader = Reader::new(datagram);
        if reader.u8()? != VERSION {
            return None;
        }
        let message = MessageType::from_u8(reader.u8()?)?;
        if reader.u8()? & !FLAG_JOIN_KEY != 0 || reader.u8()? != 0 {
            return None;
        }
        let header = Self { message, session: reader.u32()?, packet: reader.u48()?, sent_us: reader.u32()? };
        Some((header, reader))
    }
}

/// Returns the session, short, that a datagram names: any datagram of this version. Nothing proves it.
pub fn session_of(datagram: &[u8]) -> Option<u32> {
    if datagram.len() > DATAGRAM_BYTES_MAX {
        return None;
    }
    let mut reader = Reader::new(datagram);
    let version = reader.u8()?;
    reader.bytes(3)?;
    reader.u32().filter(|_| version == VERSION)
}

/// Returns the low 32 bits of a clock in microseconds. They wrap every 71 minutes; only values seconds apart are compared.
pub(crate) fn low_microseconds(now: Duration) -> u32 {
    now.as_micros() as u32
}

/// Reads fields from the front of hostile bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads the next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    /// Reads the next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u48(&mut self) -> Option<u64> {
        let [a, b, c, d, e, f] = self.array()?;
        Some(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a string with a length of one byte before it.
    pub(crate) fn short_text(&mut self) -> Option<String> {
        let length = usize::from(self.u8()?);
        text(self.bytes(length)?)
    }

    /// Returns all remaining bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Reads the next typed value (number 2, length 2, bytes). `None` at the end, or when it is truncated.
    pub(crate) fn value(&mut self) -> Option<(u16, &'a [u8])> {
        let number = self.u16()?;
        let length = self.u16()?;
        Some((number, self.bytes(usize::from(length))?))
    }
}

/// Returns the bytes as text if they are valid UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

/// Appends a typed value. Truncates it to 65,535 bytes; no caller has a longer one.
pub(crate) fn put_value(to: &mut Vec<u8>, number: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    to.extend_from_slice(&number.to_le_bytes());
    to.extend_from_slice(&(value.len() as u16).to_le_bytes());
    to.extend_from_slice(value);
}

/// Appends a string with a length of one byte before it, truncated at a character boundary to 255 bytes.
pub(crate) fn put_short_text(to: &mut Vec<u8>, value: &str) {
    let cut = cut_text(value, usize::from(u8::MAX));
    to.push(cut.len() as u8);
    to.extend_from_slice(cut.as_bytes());
}

/// Returns the longest prefix of `value` of at most `bytes_max` bytes that ends at a character boundary.
pub(crate) fn cut_text(value: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(value.len());
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    &value[..end]
}

/// Appends the low 48 bits of a number.
pub(crate) fn put_u48(to: &mut Vec<u8>, value: u64) {
    to.extend_from_slice(&value.to_le_bytes()[..6]);
}

/// Replaces the contents of `to` by a header. The body is appended after it.
pub(crate) fn begin(to: &mut Vec<u8>, header: &Header) {
    let mut bytes = [0; HEADER_BYTES];
    header.write(&mut bytes);
    to.clear();
    to.extend_from_slice(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_round_trips() {
        let header = Header {
            message: MessageType::Plan,
            session: 0xdead_beef,
            packet: PACKET_NUMBER_MAX,
            sent_us: 77,
        };
        let mut bytes = Vec::new();
        begin(&mut bytes, &header);
        bytes.extend_from_slice(b"rest");
        let (parsed, rest) = Header::parse(&bytes).unwrap();
        assert_eq!((parsed, session_of(&bytes)), (header, Some(0xdead_beef)));
        assert_eq!((session_of(&bytes[..7]), session_of(&[2; 40])), (None, None));
        assert_eq!(rest.rest(), b"rest");
    }

    #[test]
    fn other_versions_types_and_flags_are_refused() {
        let header = Header { message: MessageType::Data, session: 1, packet: 1, sent_us: 1 };
        let mut bytes = Vec::new();
        begin(&mut bytes, &header);
        assert!(Header::parse(&bytes).is_some());
        for (position, value) in [(0, 2), (1, 0), (1, 9), (2, 2), (3, 1)] {
            let mut other = bytes.clone();
            other[position] = value;
            assert!(Header::parse(&other).is_none(), "byte {position} = {value}");
        }
        for length in 0..HEADER_BYTES {
            assert!(Header::parse(&bytes[..length]).is_none());
        }
    }
}
