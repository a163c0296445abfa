//! The hoard: the boot sets of all versions, stored in full on every node (Squirrel, Razavi et al., HPDC 2014, section 3).
//!
//! ```text
//! origin: boot sets in packs ─▶ members in the catalog, numbered revisions ─changes since R▶ node: a replica
//! ```
//!
//! - `origin`: registration, removal, retention and changes, in a store
//! - `refine`: merges the boots that nodes observe
//! - `manifest`: the list that a cast of the hoard sends first
//! - `replica`: what a node stores: its own frames in boot order, and the revision that is complete
//! - `update`: brings a replica to a newer revision
//! - `read_ahead`: selects what is read from a replica before it is requested
//! - `replica_file`: the file with a replica's state
//!
//! A revision is a number, never a time; times are only displayed. Age is counted in days on which the daily work ran, so that
//! a clock that jumps does not remove members. A replica claims a revision only when all of its data is durable.

mod manifest;
mod origin;
mod read_ahead;
mod replica;
mod replica_file;
mod update;

pub use manifest::HoardManifest;
pub use origin::{DailyReport, DailyRequest};
pub use replica::{Hoard, ReplicaFacts};
pub use update::{Added, HoardWriter};
