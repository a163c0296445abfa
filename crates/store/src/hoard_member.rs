//! What is told of the hoard: its members, and what changed since a revision.

use platter_image::BlockId;
use serde::{Deserialize, Serialize};

use crate::boot_set::BootSetRecord;
use crate::name::VersionName;

/// A boot set in the hoard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoardMember {
    /// The version whose boot set it is.
    #[serde(flatten)]
    pub version: VersionName,
    /// The boot set's name.
    #[serde(with = "id_text")]
    pub boot_set: BlockId,
    /// The revision that it came with.
    pub added: u64,
    /// How it was made.
    pub record: BootSetRecord,
}

/// The hoard at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoardSnapshot {
    /// Names this run of revisions: numbers of another one mean nothing. Empty while there never was a member.
    pub epoch: String,
    /// The newest revision; 0 before the first.
    pub revision: u64,
    /// The members, in the order in which they came.
    pub members: Vec<HoardMember>,
}

/// What a node must do to have the newest revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoardChanges {
    /// As in [`HoardSnapshot`].
    pub epoch: String,
    /// The revision that these changes lead to.
    pub revision: u64,
    /// What is not in `added` goes: changes since the revision that was asked for are not known any more.
    pub whole: bool,
    /// Members that came.
    pub added: Vec<HoardMember>,
    /// Members that went; one of the same name in `added` came after it.
    pub gone: Vec<VersionName>,
}

impl HoardChanges {
    /// The members after the changes, when they were `before`.
    pub fn applied_to(&self, before: Vec<HoardMember>) -> Vec<HoardMember> {
        let mut members = if self.whole { Vec::new() } else { before };
        members.retain(|member| !self.gone.contains(&member.version));
        members.retain(|member| !self.added.iter().any(|added| added.version == member.version));
        members.extend(self.added.iter().cloned());
        members
    }
}

mod id_text {
    //! An id as 64 hexadecimal digits.

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
