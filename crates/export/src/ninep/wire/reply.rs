//! Replies of the server.

use rustix::io::Errno;

use super::request::Kind;
use super::{HEADER_BYTES, VERSION, VERSION_UNKNOWN};
use crate::tree::{NAME_LENGTH_MAX, Room};

/// Header bytes of a read reply.
pub const DATA_HEADER_BYTES: usize = HEADER_BYTES + 4;
/// Filesystem type number for clients: `V9FS_MAGIC`.
const FILE_SYSTEM: u32 = 0x0102_1997;
/// Unit for free space.
const ROOM_UNIT_BYTES: u64 = 4096;
/// Unit of allocated space in `stat`.
const SECTOR_BYTES: u64 = 512;
/// Preferred read size: the length of a block.
const READ_BYTES: u64 = 64 << 10;
/// All `stat` fields.
const ATTRIBUTES_BASIC: u64 = 0x7ff;
/// A lock was granted.
const LOCK_SUCCESS: u8 = 0;
/// No lock is held.
const LOCK_NONE: u8 = 2;

const QID_DIRECTORY: u8 = 0x80;
const QID_FILE: u8 = 0;
const ENTRY_DIRECTORY: u8 = 4;
const ENTRY_FILE: u8 = 8;

/// Identity of a node (qid).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qid {
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Version of the contents: unchanged contents have the same version; 0: unknown.
    pub version: u32,
    /// The node's number.
    pub path: u64,
}

/// The `stat` fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The node.
    pub qid: Qid,
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Length in bytes.
    pub length: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// Time of the last change, milliseconds since 1970.
    pub modified_unix_ms: i64,
}

/// The body of a reply, except read replies.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the protocol's own fields, described there")]
pub enum Reply<'a> {
    /// Success without data.
    Done,
    Version {
        msize: u32,
        is_known: bool,
    },
    /// Attach, making a directory.
    Qid(Qid),
    /// Open, create: with the preferred I/O size.
    Opened(Qid, u32),
    /// Walk.
    Qids(Vec<Qid>),
    /// Write: number of written bytes.
    Count(u32),
    Room(Room),
    Attributes(Attributes),
    Locked,
    /// Nobody holds a lock on that range.
    NoLock {
        start: u64,
        length: u64,
        process: u32,
        client: &'a [u8],
    },
}

impl Reply<'_> {
    /// The complete reply message for a request of this kind.
    pub fn to_bytes(&self, request: Kind, tag: u16) -> Vec<u8> {
        let mut bytes = begin(request.reply(), tag);
        match self {
            Self::Done => {}
            Self::Version { msize, is_known } => {
                bytes.extend_from_slice(&msize.to_le_bytes());
                push_string(&mut bytes, if *is_known { VERSION } else { VERSION_UNKNOWN });
            }
            Self::Qid(qid) => push_qid(&mut bytes, *qid),
            Self::Opened(qid, unit) => {
                push_qid(&mut bytes, *qid);
                bytes.extend_from_slice(&unit.to_le_bytes());
            }
            Self::Qids(qids) => {
                bytes.extend_from_slice(&(qids.len() as u16).to_le_bytes());
                qids.iter().for_each(|qid| push_qid(&mut bytes, *qid));
            }
            Self::Count(count) => bytes.extend_from_slice(&count.to_le_bytes()),
            Self::Room(room) => push_room(&mut bytes, *room),
            Self::Attributes(attributes) => push_attributes(&mut bytes, attributes),
            Self::Locked => bytes.push(LOCK_SUCCESS),
            Self::NoLock { start, length, process, client } => {
                bytes.push(LOCK_NONE);
                push_u64s(&mut bytes, &[*start, *length]);
                bytes.extend_from_slice(&process.to_le_bytes());
                push_string(&mut bytes, client);
            }
        }
        end(bytes)
    }
}

/// The complete error reply.
pub fn error_reply(errno: Errno, tag: u16) -> Vec<u8> {
    let mut bytes = begin(Kind::ERROR, tag);
    bytes.extend_from_slice(&errno.raw_os_error().to_le_bytes());
    end(bytes)
}

/// The header for `count` bytes read from a file or directory.
pub fn data_header(request: Kind, tag: u16, count: u32) -> [u8; DATA_HEADER_BYTES] {
    let mut bytes = [0; DATA_HEADER_BYTES];
    bytes[..4].copy_from_slice(&(DATA_HEADER_BYTES as u32 + count).to_le_bytes());
    bytes[4] = request.reply().0;
    bytes[5..7].copy_from_slice(&tag.to_le_bytes());
    bytes[7..].copy_from_slice(&count.to_le_bytes());
    bytes
}

/// One directory entry; reading from `next` continues after it.
pub fn directory_entry(qid: Qid, next: u64, name: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24 + name.len());
    push_qid(&mut bytes, qid);
    bytes.extend_from_slice(&next.to_le_bytes());
    bytes.push(if qid.is_directory { ENTRY_DIRECTORY } else { ENTRY_FILE });
    push_string(&mut bytes, name.as_bytes());
    bytes
}

fn begin(kind: Kind, tag: u16) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 0, kind.0];
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes
}

fn end(mut bytes: Vec<u8>) -> Vec<u8> {
    let size = bytes.len() as u32;
    bytes[..4].copy_from_slice(&size.to_le_bytes());
    bytes
}

fn push_u64s(bytes: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
}

fn push_string(bytes: &mut Vec<u8>, string: &[u8]) {
    bytes.extend_from_slice(&(string.len() as u16).to_le_bytes());
    bytes.extend_from_slice(string);
}

fn push_qid(bytes: &mut Vec<u8>, qid: Qid) {
    bytes.push(if qid.is_directory { QID_DIRECTORY } else { QID_FILE });
    bytes.extend_from_slice(&qid.version.to_le_bytes());
    bytes.extend_from_slice(&qid.path.to_le_bytes());
}

fn push_room(bytes: &mut Vec<u8>, room: Room) {
    bytes.extend_from_slice(&FILE_SYSTEM.to_le_bytes());
    bytes.extend_from_slice(&(ROOM_UNIT_BYTES as u32).to_le_bytes());
    let (total, free) = (room.total / ROOM_UNIT_BYTES, room.free / ROOM_UNIT_BYTES);
    let (files, files_free, id) = (0, 0, 0);
    push_u64s(bytes, &[total, free, free, files, files_free, id]);
    bytes.extend_from_slice(&(NAME_LENGTH_MAX as u32).to_le_bytes());
}

fn push_attributes(bytes: &mut Vec<u8>, attributes: &Attributes) {
    push_u64s(bytes, &[ATTRIBUTES_BASIC]);
    push_qid(bytes, attributes.qid);
    for number in [attributes.mode, attributes.user, attributes.group] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let (links, device) = (1, 0);
    let sectors = attributes.allocated.div_ceil(SECTOR_BYTES);
    push_u64s(bytes, &[links, device, attributes.length, READ_BYTES, sectors]);
    let seconds = attributes.modified_unix_ms.div_euclid(1000) as u64;
    let nanoseconds = attributes.modified_unix_ms.rem_euclid(1000) as u64 * 1_000_000;
    // Times of access, modification and change; then unused fields: creation time, generation, data version.
    push_u64s(bytes, &[seconds, nanoseconds, seconds, nanoseconds, seconds, nanoseconds, 0, 0, 0, 0]);
}
