//! What is decided, without threads or sockets of its own: whom to ask ([`platter_cast::peer::Scheduler`]), what to say
//! ([`platter_cast::peer::Exchange`]), and who waits for what.
//!
//! [`state`] is its main step, [`linking`] who is connected, [`answering`] what becomes of frames and requests. It never waits.

mod answering;
mod linking;
mod state;

pub(super) use linking::LINKS_MAX;
pub(super) use state::{Machine, Sharing};
