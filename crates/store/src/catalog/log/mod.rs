//! The change log: which rows of the catalog each change wrote and removed, one entry after another in `changes.log`
//! (`docs/formats/change-log.md`). `rebuild` reads it, so that forgotten versions stay forgotten.
//!
//! Why log and catalog always agree: a commit of the catalog contains the log entry that describes it. The entry's space in the
//! log is reserved before the commit, so a full disk fails the change before anything is committed. Right after the commit the
//! entry is written there and synced, before the change is reported done. If a crash comes in between, the next
//! process that opens the catalog for writing appends the entry. So the log lacks at most one entry, which the catalog has.
//!
//! Why either can be trusted without the other: an entry ends with a digest of all rows after it. Every writer
//! compares this digest with the catalog's rows when it opens the catalog and before each change.
//!
//! Why no contents of a disk can pass for an entry: the log contains only entries; an entry's checksum covers the log's
//! random id and the entry's own offset; and an entry's magic begins with a zero byte, which no entry's text contains.
//!
//! Why it stays small: when a writer finds that the log is longer than 8 MiB and has doubled since it was created, it replaces
//! it by one that begins with a copy of all rows. Earlier logs are kept for the audit log only.
//!
//! A third copy of the entries is in packs (`packed`): each session adds those since the last session to its last pack.

mod chain;
mod file;
mod format;
mod packed;
mod reader;
#[cfg(test)]
mod reader_tests;
mod state;
#[cfg(test)]
mod tests;

pub(super) use chain::{Proven, prove};
pub(super) use file::ChangeLog;
pub use file::read_change_log;
pub(crate) use file::{
    Beginning, ChangePosition, Head, create, create_new, damaged_earlier_logs, entry_end, first_position,
    hash_of_change, is_end_damaged, is_replacement, read, read_all_texts, settle,
};
pub use format::ChangeLogContents;
pub(super) use format::{Entry, encode};
pub(crate) use packed::{PackedChanges, blocks, encode_frames};
pub(crate) use reader::{read_after, read_texts};
pub(crate) use state::State;
