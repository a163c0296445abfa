//! Growth of a store: the bytes that each version added, in the order of publishing.

use platter_records::ImageName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Growth of a store, or of the images that the access token may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// Number of versions.
    pub versions: u64,
    /// Bytes that they added, as stored.
    pub stored_bytes: u64,
    /// Sum of the data on their disks, without deduplication, in bytes.
    pub allocated_bytes: u64,
    /// Points of the curve, in the order of publishing. Each point stands for several successive versions.
    pub points: Vec<GrowthPoint>,
    /// By name.
    pub images: Vec<ImageGrowth>,
}

/// Several successive versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthPoint {
    /// The last of them.
    pub version: String,
    /// Its time: milliseconds since 1970 UTC.
    pub time_unix_ms: i64,
    /// Number of versions.
    pub versions: u64,
    /// Bytes that they added, before compression.
    pub new_raw_bytes: u64,
    /// Bytes that they added, as stored.
    pub new_stored_bytes: u64,
    /// Bytes that all versions up to here added, as stored.
    pub stored_bytes: u64,
    /// Sum of the data on all disks up to here, without deduplication, in bytes.
    pub allocated_bytes: u64,
}

/// All versions of an image together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageGrowth {
    /// Its name.
    pub image: ImageName,
    /// Number of versions.
    pub versions: u64,
    /// Sum of the data on their disks, without deduplication, in bytes.
    pub allocated_bytes: u64,
    /// Bytes that they added, before compression.
    pub new_raw_bytes: u64,
    /// Bytes that they added, as stored.
    pub new_stored_bytes: u64,
}
