//! The 9P server over real sockets: a raw client for corner cases, and common 9P clients.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test: it fails by panicking")]

mod connections;
mod contents;
mod crowd;
mod handover;
mod hostile;
mod memory_tree;
#[path = "../moving/mod.rs"]
mod moving;
mod names;
mod programs;
mod raw_client;
mod running_server;
