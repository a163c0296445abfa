//! What may be given up, decided purely: the decisions of garbage collection with the model that tests them, retention, which
//! chooses the versions of an image that stay, compaction, which chooses packs to rewrite, and which image needs which block.
//!
//! A crate of its own so that its manifest proves that these decisions do no I/O and read no clock. The store carries them out
//! under its locks.

mod compaction;
mod decide;
#[cfg(test)]
mod model;
mod owners;
mod request;
mod retention;

pub use compaction::{Candidate, choose, what_fits};
pub use decide::{LookupAnswer, lookup, may_condemn, may_delete, may_die};
pub use owners::{SHARED, merge_owners};
pub use request::CollectRequest;
pub use retention::{RetentionPolicy, RetentionVerdict};
