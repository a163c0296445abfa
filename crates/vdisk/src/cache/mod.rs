//! The memory shared by all virtual disks of a process: decoded pages, verified blocks, and read-ahead
//! threads.
//!
//! ```text
//! disk ─id▶ blocks ──miss──▶ flights ──first──▶ fetch: read, decode, verify ─▶ blocks
//!                               └─others wait for the first
//! disk ─range ahead▶ queue ─▶ threads ─▶ flights …
//! source ─next frames▶ queue …  (if it stores frames in reading order, as a hoard does)
//! ```
//!
//! Blocks are keyed by id, so equal contents are in memory once for all disks. Blocks and pages each have a
//! size bound; in addition, each reading thread holds one frame. Only verified bytes are kept or returned,
//! and failures are not cached. No lock is held while the source is read, so a hit never waits for a miss.

mod block_cache;
mod blocks;
mod counters;
mod fetch;
mod flight;
mod pages;
mod queue;

pub use block_cache::{BlockCache, CacheOptions};
pub(crate) use blocks::{Block, Pattern};
pub use counters::CacheCounters;
pub(crate) use fetch::Shared;
pub(crate) use pages::PageCache;
