//! The client of an origin: requests about a store on another machine, over HTTP (`docs/api.md`).
//!
//! ```text
//! images, show, history, forget, rename, hoard ─▶ OriginStore ─▶ one request
//! capture ─ids, many at once▶ UploadSession: need ─▶ new frames, several requests under way ─▶ publish
//! fetching ─ids▶ OriginStore::frames ─▶ one request ─▶ frames, each verified when it has come
//! the tree of images ─▶ Watch: the catalog as it was a moment ago ◀─ listen ◀─ events
//! ```
//!
//! Owns the connection (a unix socket, or TLS with a certificate that is pinned or of a known authority), the requests and
//! what their failures mean. A crate of its own so that whoever only asks or sends needs no cache, no scheduler and no
//! database. Uses threads that wait, and no async runtime. Treats whatever an origin sends as hostile: lengths have limits,
//! every block is decoded and hashed before it is given out, and every wait ends. Must never write down a token, nor show it
//! in a message. Keeps no block: caches and peers are in the crate `fetch`.

mod address;
mod answers;
mod client;
mod connection;
mod frames;
mod listen;
mod origin_store;
mod sending;
mod sharing_rights;
mod upload_session;
mod watch;

pub use address::{ServerAddress, ServerOptions};
pub use answers::Answers;
pub use listen::{Listener, listen};
pub use origin_store::OriginStore;
pub use sharing_rights::SharingRights;
pub use upload_session::UploadSession;
pub use watch::Watch;
