//! A store on another machine: an origin, asked over HTTP (`docs/api.md`).
//!
//! ```text
//! install, export, diff, attach ─ids▶ fetch (queue ▸ window ▸ requests) ─frames▶ verified, kept in memory
//! capture ─ids, many at once▶ need ─▶ new frames ─▶ upload, several requests under way ─▶ publish
//! images, show, history, forget, rename ─▶ one request
//! the tree of images ─▶ the catalog as it was a moment ago ◀─ watch ◀─ listen ◀─ events
//! ```
//!
//! Owns the way there (a unix socket, or TLS with a certificate that was pinned or is of a known authority), what is
//! fetched when, and what is sent. Threads that wait, no async runtime. Whatever an origin sends is taken for hostile:
//! lengths have limits, every block is decoded and hashed before it is given out, and no wait is without an end. Must
//! never write down a token, nor show it in a message.

mod address;
mod client;
mod connection;
mod frames;
mod listen;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod upload;
mod watch;

pub use address::{ServerAddress, ServerOptions};
pub(crate) use listen::{Listener, listen};
pub(crate) use store::RemoteStore;
pub(crate) use upload::RemoteSession;
pub(crate) use watch::Watch;
