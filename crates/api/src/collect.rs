//! Garbage collection at an origin.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Collects the garbage of the store.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectRequest {
    /// Seconds for which the files of packs that were given up are kept.
    #[serde(default = "keep_trash_s")]
    pub keep_trash_s: u64,
    /// Packs of which less than this share is needed are rewritten, in percent; 0: none.
    #[serde(default = "compact_percent")]
    #[schemars(range(max = 100))]
    pub compact_percent: u64,
    /// Packs that get smaller by compressing their frames at this zstd level are rewritten, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 19))]
    pub recompress: Option<i32>,
    /// Give up forgotten disks although clients read them lately.
    #[serde(default)]
    pub end_leases: bool,
    /// Only report.
    #[serde(default)]
    pub dry_run: bool,
    /// Go on even if more than 30 % of all bytes would be given up.
    #[serde(default)]
    pub confirmed: bool,
}

fn keep_trash_s() -> u64 {
    24 * 3600
}

fn compact_percent() -> u64 {
    50
}

impl Default for CollectRequest {
    fn default() -> Self {
        Self {
            keep_trash_s: keep_trash_s(),
            compact_percent: compact_percent(),
            recompress: None,
            end_leases: false,
            dry_run: false,
            confirmed: false,
        }
    }
}
