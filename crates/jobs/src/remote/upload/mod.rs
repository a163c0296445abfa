//! Sends what an origin does not have, and publishes it.
//!
//! ```text
//! lookup of many ids ─▶ need ─▶ known or new        append ─▶ batch ─full─▶ request ×n, each resumed by asking need again
//! ```
//!
//! A session keeps what the origin said it needs and what was sent; nothing else of the disk. It can be lost: an origin that
//! was started again does not know it. What it had taken by then it finds again, so a new session sends only the rest.

mod sending;
mod session;

pub(crate) use session::RemoteSession;
