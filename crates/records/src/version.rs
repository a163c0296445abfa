//! A published version, and the result of resolving a name or a score.

use platter_image::{BlockId, Score};

use crate::name::VersionName;
use crate::record::VersionRecord;

/// A published version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its name.
    pub name: VersionName,
    /// The id of its record as it was when the version came into the store. Renames and signatures do not change it. Clones have
    /// no such block; of other versions, a pack has it.
    pub record_id: BlockId,
    /// Its record.
    pub record: VersionRecord,
}

/// What a name or a score refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The score of the recipe.
    pub score: Score,
    /// The version; `None` for a score that belongs to no version, but whose recipe is in the store.
    pub version: Option<Version>,
}
