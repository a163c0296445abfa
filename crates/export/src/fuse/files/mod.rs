//! A FUSE server for a [`FileView`](crate::file_view::FileView): the files of filesystems, mounted read-only.
//!
//! It keeps nothing between two requests: neither open files nor directories have a state, so no program can use up memory by
//! opening many. Fixed nodes and names are remembered by the kernel for an hour, and their contents as long as it likes.
//!
//! # Who may read
//!
//! Without `allow_other`, only the user who mounted it can use it, and modes restrict nobody: whoever can read the store can read
//! its files. With `allow_other`, the kernel lets each user do what modes and owners in the filesystem allow. The mount is always
//! `nosuid` and `nodev`: programs and devices of a foreign disk have no power on this machine.

mod attributes;
mod requests;
mod server;

pub use server::FilesServer;
