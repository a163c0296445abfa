//! A FUSE server: mounts a file tree as a local directory.
//!
//! Several threads read and answer the kernel's requests. The only state is open files and directories: the kernel uses
//! the node numbers of the tree.
//!
//! ```text
//!  program ──▶ kernel ──▶ thread ──▶ Tree, OpenFile
//!                 └──▶ plain file, where the tree says that it holds the contents (passthrough)
//! ```
//!
//! # Kernel caching
//!
//! - *Contents of a file with a score* never change: the kernel keeps its pages from one opening to the next.
//! - *Contents of every other file* can change through another export at any time without the kernel's knowledge. Such
//!   a file is opened for direct I/O: every read asks the tree, and every write is answered when the tree has it. Loop
//!   devices work with it, with and without direct I/O. A shared mapping shows writes of others only after it is mapped
//!   again, as on any network filesystem.
//! - *Attributes of a read-only file* never change, because node numbers are not reused; they are cached for an hour.
//!   Attributes of other files are requested each time: another export may have extended the file.
//! - *Names* change without this mount (a version is published, an image forgotten), and a name may get another node.
//!   Names and attributes of directories are cached for one second.
//!
//! # Durability
//!
//! The kernel's writeback cache is off: a write is answered when [`OpenFile::write`](crate::tree::OpenFile::write) has
//! returned, `fsync` and `O_SYNC` when [`OpenFile::sync`](crate::tree::OpenFile::sync) has, and `close` returns the result of
//! [`OpenFile::close`](crate::tree::OpenFile::close). Only a shared mapping is written later, at `msync`.
//!
//! # Moving to another process
//!
//! When a pause is ordered, each thread stops between two requests ([`gate`]); the device and the table of what is open
//! ([`FuseState`]) go to another process, which goes on without a new handshake ([`handshake`]). The kernel keeps what comes
//! meanwhile. The process before has to end: its threads wait for ever. A plain file that the kernel reads by itself keeps the
//! mount where it is.
//!
//! # Bounds
//!
//! Any local process may be the client. Open files, open directories and the names these hold have limits; a
//! request has at most 1 MiB, and each thread one buffer of that size.

mod attributes;
mod contents;
mod event;
mod failure;
mod files;
mod filesystem;
mod gate;
mod handles;
mod handshake;
mod mount;
mod mount_table;
mod names;
mod server;
mod state;

pub use event::FuseEvent;
pub use files::FilesServer;
pub use server::{FuseOptions, FuseServer};
pub use state::{FuseHandover, FuseState};
