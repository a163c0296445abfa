//! The FUSE server with real mounts: common programs, and system calls for corner cases.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test: it fails by panicking")]

mod contents;
mod endings;
mod errors;
mod handover;
mod loops;
mod memory;
mod mounted;
#[path = "../moving/mod.rs"]
mod moving;
mod names;
mod programs;
