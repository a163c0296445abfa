//! Differences between two versions: by blocks, and by files of filesystems that are understood.
//!
//! The recipes are compared first: if neither the inode tables, nor a directory, nor contents are in the differing
//! ranges, files are equal without being read. Everything else is decided by the ids of blocks and, where these differ,
//! by the bytes: a file is changed if its contents are, not if it was moved on the disk. Size and time alone never
//! decide. Directories of both versions are walked side by side in order of names, so memory holds only the directories
//! on the current path.
//!
//! Metadata changes at every mount, so blocks of it that differ are counted, but are no difference. Boot code is one if whole
//! partitions are compared: it belongs to no metadata.
//!
//! Must never treat something unreadable as equal: it is reported, and counts as a difference.

mod boot_code;
mod compare;
mod contents;
mod inodes;
mod place;
mod report;
mod table;
mod walk;

pub use compare::{DiffRequest, diff};
pub use place::{DiffPartition, DiffPlace};
pub use report::{DiffEvent, DiffReport, FileChange, PartitionDifference, PathDifference};
pub(crate) use walk::displayed;
