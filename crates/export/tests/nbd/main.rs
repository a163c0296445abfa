//! The NBD server over real sockets: a raw client for the corners, and the clients that people use.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test: it fails by panicking")]

mod connections;
mod memory;
mod negotiation;
mod programs;
mod raw_client;
mod requests;
mod running_server;
mod tls;
