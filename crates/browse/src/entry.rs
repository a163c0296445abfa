//! What is shown of a file and of a partition.

use platter_filesystem::{FileInode, FileKind};
use serde::{Serialize, Serializer};

use crate::location::PartitionName;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileType {
    /// The letter of `ls -l`.
    pub fn letter(self) -> char {
        match self {
            Self::File => '-',
            Self::Directory => 'd',
            Self::Link => 'l',
            Self::CharacterDevice => 'c',
            Self::BlockDevice => 'b',
            Self::Fifo => 'p',
            Self::Socket => 's',
        }
    }
}

impl From<FileKind> for FileType {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::Regular => Self::File,
            FileKind::Directory => Self::Directory,
            FileKind::Link => Self::Link,
            FileKind::CharacterDevice => Self::CharacterDevice,
            FileKind::BlockDevice => Self::BlockDevice,
            FileKind::Fifo => Self::Fifo,
            FileKind::Socket => Self::Socket,
        }
    }
}

/// A name in a directory, and the file to which it refers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileEntry {
    /// The name (`list`), or the path from the root of the filesystem (`find`). In JSON, bytes that are not UTF-8 are replaced.
    #[serde(serialize_with = "as_text")]
    pub name: Vec<u8>,
    /// The bytes of `name` in hexadecimal, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_bytes: Option<String>,
    /// The type.
    pub kind: FileType,
    /// The twelve bits of `chmod`.
    pub mode: u16,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of its contents, in seconds since 1970 UTC.
    pub mtime: i64,
    /// Number of names of this file.
    pub links: u32,
    /// The number of its inode, or the place of its directory entry.
    pub inode: u64,
    /// The target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_optional_text")]
    pub target: Option<Vec<u8>>,
    /// The bytes of `target` in hexadecimal, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_bytes: Option<String>,
}

fn as_text<S: Serializer>(name: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(name))
}

fn as_optional_text<S: Serializer>(name: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    as_text(name.as_deref().unwrap_or_default(), serializer)
}

/// The hexadecimal digits of a name that is not UTF-8.
fn unless_text(name: &[u8]) -> Option<String> {
    str::from_utf8(name).is_err().then(|| name.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl FileEntry {
    pub(crate) fn new(name: Vec<u8>, inode: &FileInode, target: Option<Vec<u8>>) -> Self {
        let metadata = inode.metadata();
        Self {
            name_bytes: unless_text(&name),
            name,
            kind: metadata.kind.into(),
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
}

/// A partition of a version, or the whole disk if it has no partition table; or a logical volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionEntry {
    /// Its number, or that of the partition in which the volume begins; `None` for the whole disk.
    pub number: Option<u32>,
    /// The name of the logical volume, as in `/dev/mapper`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The offset of its first byte on the disk.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The filesystem in it, or the meaning of its type.
    pub filesystem: String,
    /// The label of the filesystem.
    pub label: Option<String>,
    /// Whether the files in it can be read.
    pub is_readable: bool,
    /// If the store damaged or lost data that is needed to recognize the filesystem: what, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

impl PartitionEntry {
    /// Its name in a [`FileLocation`](crate::FileLocation).
    pub fn name(&self) -> PartitionName {
        match (&self.volume, self.number) {
            (Some(volume), _) => PartitionName::Volume(volume.clone()),
            (None, Some(number)) => PartitionName::Number(number),
            (None, None) => PartitionName::WholeDisk,
        }
    }
}
