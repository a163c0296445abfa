//! Nodes that exchange the blocks they hold, as pure state machines: what a node tells about its cache ([`filter`]), which
//! peer to ask ([`schedule`]), and how to ask and answer ([`exchange`], [`wire`]).
//!
//! Frames are opaque: the driver that receives one decodes it and hashes every block before it uses, stores or forwards the
//! frame, and reports to [`Scheduler`] which blocks arrived. The driver connects the two machines: it sends the requests of
//! `Scheduler`, to peers with [`Exchange::ask`] and to the origin by its own means, and passes the results to `Scheduler`. Streams,
//! authentication and encryption are the driver's task.
//!
//! The ideas are from Liquid (TPDS 2014, sections 3.4 to 3.6): peers describe their caches with Bloom filters and are asked in
//! random order. In Liquid each peer knows all others. Here each knows sixteen, and homes cover the rest: with filters alone,
//! a thousand nodes would exceed the limit of 1 % of the traffic for filters.

mod exchange;
mod filter;
mod schedule;
mod wire;

pub use exchange::{
    ASKS_PER_PEER_MAX, Exchange, ExchangeEvent, ExchangeOptions, ExchangeStatistics, STREAMS_MAX,
};
pub use filter::{
    CHANGES_MAX, FILTER_BYTES_MAX, FilterChanges, FilterPiece, FilterVersion, Holdings, LAYERS_MAX,
    LayerSize, PIECE_BYTES_MAX, PieceCursor, RemoteFilter,
};
pub use schedule::{
    Ask, Failure, GROUP_BLOCKS_MAX, PIECE_TIME_MAX, PIECES_MAX, PieceId, ScheduleEvent, ScheduleOptions,
    ScheduleStatistics, Scheduler, Source, Want, groups,
};
pub use wire::{
    ASK_IDS_MAX, AskMessage, Hello, MESSAGE_BYTES_MAX, NodeId, PEER_VERSION, PeerMessage, PeerStream,
};

#[cfg(test)]
mod golden;
