//! The files of a filesystem, the same for every kind: inodes, names, contents and attributes.
//!
//! Each kind implements [`FileTree`] in its own folder. A tree only reads, one file at a time, and only what is asked for. It
//! trusts nothing on the disk: everything that it reads for one tree is limited to a few times the size of the filesystem, so
//! every walk ends. A caller that walks directories must enter each one only once, because names may form cycles.
//!
//! Must never return bytes that a mounted filesystem would not show: what cannot be understood is an error.

mod attributes;
mod listing;
mod pieces;

use std::ops::Range;

use platter_image::{DiskRead, Error, Extent, Result};

pub(crate) use attributes::AttributeList;
pub use listing::Listing;
pub use pieces::{FileContents, Piece, Run, Visit};
use pieces::{visit_inline, visit_runs};

/// The flag of a file of ext with a hash tree. Other filesystems have another or none.
const FLAG_VERITY: u64 = 0x10_0000;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A file with contents.
    Regular,
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

impl FileKind {
    /// The type in a mode of POSIX; `None` for one that does not exist.
    pub(crate) fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode >> 12 & 0xf {
            0x8 => Self::Regular,
            0x4 => Self::Directory,
            0xa => Self::Link,
            0x2 => Self::CharacterDevice,
            0x6 => Self::BlockDevice,
            0x1 => Self::Fifo,
            0xc => Self::Socket,
            _ => return None,
        })
    }
}

/// What is known of a file besides contents and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its type.
    pub kind: FileKind,
    /// The twelve bits of `chmod`. A filesystem without modes has those that its kernel driver shows by default.
    pub mode: u16,
    /// User id and group id; those of root in a filesystem without owners.
    pub owner: (u32, u32),
    /// Size in bytes.
    pub size: u64,
    /// Bytes that the filesystem has reserved for its contents, as `du` counts them.
    pub allocated: u64,
    /// Time of the last change of its contents: seconds since 1970 UTC, and nanoseconds. FAT has local times, which are taken as
    /// UTC.
    pub mtime: (i64, u32),
    /// Time of the last access, in the same form; that of the last change where the filesystem has none.
    pub atime: (i64, u32),
    /// Time of the last change of contents or metadata, in the same form; as `atime`.
    pub ctime: (i64, u32),
    /// Number of names that refer to it.
    pub links: u32,
    /// The major and minor number of a device.
    pub device: (u32, u32),
    /// Flags that a user sees: in FAT, exFAT and NTFS read-only, hidden, system and archive. In other filesystems those of `lsattr`, and
    /// in the upper 32 bits those that only this kind of filesystem has.
    pub flags: u64,
    /// Its project id; in ext and XFS.
    pub project: u32,
}

/// The flags of a file in FAT, exFAT and NTFS that a user sets: read-only, hidden, system and archive.
pub(crate) const DOS_FLAGS: u64 = 0x27;

/// The flags that `lsattr` shows, as the system numbers them, of filesystems that number them in another way.
pub(crate) mod lsattr {
    pub(crate) const COMPRESS: u32 = 0x4;
    pub(crate) const SYNC: u32 = 0x8;
    pub(crate) const IMMUTABLE: u32 = 0x10;
    pub(crate) const APPEND: u32 = 0x20;
    pub(crate) const NO_DUMP: u32 = 0x40;
    pub(crate) const NO_ACCESS_TIME: u32 = 0x80;
    pub(crate) const NO_COMPRESSION: u32 = 0x400;
    pub(crate) const SYNC_DIRECTORY: u32 = 0x1_0000;
    pub(crate) const NO_COPY_ON_WRITE: u32 = 0x80_0000;
    pub(crate) const DIRECT_ACCESS: u32 = 0x200_0000;
    pub(crate) const INHERIT_PROJECT: u32 = 0x2000_0000;
}

/// Flags of `lsattr` of a filesystem that has others: `known` are pairs of a stored bit and that of `lsattr`.
pub(crate) fn lsattr_flags(stored: u64, known: &[(u64, u32)]) -> u64 {
    let set = known.iter().filter(|(bit, _)| stored & bit != 0);
    set.fold(0, |flags, (_, bit)| flags | u64::from(*bit))
}

impl Metadata {
    /// A file of that type without anything else.
    pub(crate) fn new(kind: FileKind) -> Self {
        Self {
            kind,
            mode: 0,
            owner: (0, 0),
            size: 0,
            allocated: 0,
            mtime: (0, 0),
            atime: (0, 0),
            ctime: (0, 0),
            links: 1,
            device: (0, 0),
            flags: 0,
            project: 0,
        }
    }
}

/// A file, with its inode or directory entry as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInode {
    pub(crate) number: u64,
    pub(crate) metadata: Metadata,
    pub(crate) is_encrypted: bool,
    pub(crate) bytes: Vec<u8>,
}

impl FileInode {
    /// Its number: unique in the filesystem, and the same whenever the filesystem is opened.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its bytes as stored.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether bytes past its end matter: the hash tree of fs-verity of ext is there.
    pub fn has_verity(&self) -> bool {
        self.metadata.flags & FLAG_VERITY != 0
    }

    /// Whether its contents, or the names in a directory, are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }
}

/// An extended attribute, in the form of the system: with its whole name, such as `user.color`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attribute {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// The files of one filesystem.
///
/// Every function returns `Corrupt` for what cannot be trusted or is not known, and errors of reading the disk.
pub trait FileTree: Send {
    /// The filesystem's name, as in `blkid`.
    fn filesystem(&self) -> &'static str;

    /// The size of its blocks or clusters in bytes.
    fn block_size(&self) -> u32;

    /// Its label and UUID, if it has them.
    fn names(&self) -> (Option<&str>, Option<&str>);

    /// The number of the subvolume that is mounted unless another is named; `None` in a filesystem without subvolumes.
    ///
    /// # Errors
    /// Those of all functions.
    fn default_subvolume(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// The number of the root directory.
    fn root(&self) -> u64;

    /// Allows as much reading again as when the tree was opened. A caller that keeps a tree open calls it before each of its
    /// requests, so that every single request is limited.
    fn renew(&mut self);

    /// The file with that number, which a listing of this filesystem has, or which is the root. exFAT: of this tree, since it was
    /// opened, if [`FileTree::forgets`].
    ///
    /// # Errors
    /// `Corrupt` if there is no such file; those of all functions.
    fn inode(&mut self, number: u64) -> Result<FileInode>;

    /// Whether the tree must stay open, because it could not find some of the listed files again after it was opened anew.
    fn forgets(&self) -> bool {
        false
    }

    /// The names in a directory; encrypted ones in their stored form.
    ///
    /// # Errors
    /// Those of all functions.
    fn list(&mut self, directory: &FileInode) -> Result<Listing>;

    /// The disk.
    fn disk(&self) -> &dyn DiskRead;

    /// Where the contents of a file are: everything written, even past the end of the file; of an encrypted file, their stored form.
    ///
    /// # Errors
    /// `Refused` if they are not in this filesystem; those of all functions.
    fn contents(&mut self, file: &FileInode) -> Result<FileContents>;

    /// Calls `visit` with the pieces of `range` of a file whose contents are packed, in order and without gaps. The first and the
    /// last may reach beyond the range, but not beyond the file.
    ///
    /// # Errors
    /// Those of [`FileTree::visit_contents`].
    fn visit_packed(&mut self, _file: &FileInode, _range: Range<u64>, _visit: Visit<'_>) -> Result<()> {
        Err(Error::bug(format!("{} has no packed files", self.filesystem())))
    }

    /// Calls `visit` with all pieces of a file in order, each with its offset. Together they are as long as the file.
    ///
    /// # Errors
    /// `Refused` if it is encrypted; those of [`FileTree::contents`], and of `visit`.
    fn visit_contents(&mut self, file: &FileInode, visit: Visit<'_>) -> Result<()> {
        if file.is_encrypted {
            return Err(Error::refused("its contents are encrypted, and the key is not in the image"));
        }
        match self.contents(file)? {
            FileContents::Inline(bytes) => visit_inline(&bytes, file.metadata.size, visit),
            FileContents::Runs(runs) => visit_runs(self.disk(), runs, file.metadata.size, visit),
            FileContents::Packed => self.visit_packed(file, 0..file.metadata.size, visit),
        }
    }

    /// Calls `visit` with disk extents that hold contents or attributes of a file. Returns whether these are all.
    ///
    /// # Errors
    /// Those of [`FileTree::contents`].
    fn visit_places(&mut self, file: &FileInode, visit: &mut dyn FnMut(Extent)) -> Result<bool> {
        if let FileContents::Runs(runs) = self.contents(file)? {
            runs.iter().for_each(|run| visit(run.place));
        }
        Ok(false)
    }

    /// The target of a symbolic link; an encrypted one in its stored form.
    ///
    /// # Errors
    /// Those of all functions.
    fn target(&mut self, link: &FileInode) -> Result<Vec<u8>>;

    /// The extended attributes, sorted by name.
    ///
    /// # Errors
    /// Those of all functions.
    fn attributes(&mut self, file: &FileInode) -> Result<Vec<Attribute>>;
}
