//! A store in cache mode: verified frames of any origin's stores, in a directory with a size limit.
//!
//! ```text
//! put ─▶ newest segment ─full▶ sealed segments ─oldest▶ evicted: what was read since, or is pinned, goes to the newest
//! get ─▶ index ─▶ segment ─▶ checked by checksum, hashed the first time after opening
//! ```
//!
//! All of it can be had again from elsewhere: what is damaged, or cannot be read or written, is not held, and nobody's read
//! fails for it. Must never give out bytes that were not checked, nor drop what is pinned, nor pass its limit by more than one
//! segment. The layout is `docs/formats/cache.md`. Ids of blocks and pages cannot be equal, so one index has both.
//!
//! - `frame_cache`: what its owner calls
//! - `frames`: the index in memory, and all decisions
//! - `writer`: the newest segment, and eviction
//! - `segment`: opens what an earlier process left
//! - `pins`, `changes`, `place`: sets of pins, what came and went, where everything lies

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
pub use frame_cache::{Cache, StoredFrame};
pub use options::{CacheCounts, CacheOptions};
pub use pins::{PinName, decode as decode_pins, encode as encode_pins};
