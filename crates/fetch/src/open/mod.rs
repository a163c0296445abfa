//! An open store, in a directory of this machine or behind an origin: reading, adding, and queries.
//!
//! Callers need not know which of the two it is; where the two differ, the difference is handled here.

mod catalog;
mod clock;
mod edit_lock_choice;
mod location;
mod session;
mod stack;
mod store;

pub use catalog::Catalog;
pub use clock::unix_ms;
pub use edit_lock_choice::EditLockChoice;
pub use location::{OriginLocation, StoreLocation, default_store_dir, origin_of};
pub use session::OpenSession;
pub use stack::memory_cache;
pub use store::{OpenStore, Opened};
