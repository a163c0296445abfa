//! The origin: a store served over HTTP to whoever may read or change it (`docs/api.md`).
//!
//! Owns the listening sockets, the access tokens, and what each of them may do. A crate of its own because it is the only
//! place with an async runtime (design: threads): connections wait in it, and every call of the store runs on one of
//! a bounded number of threads. Prints nothing: it tells a listener of events, and says the rest over HTTP.
//!
//! What a token may not read does not exist for it. So every question is decided by name before the store is asked
//! (`access/decide.rs`), and an answer about what is hidden is, byte for byte, the one about what is not there.

mod access;
mod api;
mod background;
mod casts;
mod changes;
mod clock;
mod config;
mod dashboard;
mod disks;
mod events;
mod frames;
mod growth;
mod hoard;
mod id_sets;
mod listen;
mod metrics;
mod nodes;
mod notify;
mod origin;
mod pool;
mod remake;
mod serve;
mod serve_event;
mod uploads;
mod writer;

pub use access::AccessTokens;
pub use config::{ListDisks, ListenAddress, ServeOptions, UPLOAD_LIMIT_DEFAULT};
pub use platter_api::{AccessToken, ListedDisk, NamePattern, NewToken, Role};
pub use platter_transport::TlsFiles;
pub use serve::serve;
pub use serve_event::ServeEvent;
