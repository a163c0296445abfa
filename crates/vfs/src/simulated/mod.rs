//! An in-memory disk that behaves as badly as a real one may.
//!
//! [`SimulatedDisk`] implements [`Vfs`](crate::Vfs). For each file it keeps the durable bytes apart from
//! those only written, and it keeps names apart from bytes: syncing a file does not make its name durable,
//! syncing the directory does. [`SimulatedDisk::crash`] cuts the power and keeps a subset of the pending
//! operations, chosen by a [`CrashProfile`] and a seed. A [`Fault`] fails a call by its number, so that a
//! test can fail call 1, then call 2, and so on. The same seed always gives the same behaviour.
//!
//! - `disk`: the trait, the names, and counting calls
//! - `file`: the bytes of one file, durable and pending
//! - `crash`: what survives a crash
//! - `fault`: which call fails, and how

mod crash;
mod disk;
mod fault;
mod file;

pub use crash::CrashProfile;
pub use disk::SimulatedDisk;
pub use fault::{Fault, FaultKind, Operation};
