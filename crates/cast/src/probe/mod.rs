//! A probe of a network before a cast: what happens to the datagrams between a sender and its receivers.
//!
//! Receivers join over the reliable channel, as for a cast, so a network that passes no multicast can be probed too. The sender
//! then sends one [`ProbeSeries`] of numbered datagrams after another, and names their numbers at the end. Receivers send a few
//! datagrams back, count what arrives, and report the counts over the channel. Both sides derive the same [`ProbeFinding`]s.
//!
//! Pure, like the machines of a cast: [`ProbeSender`] and [`ProbeReceiver`] get messages, datagrams and time. No datagram is ever
//! answered, and everything that is sent has a limit.

mod finding;
mod receiver;
mod sender;
mod series;
mod wire;

pub use finding::ProbeFinding;
pub use receiver::{ProbeReceiver, ProbeReceiverOptions, ProbeStep};
pub use sender::{ProbeSender, ProbeSenderOptions, ProbeTarget, ProbeTransmit, ProbedReceiver};
pub use series::{Arrivals, ProbeCounts, ProbeSent, ProbeSeries};
