//! Transmission: requests, and simple and structured replies (protocol document, "Transmission" and "Values").

use platter_image::{Error, Result};

use super::{first_part, take_u16, take_u32, take_u64};

/// Bytes of a request without its payload.
pub const REQUEST_HEADER_BYTES: usize = 28;
/// Header bytes of a chunk of a structured reply.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Maximum bytes of a read or write: the minimum that the protocol requires servers to accept.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// The metadata context for allocation.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its number in replies.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// Extent state: data.
pub const STATE_DATA: u32 = 0;
/// Extent state: a hole that reads as zeros.
pub const STATE_ZERO: u32 = 3;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
const CHUNK_DONE: u16 = 1;

/// Type of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read a range.
    Read,
    /// Write a range; the bytes follow the request.
    Write,
    /// Disconnect; no reply.
    Disconnect,
    /// Flush: make all earlier writes durable.
    Flush,
    /// Trim: the range is no longer needed.
    Trim,
    /// Cache: the range will be read soon.
    Cache,
    /// Write zeros to a range.
    WriteZeroes,
    /// Block status of a range.
    BlockStatus,
    /// Any other command.
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

    /// The flags valid with the command. FUA is valid with every command, and without effect if nothing is written.
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
    /// FUA: the data is durable before the reply.
    pub const FUA: Self = Self(1);
    /// NO_HOLE: zeros keep their space.
    pub const NO_HOLE: Self = Self(2);
    /// DF: a single data chunk.
    pub const DF: Self = Self(4);
    /// REQ_ONE: a single extent.
    pub const REQ_ONE: Self = Self(8);
    /// FAST_ZERO: fail unless faster than writing.
    pub const FAST_ZERO: Self = Self(16);

    /// Whether all of `flags` are set.
    pub fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// A request, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// Its flags.
    pub flags: CommandFlags,
    /// The client's cookie, repeated in the reply.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u32,
}

impl Request {
    /// Parses a request. Only the magic number is checked.
    ///
    /// # Errors
    /// `Corrupt` when the magic number is wrong: the start of the next request is then unknown.
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

    /// Bytes of payload that follow it.
    pub fn payload_length(&self) -> u32 {
        if self.command == Command::Write { self.length } else { 0 }
    }
}

/// Why a request failed, in the protocol's numbers, which are those of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorNumber {
    /// EPERM: the disk is read-only, or the request is refused.
    NotPermitted = 1,
    /// EIO: the disk failed.
    Io = 5,
    /// EINVAL: invalid request.
    Invalid = 22,
    /// ENOSPC: no space, or past the end of the disk.
    NoSpace = 28,
    /// ESHUTDOWN: the server is shutting down.
    Shutdown = 108,
}

/// The flags of an export. Several connections are allowed, because they share the device.
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

/// A simple reply; read data follow it.
pub fn simple_reply(error: Option<ErrorNumber>, cookie: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.map_or(0, |number| number as u32).to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// Type of a chunk of a structured reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum ChunkKind {
    /// None: the reply is complete.
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

/// The header of a chunk with `length` bytes of payload; `last` marks the end of the reply.
pub fn chunk_header(kind: ChunkKind, last: bool, cookie: u64, length: u32) -> [u8; CHUNK_HEADER_BYTES] {
    let mut bytes = [0; CHUNK_HEADER_BYTES];
    bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&if last { CHUNK_DONE } else { 0 }.to_be_bytes());
    bytes[6..8].copy_from_slice(&(kind as u16).to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// A complete structured error reply, with a text of at most 4096 bytes.
pub fn error_chunk(number: ErrorNumber, cookie: u64, text: &str) -> Vec<u8> {
    let text = first_part(text);
    let mut bytes = chunk_header(ChunkKind::Error, true, cookie, 6 + text.len() as u32).to_vec();
    bytes.extend_from_slice(&(number as u32).to_be_bytes());
    bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes
}
