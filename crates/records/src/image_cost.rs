//! What each image costs: the bytes that no other image needs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ImageName, PackCount};

/// The cost of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageCost {
    /// The image.
    pub image: ImageName,
    /// Number of its versions.
    pub versions: u64,
    /// Compressed bytes that no other image needs: about what a collection would free if all its versions were forgotten.
    pub exclusive_bytes: u64,
}

/// The costs of all images, as of one change of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageCosts {
    /// Number of the last change before they were counted.
    pub change: u64,
    /// One of so many blocks was counted, chosen by its hash; 1: all, so the numbers are exact.
    pub one_of: u64,
    /// Ordered by name.
    pub images: Vec<ImageCost>,
    /// Compressed bytes that several images need.
    pub shared_bytes: u64,
    /// Collected packs whose files are kept for now: `gc` frees them after a while.
    pub trash: PackCount,
}
