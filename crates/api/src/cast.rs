//! Casts: what a sender reports of one to an origin, which is only displayed; and casts that an origin makes on demand.

use platter_records::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The title of a cast of the hoard, before the revision. No image can have such a name.
pub const HOARD_CAST_TITLE: &str = "hoard:@";

/// State of a cast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CastState {
    /// Receivers can join; no data is sent.
    #[default]
    Waiting,
    /// Data is sent.
    Casting,
    /// It ended, and all receivers have the disk.
    Done,
    /// It ended, and at least one receiver does not have the disk.
    Failed,
}

impl CastState {
    /// Whether the cast has ended.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

/// State of a cast at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CastStatus {
    /// `lab/debian12@3`; the score if the sender was started with a score; or `hoard:@7`, a revision of the hoard.
    #[schemars(schema_with = "schema::cast_title")]
    pub version: String,
    /// The score: 64 hexadecimal digits.
    #[schemars(schema_with = "schema::id")]
    pub score: String,
    /// User and host of the sender.
    #[schemars(length(max = 255))]
    pub sender: String,
    /// Multicast group of the data; empty until it is known.
    #[schemars(length(max = 255))]
    pub group: String,
    /// State.
    pub state: CastState,
    /// Reason of the failure.
    #[schemars(length(max = 255))]
    pub reason: Option<String>,
    /// Bytes of all chunks, each counted once.
    pub cast_bytes: u64,
    /// Payload bytes sent, including repetitions and repair symbols.
    pub sent_bytes: u64,
    /// The rate that the receivers permit.
    pub rate_bits_per_second: u64,
    /// Time since the sender started.
    #[schemars(range(min = 0))]
    pub seconds: f64,
    /// Number of receivers that joined, including those that left.
    pub receivers_total: u64,
    /// Number of receivers that have the disk.
    pub receivers_done: u64,
    /// The receivers, unfinished ones first. The list is cut if it is too long.
    #[schemars(length(max = 128))]
    pub receivers: Vec<CastReceiver>,
}

/// State of a receiver at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CastReceiver {
    /// The name that it reports.
    #[schemars(length(max = 255))]
    pub name: String,
    /// `receiving`, `slow` (far slower than the others, and served after them), `silent`, `stalled`, `done`, `failed` or `lost`.
    #[schemars(length(max = 255))]
    pub state: String,
    /// Reason of the failure.
    #[schemars(length(max = 255))]
    pub reason: Option<String>,
    /// Number of chunks that it has.
    pub done_chunks: u64,
    /// Number of chunks that it needs; 0 until this is known.
    pub wanted_chunks: u64,
    /// Bytes written; reported at its end.
    pub written_bytes: u64,
    /// Time from joining to its result, or to its last message.
    #[schemars(range(min = 0))]
    pub seconds: f64,
    /// Number of symbols restored from repair symbols.
    pub repaired_symbols: u64,
    /// What limits it, or mostly limited it: `sender`, `network`, `decoding` or `disk`.
    #[schemars(length(max = 255))]
    pub limited_by: Option<String>,
}

/// An entry in the list of casts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListedCast {
    /// Chosen by its sender.
    pub id: String,
    /// Time since the last report of the sender.
    #[schemars(range(min = 0))]
    pub silent_seconds: f64,
    /// The last report of the sender.
    #[serde(flatten)]
    pub status: CastStatus,
}

/// The request that an origin cast a version.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskForCastRequest {
    /// `lab/debian12@3`, `lab/debian12` for the newest version, or a score.
    #[schemars(schema_with = "schema::version_query")]
    pub version: String,
    /// The address families in which the client can receive, the preferred one first. Empty: IPv4.
    #[serde(default)]
    #[schemars(length(max = 2))]
    pub families: Vec<CastFamily>,
}

/// The address family of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CastFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// What an origin does for who asked for a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CastOfferState {
    /// As many casts as are allowed are under way: ask again.
    Queued,
    /// The sender is being started: ask again.
    Preparing,
    /// Receivers can join.
    Ready,
    /// The origin casts in none of the families that the client named: it can get the disk from the origin alone.
    OtherFamily,
}

/// Where to receive a cast. Only who may read the version is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CastOffer {
    /// The score: 64 hexadecimal digits.
    #[schemars(schema_with = "schema::id")]
    pub score: String,
    /// State.
    pub state: CastOfferState,
    /// The key of the cast, 64 hexadecimal digits: without it, nobody can join, or read what is sent.
    #[schemars(schema_with = "schema::id")]
    pub join_key: String,
    /// TCP address for joins, once receivers can join.
    pub join: Option<String>,
    /// Which of the casts at that address it is, once receivers can join.
    #[serde(default)]
    pub session: Option<u32>,
    /// Multicast group of the data, once receivers can join.
    pub group: Option<String>,
}

/// The request of a node that lacks the newest revision of the hoard: it can receive a cast of it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskForHoardCastRequest {
    /// The id of the node: 32 hexadecimal digits.
    #[schemars(schema_with = "schema::short_id")]
    pub node: String,
    /// The epoch of the revision that it has; empty if it has none.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub epoch: String,
    /// The revision that it has; 0 if it has none.
    pub since: u64,
    /// It lacks at most so many bytes of the newest revision, before compression.
    pub missing_bytes_max: u64,
    /// As in [`AskForCastRequest`].
    #[serde(default)]
    #[schemars(length(max = 2))]
    pub families: Vec<CastFamily>,
}

/// What an origin does for a node that asked for a cast of the hoard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HoardCastState {
    /// There is no cast for this node: it fetches what it lacks.
    Fetch,
    /// Other nodes may ask as well, or the sender is being started: ask again.
    Wait,
    /// Receivers can join.
    Ready,
}

/// The answer to a node that asked for a cast of the hoard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HoardCastOffer {
    /// State.
    pub state: HoardCastState,
    /// Where to receive the cast, once it is ready. Its score is that of the hoard's manifest.
    pub cast: Option<CastOffer>,
}
