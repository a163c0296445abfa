//! Boots, seen from the disk that is booted: which reads are one, and what they read.
//!
//! - `ranges`: ranges of a disk, merged
//! - `detector`: when a boot begins and ends, and what is none; pure
//! - `watch`: a layer of a disk that tells a detector of reads
//!
//! Only ranges are known here. Which blocks of a version they are is up to whoever has the recipe.

mod detector;
mod ranges;
mod watch;

pub use detector::{BOOT_BYTES_MAX, BOOT_PAUSE_MS, Boot, BootDetector};
pub use ranges::RangeSet;
pub use watch::{BootWatch, WatchPause};
