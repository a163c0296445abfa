//! Partitions, directories and files of a version, as `platter ls --json` prints them and the API shows them.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
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

/// A name in a directory, and the file to which it refers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileEntry {
    /// The name (`list`), or the path from the root of the filesystem (`find`). In JSON, bytes that are not UTF-8 are replaced.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
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
    #[schemars(with = "String")]
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

/// A partition of a version, or the whole disk if it has no partition table; or a logical volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
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
    /// If files of this kind of filesystem can be read, but not these: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// If the store damaged or lost data that is needed to recognize the filesystem: what, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// A part of a directory of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DirectoryPage {
    /// Whether the path leads to a directory. Otherwise, `entries` has only the file itself.
    pub is_directory: bool,
    /// Sorted by name; links are not followed.
    pub entries: Vec<FileEntry>,
    /// What is wrong with names that are left out.
    pub faults: Vec<String>,
    /// Number of names in the whole directory.
    pub total: u64,
    /// Number of the next name, if there are more.
    pub next: Option<u64>,
}
