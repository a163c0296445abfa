//! A cast, as its sender tells an origin of it. Shown to people; nothing relies on it.

use platter_records::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a cast stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CastState {
    /// Receivers join.
    #[default]
    Waiting,
    /// Data flows.
    Casting,
    /// It ended, and every receiver has the disk.
    Done,
    /// It ended otherwise.
    Failed,
}

impl CastState {
    /// Whether nothing more is to be expected of it.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

/// A cast, at some moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CastStatus {
    /// `lab/debian12@3`, or the score if that was asked for.
    #[schemars(schema_with = "schema::version_query")]
    pub version: String,
    /// The score: 64 hexadecimal digits.
    #[schemars(schema_with = "schema::id")]
    pub score: String,
    /// Who casts: user and host.
    #[schemars(length(max = 255))]
    pub sender: String,
    /// Where data goes; empty before that is known.
    #[schemars(length(max = 255))]
    pub group: String,
    /// Where it stands.
    pub state: CastState,
    /// Why it failed.
    #[schemars(length(max = 255))]
    pub reason: Option<String>,
    /// Bytes of all chunks: what must be sent once.
    pub cast_bytes: u64,
    /// Payload bytes sent, repeated and repairing ones included.
    pub sent_bytes: u64,
    /// The rate that the receivers allow.
    pub rate_bits_per_second: u64,
    /// Since the sender began to listen.
    #[schemars(range(min = 0))]
    pub seconds: f64,
    /// Receivers that ever joined.
    pub receivers_total: u64,
    /// Of these, those that have the disk.
    pub receivers_done: u64,
    /// The receivers, those that are not done first, as far as there is room.
    #[schemars(length(max = 128))]
    pub receivers: Vec<CastReceiver>,
}

/// A receiver of a cast, at some moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CastReceiver {
    /// What it calls itself.
    #[schemars(length(max = 255))]
    pub name: String,
    /// `receiving`, `silent`, `stalled`, `done`, `failed` or `lost`.
    #[schemars(length(max = 255))]
    pub state: String,
    /// Why it failed.
    #[schemars(length(max = 255))]
    pub reason: Option<String>,
    /// Chunks that it has.
    pub done_chunks: u64,
    /// Chunks that it wants; 0 before it knows.
    pub wanted_chunks: u64,
    /// Bytes that it wrote, known at its end.
    pub written_bytes: u64,
    /// From its joining to its result, or to when it was heard last.
    #[schemars(range(min = 0))]
    pub seconds: f64,
    /// Symbols that it made from repair symbols.
    pub repaired_symbols: u64,
}

/// A cast as it is listed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListedCast {
    /// Chosen by its sender.
    pub id: String,
    /// Since its sender was heard.
    #[schemars(range(min = 0))]
    pub silent_seconds: f64,
    /// What its sender told.
    #[serde(flatten)]
    pub status: CastStatus,
}
