//! Helpers for tests of several crates: a temporary folder with a store, generated disks, and an origin that can
//! simulate errors.
//!
//! A separate crate, so that the crates that fetch, capture and serve are tested against the same origin. Only tests
//! depend on it, and it must not depend on a crate that is tested with it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test ends where something fails"
)]

mod lab;
mod origin;

pub use lab::{Lab, kind, mix, same, store_disk};
pub use origin::{BeforePublish, Origin, Running, Seen, Spoil};
