//! What is shown of a file and of a partition.

use platter_api::{FileEntry, FileType, PartitionEntry};
use platter_filesystem::{FileInode, FileKind};

use crate::location::PartitionName;

/// What is shown of a file.
pub(crate) fn file_entry(name: Vec<u8>, inode: &FileInode, target: Option<Vec<u8>>) -> FileEntry {
    let metadata = inode.metadata();
    FileEntry {
        name_bytes: unless_text(&name),
        name,
        kind: file_type(metadata.kind),
        mode: metadata.mode,
        uid: metadata.owner.0,
        gid: metadata.owner.1,
        size: metadata.size,
        mtime: metadata.mtime.0,
        links: metadata.links,
        inode: inode.number(),
        target_bytes: target.as_deref().and_then(unless_text),
        target,
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::File,
        FileKind::Directory => FileType::Directory,
        FileKind::Link => FileType::Link,
        FileKind::CharacterDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
    }
}

/// The hexadecimal digits of a name that is not UTF-8.
fn unless_text(name: &[u8]) -> Option<String> {
    str::from_utf8(name).is_err().then(|| name.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The name of a partition or volume in a [`FileLocation`](crate::FileLocation).
pub fn partition_name(entry: &PartitionEntry) -> PartitionName {
    match (&entry.volume, entry.number) {
        (Some(volume), _) => PartitionName::Volume(volume.clone()),
        (None, Some(number)) => PartitionName::Number(number),
        (None, None) => PartitionName::WholeDisk,
    }
}
