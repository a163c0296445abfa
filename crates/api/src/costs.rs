//! What each image of an origin costs.

use platter_records::ImageCosts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The costs that were counted last.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CostsReply {
    /// Number of the store's last change. Costs of an earlier one are out of date.
    pub last_change: u64,
    /// The costs; null if they were not counted since the origin started.
    pub costs: Option<ImageCosts>,
}
