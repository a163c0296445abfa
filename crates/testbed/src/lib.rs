//! What tests of several crates need of a store and its origin: a folder with a store, disks with contents, and an origin
//! that can be told to misbehave.
//!
//! A crate of its own so that the crates that fetch, capture and serve can be tested against the same origin. Never shipped;
//! only tests depend on it. Must not know any crate that is tested with it.
#![allow(missing_docs, unreachable_pub, reason = "about to be replaced")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test ends where something fails"
)]

mod lab;
mod origin;

pub use lab::{Lab, kind, mix, same, store_disk};
pub use origin::{Origin, Running, Seen};
