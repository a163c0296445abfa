//! Changes of the hoard.

use platter_records::ImageName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Removes boot sets from the hoard.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnregisterRequest {
    /// The image.
    pub image: ImageName,
    /// Number of one version; all versions if absent.
    #[serde(default)]
    pub number: Option<u64>,
}

/// The removed boot sets.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UnregisterReply {
    /// The revision without them.
    pub revision: u64,
    /// Names of their versions.
    pub unregistered: Vec<String>,
}
