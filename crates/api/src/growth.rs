//! How a store grew: what each version added, in the order in which they came.

use platter_records::ImageName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The growth of a store, or of the part of it that somebody may see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// All versions.
    pub versions: u64,
    /// What they added.
    pub stored_bytes: u64,
    /// What their disks hold, each by itself.
    pub allocated_bytes: u64,
    /// In the order in which they came; each stands for some versions that came one after another.
    pub points: Vec<GrowthPoint>,
    /// By name.
    pub images: Vec<ImageGrowth>,
}

/// Some versions that came one after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthPoint {
    /// The last of them.
    pub version: String,
    /// When: milliseconds since 1970 UTC.
    pub time_unix_ms: i64,
    /// How many.
    pub versions: u64,
    /// What they added, before compression and as stored.
    pub new_raw_bytes: u64,
    /// See `new_raw_bytes`.
    pub new_stored_bytes: u64,
    /// The sum of all that came until then, as stored.
    pub stored_bytes: u64,
    /// What all disks until then hold, each by itself.
    pub allocated_bytes: u64,
}

/// An image, all its versions together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageGrowth {
    /// Its name.
    pub image: ImageName,
    /// How many versions.
    pub versions: u64,
    /// What their disks hold, each by itself.
    pub allocated_bytes: u64,
    /// What they added, before compression and as stored.
    pub new_raw_bytes: u64,
    /// See `new_raw_bytes`.
    pub new_stored_bytes: u64,
}
