//! Whom to ask for what: the side of a node that fetches, without any I/O.
//!
//! A read is *pieces*: up to 64 ids of one *group* ([`home`]), which are asked for together and go to one source at a
//! time, so a large read runs at several sources at once. A piece goes to a peer whose filter says yes, at random, weighted by
//! how fast each answered and how much it has to do ([`peer`]). If none says yes, to the group's *home*: the node that
//! all nodes agree on by rendezvous hashing, which fetches for the others what it lacks. So the origin gives each group
//! about once however many nodes want it, though each node knows the filters of a few others only. The origin is the last to
//! be asked, and always there.
//!
//! Who is slower than nearly all answers were ([`patience`]) is hedged: another is asked too, and the loser cancelled.
//! Every piece ends within [`PIECE_TIME_MAX`]. Must never believe a filter more than the answer, nor forgive a lie.

mod deadline;
mod event;
mod home;
mod machine;
mod patience;
mod peer;
mod piece;
mod selection;
mod waiting;

pub use event::{ChoiceEvent, ChoiceStatistics};
pub use home::{GROUP_BLOCKS_MAX, groups};
pub use machine::{Choice, ChoiceOptions, PIECES_MAX};
pub use piece::{Ask, Failure, PIECE_TIME_MAX, PieceId, Source, Want};

#[cfg(test)]
mod tests;
