//! UFS: which fragments are kept, and where files lie.
//!
//! A filesystem has fragments, of which up to eight form a block, and groups of them. Each group has a copy of the
//! superblock, a header with the bitmaps of free fragments and used inodes, and a table of inodes. Everything outside of free
//! fragments is kept, and so are all tables of inodes. UFS1 and UFS2 differ in the size of inodes and of pointers.
//!
//! # Why it is safe to drop free fragments
//!
//! All inodes in use are read, and all pointers are followed: each fragment must exist, be marked as used, and have one owner.
//! An inode must have as many sectors as it says, and none after its end. Directories may only name inodes in use. The
//! counters of each group and of the superblock must agree with the bitmaps. If anything is different, or if there is
//! something that the reader does not know, the whole partition is kept: snapshots, directories of 4.2BSD, big-endian
//! filesystems. One that was not unmounted is refused.
//!
//! Sources: `sys/ufs/ffs/fs.h`, `sys/ufs/ufs/dinode.h` and `dir.h` of FreeBSD; `makefs` of NetBSD.

mod claims;
mod directory;
mod group;
mod inode;
mod pointers;
mod reader;
mod superblock;
mod volume;

pub(crate) use reader::Ufs;
