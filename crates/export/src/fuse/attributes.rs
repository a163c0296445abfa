//! Attributes of nodes for the kernel, and how long it may cache them. [`super`] has the reasons.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::process::{getegid, geteuid};

use crate::tree::{Node, NodeKind};

/// Cache time of names.
pub(super) const NAME_TIME: Duration = Duration::from_secs(1);
/// Cache time of attributes that never change.
const FIXED_TIME: Duration = Duration::from_secs(3600);
/// Preferred request size for programs.
const PREFERRED_BYTES: u32 = 128 << 10;
/// Unit of allocated space in bytes.
const ALLOCATION_UNIT: u64 = 512;

/// The owner of all nodes: the serving user.
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

    /// The attributes of a node of this owner: readable for everybody who can access the mount, writable for the owner
    /// only.
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
            // A link count of 1 also says that the link count does not include subdirectories.
            nlink: 1,
            uid: self.user,
            gid: self.group,
            rdev: 0,
            blksize: PREFERRED_BYTES,
            flags: 0,
        }
    }
}

/// Cache time of the attributes of a node.
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
