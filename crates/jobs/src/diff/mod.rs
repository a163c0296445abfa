//! What differs between two versions: by blocks, and of ext filesystems by files.
//!
//! The recipes are compared first: where neither table of inodes, nor directory, nor contents lie in what differs,
//! files are equal unread. Whatever may differ is decided by the names of blocks, and where these differ, too, by the
//! bytes: a file is changed if its contents are, not if it lies elsewhere. Files are never told apart by size and time
//! alone. Directories of both versions are walked side by side in the order of names, so memory holds the directories
//! on the way down, never all paths.
//!
//! Must never call something equal that could not be read: it is named, and the result is that they differ.

mod compare;
mod contents;
mod inodes;
mod report;
mod table;
mod walk;

pub use compare::{DiffRequest, diff};
pub use report::{DiffEvent, DiffReport, FileChange, PartitionDifference, PathDifference};
pub(crate) use walk::displayed;
