//! A disk in memory that behaves as badly as a real one may.
//!
//! [`SimulatedDisk`] is a [`Vfs`](crate::Vfs). It keeps, for each file, what is durable apart from what was only
//! written, and the names of files apart from their bytes: syncing a file does not make its name durable, syncing a
//! directory does. [`SimulatedDisk::crash`] cuts the power and keeps a subset of what was pending, chosen by a
//! [`CrashProfile`] and a seed. [`Fault`]s fail any call by its number, so that a test can fail call 1, then 2, and
//! so on until none is left. The same seed gives the same disk, every time.
//!
//! - `disk`: the trait, the names, the counting of calls
//! - `file`: one file's bytes, durable and pending
//! - `crash`: what survives
//! - `fault`: which call fails, and how

mod crash;
mod disk;
mod fault;
mod file;

pub use crash::CrashProfile;
pub use disk::SimulatedDisk;
pub use fault::{Fault, FaultKind, Operation};
