//! What the kernel hears of a node, and how long it may believe it. The reasons are in [`super`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::process::{getegid, geteuid};

use crate::tree::{Node, NodeKind};

/// How long a name is believed to be that of its node.
pub(super) const NAME_TIME: Duration = Duration::from_secs(1);
/// How long attributes that never change are believed.
const FIXED_TIME: Duration = Duration::from_secs(3600);
/// Bytes that programs should read and write at once.
const PREFERRED_BYTES: u32 = 128 << 10;
/// Bytes of a unit in which space is counted.
const ALLOCATION_UNIT: u64 = 512;

/// To whom all nodes belong: the user who serves them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Owner {
    /// The user of this process.
    pub(super) fn current() -> Self {
        Self { user: geteuid().as_raw(), group: getegid().as_raw() }
    }

    /// The attributes of a node that belongs to him. Everybody may read what he may see, and only he may write.
    pub(super) fn attributes(self, node: &Node) -> FileAttr {
        let (kind, size, allocated, permissions) = match node.kind {
            NodeKind::Directory => (FileType::Directory, 0, 0, 0o555),
            NodeKind::File { length, allocated } => (FileType::RegularFile, length, allocated, 0o444),
        };
        let modified = modified(node.modified_unix_ms);
        FileAttr {
            ino: INodeNo(node.id),
            size,
            blocks: allocated.div_ceil(ALLOCATION_UNIT),
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: modified,
            kind,
            perm: if node.writable { permissions | 0o200 } else { permissions },
            // One name for a directory says, too, that its links do not count the directories in it.
            nlink: 1,
            uid: self.user,
            gid: self.group,
            rdev: 0,
            blksize: PREFERRED_BYTES,
            flags: 0,
        }
    }
}

/// How long the attributes of a node are believed.
pub(super) fn attribute_time(node: &Node) -> Duration {
    match (node.kind, node.writable) {
        (NodeKind::Directory, _) => NAME_TIME,
        (NodeKind::File { .. }, true) => Duration::ZERO,
        (NodeKind::File { .. }, false) => FIXED_TIME,
    }
}

fn modified(unix_ms: i64) -> SystemTime {
    let since = Duration::from_millis(unix_ms.unsigned_abs());
    let time = if unix_ms < 0 { UNIX_EPOCH.checked_sub(since) } else { UNIX_EPOCH.checked_add(since) };
    time.unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_any_value() {
        assert_eq!(modified(1500), UNIX_EPOCH + Duration::from_millis(1500));
        assert_eq!(modified(-1500), UNIX_EPOCH - Duration::from_millis(1500));
        for extreme in [i64::MIN, i64::MAX] {
            modified(extreme);
        }
    }

    #[test]
    fn what_can_change_is_not_believed_for_long() {
        let file = NodeKind::File { length: 1, allocated: 1 };
        let node = |kind, writable| Node { id: 2, kind, writable, modified_unix_ms: 0 };
        assert_eq!(attribute_time(&node(file, true)), Duration::ZERO);
        assert_eq!(attribute_time(&node(file, false)), FIXED_TIME);
        for writable in [false, true] {
            assert_eq!(attribute_time(&node(NodeKind::Directory, writable)), NAME_TIME);
        }
    }
}
