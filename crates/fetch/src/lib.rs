//! The sources of blocks: a store in a directory, or an origin through memory, a hoard, a cache and peers.
//!
//! ```text
//! OpenStore ─▶ stack: memory ▸ hoard ▸ disk cache ▸ network (peers ∥ origin)
//!                     memory ▸ hoard ▸ local store
//! ```
//!
//! Owns the layers below a disk's memory cache, and the one function that stacks them (`open/stack.rs`). Every layer is
//! a `FrameSource`: a request for a block returns a lease on a verified frame. It is a crate of its own because jobs,
//! live disks and the command line read in the same way, and because nothing here knows disks, files or users. Must
//! never deliver, store or pass on an unverified block.
//!
//! - `driver`: frames from the origin and from peers, by one scheduler
//! - `node`: a cache of this machine, what fills it, and with whom it is shared
//! - `hoard_first`: the boot sets of this machine before any other source
//! - `remote`: an origin with its cache and its fetcher
//! - `open`: a store that was opened, wherever it is

mod driver;
mod hoard_first;
mod node;
mod open;
mod remote;

pub use driver::{Fetcher, KnownNode, PeerCounts, SourceOptions};
pub use node::{
    Audience, CacheLocation, CachedSource, Fill, HeldFrames, IdleCache, NodeCache, OnFilled, PINS_PREFIX,
    SharingRequest, counters_of, pin_name,
};
pub use open::{
    Catalog, EditLockChoice, OpenSession, OpenStore, Opened, OriginLocation, StoreLocation,
    default_store_dir, memory_cache, origin_of, unix_ms,
};
pub use remote::RemoteStore;
