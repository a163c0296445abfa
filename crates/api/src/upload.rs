//! Uploads.

use platter_records::{Repairs, VersionRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An upload that was begun.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BeginUploadReply {
    /// Its id, for the paths of what follows.
    pub id: String,
}

/// Frames that were taken.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UploadFramesReply {
    /// Blocks that the store did not have.
    pub accepted: u64,
}

/// What to publish.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishRequest {
    /// The draft.
    pub record: VersionRecord,
    /// The number that the image's newest version must have; 0 when there must be none.
    #[serde(default)]
    pub expect: Option<u64>,
}

/// A version that was published.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PublishReply {
    /// Its record.
    #[serde(flatten)]
    pub record: VersionRecord,
    /// What publishing it did for other versions.
    #[serde(flatten)]
    pub repairs: Repairs,
}
