//! Changes of the hoard.

use platter_records::ImageName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Takes boot sets out of the hoard.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnregisterRequest {
    /// The image.
    pub image: ImageName,
    /// One version of it; all of them if absent.
    #[serde(default)]
    pub number: Option<u64>,
}

/// What was taken out.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UnregisterReply {
    /// The revision without them.
    pub revision: u64,
    /// Names of versions.
    pub unregistered: Vec<String>,
}
