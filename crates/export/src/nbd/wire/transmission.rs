//! Transmission: requests, and simple and structured replies (protocol document, "Transmission" and "Values").

use platter_image::{Error, Result};

use super::{first_part, take_u16, take_u32, take_u64};

/// Bytes of a request without its payload.
pub const REQUEST_HEADER_BYTES: usize = 28;
/// Bytes of a chunk of a structured reply before its payload.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Most bytes that one request reads or writes: what the protocol wants every server to take.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// The context by which clients ask what is allocated.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its number in replies.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// State of an extent in it: it may hold anything.
pub const STATE_DATA: u32 = 0;
/// State of an extent in it: a hole that reads as zeros.
pub const STATE_ZERO: u32 = 3;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
const CHUNK_DONE: u16 = 1;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The bytes of a range.
    Read,
    /// New bytes for a range; they follow the request.
    Write,
    /// The end; no reply.
    Disconnect,
    /// Everything written before becomes durable.
    Flush,
    /// The range holds nothing of value.
    Trim,
    /// The range will be read soon.
    Cache,
    /// The range shall read as zeros.
    WriteZeroes,
    /// What is known of a range.
    BlockStatus,
    /// None of these.
    Unknown(u16),
}

impl Command {
    fn from_number(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            number => Self::Unknown(number),
        }
    }

    /// The flags that mean something with it. FUA does with every command, where nothing is written it does nothing.
    pub fn flags_allowed(self) -> CommandFlags {
        let fua = CommandFlags::FUA.0;
        CommandFlags(match self {
            Self::Read => fua | CommandFlags::DF.0,
            Self::WriteZeroes => fua | CommandFlags::NO_HOLE.0 | CommandFlags::FAST_ZERO.0,
            Self::BlockStatus => fua | CommandFlags::REQ_ONE.0,
            _ => fua,
        })
    }

    /// Whether it changes the disk.
    pub fn changes(self) -> bool {
        matches!(self, Self::Write | Self::WriteZeroes | Self::Trim)
    }
}

/// Flags of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandFlags(pub u16);

impl CommandFlags {
    /// What is written is durable when the reply comes.
    pub const FUA: Self = Self(1);
    /// Zeros that keep their space.
    pub const NO_HOLE: Self = Self(2);
    /// One piece: no holes in the reply.
    pub const DF: Self = Self(4);
    /// One extent is enough.
    pub const REQ_ONE: Self = Self(8);
    /// Only if it is faster than writing.
    pub const FAST_ZERO: Self = Self(16);

    /// Whether all of `flags` are set.
    pub fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// A request, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub command: Command,
    /// How.
    pub flags: CommandFlags,
    /// The client's own number, which the reply repeats.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u32,
}

impl Request {
    /// Reads one. Nothing in it is checked but the magic number.
    ///
    /// # Errors
    /// `Corrupt` when the magic number is another one: then nobody knows where the next request begins.
    pub fn parse(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<Self> {
        let mut rest = bytes.as_slice();
        let magic = take_u32(&mut rest);
        if magic != Some(REQUEST_MAGIC) {
            return Err(Error::corrupt(format!("a request begins with {:#010x}", magic.unwrap_or_default())));
        }
        let numbers = (take_u16(&mut rest), take_u16(&mut rest));
        let range = (take_u64(&mut rest), take_u64(&mut rest), take_u32(&mut rest));
        match (numbers, range) {
            ((Some(flags), Some(command)), (Some(cookie), Some(offset), Some(length))) => Ok(Self {
                command: Command::from_number(command),
                flags: CommandFlags(flags),
                cookie,
                offset,
                length,
            }),
            _ => Err(Error::bug("a request's header has twenty-eight bytes")),
        }
    }

    /// Bytes that follow it.
    pub fn payload_length(&self) -> u32 {
        if self.command == Command::Write { self.length } else { 0 }
    }
}

/// Why a request failed, in the protocol's numbers, which are those of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorNumber {
    /// The disk is read-only, or the wish is refused.
    NotPermitted = 1,
    /// The disk failed.
    Io = 5,
    /// The request is wrong.
    Invalid = 22,
    /// There is no space, or the disk ends before.
    NoSpace = 28,
    /// The server ends.
    Shutdown = 108,
}

/// The flags of an export. With all of them several connections at once are fine: they share the device.
pub fn transmission_flags(is_writable: bool) -> u16 {
    const HAS_FLAGS: u16 = 1;
    const READ_ONLY: u16 = 1 << 1;
    const SEND_FLUSH: u16 = 1 << 2;
    const SEND_FUA: u16 = 1 << 3;
    const SEND_TRIM: u16 = 1 << 5;
    const SEND_WRITE_ZEROES: u16 = 1 << 6;
    const SEND_DF: u16 = 1 << 7;
    const CAN_MULTI_CONN: u16 = 1 << 8;
    const SEND_CACHE: u16 = 1 << 10;
    const SEND_FAST_ZERO: u16 = 1 << 11;
    let any = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_DF | CAN_MULTI_CONN | SEND_CACHE;
    any | if is_writable { SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO } else { READ_ONLY }
}

/// A simple reply; what was read follows it.
pub fn simple_reply(error: Option<ErrorNumber>, cookie: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.map_or(0, |number| number as u32).to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// What a chunk of a structured reply holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum ChunkKind {
    /// Nothing: all is said.
    None = 0,
    /// Offset (8 bytes) and bytes of the disk.
    OffsetData = 1,
    /// Offset (8 bytes) and length (4 bytes) of zeros.
    OffsetHole = 2,
    /// A context's number (4 bytes), then length and state (4 bytes each) of every extent.
    BlockStatus = 5,
    /// An error's number (4 bytes), and counted (2 bytes) text.
    Error = (1 << 15) + 1,
}

/// What stands before a chunk's payload of `length` bytes; `last` when the reply ends with it.
pub fn chunk_header(kind: ChunkKind, last: bool, cookie: u64, length: u32) -> [u8; CHUNK_HEADER_BYTES] {
    let mut bytes = [0; CHUNK_HEADER_BYTES];
    bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&if last { CHUNK_DONE } else { 0 }.to_be_bytes());
    bytes[6..8].copy_from_slice(&(kind as u16).to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// A whole structured reply that is an error, with a text for people of at most 4096 bytes.
pub fn error_chunk(number: ErrorNumber, cookie: u64, text: &str) -> Vec<u8> {
    let text = first_part(text);
    let mut bytes = chunk_header(ChunkKind::Error, true, cookie, 6 + text.len() as u32).to_vec();
    bytes.extend_from_slice(&(number as u32).to_be_bytes());
    bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}
