//! Checks one request, executes it on the device, and builds the reply. Knows no sockets and threads.

use platter_image::{Error, Extent, Result};
use platter_vdisk::Allocation;
use rustix::io::Errno;

use super::extents::pieces;
use super::negotiate::Agreed;
use super::wire::{
    BASE_ALLOCATION_ID, CHUNK_HEADER_BYTES, ChunkKind, Command, CommandFlags, ErrorNumber, PAYLOAD_BYTES_MAX,
    Request, STATE_DATA, STATE_ZERO, chunk_header, error_chunk, simple_reply,
};
use crate::buffer::Buffer;
use crate::errno::errno_of;

/// Maximum extents per read reply; the rest is sent as data.
const READ_PIECES_MAX: usize = 64;
/// Shorter runs of zeros are sent as data, because a chunk of their own costs more than it saves.
const HOLE_BYTES_MIN: u64 = 16 << 10;
/// Maximum extents of a block status reply; clients request the rest.
const STATUS_EXTENTS_MAX: usize = 4096;
/// Bytes per read for cache requests.
const CACHE_BYTES: usize = 1 << 20;

/// Why a request failed.
#[derive(Debug)]
pub(super) struct Failure {
    number: ErrorNumber,
    /// The error for the server's log; the client gets its first line.
    pub(super) error: Error,
}

impl Failure {
    fn new(number: ErrorNumber, why: impl Into<String>) -> Self {
        Self { number, error: Error::refused(why) }
    }

    /// The server is shutting down.
    pub(super) fn shutdown() -> Self {
        Self::new(ErrorNumber::Shutdown, "the server ends")
    }

    /// Replaces `reply` by the error reply.
    pub(super) fn write(&self, agreed: &Agreed, request: &Request, reply: &mut Buffer) {
        reply.clear();
        if agreed.structured {
            reply.push(&error_chunk(self.number, request.cookie, &self.error.to_string()));
        } else {
            reply.push(&simple_reply(Some(self.number), request.cookie));
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let number = match errno_of(&error) {
            Errno::NOSPC | Errno::DQUOT => ErrorNumber::NoSpace,
            Errno::PERM => ErrorNumber::NotPermitted,
            _ => ErrorNumber::Io,
        };
        Self { number, error }
    }
}

/// Checks whether the request is acceptable, before anything is allocated or any payload kept.
pub(super) fn check(agreed: &Agreed, request: &Request) -> Result<(), Failure> {
    let &Request { command, flags, offset, length, .. } = request;
    let invalid = |why: String| Err(Failure::new(ErrorNumber::Invalid, why));
    if let Command::Unknown(number) = command {
        return invalid(format!("command {number} is unknown"));
    }
    if !command.flags_allowed().has(flags) {
        return invalid(format!("flags {:#x} mean nothing with {command:?}", flags.0));
    }
    if command.changes() && !agreed.device.is_writable() {
        return Err(Failure::new(ErrorNumber::NotPermitted, "this disk is read-only"));
    }
    if command == Command::Flush {
        return Ok(());
    }
    let end = offset.checked_add(u64::from(length));
    if end.is_none_or(|end| end > agreed.device.length()) {
        let why = format!("{length} bytes at {offset} on a disk of {}", agreed.device.length());
        let writes = matches!(command, Command::Write | Command::WriteZeroes);
        let number = if writes { ErrorNumber::NoSpace } else { ErrorNumber::Invalid };
        return Err(Failure::new(number, why));
    }
    match command {
        Command::Read | Command::Write if length > PAYLOAD_BYTES_MAX => {
            invalid(format!("{length} bytes at once, over {PAYLOAD_BYTES_MAX}"))
        }
        Command::BlockStatus if !agreed.contexts => invalid("no context was agreed on".into()),
        Command::BlockStatus if length == 0 => invalid("the state of no bytes".into()),
        _ => Ok(()),
    }
}

/// Executes a checked request and fills `reply` with the complete success reply.
///
/// # Errors
/// `reply` is then invalid.
pub(super) fn perform(
    agreed: &Agreed,
    request: &Request,
    payload: &[u8],
    reply: &mut Buffer,
) -> Result<(), Failure> {
    reply.clear();
    let device = &*agreed.device;
    let range = Extent::new(request.offset, u64::from(request.length));
    match request.command {
        Command::Read if agreed.structured => return read_in_chunks(agreed, request, reply),
        Command::Read => {
            reply.push(&simple_reply(None, request.cookie));
            device.read(reply.grow(request.length as usize), request.offset)?;
            return Ok(());
        }
        Command::BlockStatus => return block_status(agreed, request, reply),
        Command::Cache => read_in_vain(agreed, range, reply)?,
        Command::Write => device.write(payload, request.offset)?,
        // An overlay disk reserves no space, so NO_HOLE has no effect. Zeros are only recorded, never written, so
        // FAST_ZERO always holds.
        Command::Trim | Command::WriteZeroes => device.write_zeroes(range)?,
        Command::Flush => device.flush()?,
        Command::Disconnect | Command::Unknown(_) => {
            return Err(Error::bug("a request that was not checked").into());
        }
    }
    if request.command.changes() && request.flags.has(CommandFlags::FUA) {
        device.flush()?;
    }
    reply.push(&simple_reply(None, request.cookie));
    Ok(())
}

fn read_in_chunks(agreed: &Agreed, request: &Request, reply: &mut Buffer) -> Result<(), Failure> {
    let range = Extent::new(request.offset, u64::from(request.length));
    if range.length == 0 {
        reply.push(&chunk_header(ChunkKind::None, true, request.cookie, 0));
        return Ok(());
    }
    let in_one_piece = request.flags.has(CommandFlags::DF) || range.length < HOLE_BYTES_MIN;
    let mut list = if in_one_piece {
        Vec::new()
    } else {
        pieces(&*agreed.device, range, READ_PIECES_MAX, HOLE_BYTES_MIN)?
    };
    let told = list.last().map_or(range.offset, |(extent, _)| extent.end());
    if told < range.end() {
        list.push((Extent::between(told, range.end()), Allocation::Data));
    }
    for (extent, allocation) in list {
        let is_last = extent.end() == range.end();
        let length = extent.length as u32;
        match allocation {
            Allocation::Zero => {
                reply.push(&chunk_header(ChunkKind::OffsetHole, is_last, request.cookie, 12));
                reply.push(&extent.offset.to_be_bytes());
                reply.push(&length.to_be_bytes());
            }
            Allocation::Data => {
                reply.push(&chunk_header(ChunkKind::OffsetData, is_last, request.cookie, 8 + length));
                reply.push(&extent.offset.to_be_bytes());
                agreed.device.read(reply.grow(length as usize), extent.offset)?;
            }
        }
    }
    Ok(())
}

fn block_status(agreed: &Agreed, request: &Request, reply: &mut Buffer) -> Result<(), Failure> {
    let range = Extent::new(request.offset, u64::from(request.length));
    let count_max = if request.flags.has(CommandFlags::REQ_ONE) { 1 } else { STATUS_EXTENTS_MAX };
    let list = pieces(&*agreed.device, range, count_max, 0)?;
    let length = 4 + 8 * list.len() as u32;
    reply.push(&chunk_header(ChunkKind::BlockStatus, true, request.cookie, length));
    reply.push(&BASE_ALLOCATION_ID.to_be_bytes());
    for (extent, allocation) in list {
        let state = match allocation {
            Allocation::Data => STATE_DATA,
            Allocation::Zero => STATE_ZERO,
        };
        reply.push(&(extent.length as u32).to_be_bytes());
        reply.push(&state.to_be_bytes());
    }
    debug_assert_eq!(reply.as_slice().len(), CHUNK_HEADER_BYTES + length as usize);
    Ok(())
}

/// Reads the data of a range, so that lower layers cache it.
fn read_in_vain(agreed: &Agreed, range: Extent, scratch: &mut Buffer) -> Result<(), Failure> {
    let mut at = range.offset;
    while at < range.end() {
        scratch.clear();
        let length = CACHE_BYTES.min((range.end() - at) as usize);
        agreed.device.read(scratch.grow(length), at)?;
        at += length as u64;
    }
    scratch.clear();
    Ok(())
}
