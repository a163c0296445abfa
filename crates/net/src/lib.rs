//! Runs the cast machines over real sockets, in large batches.
//!
//! Owns the options ([`SendOptions`], [`ReceiveOptions`]), the traits at which jobs join in ([`ChunkSource`],
//! [`ChunkSink`]) and the two loops ([`send`], [`receive`]): one thread for the network, others for chunk contents,
//! bounded queues between them. A crate of its own to fence in what the operating system asks for.

mod batch;
mod connection;
mod drive;
mod multicast_socket;
mod options;
mod wake;

pub use drive::{receive, send};
pub use options::{
    BUFFER_CHUNKS, ChunkSink, ChunkSource, ChunkVerdict, DISCOVERY, JOIN_PORT, ReceiveEvent, ReceiveOptions,
    ReceiveSummary, SendEvent, SendOptions, SendSummary, SinkOutcome,
};
pub use platter_cast::{
    CHUNK_BYTES_MAX, ReceiverResult, ReceiverState, ReceiverStatus, Segment, SenderProgress,
    SessionDescription, Wanted,
};
