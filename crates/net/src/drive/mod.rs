//! The loops that run the machines: [`send()`] and [`receive()`].
//!
//! Each has one network thread, the caller's, which alone touches the machine and never waits for a disk: chunk
//! contents are read and consumed by worker threads behind bounded queues, which ring a bell when they have something.

mod receive;
mod send;

pub use receive::receive;
pub use send::send;
