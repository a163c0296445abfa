//! Virtual disks: a version of an image as a block device that can be read and, above an overlay, written at once.
//!
//! Owns the block device that exports serve, and the layers that make one: the recipe reader with its memory cache, the
//! overlay, and the recording of what is asked. A crate of its own so that it stays free of operating system and protocol: it knows files only through
//! `vfs`, and blocks only through `FrameSource`. It must never show a byte that was not verified, nor say that a write
//! is done before it would survive the death of the process.

mod block_device;
mod cache;
mod count;
mod fault;
mod overlay;
mod recipe_disk;
mod record;
mod source;
mod streams;
mod trace;
mod tree;

pub use block_device::{Allocation, BlockDevice};
pub use cache::{BlockCache, CacheCounters, CacheOptions};
pub use count::{Count, RequestCounts};
pub use fault::Fault;
pub use overlay::{Overlay, OverlayCounters, OverlayHeader, OverlayOptions};
pub use recipe_disk::RecipeDisk;
pub use record::{Record, RecordCounts, Recording};
pub use source::{RETRY_TIME_MAX, Source, TRIES_MAX};
pub use trace::{RequestKind, TRACE_REQUESTS_MAX, Trace, TraceHeader, TracedRequest};
