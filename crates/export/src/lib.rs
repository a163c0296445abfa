//! Protocols by which others use virtual disks: NBD for one disk at a time, FUSE and 9P for a tree of them.
//!
//! Owns the bytes of each protocol and the sessions that speak it. A crate of its own so that what the kernel and
//! virtual machines ask for stays behind a fence. It must never allocate what a client says before it has checked it,
//! nor know where a disk's bytes come from.

mod budget;
mod buffer;
mod clients;
mod errno;
mod exports;
pub mod fuse;
mod input;
mod moved;
pub mod nbd;
pub mod ninep;
mod outbox;
mod pace;
mod pause;
mod peer;
mod read_only;
mod same_user;
mod socket_server;
pub mod tree;

pub use exports::Exports;
pub use moved::{MovedSession, Rest, decode as decode_session};
pub use pause::Pause;
pub use read_only::ReadOnlyTree;
pub use socket_server::{RunEnd, SocketHandover, SocketServer};
