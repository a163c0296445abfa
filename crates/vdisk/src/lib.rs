//! Virtual disks: a version of an image as a block device, read-only or, with an overlay, writable.
//!
//! Contains the `BlockDevice` trait that exports serve, and its layers: the recipe reader with its memory
//! cache, the overlay, request recording, and the detector of boots. It is a crate of its own to stay independent of operating
//! system and protocols: it reaches files only through `vfs`, and blocks only through `FrameSource`. It must
//! never return unverified bytes, nor acknowledge a write that killing the process would lose.

mod block_device;
mod boot;
mod cache;
mod count;
mod damage;
mod disk_view;
mod overlay;
mod recipe_disk;
mod record;
mod source;
mod streams;
mod trace;
mod tree;

pub use block_device::{Allocation, BlockDevice};
pub use boot::{
    BOOT_BYTES_MAX, BOOT_PAUSE_MS, Boot, BootDetector, BootWatch, RangeSet, WatchPause, has_places_of_a_boot,
};
pub use cache::{BlockCache, CacheCounters, CacheOptions};
pub use count::{Count, RequestCounts};
pub use damage::{advise, disk_error, is_store_damage, with_advice};
pub use disk_view::DiskView;
pub use overlay::{Overlay, OverlayCounters, OverlayHeader, OverlayOptions};
pub use recipe_disk::RecipeDisk;
pub use record::{Record, RecordCounts, Recording};
pub use source::{RETRY_TIME_MAX, Source, TRIES_MAX};
pub use trace::{RequestKind, TRACE_REQUESTS_MAX, Trace, TraceHeader, TracedRequest};
