//! The loops that run the state machines: [`send()`] and [`receive()`].
//!
//! Each has one network thread, the caller's. Only this thread uses the machine, and it never waits for a
//! disk: worker threads behind bounded queues read and consume chunk contents, and ring a bell when they have
//! a result.

mod receive;
mod send;
mod troubles;

pub use receive::receive;
pub use send::send;
pub(crate) use send::{Addresses, addresses, random_seed};
