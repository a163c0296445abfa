//! A 9P server: a tree of files over unix or TCP sockets, in the dialect that Linux speaks (9P2000.L).
//!
//! Each client is one connection, as for NBD: one thread reads requests and executes those that do not wait; workers
//! shared by all connections execute the others; a second thread of the connection writes their replies. So replies may
//! come in any order, and slow requests (fetch, open, sync) block no others.
//!
//! A session begins with each version message and owns the fids: the client's numbers for places in the tree, open or
//! not. A fid object never changes; opening replaces it. So concurrent requests with the same fid see either object,
//! and need no lock.
//!
//! A flushed request is answered before its flush, or never: reads are abandoned at once, changes that have started are
//! completed first. A file is closed only by its client, which gets the result; a client that disappears has closed
//! nothing.
//!
//! When a pause is ordered, each session stops between two requests and can go on in another server, of this process or of
//! another one ([`NinepState`]): files are opened again by their nodes' numbers, which the tree must keep.
//!
//! One client has at most [`NinepOptions::fids_max`] fids, 64 requests and 16 MiB of their bytes; a server has that
//! times [`NinepOptions::connections_max`]. Clients share no budget, so none can block the others.

mod attributes;
mod connection;
mod contents;
mod event;
mod failure;
mod fids;
mod names;
mod server;
mod session;
mod state;
mod tags;
pub mod wire;

pub use event::NinepEvent;
pub use server::{NinepOptions, NinepServer};
pub use state::NinepState;
