//! A FUSE server: a tree of files as a folder of this machine.
//!
//! The kernel sends requests, several threads read and answer them, and nothing is kept here but open files and
//! directories: nodes have numbers of their own in the tree, and the kernel's numbers are these.
//!
//! ```text
//!  program ──▶ kernel ──▶ thread ──▶ Tree, OpenFile
//!                 └──▶ plain file, where the tree says that it holds the contents (passthrough)
//! ```
//!
//! # What the kernel may remember
//!
//! - *Contents of a file with a score* never change: the kernel keeps its pages from one opening to the next.
//! - *Contents of every other file* may be written through another export at any time, and the kernel would not hear
//!   of it. Such a file is opened for direct I/O: every read asks the tree, and every write is answered when the
//!   tree has it. Loop devices work over it, with direct I/O and without. A shared mapping sees what others
//!   write only when it is made anew, as on any network file system.
//! - *Attributes of a file that cannot be written* never change, for a number is never used again; an hour is as good as
//!   for ever. Those of other files are asked for each time: another export may have made it longer.
//! - *Names* come and go by other ways than this mount (a version is published, an image forgotten), and a name may
//!   get another node. So names, and the attributes of directories, are believed for a second.
//!
//! # Durability
//!
//! The kernel's writeback cache is off: a write is answered when [`OpenFile::write`](crate::tree::OpenFile::write) has
//! returned, `fsync` and `O_SYNC` when [`OpenFile::sync`](crate::tree::OpenFile::sync) has, and `close` says what
//! [`OpenFile::close`](crate::tree::OpenFile::close) said. Only a shared mapping is written later, at `msync`.
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
pub use server::{FuseOptions, FuseServer};
pub use state::{FuseHandover, FuseState};
