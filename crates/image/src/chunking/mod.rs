//! How a disk is cut into blocks, so that equal contents become equal blocks wherever they are
//! (design: identity).
//!
//! File contents are cut at multiples of 64 KiB of the *file's* own offset and at the ends of extents, so one
//! file has the same blocks on every disk and filesystem. Data that belongs to no file is cut on a 32 KiB
//! grid that starts at its filesystem's start; on the grid, unallocated bytes and file contents count as
//! zeros (aligned fixed-size chunking: Lin et al. 2015, section 3.2).

mod cutter;
mod region;

pub use cutter::{BATCH_LENGTH, BATCH_SPAN_MAX, Batch, Cut, Cutter};
pub use region::{FileRun, Region};

/// File contents are cut at multiples of this many bytes of the file's offset.
pub const FILE_ALIGNMENT: u64 = 64 << 10;

/// Data that belongs to no file is cut at multiples of this many bytes from the start of its region.
pub const GRID: u64 = 32 << 10;

/// The most bytes in a block: 128 sectors.
pub const BLOCK_LENGTH_MAX: u64 = FILE_ALIGNMENT;
