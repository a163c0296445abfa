//! The sending side: one state machine that answers requests, paces, and keeps the state of every receiver.
//!
//! [`machine`] joins the parts: [`roster`] (who is there, who has room), [`schedule`] (which symbol comes next),
//! [`repair`] (what is asked for again), [`fetches`] (what is asked for over the reliable channel), [`shelf`] (chunk contents at hand), [`herald`] (announcements and plans). The schedule
//! knows nothing of receivers and the roster nothing of chunks; state per chunk does not grow with the number of
//! receivers, and state per receiver does not grow with the number of chunks.

mod fetches;
mod herald;
mod machine;
mod repair;
mod roster;
mod schedule;
mod shelf;

pub(crate) use fetches::FETCH_BYTES_MAX;
pub use machine::{BATCH_DATAGRAMS_MAX, Destination, Sender, SenderOptions, SenderProgress, Transmit};
pub use roster::{ReceiverState, ReceiverStatus};
