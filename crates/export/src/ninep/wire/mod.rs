//! The bytes of 9P2000.L, as diod's protocol document says (<https://github.com/chaos/diod/blob/master/protocol.md>), with
//! the numbers of Linux's `include/net/9p/9p.h`. All numbers are little-endian; every message is
//! `size[4] type[1] tag[2]` and a body, and the size counts itself.
//!
//! Owns every constant of the protocol. Parsers take received bytes of capped length, and must never trust a length
//! inside. Strings stay bytes; the session checks whether they are valid names.

mod reply;
mod request;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod round_trip;

pub use reply::{Attributes, DATA_HEADER_BYTES, Qid, Reply, data_header, directory_entry, error_reply};
pub use request::{Header, Kind, Request};

/// Bytes of a message before its body.
pub const HEADER_BYTES: usize = 7;
/// The supported version.
pub const VERSION: &[u8] = b"9P2000.L";
/// The reply to other versions.
pub const VERSION_UNKNOWN: &[u8] = b"unknown";
/// No fid.
pub const NO_FID: u32 = u32::MAX;
/// Maximum names per walk.
pub const WALK_NAMES_MAX: usize = 16;
/// Bytes of a message that clients reserve for the header of a read or write.
pub const IO_HEADER_BYTES: u32 = 24;

/// Open flags: access mode mask.
pub const OPEN_ACCESS: u32 = 0o3;
/// Open flags: write-only.
pub const OPEN_WRITE: u32 = 0o1;
/// Open flags: read-write.
pub const OPEN_READ_WRITE: u32 = 0o2;
/// Open flags: exclusive creation.
pub const OPEN_EXCLUSIVE: u32 = 0o200;
/// Open flags: truncate.
pub const OPEN_TRUNCATE: u32 = 0o1000;
/// Open flags: must be a directory.
pub const OPEN_DIRECTORY: u32 = 0o200_000;

/// Unlink flags: remove a directory.
pub const UNLINK_DIRECTORY: u32 = 0x200;

/// What to set: permissions.
pub const SET_MODE: u32 = 1;
/// What to set: the user.
pub const SET_USER: u32 = 2;
/// What to set: the group.
pub const SET_GROUP: u32 = 4;
/// What to set: the length.
pub const SET_LENGTH: u32 = 8;
