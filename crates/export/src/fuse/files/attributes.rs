//! Attributes of nodes for the kernel.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};

use crate::file_view::{UnixTime, ViewKind, ViewNode};

/// How long the kernel may remember names and attributes that never change, and others.
const FIXED_TIME: Duration = Duration::from_secs(3600);
const SHORT_TIME: Duration = Duration::from_secs(1);
/// Preferred request size for programs.
const PREFERRED_BYTES: u32 = 128 << 10;
/// Unit of allocated space in bytes.
const ALLOCATION_UNIT: u64 = 512;

/// Cache time of a node's attributes and its name.
pub(super) fn cache_time(node: &ViewNode) -> Duration {
    if node.is_fixed { FIXED_TIME } else { SHORT_TIME }
}

pub(super) fn file_type(kind: ViewKind) -> FileType {
    match kind {
        ViewKind::Regular => FileType::RegularFile,
        ViewKind::Directory => FileType::Directory,
        ViewKind::Link => FileType::Symlink,
        ViewKind::CharacterDevice => FileType::CharDevice,
        ViewKind::BlockDevice => FileType::BlockDevice,
        ViewKind::Fifo => FileType::NamedPipe,
        ViewKind::Socket => FileType::Socket,
    }
}

pub(super) fn attributes(node: &ViewNode) -> FileAttr {
    let [atime, mtime, ctime] = node.times.map(system_time);
    FileAttr {
        ino: INodeNo(node.id),
        size: node.size,
        blocks: node.allocated.div_ceil(ALLOCATION_UNIT),
        atime,
        mtime,
        ctime,
        crtime: mtime,
        kind: file_type(node.kind),
        perm: node.mode & 0o7777,
        nlink: node.links,
        uid: node.owner.0,
        gid: node.owner.1,
        rdev: device(node.device),
        blksize: PREFERRED_BYTES,
        flags: 0,
    }
}

/// The 32 bits in which FUSE has a device number: 12 bits of the major number between the 20 of the minor one.
fn device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

fn system_time((seconds, nanoseconds): UnixTime) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    let fine = Duration::from_nanos(nanoseconds.min(999_999_999).into());
    time.and_then(|time| time.checked_add(fine)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_any_value() {
        assert_eq!(system_time((1, 5)), UNIX_EPOCH + Duration::new(1, 5));
        assert_eq!(system_time((-2, 750_000_000)), UNIX_EPOCH - Duration::from_millis(1250));
        for seconds in [i64::MIN, i64::MAX] {
            system_time((seconds, u32::MAX));
        }
    }

    #[test]
    fn device_numbers_as_the_kernel_encodes_them() {
        assert_eq!(device((1, 3)), 0x103);
        assert_eq!(device((259, 70000)), (70000 & 0xff) | 259 << 8 | (70000 & 0xf_ff00) << 12);
    }
}
