//! A 9P server: a tree of files over unix or TCP sockets, in the dialect that Linux speaks (9P2000.L).
//!
//! A client is a connection, as for NBD: a thread reads requests and executes those that do not wait, workers that all
//! connections share execute the others, and a second thread of the connection writes what they answer. So replies may
//! come in any order, and what has to be fetched, opened or synced holds up nobody else.
//!
//! A session begins with each version message and has the fids: the client's numbers for places in the tree, open or
//! not. A fid never changes; opening puts another one in its place. So requests that use the same fid at once see the
//! one or the other and need no lock between them.
//!
//! What a client flushes has its reply before the flush has its own, or never has one: a read is given up at once, whatever
//! has begun and changes something is waited for. A file is closed when its client says so and hears what became of it; a
//! client that vanishes has closed nothing.
//!
//! When a pause is ordered, each session stops between two requests and can go on in another server, of this process or of
//! another one ([`NinepState`]): files are opened again by their nodes' numbers, which the tree must keep.
//!
//! One client holds at most [`NinepOptions::fids_max`] fids, 64 requests and 16 MiB of their bytes; a server, that times
//! [`NinepOptions::connections_max`]. There is no budget that clients share: it would let one of them stop the others.

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
