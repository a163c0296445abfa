//! What the origin publishes about the hoard: its members, and the changes since a revision.

use platter_image::BlockId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::boot_set::BootSetRecord;
use crate::name::VersionName;

/// A member of the hoard: the boot set of one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HoardMember {
    /// The version.
    #[serde(flatten)]
    pub version: VersionName,
    /// The name of its boot set.
    #[serde(with = "id_text")]
    #[schemars(schema_with = "crate::schema::id")]
    pub boot_set: BlockId,
    /// The revision that added it.
    pub added: u64,
    /// How the boot set was recorded.
    pub record: BootSetRecord,
}

/// The hoard at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HoardSnapshot {
    /// Identifies the sequence of revisions; numbers from another sequence are not comparable. Empty until the first member.
    pub epoch: String,
    /// The newest revision; 0 before the first one.
    pub revision: u64,
    /// The members, in the order in which they were added.
    pub members: Vec<HoardMember>,
}

/// The changes that bring a node to the newest revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HoardChanges {
    /// As in [`HoardSnapshot`].
    pub epoch: String,
    /// The revision after these changes.
    pub revision: u64,
    /// `added` lists all members, and the node drops the others: the changes since the requested revision are no longer known.
    pub whole: bool,
    /// Members that were added.
    pub added: Vec<HoardMember>,
    /// Members that were removed. If a version is also in `added`, it was added again afterwards.
    pub gone: Vec<VersionName>,
}

impl HoardChanges {
    /// Returns the members after the changes, given those before.
    pub fn applied_to(&self, before: Vec<HoardMember>) -> Vec<HoardMember> {
        let mut members = if self.whole { Vec::new() } else { before };
        members.retain(|member| !self.gone.contains(&member.version));
        members.retain(|member| !self.added.iter().any(|added| added.version == member.version));
        members.extend(self.added.iter().cloned());
        members
    }
}

/// The result of registering a boot set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Registered {
    /// The revision that contains it.
    pub revision: u64,
    /// Whether it was not registered before.
    pub is_new: bool,
}

mod id_text {
    //! Serializes an id as 64 hexadecimal digits.

    use platter_image::BlockId;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(id: &BlockId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<BlockId, D::Error> {
        let text = String::deserialize(deserializer)?;
        BlockId::from_hex(&text).ok_or_else(|| D::Error::custom("an id has 64 hexadecimal digits"))
    }
}
