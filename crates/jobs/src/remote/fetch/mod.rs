//! Frames of one recipe, fetched from an origin when they are wanted, and before.
//!
//! ```text
//! locate, page ─┐                                       ┌▶ request ─┐
//!               ├▶ queue ─(window: how much at once)──▶ ├▶ request ─┼▶ verified ─▶ shelf ─▶ who waits
//! will_need ────┘                                       └▶ request ─┘
//! ```
//!
//! What is wanted twice is asked for once. The window says how many bytes may be under way: more the longer the way is,
//! so that a long one is filled, and never more than a limit. What was hinted at waits for what somebody waits for. The
//! decisions (`queue`, `window`, `shelf`) know neither sockets nor clocks.

mod flight;
mod queue;
mod shelf;
mod source;
mod state;
mod window;
mod work;

pub(crate) use source::{RemoteSource, SourceOptions};
pub(super) use work::fetch;
