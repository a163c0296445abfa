//! Taking an edit lock.

use platter_records::ImageName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Takes the right to publish an image's next version.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeEditLockRequest {
    /// The image.
    pub image: ImageName,
    /// The new holder: at most 255 bytes without control characters.
    #[schemars(length(min = 1, max = 255))]
    pub holder: String,
    /// Whether to take it from another holder.
    #[serde(default)]
    pub steal: bool,
}
