//! Filesystems: what of a partition somebody can still read, and where files stand in it.
//!
//! A filesystem is found by its own superblock, never by what a partition table says ([`probe()`]). One that a reader
//! here understands, whose own checks hold, and beside which nobody else left a mark ([`Owners`]), gives an allocation
//! map and the places of files; anything else counts whole. Readers take any [`DiskRead`](platter_image::DiskRead), believe no number, and never fail for what is on
//! the disk: what they cannot trust, they take whole and say so. Only a filesystem that needs recovery is refused,
//! since its maps lie.

mod checksum;
mod contents;
mod examine;
pub mod ext;
mod label;
mod place;
mod probe;
mod signatures;
mod swap;
mod weak_signatures;

pub use contents::Contents;
pub use examine::{Trust, examine};
pub(crate) use label::label;
pub use probe::{Found, Owner, Owners, probe};
pub(crate) use signatures::TABLES_READ;
