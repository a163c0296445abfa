//! A node: a machine that reads an origin's versions through its own cache, and continues with cached data while the
//! origin is down.
//!
//! ```text
//! disk ─id▶ CachedSource ─held▶ cache (store in cache mode): a lease on the frame
//!               └─not held▶ fetch (peers, origin) ─verified frame▶ reader, and cache
//! fill: every block of a disk, after readers ─▶ pinned, synced, reported
//! ```
//!
//! Must never report a disk as fully local before all of it is durable here.

mod audience;
mod fill;
mod held_frames;
mod idle_cache;
mod node_cache;
mod report;
mod sharing;
mod source;
#[cfg(test)]
mod tests;

pub use audience::Audience;
pub use fill::{Fill, OnFilled, PINS_PREFIX, pin_name};
pub use held_frames::HeldFrames;
pub use idle_cache::IdleCache;
pub use node_cache::{CacheLocation, NodeCache};
pub use report::counters_of;
pub use sharing::SharingRequest;
pub use source::CachedSource;
