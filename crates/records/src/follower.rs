//! A follower as its origin knows it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of followers of a store.
pub const FOLLOWERS_MAX: usize = 64;

/// A registered follower.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Follower {
    /// The id of its store.
    pub id: String,
    /// Name of its machine.
    pub name: String,
    /// The address at which it will be served; empty if unknown.
    pub address: String,
    /// Number of the last change that it has applied; 0 before its first copy is complete.
    pub number: u64,
    /// When it asked for changes last, in milliseconds since 1970 UTC.
    pub seen_unix_ms: i64,
}
