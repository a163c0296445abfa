//! Casting: one sender brings an image to any number of receivers by multicast, as pure state machines.
//!
//! Beside it [`peer`]: nodes that give each other what they hold.
//!
//! Owns the wire protocol ([`Sender`], [`Receiver`], docs/formats/cast-wire.md), the erasure code, pacing, flow control
//! and repair. A chunk here is opaque bytes: nothing is known of disks, frames or stores.
//!
//! A crate of its own so that its manifest enforces purity: no I/O, no threads, no clock, no randomness but a given
//! seed. `handle_*` takes datagrams, messages and time; `poll_*` gives datagrams, messages, events and the next
//! deadline. Time is a [`std::time::Duration`] since any start. The same code runs over sockets (`platter-net`) and over
//! the simulated network of its tests.

mod coding;
mod pacing;
pub mod peer;
mod random;
mod receiver;
mod sender;
mod session;
mod wire;

pub use receiver::{Receiver, ReceiverEvent, ReceiverOptions, ReceiverStatistics};
pub use sender::{
    BATCH_DATAGRAMS_MAX, Destination, ReceiverState, ReceiverStatus, Sender, SenderOptions, SenderProgress,
    Transmit,
};
pub use session::{
    CHUNK_BYTES_MAX, CHUNKS_MAX, NAME_BYTES_MAX, SEGMENTS_MAX, SYMBOL_BYTES, SYMBOLS_MAX, Segment,
    SessionDescription, SessionId,
};
pub use wire::announce::{Announce, FeedbackTimers};
pub use wire::join::{MESSAGE_BYTES_MAX, MessageBuffer, ReceiverResult, Wanted};
