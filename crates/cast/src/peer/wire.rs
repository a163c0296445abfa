//! Messages between two nodes: each behind its length, over one reliable ordered stream. docs/formats/peer-wire.md.
//!
//! Owns the layout and the cutting of a stream into messages ([`PeerStream`]). Must never hold more than
//! [`MESSAGE_BYTES_MAX`] of a peer's bytes, nor read a message that is not exactly as long as it says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use platter_image::frame::STORED_LENGTH_MAX;
use platter_image::{BlockId, Domain, Error, Kind, Result, Score};

use super::filter::{CHANGES_MAX, FilterChanges, FilterPiece, FilterVersion, LAYERS_MAX, LayerSize};
use super::filter::{PIECE_BYTES_MAX, parse_keys, put_keys};
use crate::wire::format::Reader;

/// Version of the protocol, said in HELLO.
pub const PEER_VERSION: u16 = 1;
/// Most ids in one ASK: at most 16 MiB of blocks.
pub const ASK_IDS_MAX: usize = 256;
/// Longest message, without its length: a frame behind type and request number.
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

/// 128 random bits that name a node, for as long as it keeps its cache.
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
    /// The store whose blocks these are: nodes of another one are not talked to.
    pub store: [u8; 16],
    /// Its identity domain.
    pub domain: Domain,
    /// Who speaks.
    pub node: NodeId,
}

/// A question for frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskMessage {
    /// Chosen by the asker; not used again while it is under way.
    pub request: u32,
    /// The recipe that the ids stand in.
    pub score: Score,
    /// Data or pages.
    pub kind: Kind,
    /// The asker sees the other as these blocks' home: who lacks them may fetch them from the origin, and then answer.
    pub fetch: bool,
    /// One to [`ASK_IDS_MAX`] ids.
    pub ids: Vec<BlockId>,
}

/// What nodes say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// Who I am.
    Hello(Hello),
    /// Tell me what you hold, from now on; or no longer.
    Subscribe(bool),
    /// A piece of what I hold.
    Filter(FilterPiece),
    /// What I hold since.
    Changes(FilterChanges),
    /// Give me frames.
    Ask(AskMessage),
    /// A frame as it is stored, with at least one block that was asked for. Opaque here.
    Frame {
        /// The question.
        request: u32,
        /// Its bytes, unverified.
        frame: Arc<[u8]>,
    },
    /// The last answer to a question, also of a cancelled one.
    End {
        /// The question.
        request: u32,
        /// The speaker's filter now: an older one at the asker explains what is missing.
        version: FilterVersion,
        /// Ids that are not here.
        missing: Vec<BlockId>,
    },
    /// Not now: the only answer to a question.
    Busy {
        /// The question.
        request: u32,
        /// When it may be better.
        retry_after: Duration,
    },
    /// No more frames for that question.
    Cancel {
        /// The question.
        request: u32,
    },
}

impl PeerMessage {
    /// Length and message, up to a frame's bytes, which follow as they are.
    pub fn head(&self) -> Vec<u8> {
        let mut to = vec![0, 0, 0, 0];
        let mut frame_length = 0;
        match self {
            Self::Hello(hello) => {
                to.push(HELLO);
                to.extend_from_slice(&HELLO_MAGIC);
                to.extend_from_slice(&PEER_VERSION.to_le_bytes());
                to.extend_from_slice(&hello.store);
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

    /// The whole message behind its length.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        if let Self::Frame { frame, .. } = self {
            bytes.extend_from_slice(frame);
        }
        bytes
    }

    /// Reads one message without its length.
    ///
    /// # Errors
    /// `Corrupt`: not a message of this version, or not exactly one.
    pub fn parse(message: &[u8]) -> Result<Self> {
        let bad = || {
            let kind = message.first().copied().unwrap_or(0);
            Error::corrupt(format!("a peer's message of type {kind} and {} bytes", message.len()))
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
    let (store, domain, node) = (reader.array()?, Domain(reader.array()?), NodeId(reader.array()?));
    ours.then_some(PeerMessage::Hello(Hello { store, domain, node }))
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

/// Generation, additions before, room of a layer to open, and number of keys.
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

/// Cuts a byte stream into messages.
#[derive(Debug, Default)]
pub struct PeerStream {
    bytes: Vec<u8>,
    /// Bytes in front that were given as messages.
    taken: usize,
}

impl PeerStream {
    /// Takes bytes from the stream. Call [`PeerStream::next_message`] until it gives nothing before the next ones.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message.
    ///
    /// # Errors
    /// `Corrupt`: it is too long, or no message. End the stream.
    pub fn next_message(&mut self) -> Result<Option<PeerMessage>> {
        let mut reader = Reader::new(&self.bytes[self.taken..]);
        let Some(length) = reader.u32().map(|length| length as usize) else { return Ok(None) };
        if length > MESSAGE_BYTES_MAX {
            return Err(Error::corrupt(format!(
                "a peer's message of {length} bytes, {MESSAGE_BYTES_MAX} are allowed"
            )));
        }
        let Some(message) = reader.bytes(length) else { return Ok(None) };
        let message = PeerMessage::parse(message)?;
        self.taken += 4 + length;
        Ok(Some(message))
    }
}
