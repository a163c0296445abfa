//! Casting: one sender transfers an image to any number of receivers by multicast, as pure state machines.
//!
//! The crate also contains [`peer`]: nodes that exchange the blocks they hold.
//!
//! Owns the wire protocol ([`Sender`], [`Receiver`], docs/formats/cast-wire.md), the erasure code, pacing, flow control
//! and repair. A chunk is opaque bytes here: this code knows nothing about disks, frames or stores.
//!
//! A separate crate so that its manifest enforces purity: no I/O, no threads, no clock, and no randomness except from a given
//! seed. `handle_*` takes datagrams, messages and time; `poll_*` returns datagrams, messages, events and the next
//! deadline. Time is a [`std::time::Duration`] since an arbitrary start. The same code runs over sockets (`platter-net`) and
//! over the simulated network of its tests.

#[cfg_attr(feature = "short-symbols", allow(dead_code, reason = "the stand-in replaces it"))]
mod coding;
mod congestion;
mod family;
mod hold;
mod join_key;
mod marks;
mod pacing;
pub mod peer;
mod probe;
mod random;
mod receiver;
mod sender;
mod session;
mod shares;
mod stage;
#[cfg(feature = "short-symbols")]
mod stand_in;
mod wire;

pub use family::Family;
pub use hold::Hold;
pub use join_key::JoinKey;
pub use probe::{
    Arrivals, ProbeCounts, ProbeFinding, ProbeReceiver, ProbeReceiverOptions, ProbeSender,
    ProbeSenderOptions, ProbeSent, ProbeSeries, ProbeStep, ProbeTarget, ProbeTransmit, ProbedReceiver,
};
pub use receiver::{CastFilter, Receiver, ReceiverEvent, ReceiverOptions, ReceiverStatistics};
pub use sender::{
    BATCH_DATAGRAMS_MAX, Destination, ReceiverState, ReceiverStatus, Sender, SenderOptions, SenderProgress,
    Transmit,
};
pub use session::{
    CHUNK_BYTES_MAX, CHUNKS_MAX, NAME_BYTES_MAX, OFFER_BYTES_MAX, SECRET_BYTES_MAX, SEGMENTS_MAX,
    SYMBOL_BYTES, SYMBOLS_MAX, Segment, SessionDescription, SessionId, SessionSecret,
};
pub use shares::{demand, shares};
pub use stage::{Bottleneck, SinkStage};
pub use wire::announce::{Announce, FeedbackTimers};
pub use wire::format::session_of;
pub use wire::join::{MESSAGE_BYTES_MAX, MessageBuffer, ReceiverResult, Wanted};
pub use wire::opening::Opening;
