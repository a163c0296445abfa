//! Fetching: frames from an origin, and from nodes that exchange the frames they hold.
//!
//! ```text
//! readers ─▶ NetworkSource ─want, hint─▶ ┌─────────┐ ─request─▶ threads that ask the origin ─┐
//!                          ◀────frame─── │ machine │ ◀──────verified frames────────────────┤
//!                                        │ (one    │ ─request─▶ link (TLS, two threads) ─▶ peers
//! what is held ─────────filters────────▶ │  lock)  │ ◀─request of a peer── link
//!                                        └─────────┘ ─▶ threads that read what is held for peers
//! ```
//!
//! The pure state machines of [`platter_cast::peer`] decide; [`fetcher`] runs them. Merging of equal requests, retries,
//! deadlines, verification and limits on memory exist once, here, with or without peers. Queues have limits: a peer
//! that sends too fast is not read from, and one that does not read is sent nothing ([`link`]).
//!
//! *Access.* Each node has a certificate of its own ([`identity`]). The origin's registry lists the fingerprint of each
//! node ([`directory`]), and both sides of a link verify it: a stranger does not even get a greeting.
//!
//! *Trust.* The thread that received a frame decodes it and hashes every block before anything else sees it. A peer
//! that sends wrong data is dropped until this node restarts. Must never deliver, store or pass on unverified data.

mod counts;
mod directory;
mod fetcher;
mod frame;
mod groups;
mod holdings;
mod identity;
mod link;
mod links;
mod machine;
mod machine_answering;
mod machine_linking;
mod network;
mod options;
mod origin;
mod reads;
mod serving;
mod shelf;
#[cfg(test)]
mod tests;
mod wants;

pub use counts::PeerCounts;
pub(crate) use directory::Directory;
pub use directory::KnownNode;
pub use fetcher::Fetcher;
pub(crate) use holdings::{HeldChanges, Holdings};
pub(crate) use identity::Identity;
pub(crate) use network::NetworkSource;
pub use network::SourceOptions;
pub(crate) use options::PeerOptions;
pub(crate) use origin::{OriginFrames, TakeFrame};
#[cfg(test)]
pub(crate) use shelf::ShelfLimits;
