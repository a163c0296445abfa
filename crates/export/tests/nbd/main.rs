//! The NBD server over real sockets: a raw client for corner cases, and common NBD clients.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test: it fails by panicking")]

#[path = "../../examples/replay/client.rs"]
#[allow(dead_code, reason = "a measuring program needs more of it")]
mod client;
mod connections;
mod crowd;
mod handover;
mod memory;
#[path = "../moving/mod.rs"]
mod moving;
mod negotiation;
mod programs;
mod raw_client;
mod replay;
#[path = "../../examples/replay/replaying.rs"]
#[allow(dead_code, reason = "as above")]
mod replaying;
mod requests;
mod running_server;
mod tls;
