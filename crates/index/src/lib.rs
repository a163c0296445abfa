//! The block index, on disk and in memory: which packs hold a block, and where (`docs/formats/index.md`).
//!
//! The index is a set of immutable segments. A segment is a sorted list of fixed-size entries with a filter. A manifest names the
//! segments and the packs that they cover, and is replaced atomically. New packs are added as a new segment; segments of similar
//! size are merged.
//!
//! - `directory`: which blocks a frame has, from the footers of packs
//! - `entry`: one block at one place, 48 bytes
//! - `segment`: one immutable file of sorted entries
//! - `manifest`: which segments and packs belong to the index
//! - `snapshot`: the index as of one manifest; lookups
//! - `memory`: an index in memory, for blocks that no index on disk covers
//! - `merge`: which segments are merged, and the merging
//! - `folder`: the directory of an index; opens and changes it
//!
//! The index is a cache: packs are authoritative, and whoever uses it can rebuild it from their footers. Every page has a checksum,
//! so damage leads to an error and never to a wrong answer.
//!
//! A crate of its own because it needs no database and opens no pack and no catalog. It must never read a block, and never
//! decide which packs belong to a store.

mod directory;
mod entry;
mod folder;
mod manifest;
mod memory;
mod merge;
mod segment;
mod snapshot;

pub use directory::{Directories, FrameList, directory_of, entries_of};
pub use entry::{ENTRIES_PER_PAGE, Entry, OFFSET_MAX};
pub use folder::{IndexFolder, IndexLimits, NewPack};
pub use manifest::{CoveredPack, Manifest, SegmentRow};
pub use memory::Index;
pub use segment::{SegmentHead, decode_page};
pub use snapshot::Snapshot;

/// Length of a page in bytes.
pub const PAGE_LENGTH: usize = 4096;
