//! What the fuzz targets share: disks to start from, and edits that an input makes to them.
//!
//! Owns the meaning of an edit list. It must never depend on anything but the input and the committed images, or a
//! crash could not be repeated.

mod base_disk;
mod cast_keys;
mod cast_pair;
mod edits;
mod probe_pair;
mod read_only;
mod region;
mod vocabulary;
mod walk;

pub use base_disk::BaseDisk;
pub use cast_pair::{ADDRESS, CONNECTION, CastPair};
pub use edits::{EDIT_LENGTH, EDITS_MAX, Edit, edits};
pub use probe_pair::ProbePair;
pub use read_only::ReadOnly;
pub use region::examine_region;
pub use vocabulary::{bug_free, xxh3, xxh3_after};
pub use walk::{visit, walk};
