//! Nodes that give each other what they hold, as pure state machines: what to tell of a cache ([`filter`]), whom to ask
//! ([`choice`]), what to say and to answer ([`exchange`], [`wire`]).
//!
//! Frames are opaque: whoever receives one decodes and hashes every block before use, keeps it or passes it on, and
//! says what came to [`Choice`]. A driver joins the two machines: it sends what `Choice` asks, to peers by
//! [`Exchange::ask`] and to the origin by its own means, and gives `Choice` what comes back. Streams, authentication and
//! encryption are the driver's.
//!
//! The ideas are those of Liquid (TPDS 2014, sections 3.4 to 3.6): peers tell of their caches by Bloom filters and are asked in
//! random order. There each peer knows all others; here sixteen, and homes for the rest, or filters alone would pass the
//! hundredth of the traffic that they may cost among a thousand nodes.

mod choice;
mod exchange;
mod filter;
mod wire;

pub use choice::{
    Ask, Choice, ChoiceEvent, ChoiceOptions, ChoiceStatistics, Failure, GROUP_BLOCKS_MAX, PIECE_TIME_MAX,
    PIECES_MAX, PieceId, Source, Want, groups,
};
pub use exchange::{
    ASKS_PER_PEER_MAX, Exchange, ExchangeEvent, ExchangeOptions, ExchangeStatistics, STREAMS_MAX,
};
pub use filter::{
    CHANGES_MAX, FILTER_BYTES_MAX, FilterChanges, FilterPiece, FilterVersion, Holdings, LAYERS_MAX,
    LayerSize, PIECE_BYTES_MAX, PieceCursor, RemoteFilter,
};
pub use wire::{
    ASK_IDS_MAX, AskMessage, Hello, MESSAGE_BYTES_MAX, NodeId, PEER_VERSION, PeerMessage, PeerStream,
};

#[cfg(test)]
mod golden;
