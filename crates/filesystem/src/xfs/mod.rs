//! XFS: which blocks are free, and where files lie.
//!
//! A filesystem consists of allocation groups. Each has two B-trees of free space, one by place and one by length, a short
//! list of free blocks for these trees, and a B-tree of inode chunks. What none of them calls free is kept, so no
//! metadata has to be listed to be kept.
//!
//! Why it is safe. Free space is dropped only if
//!
//! - the log ends in an unmount record ([`log`]): otherwise the newest metadata is only in the log, and the filesystem is
//!   refused;
//! - every feature is known, and there is neither a realtime section nor an external log ([`superblock`]);
//! - all checksums are correct (version 5), both trees of free space list the same extents, ascending and without overlap,
//!   and their number of blocks is that of the group's header ([`free_space`]);
//! - nothing that an inode or a tree claims is free, and no block is claimed twice, except by files that share it
//!   ([`claims`]).
//!
//! Unwritten extents are dropped, because they read as zeros, and so is the unused rest of the block that holds a group's
//! headers, except in the first group, where a boot loader may be. The log is kept as it is, because the kernel compares
//! the numbers in it with those in metadata.
//!
//! Sources: the kernel's `fs/xfs`, and *XFS Algorithms & Data Structures*.

mod attributes;
mod claims;
mod directory;
mod files;
mod free_space;
mod group;
mod inode_tree;
mod inodes;
mod log;
mod mapping;
mod reader;
mod short_tree;
mod superblock;
mod volume;

pub(crate) use files::Files;
pub(crate) use reader::Xfs;
