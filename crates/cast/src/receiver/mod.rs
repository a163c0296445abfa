//! The receiving side: one state machine that finds a session, joins it, assembles chunks and requests missing symbols.
//!
//! [`machine`] combines the parts: [`announced`] (which announcements it follows), [`wants`] (the state of each chunk), [`assembly`] (symbols into chunks), [`asking`]
//! (what to request, and when), [`fetching`] (chunks that arrived corrupt and are fetched over the reliable channel), [`senders`]
//! (which casts are not joined), [`session`] (the one that was joined), [`guard`] (keys, and which datagrams arrived),
//! [`conversation`] (the reliable channel) and [`link`] (when to connect it again), [`skipped`] (chunks without a buffer), [`reporting`]
//! (when to report), [`backoff`] (random delays). It holds a bounded number of chunks. A symbol without a free buffer is dropped like a
//! lost one, and repaired later.

mod announced;
mod asking;
mod assembly;
mod backoff;
mod conversation;
mod fetching;
mod guard;
mod link;
mod machine;
mod options;
mod reporting;
mod senders;
mod session;
mod skipped;
mod wants;

pub use machine::Receiver;
pub use options::{ReceiverEvent, ReceiverOptions, ReceiverStatistics};
pub use senders::CastFilter;
