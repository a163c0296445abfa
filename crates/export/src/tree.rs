//! A tree of directories and files, as FUSE and 9P serve it.
//!
//! What is in the tree is not known here: names of images, versions, live disks. A node is a name's place in the tree
//! and has a number that no other node ever has; an open file is contents that stay what they are while it is open.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use platter_image::{Error, Extent, Result, Score};
use platter_vdisk::Allocation;
use serde::{Deserialize, Serialize};

/// The number of a node: the same as long as it is there, also when it gets another name.
pub type NodeId = u64;

/// The root of every tree.
pub const ROOT: NodeId = 1;

/// Most bytes of a name in a directory.
pub const NAME_LENGTH_MAX: usize = 255;

/// What is known of a node without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// What it is.
    pub kind: NodeKind,
    /// Whether its contents, or the names in it, can be changed.
    pub writable: bool,
    /// When it last changed, milliseconds since 1970.
    pub modified_unix_ms: i64,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeKind {
    /// It has names in it.
    Directory,
    /// It has contents.
    File {
        /// Bytes from the first to the last.
        length: u64,
        /// Bytes that are not zero because nothing is kept for them, as far as that is known without reading.
        allocated: u64,
    },
}

/// How much room there is, for those who ask before they write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that can still be written.
    pub free: u64,
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Reading only.
    Read,
    /// Writing only, as those do who copy into it.
    Write,
    /// Both.
    ReadWrite,
}

/// The tree. Many threads use it at once. Names hold no `/`, are not empty, `.` or `..`, and have at most
/// [`NAME_LENGTH_MAX`] bytes: servers see to that.
///
/// Every method fails with `Missing` when a node or name is not there, and with `Refused` when it is there and cannot be
/// used that way; `Io`, `Corrupt` and `Transient` come from what keeps the tree.
pub trait Tree: Send + Sync {
    /// The node of that name in a directory.
    ///
    /// # Errors
    /// See [`Tree`].
    fn lookup(&self, directory: NodeId, name: &str) -> Result<Node>;

    /// The directory that a directory is in; the root is in itself.
    ///
    /// # Errors
    /// See [`Tree`].
    fn parent(&self, directory: NodeId) -> Result<NodeId>;

    /// What is known of a node now.
    ///
    /// # Errors
    /// See [`Tree`].
    fn node(&self, id: NodeId) -> Result<Node>;

    /// All names in a directory, without `.` and `..`, in the order of their bytes.
    ///
    /// # Errors
    /// See [`Tree`].
    fn list(&self, directory: NodeId) -> Result<Vec<(String, Node)>>;

    /// Opens a file.
    ///
    /// # Errors
    /// See [`Tree`].
    fn open(&self, id: NodeId, access: Access) -> Result<Arc<dyn OpenFile>>;

    /// Makes an empty file and opens it.
    ///
    /// # Errors
    /// See [`Tree`]; `Refused` when the name is taken.
    fn create(&self, directory: NodeId, name: &str, access: Access) -> Result<(Node, Arc<dyn OpenFile>)>;

    /// Makes an empty directory.
    ///
    /// # Errors
    /// See [`Tree`].
    fn make_directory(&self, directory: NodeId, name: &str) -> Result<Node>;

    /// Removes a file.
    ///
    /// # Errors
    /// See [`Tree`].
    fn remove_file(&self, directory: NodeId, name: &str) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// See [`Tree`].
    fn remove_directory(&self, directory: NodeId, name: &str) -> Result<()>;

    /// Gives a node another name, in the same directory or in another.
    ///
    /// # Errors
    /// See [`Tree`]. What has the new name already is never replaced.
    fn rename(&self, from: (NodeId, &str), to: (NodeId, &str)) -> Result<()>;

    /// Whether nothing in it can be changed, by whatever name.
    fn is_read_only(&self) -> bool {
        false
    }

    /// How much room there is.
    fn room(&self) -> Room {
        Room::default()
    }
}

/// An open file. Many threads use it at once.
pub trait OpenFile: Send + Sync {
    /// Its length in bytes, now.
    fn length(&self) -> u64;

    /// Fills `buffer` from `offset`; the range is inside the length.
    ///
    /// # Errors
    /// As for [`platter_vdisk::BlockDevice::read`].
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// Writes `bytes` at `offset`. A file that cannot grow refuses what would end behind its length, with `StorageFull`
    /// as the source of an `Io`.
    ///
    /// # Errors
    /// As for [`platter_vdisk::BlockDevice::write`].
    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let _ = (bytes, offset);
        Err(read_only())
    }

    /// Makes a range inside the length read as zeros and gives its space back.
    ///
    /// # Errors
    /// As for [`OpenFile::write`].
    fn write_zeroes(&self, range: Extent) -> Result<()> {
        let _ = range;
        Err(read_only())
    }

    /// Cuts it off, or lets it grow by zeros. Setting the length that it has always succeeds on what can be written.
    ///
    /// # Errors
    /// As for [`OpenFile::write`].
    fn set_length(&self, length: u64) -> Result<()> {
        let _ = length;
        Err(read_only())
    }

    /// Returns when everything written before is on the disk.
    ///
    /// # Errors
    /// As for [`platter_vdisk::BlockDevice::flush`].
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Somebody closed it who wants to know what became of what was written; may come more than once, and others may
    /// still have it open.
    ///
    /// # Errors
    /// What became of it.
    fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Tells what is known of `range`, in ascending runs without gaps, until `visit` says false.
    ///
    /// # Errors
    /// As for [`OpenFile::read`].
    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()>;

    /// The score, if its contents are those of a version and cannot change.
    fn score(&self) -> Option<Score> {
        None
    }

    /// Takes over `range` of another file at `offset`, if that can be done without copying; `false` if the caller has to
    /// copy.
    ///
    /// # Errors
    /// As for [`OpenFile::write`].
    fn take_over(&self, source: &dyn OpenFile, range: Extent, offset: u64) -> Result<bool> {
        let _ = (source, range, offset);
        Ok(false)
    }

    /// A plain local file that holds the contents, byte for byte, which the kernel may use by itself while this is open.
    fn backing(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn read_only() -> Error {
    Error::refused("this file is read-only")
}
