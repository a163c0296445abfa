//! Detects boots from the reads of the booted disk.
//!
//! - `ranges`: merged ranges of a disk
//! - `detector`: decides when a boot begins and ends, and what is not a boot; no I/O
//! - `watch`: a layer above a disk that passes its reads to a detector
//!
//! The result is ranges. The caller, which has the recipe, finds their blocks.

mod detector;
mod ranges;
mod watch;

pub use detector::{BOOT_BYTES_MAX, BOOT_PAUSE_MS, Boot, BootDetector, has_places_of_a_boot};
pub use ranges::RangeSet;
pub use watch::{BootWatch, WatchPause};
