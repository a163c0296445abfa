//! Uploads.

use platter_records::{Imported, Repairs, VersionRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A new upload.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BeginUploadReply {
    /// Its id, for the paths of the following requests.
    pub id: String,
}

/// Result of a request with frames.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UploadFramesReply {
    /// Number of blocks that were new to the store.
    pub accepted: u64,
}

/// Publishes an upload as a version.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublishRequest {
    /// The draft.
    pub record: VersionRecord,
    /// The expected number of the newest version; 0 if the image must have none. If it differs, publishing is refused.
    #[serde(default)]
    pub expect: Option<u64>,
}

/// A new version.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PublishReply {
    /// Its record.
    #[serde(flatten)]
    pub record: VersionRecord,
    /// Other versions that its blocks repaired.
    #[serde(flatten)]
    pub repairs: Repairs,
}

/// Imports an upload as a version of another store, with its record unchanged.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// The version's record.
    pub record: VersionRecord,
    /// Import it even if it was forgotten or renamed here.
    #[serde(default)]
    pub restore: bool,
    /// Only ask what importing it would do, before its data is sent. The upload continues.
    #[serde(default)]
    pub ask: bool,
}

/// What an import has done, or would do.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ImportReply {
    /// The result.
    pub imported: Imported,
}
