//! The thread that owns what is decided: whom to ask ([`platter_cast::peer::Choice`]), what to say
//! ([`platter_cast::peer::Exchange`]), and who waits for what.
//!
//! Everything comes to it as an [`Event`] or a [`Command`]; it never waits for anything else. [`state`] is its loop, [`linking`]
//! who is connected, [`answering`] what becomes of frames and questions.

mod answering;
mod event;
mod linking;
mod state;

pub(super) use event::{Command, Event, VerifiedFrame};
pub(super) use linking::LINKS_MAX;
pub(super) use state::{Machine, Parts};
