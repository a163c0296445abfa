//! Whom to ask for what, and when: the one scheduler of everything that is fetched from other machines, without any I/O.
//!
//! A read is *pieces*: up to 64 ids of one *group* ([`home`]), which are asked for together and go to one source at a
//! time, so a large read runs at several sources at once. A piece goes to a peer whose filter says yes, at random, weighted by
//! how fast each answered and how much it has to do ([`peer`]). If none says yes, to the group's *home*: the node that
//! all nodes agree on by rendezvous hashing, which fetches for the others what it lacks. So the origin gives each group
//! about once however many nodes want it, though each node knows the filters of a few others only. The origin is the last to
//! be asked, and always there.
//!
//! With no peers at all, the same machine fetches from the origin alone ([`alone`]): pieces then share requests, and the bytes under
//! way follow what the link holds ([`window`]).
//!
//! Who is slower than nearly all answers were ([`patience`]) is hedged: another is asked too, and the loser cancelled.
//! Every piece ends within [`PIECE_TIME_MAX`]. Must never believe a filter more than the answer, nor forgive a lie.

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
mod tests;
