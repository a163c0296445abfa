//! Quotas: requests and replies.

use platter_records::{ImageName, Quota};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sets the quota of an image and all images below it, or removes it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetQuotaRequest {
    /// The image.
    pub prefix: ImageName,
    /// Most bytes of distinct blocks and pages, uncompressed; the quota is removed if absent.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
}

/// A quota that was set or removed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SetQuotaReport {
    /// The quota before.
    pub before: Option<Quota>,
}
