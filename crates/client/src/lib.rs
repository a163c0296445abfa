//! The client of an origin: requests about a store on another machine, over HTTP (`docs/api.md`).
//!
//! ```text
//! images, show, history, forget, rename, hoard ─▶ OriginStore ─▶ one request
//! capture ─ids, many at once▶ UploadSession: need ─▶ new frames, several requests under way ─▶ publish
//! fetching ─ids▶ OriginStore::frames ─▶ one request ─▶ frames, each verified when it has come
//! the tree of images ─▶ Watch: the catalog as it was a moment ago ◀─ listen ◀─ events
//! ```
//!
//! Owns the connection (a unix socket, or TLS with a certificate that is pinned or of a known authority), the requests,
//! and the meaning of their failures. It is a crate of its own so that code that only sends requests needs no cache,
//! scheduler or database. Uses blocking threads and no async runtime. Treats everything that an origin sends as
//! hostile: lengths are limited, every block is decoded and hashed before it is passed on, and every wait ends. Must
//! never store a token or a key, or print one in a message. Stores no blocks: caches and peers are in the crate `fetch`.

mod address;
mod answers;
mod client;
mod connection;
mod frames;
mod listen;
mod origin_store;
mod sending;
mod sharing_rights;
mod store_keys;
mod upload_session;
mod watch;

pub use address::{ServerAddress, ServerOptions};
pub use answers::Answers;
pub use listen::{Listener, listen};
pub use origin_store::OriginStore;
pub use sharing_rights::SharingRights;
pub use upload_session::UploadSession;
pub use watch::Watch;
