//! A node: a machine that reads an origin's versions through a cache of its own, and goes on with what it holds when the origin
//! is away.
//!
//! ```text
//! disk ─id▶ CachedSource ─held▶ cache (store in cache mode)
//!               └─not held▶ flights ─first▶ Upstream (peers, origin) ─verified frame▶ cache
//! fill: every block of a disk, behind those who wait ─▶ pinned, synced, told
//! ```
//!
//! say that a disk needs nobody before all of it is durable here.

mod answers;
mod audience;
mod fill;
mod flights;
mod loose;
mod node_cache;
mod passing;
mod report;
mod sharing;
mod source;
#[cfg(test)]
mod tests;
mod upstream;

pub(crate) use audience::SharingRights;
pub use fill::FillStatus;
pub(crate) use fill::{Fill, pin_name};
pub(crate) use node_cache::{Asking, NodeCache};
pub use node_cache::{CacheLocation, NodeCounters};
pub(crate) use passing::PassingSource;
pub(crate) use report::{NodeReport, ReportedDisk, counters_of};
pub use sharing::SharingRequest;
pub(crate) use source::CachedSource;
pub(crate) use upstream::Upstream;
