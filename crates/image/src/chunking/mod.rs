//! How a disk is cut into blocks, so that equal contents become equal blocks wherever they stand (design: identity).
//!
//! The contents of files are cut at multiples of 64 KiB of the *file's* own offset and where an extent ends; the
//! same file then has the same blocks on every disk and filesystem. What belongs to no file is cut on a grid of
//! 32 KiB that starts where its filesystem starts, with what is not allocated, or is a file's, taken as zeros
//! (aligned fixed-size chunking: Lin et al. 2015, section 3.2).

mod cutter;
mod region;

pub use cutter::{BATCH_LENGTH, BATCH_SPAN_MAX, Batch, Cut, Cutter};
pub use region::{FileRun, Region};

/// File contents are cut at multiples of this of the file's offset, in bytes.
pub const FILE_ALIGNMENT: u64 = 64 << 10;

/// What belongs to no file is cut at multiples of this from the start of its region, in bytes.
pub const GRID: u64 = 32 << 10;

/// Most bytes in a block: 128 sectors.
pub const BLOCK_LENGTH_MAX: u64 = FILE_ALIGNMENT;
