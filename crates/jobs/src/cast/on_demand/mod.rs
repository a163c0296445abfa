//! Casts on demand: whoever lacks something asks for a cast of it, and the cast ends after its last receiver.
//!
//! - `subject`: what a cast sends, a version or a revision of the hoard
//! - `gathering`: the nodes that ask for a cast of the hoard, and the decision whether they are enough; pure
//! - `secret`: what the keys of the casts are derived from
//! - `desk`: the running casts of a process, which share one rate
//!
//! The first receiver that asks for a version starts its cast: whoever installs a disk waits for it, and others follow. A revision of
//! the hoard is cast only if several nodes lack it at the same time, because a single node fetches it as fast, and from its peers.

mod desk;
mod gathering;
mod secret;
mod subject;

pub use desk::{CastDesk, CastDeskOptions};
