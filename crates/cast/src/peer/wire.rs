//! Messages between two nodes. Each follows its length in a reliable ordered stream. docs/formats/peer-wire.md.
//!
//! Owns the layout, and splits a stream into messages ([`PeerStream`]). Must never hold more than
//! [`MESSAGE_BYTES_MAX`] bytes from a peer, nor accept a message with another length than it states.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use platter_image::frame::STORED_LENGTH_MAX;
use platter_image::{BlockId, Domain, Error, Kind, Result, Score};

use super::filter::{CHANGES_MAX, FilterChanges, FilterPiece, FilterVersion, LAYERS_MAX, LayerSize};
use super::filter::{PIECE_BYTES_MAX, parse_keys, put_keys};
use crate::wire::format::Reader;

/// Version of the protocol, sent in HELLO.
pub const PEER_VERSION: u16 = 1;
/// Maximum number of ids in one ASK: at most 16 MiB of blocks.
pub const ASK_IDS_MAX: usize = 256;
/// Maximum length of a message without its length field, in bytes: a frame with type and request number.
pub const MESSAGE_BYTES_MAX: usize = STORED_LENGTH_MAX + 5;
const HELLO_MAGIC: [u8; 4] = *b"PLpe";

const HELLO: u8 = 1;
const SUBSCRIBE: u8 = 2;
const FILTER: u8 = 3;
const CHANGES: u8 = 4;
const ASK: u8 = 5;
const FRAME: u8 = 6;
const END: u8 = 7;
const BUSY: u8 = 8;
const CANCEL: u8 = 9;

/// 128 random bits that identify a node as long as it keeps its cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub [u8; 16]);

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The first message of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The sharing group: the nodes of one store that may read the same images. Nodes of another group are refused.
    pub group: [u8; 16],
    /// The identity domain of the blocks.
    pub domain: Domain,
    /// The node that sends this message.
    pub node: NodeId,
}

/// A question: a request for frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskMessage {
    /// Number chosen by the asker. It is not reused while the question is open.
    pub request: u32,
    /// The score of a recipe that names the ids.
    pub score: Score,
    /// Kind of the blocks: data or pages.
    pub kind: Kind,
    /// Whether the asker regards the receiver as the home of these blocks. It may then fetch missing blocks from the origin
    /// first.
    pub fetch: bool,
    /// 1 to [`ASK_IDS_MAX`] ids.
    pub ids: Vec<BlockId>,
}

/// A message between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// Introduces the sender.
    Hello(Hello),
    /// Starts (true) or ends (false) a subscription to the receiver's filter.
    Subscribe(bool),
    /// A piece of the sender's filter.
    Filter(FilterPiece),
    /// Blocks added to the sender's filter since a version.
    Changes(FilterChanges),
    /// Requests frames.
    Ask(AskMessage),
    /// A stored frame with at least one requested block. Opaque here.
    Frame {
        /// The number of the question.
        request: u32,
        /// The frame's bytes, unverified.
        frame: Arc<[u8]>,
    },
    /// The end of the answer to a question, also of a cancelled one.
    End {
        /// The number of the question.
        request: u32,
        /// The current version of the answering node's filter. If the asker has an older one, that explains missing blocks.
        version: FilterVersion,
        /// Requested ids that the node does not hold.
        missing: Vec<BlockId>,
    },
    /// Refuses a question for now. It is then the only answer.
    Busy {
        /// The number of the question.
        request: u32,
        /// Time after which to ask again.
        retry_after: Duration,
    },
    /// Requests that no more frames are sent for a question.
    Cancel {
        /// The number of the question.
        request: u32,
    },
}

impl PeerMessage {
    /// Encodes the length and the message, without a frame's bytes, which follow unchanged.
    pub fn head(&self) -> Vec<u8> {
        let mut to = vec![0, 0, 0, 0];
        let mut frame_length = 0;
        match self {
            Self::Hello(hello) => {
                to.push(HELLO);
                to.extend_from_slice(&HELLO_MAGIC);
                to.extend_from_slice(&PEER_VERSION.to_le_bytes());
                to.extend_from_slice(&hello.group);
                to.extend_from_slice(&hello.domain.0);
                to.extend_from_slice(&hello.node.0);
            }
            Self::Subscribe(on) => to.extend_from_slice(&[SUBSCRIBE, u8::from(*on)]),
            Self::Filter(piece) => put_piece(&mut to, piece),
            Self::Changes(changes) => put_changes(&mut to, changes),
            Self::Ask(ask) => {
                put_request(&mut to, ASK, ask.request);
                to.extend_from_slice(&ask.score.0.0);
                to.extend_from_slice(&[ask.kind as u8, u8::from(ask.fetch)]);
                put_ids(&mut to, &ask.ids);
            }
            Self::Frame { request, frame } => {
                put_request(&mut to, FRAME, *request);
                frame_length = frame.len();
            }
            Self::End { request, version, missing } => {
                put_request(&mut to, END, *request);
                put_version(&mut to, *version);
                put_ids(&mut to, missing);
            }
            Self::Busy { request, retry_after } => {
                put_request(&mut to, BUSY, *request);
                let milliseconds = u32::try_from(retry_after.as_millis()).unwrap_or(u32::MAX);
                to.extend_from_slice(&milliseconds.to_le_bytes());
            }
            Self::Cancel { request } => put_request(&mut to, CANCEL, *request),
        }
        let length = (to.len() - 4 + frame_length) as u32;
        to[..4].copy_from_slice(&length.to_le_bytes());
        to
    }

    /// Encodes the whole message with its length.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        if let Self::Frame { frame, .. } = self {
            bytes.extend_from_slice(frame);
        }
        bytes
    }

    /// Parses one message without its length.
    ///
    /// # Errors
    /// `Corrupt`: not exactly one message of this version.
    pub fn parse(message: &[u8]) -> Result<Self> {
        let bad = || {
            let kind = message.first().copied().unwrap_or(0);
            Error::corrupt(format!("invalid message of a peer: type {kind}, {} bytes", message.len()))
        };
        let mut reader = Reader::new(message);
        let parsed = match reader.u8().ok_or_else(bad)? {
            HELLO => parse_hello(&mut reader),
            SUBSCRIBE => parse_flag(&mut reader).map(Self::Subscribe),
            FILTER => parse_piece(&mut reader).map(Self::Filter),
            CHANGES => {
                let head = parse_changes_head(&mut reader).ok_or_else(bad)?;
                let keys = parse_keys(head.3, std::mem::replace(&mut reader, Reader::new(&[])).rest())?;
                let (generation, from, opens, _) = head;
                Some(Self::Changes(FilterChanges { generation, from, opens, keys }))
            }
            ASK => parse_ask(&mut reader),
            FRAME => parse_frame(&mut reader),
            END => parse_end(&mut reader),
            BUSY => parse_busy(&mut reader),
            CANCEL => reader.u32().map(|request| Self::Cancel { request }),
            _ => None,
        };
        parsed.filter(|_| reader.rest().is_empty()).ok_or_else(bad)
    }
}

fn put_request(to: &mut Vec<u8>, kind: u8, request: u32) {
    to.push(kind);
    to.extend_from_slice(&request.to_le_bytes());
}

fn put_version(to: &mut Vec<u8>, version: FilterVersion) {
    to.extend_from_slice(&version.generation.to_le_bytes());
    to.extend_from_slice(&version.additions.to_le_bytes());
}

fn put_ids(to: &mut Vec<u8>, ids: &[BlockId]) {
    let ids = &ids[..ids.len().min(ASK_IDS_MAX)];
    to.extend_from_slice(&(ids.len() as u16).to_le_bytes());
    ids.iter().for_each(|id| to.extend_from_slice(&id.0));
}

fn put_piece(to: &mut Vec<u8>, piece: &FilterPiece) {
    to.push(FILTER);
    to.extend_from_slice(&piece.salt.to_le_bytes());
    put_version(to, piece.version);
    to.push(piece.layers.len() as u8);
    for size in &piece.layers {
        to.extend_from_slice(&size.capacity.to_le_bytes());
        to.extend_from_slice(&size.blocks.to_le_bytes());
    }
    to.extend_from_slice(&piece.offset.to_le_bytes());
    to.extend_from_slice(&piece.bytes);
}

fn put_changes(to: &mut Vec<u8>, changes: &FilterChanges) {
    to.push(CHANGES);
    for number in [changes.generation, changes.from, changes.opens] {
        to.extend_from_slice(&number.to_le_bytes());
    }
    let keys = &changes.keys[..changes.keys.len().min(CHANGES_MAX)];
    to.extend_from_slice(&(keys.len() as u16).to_le_bytes());
    put_keys(to, keys);
}

fn parse_hello(reader: &mut Reader<'_>) -> Option<PeerMessage> {
    let ours = reader.array()? == HELLO_MAGIC && reader.u16()? == PEER_VERSION;
    let (group, domain, node) = (reader.array()?, Domain(reader.array()?), NodeId(reader.array()?));
    ours.then_some(PeerMessage::Hello(Hello { group, domain, node }))
}

fn parse_flag(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn parse_version(reader: &mut Reader<'_>) -> Option<FilterVersion> {
    Some(FilterVersion { generation: reader.u32()?, additions: reader.u32()? })
}

fn parse_ids(reader: &mut Reader<'_>) -> Option<Vec<BlockId>> {
    let count = usize::from(reader.u16()?);
    let bytes = reader.bytes(count * BlockId::LEN).filter(|_| count <= ASK_IDS_MAX)?;
    let (ids, _) = bytes.as_chunks();
    Some(ids.iter().map(|id| BlockId(*id)).collect())
}

fn parse_piece(reader: &mut Reader<'_>) -> Option<FilterPiece> {
    let (salt, version) = (reader.u64()?, parse_version(reader)?);
    let count = Some(usize::from(reader.u8()?)).filter(|count| (1..=LAYERS_MAX).contains(count))?;
    let mut layers = Vec::with_capacity(count);
    for _ in 0..count {
        layers.push(LayerSize { capacity: reader.u32()?, blocks: reader.u32()? });
    }
    let offset = reader.u32()?;
    let bytes = std::mem::replace(reader, Reader::new(&[])).rest();
    let fits = bytes.len() <= PIECE_BYTES_MAX;
    fits.then(|| FilterPiece { salt, version, layers, offset, bytes: bytes.to_vec() })
}

/// Parses generation, additions before, capacity of a layer to open, and number of keys.
fn parse_changes_head(reader: &mut Reader<'_>) -> Option<(u32, u32, u32, usize)> {
    Some((reader.u32()?, reader.u32()?, reader.u32()?, usize::from(reader.u16()?)))
}

fn parse_ask(reader: &mut Reader<'_>) -> Option<PeerMessage> {
    let request = reader.u32()?;
    let score = Score(BlockId(reader.array()?));
    let kind = Kind::from_u8(reader.u8()?).filter(|kind| matches!(kind, Kind::Data | Kind::Page))?;
    let fetch = parse_flag(reader)?;
    let ids = parse_ids(reader).filter(|ids| !ids.is_empty())?;
    Some(PeerMessage::Ask(AskMessage { request, score, kind, fetch, ids }))
}

fn parse_frame(reader: &mut Reader<'_>) -> Option<PeerMessage> {
    let request = reader.u32()?;
    let frame = std::mem::replace(reader, Reader::new(&[])).rest();
    let fits = !frame.is_empty() && frame.len() <= STORED_LENGTH_MAX;
    fits.then(|| PeerMessage::Frame { request, frame: frame.into() })
}

fn parse_end(reader: &mut Reader<'_>) -> Option<PeerMessage> {
    let (request, version, missing) = (reader.u32()?, parse_version(reader)?, parse_ids(reader)?);
    Some(PeerMessage::End { request, version, missing })
}

fn parse_busy(reader: &mut Reader<'_>) -> Option<PeerMessage> {
    let (request, milliseconds) = (reader.u32()?, reader.u32()?);
    Some(PeerMessage::Busy { request, retry_after: Duration::from_millis(u64::from(milliseconds)) })
}

/// Splits a byte stream into messages.
#[derive(Debug, Default)]
pub struct PeerStream {
    bytes: Vec<u8>,
    /// Number of bytes at the front that were already returned as messages.
    taken: usize,
}

impl PeerStream {
    /// Adds bytes of the stream. Before the next call, call [`PeerStream::next_message`] until it returns nothing.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete message.
    ///
    /// # Errors
    /// `Corrupt`: it is too long or invalid. Then end the stream.
    pub fn next_message(&mut self) -> Result<Option<PeerMessage>> {
        let mut reader = Reader::new(&self.bytes[self.taken..]);
        let Some(length) = reader.u32().map(|length| length as usize) else { return Ok(None) };
        if length > MESSAGE_BYTES_MAX {
            return Err(Error::corrupt(format!(
                "a peer's message has {length} bytes, but at most {MESSAGE_BYTES_MAX} are allowed"
            )));
        }
        let Some(message) = reader.bytes(length) else { return Ok(None) };
        let message = PeerMessage::parse(message)?;
        self.taken += 4 + length;
        Ok(Some(message))
    }
}
