//! ext2, ext3 and ext4: which blocks are kept, and where files lie.
//!
//! The allocation map is the union of the block bitmaps and every group's own metadata (superblock and
//! descriptor copies, bitmaps, inode tables); for groups with an uninitialised bitmap only the metadata
//! counts. Preallocated extents that were never written are removed from it, because they read as zeros; the
//! body of a clean journal is stored as zeros. Inode tables are read in large pieces, and nothing is kept per
//! inode.
//!
//! Bitmaps are trusted only if the superblock is clean, every feature is known, all checksums and free counts
//! are correct, and everything that inodes claim agrees with them ([`agreement`]). No bitmap knows whether an
//! extent was written, so its tree and its inode must have correct checksums ([`checksums`]). Otherwise
//! [`crate::reader`] keeps the whole partition, with a note that says why, or refuses a filesystem that needs
//! recovery.
//!
//! [`Files`] gives access to the files themselves: directories, contents and attributes of a clean
//! filesystem. There, `Corrupt` means that one file or directory cannot be read; others can.
//!
//! Sources: the kernel's `fs/ext4`, and its documentation, *ext4 Data Structures and Algorithms*.

mod agreement;
mod allocation;
mod attributes;
mod checksums;
mod claims;
mod directory;
mod extent_tree;
mod features;
mod files;
mod groups;
mod indirect;
mod inode_set;
mod inodes;
mod journal;
mod reader;
mod superblock;
mod volume;
mod walker;

pub use files::Files;
pub(crate) use reader::Ext;
