//! A node: a machine that reads an origin's versions through a cache of its own, and goes on with what it holds when the origin
//! is away.
//!
//! ```text
//! disk ─id▶ CachedSource ─held▶ cache (store in cache mode): a lease on the frame
//!               └─not held▶ fetch (peers, origin) ─verified frame▶ reader, and cache
//! fill: every block of a disk, behind readers ─▶ pinned, synced, told
//! ```
//!
//! Must never say that a disk is fully local before all of it is durable here.

mod audience;
mod fill;
mod node_cache;
mod report;
mod sharing;
mod source;
#[cfg(test)]
mod tests;

pub use audience::Audience;
pub use fill::{Fill, OnFilled, pin_name};
pub use node_cache::{CacheLocation, NodeCache};
pub use report::counters_of;
pub use sharing::SharingRequest;
pub use source::CachedSource;
