//! The sending side: one state machine that answers requests, paces, and tracks the state of every receiver.
//!
//! [`machine`] combines the parts: [`feedback`] (datagrams of receivers), [`roster`] (which receivers take part, and their free buffers; one of them is
//! a [`member`]), [`places`] (their ids and keys), [`binding`] (which connection is whose), [`connections`] (what is said over them), [`census`] (how many take part),
//! [`spokesmen`] (which of them report often), [`timers`] (how often), [`slowness`] and [`verdicts`] (which of them are
//! far slower than the rest), [`schedule`] (the next
//! source symbol), [`repair`] (symbols that were requested again), [`fetches`] (requests over the reliable channel),
//! [`shelf`] (chunk contents in memory), [`start`] (what the first data waits for), [`herald`] (announcements and plans). The schedule knows nothing about receivers and
//! the roster nothing about chunks. State per chunk does not grow with the number of receivers, and state per receiver does
//! not grow with the number of chunks.

mod binding;
mod census;
mod connections;
mod feedback;
mod fetches;
mod herald;
mod machine;
mod member;
mod options;
mod path;
mod places;
mod repair;
mod roster;
mod schedule;
mod shelf;
mod slowness;
mod spokesmen;
mod start;
mod timers;
mod verdicts;

pub(crate) use fetches::FETCH_BYTES_MAX;
pub use machine::Sender;
pub use member::{ReceiverState, ReceiverStatus};
pub use options::{BATCH_DATAGRAMS_MAX, Destination, SenderOptions, SenderProgress, Transmit};
