//! Copies of versions and of whole stores.
//!
//! - `push`: copies versions from one store to another (`platter push`, `platter pull`)
//! - `carry`: one recipe with its blocks, as far as the other store lacks them
//! - `feed`: stored frames of a store, verified
//!
//! Blocks travel in the frames in which they are stored. A source only suggests bytes: everything is hashed before it is added.

mod carry;
mod feed;
mod push;
#[cfg(test)]
mod tests;

pub use push::{PushReport, PushRequest, PushedVersion, VersionChoice, push};
