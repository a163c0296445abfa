//! Nodes that give each other what they hold: the pure machines of [`platter_cast::peer`] over real sockets.
//!
//! ```text
//! disks ─▶ PeerSource ─want, hint─▶ ┌─────────┐ ─question─▶ link (TLS, two threads) ─▶ peers
//!                     ◀───frames─── │ machine │ ◀──frames── link: decoded and hashed there
//!                                   │ (one    │ ─question─▶ threads that ask the origin
//! filters ◀──────────────────────── │ thread) │ ─frames───▶ keeper: into what this node holds
//!                                   └─────────┘ ─question of a peer─▶ threads that read what this node holds
//! ```
//!
//! One thread owns both machines and never waits for anything but events: whatever blocks has threads of its own. Queues have
//! limits, and whoever fills one waits: a peer that sends too fast is not read from, one that does not read is given
//! nothing ([`link`]).
//!
//! *Who may.* Each node has a certificate of its own ([`identity`]). The origin's registry says which fingerprint is
//! which node's ([`directory`]), and both sides of a link show and check theirs: a stranger gets not even a greeting.
//!
//! *Trust.* A frame is decoded and every block hashed by the thread that received it, before anybody else sees it. Who
//! lies is dropped for as long as this node runs. Must never give out, keep or pass on what was not verified.

mod counts;
mod directory;
mod groups;
mod handle;
mod holdings;
mod identity;
mod keeper;
mod link;
mod links;
mod machine;
mod options;
mod origin;
mod reads;
mod serving;
mod shelf;
mod source;
#[cfg(test)]
mod tests;
mod wants;

pub use counts::PeerCounts;
pub(crate) use directory::{Directory, KnownNode};
pub(crate) use handle::Peers;
pub(crate) use holdings::{HeldChanges, Holdings};
pub(crate) use identity::Identity;
pub(crate) use options::PeerOptions;
pub(crate) use origin::OriginFrames;
