//! Nodes: the report of a node, the reply to it, and the list of nodes.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use platter_records::schema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::Role;

/// Maximum length of a name in bytes.
const NAME_LENGTH_MAX: usize = 255;

/// Report of a node about itself. Fields that newer nodes add are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeReport {
    /// 32 hexadecimal digits: the id of the node's cache.
    #[schemars(schema_with = "schema::short_id")]
    pub id: String,
    /// Name of the node for people.
    #[schemars(length(max = NAME_LENGTH_MAX))]
    pub name: String,
    /// Address for other nodes; null if the node does not share.
    #[serde(default)]
    #[schemars(schema_with = "address")]
    pub peer_address: Option<SocketAddr>,
    /// SHA-256 of its certificate for other nodes, 64 hexadecimal digits.
    #[serde(default)]
    #[schemars(schema_with = "schema::id_or_null")]
    pub fingerprint: Option<String>,
    /// Revision of the hoard in its cache.
    #[serde(default)]
    pub hoard_revision: Option<u64>,
    /// Statistics of its cache and its peers.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 64))]
    pub counters: BTreeMap<String, u64>,
    /// Its live disks.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub disks: Vec<ReportedDisk>,
}

/// A live disk of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportedDisk {
    /// Its name in exports.
    #[schemars(length(max = NAME_LENGTH_MAX))]
    pub name: String,
    /// Score of the disk without local changes.
    #[serde(default)]
    #[schemars(length(max = NAME_LENGTH_MAX))]
    pub image: String,
    /// Whether it is writable.
    #[serde(default)]
    pub writable: bool,
    /// Holder of its edit lock.
    #[serde(default)]
    #[schemars(length(max = NAME_LENGTH_MAX))]
    pub edit_lock_holder: Option<String>,
}

/// What the origin tells a node about another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePeer {
    /// From the node's report.
    #[schemars(schema_with = "schema::short_id")]
    pub id: String,
    /// From the node's report.
    pub name: String,
    /// From the node's report.
    #[schemars(schema_with = "address")]
    pub peer_address: Option<SocketAddr>,
    /// From the node's report.
    #[schemars(schema_with = "schema::id_or_null")]
    pub fingerprint: Option<String>,
    /// From the node's report.
    pub hoard_revision: Option<u64>,
    /// Time of the last report: milliseconds since 1970 UTC.
    pub seen_unix_ms: i64,
}

/// The reply to a node's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePeersReply {
    /// The other nodes of its sharing group.
    pub nodes: Vec<NodePeer>,
    /// The newest revision of the hoard.
    pub hoard_revision: u64,
    /// The role of the access token.
    pub role: Role,
}

/// An entry in the list of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFacts {
    /// Its last report.
    #[serde(flatten)]
    pub report: NodeReport,
    /// Time of the last report: milliseconds since 1970 UTC.
    pub seen_unix_ms: i64,
    /// Whether the last report is less than a minute old.
    pub is_there: bool,
    /// Whether the origin tells other nodes about it.
    pub shares: bool,
}

/// All nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodesReply {
    /// The nodes, ordered by id.
    pub nodes: Vec<NodeFacts>,
    /// The newest revision of the hoard.
    pub hoard_revision: u64,
}

fn address(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "description": "IP:PORT; [IP]:PORT for IPv6" })
}
