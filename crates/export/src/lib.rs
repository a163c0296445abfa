//! Protocols that export virtual disks: NBD for single disks, FUSE and 9P for a file tree of disks.
//!
//! Owns the bytes of each protocol and its sessions. It is a crate to isolate the interfaces of kernels and virtual
//! machines. It must check every length from a client before allocating, and must not know where a disk's bytes come
//! from.

mod budget;
mod buffer;
mod clients;
mod errno;
mod exports;
pub mod file_view;
pub mod fuse;
mod input;
mod moved;
pub mod nbd;
pub mod ninep;
mod outbox;
mod pace;
mod pause;
mod peer;
mod restricted;
mod same_user;
mod socket_server;
pub mod tree;
mod workers;

pub use exports::Exports;
pub use moved::{MovedSession, Rest, decode as decode_session};
pub use pause::Pause;
pub use restricted::RestrictedTree;
pub use socket_server::{RunEnd, SocketHandover, SocketServer};
