//! Followers: the changes that they apply, and what copies of a store tell each other of promotions.

use platter_records::{Follower, ReplicaPosition, Standing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A follower asks for the changes after its position.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplicaRequest {
    /// Who asks, and how far it is. The origin sets the time.
    pub follower: Follower,
    /// The position in the origin's log; null for the first copy.
    pub position: Option<ReplicaPosition>,
}

/// Changes for a follower.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaReply {
    /// The id of the origin's store.
    pub store: String,
    /// What the origin is among its copies.
    pub standing: Standing,
    /// Whether the changes begin with a copy of all rows, because there is no position or the log was replaced.
    pub begins: bool,
    /// Why the origin cannot continue from that position.
    pub diverged: Option<String>,
    /// The changes, as their texts in the log (docs/formats/change-log.md).
    pub changes: Vec<String>,
    /// The position after them; null if the origin cannot continue.
    pub next: Option<ReplicaPosition>,
    /// Number of the origin's last change.
    pub last: u64,
}

/// What a store is among its copies.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StandingReply {
    /// The store's id.
    pub store: String,
    /// What it is.
    pub standing: Standing,
}

/// A promoted follower tells the store that it replaces.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FenceRequest {
    /// The id of the successor's store.
    pub by: String,
    /// Its epoch.
    pub epoch: u64,
    /// Its address; empty if unknown.
    pub address: String,
    /// Random id of its promotion: a copy of that store which is promoted, too, has another one.
    pub promotion: String,
}
