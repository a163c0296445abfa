//! Boots, seen from the disk that is booted: which reads are a boot, and what they read.
//!
//! - `ranges`: ranges of a disk, merged
//! - `detector`: when a boot begins and ends, and what is not a boot; pure
//! - `watch`: a layer of a disk that tells a detector of reads
//!
//! Only ranges are known here. Whoever has the recipe knows which blocks of a version they are.

mod detector;
mod ranges;
mod watch;

pub use detector::{BOOT_BYTES_MAX, BOOT_PAUSE_MS, Boot, BootDetector, has_places_of_a_boot};
pub use ranges::RangeSet;
pub use watch::{BootWatch, WatchPause};
