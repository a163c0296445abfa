//! The origin: serves a store over HTTP to clients that may read or change it (`docs/api.md`).
//!
//! Owns the listening sockets, the access tokens, and the decision what each token allows. It is a crate of its own
//! because it is the only place with an async runtime (design: threads): connections wait in the runtime, and every
//! call of the store runs on one of a bounded number of threads. Prints nothing: it reports events to its caller, and
//! everything else over HTTP.
//!
//! Data that a token may not read is invisible to it. Every request is therefore decided by name before the store is
//! asked (`access/decide.rs`), and the response for something hidden is byte for byte the response for something that
//! does not exist.

mod access;
mod api;
mod background;
mod bodies;
mod casts;
mod changes;
mod clock;
mod collect;
mod config;
mod costs;
mod dashboard;
mod disks;
mod events;
mod files;
mod frames;
mod growth;
mod handover;
mod hoard;
mod id_sets;
mod leases;
mod listen;
mod metrics;
mod nodes;
mod origin;
mod pool;
mod predecessor;
mod remake;
mod scrub;
mod serve;
mod serve_event;
mod sockets;
mod successor;
mod uploads;
mod writer;

pub use access::AccessTokens;
pub use config::{
    CastOnDemand, Collections, ListDisks, ListenAddress, OverlayBases, ServeOptions, TellFormer, TellOfCast,
    UPLOAD_LIMIT_DEFAULT,
};
pub use files::{FilePlace, LookInside, ReadFile};
pub use platter_api::{AccessToken, ListedDisk, NamePattern, NewToken, Role};
pub use platter_transport::TlsFiles;
pub use serve::serve;
pub use serve_event::ServeEvent;
