//! The reliable channel: JOIN → WELCOME or REFUSED, FETCH → PIECE, RESULT → RESULT_OK, LEAVE, and RESUME or
//! GONE over a later connection. Each message follows its
//! length (`u32`), and starts with version and type. With a join key, GREETINGs come first, and all other messages are
//! encrypted ([`channel`](super::channel)). Before all of them comes OPEN ([`opening`](super::opening)).
//!
//! Owns the layout, and splits a byte stream into messages ([`MessageBuffer`]). Must never hold more than
//! [`MESSAGE_BYTES_MAX`] bytes from a peer.

use std::fmt;

use platter_image::{BlockId, Score};

use super::announce::Announce;
use super::format::{Reader, TAG_BYTES, VERSION, cut_text, put_short_text, put_u48, put_value, text};
use crate::session::NAME_BYTES_MAX;

/// Maximum length of a message, without its length field, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Maximum bytes of a chunk in one PIECE: the message without version, type, chunk, offset, and the tag of an encrypted one.
pub(crate) const PIECE_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 2 - 4 - 4 - TAG_BYTES;
/// Maximum length of the name that a receiver gives itself, in bytes. With it, a JOIN is shorter than the announcement that it
/// answers, so that nobody can make receivers send more than he sent.
const HELLO_BYTES_MAX: usize = 64;

const JOIN: u8 = 1;
const WELCOME: u8 = 2;
const REFUSED: u8 = 3;
const RESULT: u8 = 4;
const RESULT_OK: u8 = 5;
const LEAVE: u8 = 6;
const FETCH: u8 = 7;
const PIECE: u8 = 8;
const GREETING: u8 = 9;
const RESUME: u8 = 10;
/// Numbers 11 to 14 are taken by probes, 16 by [`Opening`](super::opening::Opening).
const GONE: u8 = 15;

const WANTED_SCORE: u16 = 1;
const WANTED_NAME: u16 = 2;
const HELLO: u16 = 3;
const BUFFERS: u16 = 4;
/// Reserved, never sent by version 1: a bit for each capability of the receiver.
const CAPABILITIES: u16 = 5;

/// The session that a receiver wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The first session that it hears.
    Any,
    /// The session with this score.
    Score(Score),
    /// The session with this name; `lab/debian12` also matches `lab/debian12@7`.
    Name(String),
}

impl Wanted {
    /// Returns whether a session matches.
    pub fn matches(&self, score: &Score, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Score(wanted) => wanted == score,
            Self::Name(wanted) => {
                // A name without a number matches every version of it.
                name.strip_prefix(wanted.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
            }
        }
    }
}

/// The final result of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverResult {
    /// The score that was verified, or the reason of the failure.
    pub outcome: Result<Score, String>,
    /// Bytes written to the target.
    pub bytes_written: u64,
    /// Time from joining to the end, in milliseconds.
    pub duration_ms: u64,
    /// Distinct symbols received.
    pub symbols: u64,
    /// Symbols restored from repair symbols.
    pub repaired: u64,
    /// Symbols that were received again or not needed.
    pub duplicates: u64,
}

/// The keys that a sender hands out at the join.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SessionKeys {
    /// Of this receiver's datagrams. No other receiver knows it.
    pub(crate) receiver: [u8; 32],
    /// Of the sender's datagrams.
    pub(crate) sender: [u8; 32],
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKeys(secret)")
    }
}

/// A message of the reliable channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JoinMessage {
    /// Receiver: requests to join.
    Join { wanted: Wanted, hello: String, buffer_chunks: u32 },
    /// Sender: accepts, and describes the session and its current packet number.
    Welcome { receiver: u32, keys: SessionKeys, packet: u64, announce: Box<Announce> },
    /// Sender: refuses, with a reason.
    Refused { reason: String },
    /// Receiver: reports its result.
    Result { result: ReceiverResult },
    /// Sender: confirms the result.
    ResultOk,
    /// Receiver: leaves without a result.
    Leave,
    /// Receiver: requests bytes of a chunk over this channel.
    Fetch { chunk: u32, offset: u32, length: u32 },
    /// Sender: bytes of a chunk; at most [`PIECE_BYTES_MAX`].
    Piece { chunk: u32, offset: u32, bytes: Vec<u8> },
    /// Both, if they have a join key: a random number that is never used again.
    Greeting { nonce: [u8; 32] },
    /// Receiver: has joined before, and goes on over this connection. A sealed [`Resume`](super::resume::Resume).
    Resume { datagram: Vec<u8> },
    /// Sender: does not know the receiver that sent RESUME. It has to join again.
    Gone,
}

impl JoinMessage {
    /// Encodes the length and the message.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut to = vec![0, 0, 0, 0, VERSION, self.kind()];
        match self {
            Self::Join { wanted, hello, buffer_chunks } => {
                match wanted {
                    Wanted::Any => {}
                    Wanted::Score(score) => put_value(&mut to, WANTED_SCORE, &score.0.0),
                    Wanted::Name(name) => {
                        put_value(&mut to, WANTED_NAME, cut_text(name, NAME_BYTES_MAX).as_bytes());
                    }
                }
                put_value(&mut to, HELLO, cut_text(hello, HELLO_BYTES_MAX).as_bytes());
                put_value(&mut to, BUFFERS, &buffer_chunks.to_le_bytes());
            }
            Self::Welcome { receiver, keys, packet, announce } => {
                to.extend_from_slice(&receiver.to_le_bytes());
                to.extend_from_slice(&keys.receiver);
                to.extend_from_slice(&keys.sender);
                put_u48(&mut to, *packet);
                announce.put_values(&mut to);
                announce.put_secret(&mut to);
            }
            Self::Refused { reason } => put_short_text(&mut to, reason),
            Self::Result { result } => put_result(&mut to, result),
            Self::ResultOk | Self::Leave | Self::Gone => {}
            Self::Fetch { chunk, offset, length } => {
                [chunk, offset, length].iter().for_each(|field| to.extend_from_slice(&field.to_le_bytes()));
            }
            Self::Piece { chunk, offset, bytes } => {
                to.extend_from_slice(&chunk.to_le_bytes());
                to.extend_from_slice(&offset.to_le_bytes());
                to.extend_from_slice(&bytes[..bytes.len().min(PIECE_BYTES_MAX)]);
            }
            Self::Greeting { nonce } => to.extend_from_slice(nonce),
            Self::Resume { datagram } => to.extend_from_slice(datagram),
        }
        let length = (to.len() - 4) as u32;
        to[..4].copy_from_slice(&length.to_le_bytes());
        to
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Join { .. } => JOIN,
            Self::Welcome { .. } => WELCOME,
            Self::Refused { .. } => REFUSED,
            Self::Result { .. } => RESULT,
            Self::ResultOk => RESULT_OK,
            Self::Leave => LEAVE,
            Self::Fetch { .. } => FETCH,
            Self::Piece { .. } => PIECE,
            Self::Greeting { .. } => GREETING,
            Self::Resume { .. } => RESUME,
            Self::Gone => GONE,
        }
    }

    /// Parses one message without its length.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(message);
        if reader.u8()? != VERSION {
            return None;
        }
        match reader.u8()? {
            JOIN => parse_join(reader),
            WELCOME => Some(Self::Welcome {
                receiver: reader.u32()?,
                keys: SessionKeys { receiver: reader.array()?, sender: reader.array()? },
                packet: reader.u48()?,
                announce: Box::new(Announce::parse(reader)?),
            }),
            REFUSED => Some(Self::Refused { reason: reader.short_text()? }),
            RESULT => parse_result(reader),
            RESULT_OK => Some(Self::ResultOk),
            LEAVE => Some(Self::Leave),
            FETCH => Some(Self::Fetch { chunk: reader.u32()?, offset: reader.u32()?, length: reader.u32()? }),
            PIECE => Some(Self::Piece {
                chunk: reader.u32()?,
                offset: reader.u32()?,
                bytes: reader.rest().to_vec(),
            }),
            GREETING => Some(Self::Greeting { nonce: reader.array()? }),
            RESUME => Some(Self::Resume { datagram: reader.rest().to_vec() }),
            GONE => Some(Self::Gone),
            _ => None,
        }
    }
}

fn parse_join(mut reader: Reader<'_>) -> Option<JoinMessage> {
    let (mut score, mut name, mut hello, mut buffer_chunks) = (None, None, String::new(), None);
    while let Some((number, value)) = reader.value() {
        match number {
            WANTED_SCORE => score = Some(Score(BlockId(value.try_into().ok()?))),
            WANTED_NAME => name = Some(text(value)?),
            HELLO => hello = cut_text(&text(value)?, HELLO_BYTES_MAX).to_owned(),
            BUFFERS => buffer_chunks = Reader::new(value).u32(),
            CAPABILITIES => {}
            _ => {}
        }
    }
    let wanted = score.map(Wanted::Score).or(name.map(Wanted::Name)).unwrap_or(Wanted::Any);
    Some(JoinMessage::Join { wanted, hello, buffer_chunks: buffer_chunks? })
}

fn put_result(to: &mut Vec<u8>, result: &ReceiverResult) {
    let (ok, score, message) = match &result.outcome {
        Ok(score) => (1, score.0.0, ""),
        Err(message) => (0, [0; 32], message.as_str()),
    };
    to.push(ok);
    to.extend_from_slice(&score);
    let numbers =
        [result.bytes_written, result.duration_ms, result.symbols, result.repaired, result.duplicates];
    for number in numbers {
        to.extend_from_slice(&number.to_le_bytes());
    }
    put_short_text(to, message);
}

fn parse_result(mut reader: Reader<'_>) -> Option<JoinMessage> {
    let ok = reader.u8()? == 1;
    let score = Score(BlockId(reader.array()?));
    let mut numbers = [0; 5];
    for number in &mut numbers {
        *number = reader.u64()?;
    }
    let message = reader.short_text()?;
    let [bytes_written, duration_ms, symbols, repaired, duplicates] = numbers;
    let outcome = if ok { Ok(score) } else { Err(message) };
    let result = ReceiverResult { outcome, bytes_written, duration_ms, symbols, repaired, duplicates };
    Some(JoinMessage::Result { result })
}

/// Splits a byte stream into messages.
#[derive(Debug, Default)]
pub struct MessageBuffer {
    bytes: Vec<u8>,
}

impl MessageBuffer {
    /// Adds bytes of the stream. Returns false when the next message is too long: then end the connection.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        self.next_length().is_none_or(|length| length <= MESSAGE_BYTES_MAX)
    }

    /// Returns the next complete message, without its length.
    pub fn next_message(&mut self) -> Option<Vec<u8>> {
        let length = self.next_length().filter(|length| *length <= MESSAGE_BYTES_MAX)?;
        if self.bytes.len() < 4 + length {
            return None;
        }
        let rest = self.bytes.split_off(4 + length);
        let mut message = std::mem::replace(&mut self.bytes, rest);
        message.drain(..4);
        Some(message)
    }

    fn next_length(&self) -> Option<usize> {
        Reader::new(&self.bytes).u32().map(|length| length as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::announce::tests::sample;
    use super::*;

    fn messages() -> Vec<JoinMessage> {
        let result = |outcome| ReceiverResult {
            outcome,
            bytes_written: 1,
            duration_ms: 2,
            symbols: 3,
            repaired: 4,
            duplicates: 5,
        };
        let score = Score(BlockId([3; 32]));
        let keys = SessionKeys { receiver: [6; 32], sender: [7; 32] };
        vec![
            JoinMessage::Join { wanted: Wanted::Any, hello: "pc1".into(), buffer_chunks: 64 },
            JoinMessage::Join { wanted: Wanted::Score(score), hello: String::new(), buffer_chunks: 1 },
            JoinMessage::Join {
                wanted: Wanted::Name("lab/x".into()),
                hello: "ü".repeat(HELLO_BYTES_MAX / 2),
                buffer_chunks: 1,
            },
            JoinMessage::Welcome { receiver: 1, keys, packet: 3, announce: Box::new(sample()) },
            JoinMessage::Refused { reason: "no".into() },
            JoinMessage::Result { result: result(Ok(score)) },
            JoinMessage::Result { result: result(Err("disk full".into())) },
            JoinMessage::ResultOk,
            JoinMessage::Leave,
            JoinMessage::Fetch { chunk: 3, offset: 4, length: 5 },
            JoinMessage::Piece { chunk: 3, offset: 4, bytes: vec![9; PIECE_BYTES_MAX] },
            JoinMessage::Piece { chunk: 3, offset: 4, bytes: Vec::new() },
            JoinMessage::Greeting { nonce: [8; 32] },
            JoinMessage::Resume { datagram: vec![5; 38] },
            JoinMessage::Gone,
        ]
    }

    #[test]
    fn messages_are_parsed_however_the_stream_is_split() {
        let stream: Vec<u8> = messages().iter().flat_map(JoinMessage::to_bytes).collect();
        for piece in [1, 3, 7, 100, stream.len()] {
            let mut buffer = MessageBuffer::default();
            let mut received = Vec::new();
            for bytes in stream.chunks(piece) {
                assert!(buffer.push(bytes));
                while let Some(message) = buffer.next_message() {
                    received.push(JoinMessage::parse(&message).unwrap());
                }
            }
            assert_eq!(received, messages());
        }
    }

    #[test]
    fn a_message_that_is_too_long_ends_the_stream() {
        let mut buffer = MessageBuffer::default();
        assert!(!buffer.push(&(MESSAGE_BYTES_MAX as u32 + 1).to_le_bytes()));
        assert_eq!(buffer.next_message(), None);
    }
}
