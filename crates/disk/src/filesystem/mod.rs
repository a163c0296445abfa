//! Filesystems: what of a partition somebody can still read, and where files stand in it.
//!
//! A filesystem is found by its own superblock, never by what a partition table says ([`probe()`]). One that a reader
//! here understands, and whose own checks hold, gives an allocation map and the places of files; anything else counts
//! whole. Readers take any [`DiskRead`](platter_image::DiskRead), believe no number, and never fail for what is on
//! the disk: what they cannot trust, they take whole and say so. Only a filesystem that needs recovery is refused,
//! since its maps lie.

mod checksum;
mod contents;
pub mod ext;
mod probe;
mod swap;

pub use contents::{Contents, examine};
pub use probe::{Found, probe};
