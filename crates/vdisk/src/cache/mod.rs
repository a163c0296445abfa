//! The memory that all virtual disks of a process share: decoded pages, verified blocks, and threads that read ahead.
//!
//! ```text
//! disk ─id▶ blocks ──miss──▶ flights ──first──▶ fetch: read, decode, verify ─▶ blocks
//!                               └─others wait for the first
//! disk ─range ahead▶ queue ─▶ threads ─▶ flights …
//! source ─frames that come next▶ queue …  (where they lie in the order of reading: a hoard)
//! ```
//!
//! Blocks are kept by their names, so equal contents are in memory once, whichever disks show them. Two bounds hold,
//! for blocks and for pages; beside them each reading thread has one frame in its hands. Only bytes whose hash was
//! right are kept or given out, and no failure is kept. No lock is held while the source is read, so whoever finds its
//! block here never waits for who does not.

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
