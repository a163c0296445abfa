//! The log of changes: which rows of the catalog every change made and removed, one entry after another in `changes.log`
//! (`docs/formats/change-log.md`). `rebuild` reads it, so that what was forgotten stays forgotten.
//!
//! Why log and catalog never part: a commit of the catalog contains the entry that describes it. The entry's space in the
//! log is taken before the commit, so a full disk fails the change while nothing is committed. The entry itself is
//! written there right after the commit, and synced, before anybody is told that the change is done. Whoever opens the catalog to
//! write appends it if a crash came between. So the log lacks one entry at most, and that one is in the catalog.
//!
//! Why either can be trusted without the other: an entry ends in a digest of all rows as they are after it. Every writer
//! compares the digest with the catalog's rows, at opening and before each change.
//!
//! Why no bytes of a disk pass for an entry: the log holds nothing but entries; an entry's checksum covers the log's random
//! id and the entry's own offset; and the magic of an entry begins with a zero byte, which no text of an entry contains.
//!
//! Why it stays small: a writer that finds it grown to twice its length, and past 8 MiB, replaces it by one that
//! holds the rows as they are, and what was forgotten.

mod file;
mod format;
mod past;
mod state;
#[cfg(test)]
mod tests;

pub(super) use file::ChangeLog;
pub(crate) use file::{Head, create, create_new, read, settle};
pub use format::{ChangeLogContents, decode_change_log};
pub(super) use format::{Entry, encode};
pub(crate) use past::{Past, first_name};
pub(crate) use state::State;
