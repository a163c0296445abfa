//! Fetching: frames of an origin, and of nodes that give each other what they hold.
//!
//! ```text
//! readers ─▶ NetworkSource ─want, hint─▶ ┌─────────┐ ─request─▶ threads that ask the origin ─┐
//!                          ◀────frame─── │ machine │ ◀──────verified frames────────────────┤
//!                                        │ (one    │ ─request─▶ link (TLS, two threads) ─▶ peers
//! what is held ─────────filters────────▶ │  lock)  │ ◀─request of a peer── link
//!                                        └─────────┘ ─▶ threads that read what is held for peers
//! ```
//!
//! The pure machines of [`platter_cast::peer`] decide; [`fetcher`] runs them. Merging of equal requests, retries, deadlines,
//! verification and the bounds on memory exist here once, with peers or without. Queues have limits: a peer that sends too fast is
//! not read from, one that does not read is given nothing ([`link`]).
//!
//! *Who may.* Each node has a certificate of its own ([`identity`]). The origin's registry says which fingerprint is
//! which node's ([`directory`]), and both sides of a link show and check theirs: a stranger gets not even a greeting.
//!
//! *Trust.* A frame is decoded and every block hashed by the thread that received it, before anybody else sees it. A peer that
//! lies is dropped for as long as this node runs. Must never give out, keep or pass on what was not verified.

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
