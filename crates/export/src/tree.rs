//! The file tree that FUSE and 9P serve.
//!
//! This file does not know the contents of the tree (images, versions, live disks). A node has a number that no other
//! node ever gets; an open file keeps its contents while it is open.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use platter_image::{Error, ErrorKind, Extent, Result, Score};
use platter_vdisk::Allocation;
use serde::{Deserialize, Serialize};

/// The number of a node; it stays the same when the node is renamed.
pub type NodeId = u64;

/// The root of every tree.
pub const ROOT: NodeId = 1;

/// Maximum bytes of a name.
pub const NAME_LENGTH_MAX: usize = 255;

/// Attributes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its kind.
    pub kind: NodeKind,
    /// Whether its contents, or the names in it, can be changed.
    pub writable: bool,
    /// When it last changed, milliseconds since 1970.
    pub modified_unix_ms: i64,
}

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeKind {
    /// A directory.
    Directory,
    /// A file.
    File {
        /// Length in bytes.
        length: u64,
        /// Allocated bytes, as far as known without reading.
        allocated: u64,
    },
}

/// Total and free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that can still be written.
    pub free: u64,
}

/// Access mode of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Reading only.
    Read,
    /// Writing only, for example to copy into it.
    Write,
    /// Both.
    ReadWrite,
}

/// The tree. Many threads use it at once. Names hold no `/`, are not empty, `.` or `..`, and have at most
/// [`NAME_LENGTH_MAX`] bytes: servers see to that.
///
/// Every method fails with `Missing` when a node or name does not exist, and with `Refused` when it cannot be used in
/// this way; `Io`, `Corrupt` and `Transient` come from the storage of the tree.
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

    /// Current attributes of a node.
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

    /// Creates an empty file and opens it.
    ///
    /// # Errors
    /// See [`Tree`]; `Refused` when the name is taken.
    fn create(&self, directory: NodeId, name: &str, access: Access) -> Result<(Node, Arc<dyn OpenFile>)>;

    /// Creates an empty directory.
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

    /// Renames a node, within a directory or between directories.
    ///
    /// # Errors
    /// See [`Tree`]. An existing node with the new name is never replaced.
    fn rename(&self, from: (NodeId, &str), to: (NodeId, &str)) -> Result<()>;

    /// Whether the whole tree is read-only.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Total and free space.
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

    /// Writes `bytes` at `offset`. A file that cannot grow refuses writes past its end, with `StorageFull` as the
    /// source of an `Io`.
    ///
    /// # Errors
    /// As for [`platter_vdisk::BlockDevice::write`].
    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let _ = (bytes, offset);
        Err(read_only())
    }

    /// Zeroes a range inside the length and frees its space.
    ///
    /// # Errors
    /// As for [`OpenFile::write`].
    fn write_zeroes(&self, range: Extent) -> Result<()> {
        let _ = range;
        Err(read_only())
    }

    /// Truncates the file, or extends it with zeros. Setting the current length always succeeds on writable files.
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

    /// A program closed the file and waits for the result of its writes. May be called more than once, while others
    /// still have the file open.
    ///
    /// # Errors
    /// The result of the writes.
    fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Reports the extents of `range` in ascending order without gaps, until `visit` returns false.
    ///
    /// # Errors
    /// As for [`OpenFile::read`].
    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()>;

    /// The score, if the file is an immutable version.
    fn score(&self) -> Option<Score> {
        None
    }

    /// Clones `range` of another file to `offset` without copying; returns `false` if the caller has to copy.
    ///
    /// # Errors
    /// As for [`OpenFile::write`].
    fn take_over(&self, source: &dyn OpenFile, range: Extent, offset: u64) -> Result<bool> {
        let _ = (source, range, offset);
        Ok(false)
    }

    /// A plain local file with the same contents, which the kernel may read directly while this file is open.
    fn backing(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Opens a file that was open in another process. If that is impossible, such as after its image was detached or its version
/// forgotten, each request for it tries again and fails, and nothing else does.
pub(crate) fn open_again(tree: &Arc<dyn Tree>, node: NodeId, access: Access) -> Arc<dyn OpenFile> {
    let unopened = || Arc::new(UnopenedFile { tree: Arc::clone(tree), node, access, file: OnceLock::new() });
    tree.open(node, access).unwrap_or_else(|_| unopened())
}

/// An open file of another process that could not be opened here yet.
struct UnopenedFile {
    tree: Arc<dyn Tree>,
    node: NodeId,
    access: Access,
    file: OnceLock<Arc<dyn OpenFile>>,
}

impl UnopenedFile {
    fn file(&self) -> Result<&dyn OpenFile> {
        if self.file.get().is_none() {
            let opened = self.tree.open(self.node, self.access).map_err(|error| match error.kind() {
                ErrorKind::Missing | ErrorKind::Refused => {
                    let stale = io::Error::from(io::ErrorKind::StaleNetworkFileHandle);
                    Error::missing(format!("an open file is gone: {}", error.with_causes()))
                        .with_source(stale)
                }
                _ => error,
            });
            let _ = self.file.set(opened?);
        }
        self.file.get().map(|file| &**file).ok_or_else(|| Error::bug("a file that was opened is not open"))
    }
}

impl OpenFile for UnopenedFile {
    fn length(&self) -> u64 {
        // Reads of whatever the program expects there arrive, and fail.
        self.file().map_or(i64::MAX as u64, OpenFile::length)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file()?.read(buffer, offset)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file()?.write(bytes, offset)
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.file()?.write_zeroes(range)
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.file()?.set_length(length)
    }

    fn sync(&self) -> Result<()> {
        self.file()?.sync()
    }

    fn close(&self) -> Result<()> {
        self.file()?.close()
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.file()?.extents(range, visit)
    }
}

fn read_only() -> Error {
    Error::refused("this file is read-only")
}
