//! The hoard: the boot sets of all versions, kept whole on every node (Squirrel, Razavi et al., HPDC 2014, section 3).
//!
//! ```text
//! origin: boot sets in packs ─▶ members in the catalog, numbered revisions ─changes since R▶ node: a replica
//! ```
//!
//! - `origin`: registering, unregistering, retention, changes, over a store
//! - `manifest`: what a cast of the hoard brings first
//! - `replica`: what a node keeps: frames of its own in boot order, and the revision that they make whole
//! - `update`: how that comes to a newer revision
//! - `read_ahead`: what of it is read before it is asked for
//! - `replica_file`: the bytes of what a replica says of itself
//!
//! A revision is a number, never a time. Times are shown to people; what is old is counted in days on which the daily work
//! was done, so a clock that jumps makes nothing go. A replica says that it has a revision when all of it is durable.

mod manifest;
mod origin;
mod read_ahead;
mod replica;
mod replica_file;
#[cfg(test)]
mod tests;
mod update;

pub use manifest::HoardManifest;
pub use origin::{DailyReport, DailyWish, Registered};
pub use replica::{Hoard, ReplicaFacts};
pub use update::{Added, HoardWriter};
