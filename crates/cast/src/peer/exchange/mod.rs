//! The protocol between a node and each peer, in both roles, without I/O.
//!
//! [`machine`] combines the parts: [`stream`] (state of one peer's stream), [`serving`] (questions of peers and the frames
//! that answer them, within the share of the uplink for peers), [`sending`] (the order of sending).

mod event;
mod machine;
mod sending;
mod serving;
mod stream;

pub use event::{ExchangeEvent, ExchangeOptions, ExchangeStatistics};
pub use machine::{Exchange, STREAMS_MAX};
pub use serving::ASKS_PER_PEER_MAX;

#[cfg(test)]
mod tests;
