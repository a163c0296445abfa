//! The disk cache of a node: verified frames from any origin's store, in a directory with a size limit.
//!
//! ```text
//! put ─▶ newest segment ─full▶ sealed segments ─oldest▶ evicted: frames used since or pinned are copied to the newest
//! get ─▶ index ─▶ segment ─▶ verified by checksum, the first time after opening by hash
//! ```
//!
//! Everything in it can be fetched again from elsewhere: frames that are damaged, or cannot be read or written, count as not
//! held, and no read fails because of them. Must never return bytes that were not verified, never evict a pinned frame,
//! and never exceed its limit by more than one segment. The layout is `docs/formats/cache.md`. Ids of blocks and of pages
//! never coincide, so one index has both.
//!
//! A crate of its own because it shares the format of packs with stores, and nothing else: it has no database.
//!
//! - `frame_cache`: the public interface
//! - `frames`: the index in memory, and all decisions
//! - `writer`: the newest segment, and eviction
//! - `segment`: opens segments that an earlier process wrote
//! - `pins`, `changes`, `place`: sets of pins, the log of held and evicted blocks, the directory layout

mod changes;
mod frame_cache;
mod frames;
mod options;
mod pins;
mod place;
mod segment;
#[cfg(test)]
mod tests;
mod writer;

pub use changes::CacheChanges;
pub use frame_cache::Cache;
pub use options::{CacheCounts, CacheOptions};
pub use pins::{PinName, decode as decode_pins, encode as encode_pins};
