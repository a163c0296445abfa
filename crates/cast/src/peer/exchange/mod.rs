//! What a node says to each peer and what it makes of what they say, in both roles, without any I/O.
//!
//! [`machine`] joins the parts: [`stream`] is what is known of one peer's stream, [`serving`] the questions of others
//! and the frames on their way to them, within the share of the uplink that is given to peers.

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
