//! A read-only view of files as a filesystem of Unix has them: modes, owners, times, links, devices, attributes.
//!
//! This file does not know where the files are. Unlike a [`Tree`](crate::tree::Tree), names are bytes, nothing can be changed,
//! and a view keeps no state for its callers: every request names a node by its number.

use std::ops::ControlFlow;

use platter_image::Result;

use crate::tree::NodeId;

/// The type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewKind {
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

/// Seconds since 1970 UTC, and nanoseconds.
pub type UnixTime = (i64, u32);

/// Attributes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewNode {
    /// Its number.
    pub id: NodeId,
    /// Its type.
    pub kind: ViewKind,
    /// The twelve bits of `chmod`.
    pub mode: u16,
    /// User id and group id.
    pub owner: (u32, u32),
    /// Size in bytes.
    pub size: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// Times of the last access, of the last change of the contents, and of the last change of anything.
    pub times: [UnixTime; 3],
    /// Number of names.
    pub links: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Whether it never changes and keeps its name, so that the kernel may remember both.
    pub is_fixed: bool,
}

/// An extended attribute: its whole name, and its value.
pub type ViewAttribute = (Vec<u8>, Vec<u8>);

/// Receives the names of a directory, each with its place in the list and its node, or why that cannot be read: then its number.
pub type VisitNames<'v> =
    &'v mut dyn FnMut(u64, &[u8], std::result::Result<ViewNode, NodeId>) -> ControlFlow<()>;

/// The view. Many threads use it at once.
///
/// Every method fails with `Missing` when a node or name does not exist, with `Refused` when it cannot be used in this way, and
/// with the errors of the storage. It never panics, whatever the files are.
pub trait FileView: Send + Sync {
    /// The node of that name in a directory.
    ///
    /// # Errors
    /// See [`FileView`].
    fn lookup(&self, directory: NodeId, name: &[u8]) -> Result<ViewNode>;

    /// Attributes of a node.
    ///
    /// # Errors
    /// See [`FileView`].
    fn node(&self, id: NodeId) -> Result<ViewNode>;

    /// Passes the names in a directory from a place in the list on, without `.` and `..`. Names have no `/` and no NUL.
    ///
    /// # Errors
    /// See [`FileView`].
    fn list(&self, directory: NodeId, from: u64, visit: VisitNames<'_>) -> Result<()>;

    /// Makes sure that a file can be read.
    ///
    /// # Errors
    /// See [`FileView`].
    fn open(&self, id: NodeId) -> Result<()>;

    /// Fills `buffer` with the contents of a file from `offset` on; returns the bytes that there are, fewer only at its end.
    ///
    /// # Errors
    /// See [`FileView`].
    fn read(&self, id: NodeId, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// The first offset from `offset` on with data, or with `is_hole` without; `None` after the end. The end counts as a hole.
    ///
    /// # Errors
    /// See [`FileView`].
    fn seek(&self, id: NodeId, offset: u64, is_hole: bool) -> Result<Option<u64>>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// See [`FileView`].
    fn target(&self, id: NodeId) -> Result<Vec<u8>>;

    /// The extended attributes of a node.
    ///
    /// # Errors
    /// See [`FileView`].
    fn attributes(&self, id: NodeId) -> Result<Vec<ViewAttribute>>;
}
