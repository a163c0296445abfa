//! Runs the cast state machines over real sockets, in large batches.
//!
//! Contains the options ([`SendOptions`], [`ReceiveOptions`]), the traits that jobs implement
//! ([`ChunkSource`], [`ChunkSink`]) and the two loops ([`send`], [`receive`]): one network thread each, other
//! threads for chunk contents, and bounded queues between them; and the two loops of a probe ([`probe_sender`],
//! [`probe_receiver`]). It is a crate of its own to isolate operating
//! system calls.

mod batch;
mod connection;
mod devices;
mod drive;
mod group;
mod joins;
mod listening;
mod multicast_socket;
mod options;
mod ports;
mod probe;
mod scope;
mod sink;
mod wake;

pub use devices::{check_interface, exists, families, families_to_cast};
pub use drive::{receive, send};
pub use group::Group;
pub use joins::CONNECTIONS_MAX as CAST_CONNECTIONS_MAX;
pub use listening::interface_of;
pub use options::{
    BUFFER_CHUNKS, ChunkSource, DISCOVERY, DISCOVERY_IPV6, JOIN_PORT, JoinPlace, ReceiveEvent,
    ReceiveOptions, ReceiveSummary, SendControl, SendEvent, SendOptions, SendSummary, ToldSender,
};
pub use platter_cast::{
    Announce, Bottleneck, CHUNK_BYTES_MAX, CastFilter, Family, JoinKey, ProbeCounts, ProbeFinding, ProbeSent,
    ProbeSeries, ProbedReceiver, ReceiverResult, ReceiverState, ReceiverStatus, Segment, SenderProgress,
    SessionDescription, SinkStage, Wanted,
};
pub use ports::CastPorts;
pub use probe::{ProbeEvent, ProbePlace, ProbeReceived, probe_receiver, probe_sender};
pub use scope::{SenderAddress, unscoped};
pub use sink::{ChunkSink, ChunkVerdict, ReceivedChunk, SinkOutcome, SinkTimes};
