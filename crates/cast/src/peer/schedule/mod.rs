//! The scheduler: decides which blocks are requested from which machine, and when. All fetching from other machines
//! uses it. It does no I/O.
//!
//! A read consists of *pieces*: up to 64 ids of one *group* ([`home`]). A piece is requested from one source at a time;
//! a large read uses several sources at once. If the filters of some peers claim the blocks, one of these peers is
//! chosen at random, weighted by its speed and load ([`peer`]). Otherwise the piece is requested from the group's
//! *home*: a node on which all nodes agree by rendezvous hashing, and which fetches missing blocks for the others. So
//! the origin sends each group about once, however many nodes read it, although each node knows the filters of only a
//! few others. The origin is the last choice, and always available.
//!
//! Without peers, the same scheduler fetches from the origin alone ([`alone`]): pieces then share requests, and the
//! number of bytes in flight follows the capacity of the link ([`window`]).
//!
//! A request that takes longer than nearly all recent ones ([`patience`]) is hedged: the piece is also requested
//! elsewhere, and the slower request is cancelled. A peer that fails or stays silent is not used for a time that doubles
//! with each failure, and then gets one request; if many peers are missing, no reader waits for one that may be missing too
//! ([`deadline`]). Every piece ends within [`PIECE_TIME_MAX`]. Must never trust a
//! filter more than a reply, and never use a peer that lied again.

mod alone;
mod deadline;
mod event;
mod home;
mod origin;
mod patience;
mod peer;
mod piece;
mod scheduler;
mod selection;
mod waiting;
mod window;

pub use event::{ScheduleEvent, ScheduleStatistics};
pub use home::{GROUP_BLOCKS_MAX, groups};
pub use piece::{Ask, Failure, PIECE_TIME_MAX, PieceId, Source, Want};
pub use scheduler::{PIECES_MAX, ScheduleOptions, Scheduler};

#[cfg(test)]
mod alone_tests;
#[cfg(test)]
mod silent_tests;
#[cfg(test)]
mod tests;
