//! ext2, ext3 and ext4: which blocks count, and where files stand.
//!
//! The allocation map is the union of the block bitmaps and of every group's own metadata (superblock and descriptor
//! copies, bitmaps, inode tables), which alone speaks for groups whose bitmap was never initialised. From it go
//! extents that were preallocated and never written, since they read as zeros; the body of a clean journal is stored
//! as zeros. Inode tables are read in large pieces and nothing is kept per inode.
//!
//! Bitmaps are believed only if the superblock is clean, every feature is one we know, all checksums and free
//! counts hold, and everything that inodes claim agrees with them ([`agreement`]). Otherwise the whole partition
//! counts, with a note that says why; a filesystem that needs recovery is refused. Inside this folder,
//! [`ErrorKind::Corrupt`](platter_image::ErrorKind::Corrupt) means exactly that: do not trust it, take it whole.
//!
//! Whoever wants the files themselves opens [`Files`]: directories, contents and attributes, of a clean filesystem.
//! There, `Corrupt` means that one file or directory cannot be told; the others can.
//!
//! Sources: the kernel's `fs/ext4`, and its documentation, *ext4 Data Structures and Algorithms*.

mod agreement;
mod allocation;
mod attributes;
mod claims;
mod directory;
mod examine;
mod extent_tree;
mod features;
mod files;
mod groups;
mod indirect;
mod inode_set;
mod inodes;
mod journal;
mod superblock;
mod volume;
mod walker;

pub use attributes::Attribute;
pub use directory::Listing;
pub use examine::examine;
pub use files::{Contents, FileInode, FileKind, Files, Metadata, Run};
