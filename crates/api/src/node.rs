//! Nodes: what one tells of itself, and what it and a person are told of the others.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use platter_records::schema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::Role;

/// Most bytes of a name.
const NAME_LENGTH_MAX: usize = 255;

/// What a node tells of itself. Fields that newer nodes add are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeReport {
    /// 32 hexadecimal digits: the id of the node's cache.
    #[schemars(schema_with = "schema::short_id")]
    pub id: String,
    /// What people call the node.
    #[schemars(length(max = NAME_LENGTH_MAX))]
    pub name: String,
    /// Where other nodes reach it; null for one that shares nothing.
    #[serde(default)]
    #[schemars(schema_with = "address")]
    pub peer_address: Option<SocketAddr>,
    /// SHA-256 of the certificate that it shows other nodes, 64 hexadecimal digits.
    #[serde(default)]
    #[schemars(schema_with = "schema::id_or_null")]
    pub fingerprint: Option<String>,
    /// The revision of the hoard that it holds.
    #[serde(default)]
    pub hoard_revision: Option<u64>,
    /// What its cache and its peers did.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 64))]
    pub counters: BTreeMap<String, u64>,
    /// What it serves.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub disks: Vec<ReportedDisk>,
}

/// A live disk of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportedDisk {
    /// What exports call it.
    #[schemars(length(max = NAME_LENGTH_MAX))]
    pub name: String,
    /// The score at the bottom.
    #[serde(default)]
    #[schemars(length(max = NAME_LENGTH_MAX))]
    pub image: String,
    /// Whether it takes writes.
    #[serde(default)]
    pub writable: bool,
    /// Who edits it.
    #[serde(default)]
    #[schemars(length(max = NAME_LENGTH_MAX))]
    pub edit_lock_holder: Option<String>,
}

/// What a node is told of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePeer {
    /// As it reported.
    #[schemars(schema_with = "schema::short_id")]
    pub id: String,
    /// As it reported.
    pub name: String,
    /// As it reported.
    #[schemars(schema_with = "address")]
    pub peer_address: Option<SocketAddr>,
    /// As it reported.
    #[schemars(schema_with = "schema::id_or_null")]
    pub fingerprint: Option<String>,
    /// As it reported.
    pub hoard_revision: Option<u64>,
    /// When it reported: milliseconds since 1970 UTC.
    pub seen_unix_ms: i64,
}

/// The answer to a node's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePeersReply {
    /// The others.
    pub nodes: Vec<NodePeer>,
    /// The newest revision of the hoard.
    pub hoard_revision: u64,
    /// The role of the access token.
    pub role: Role,
}

/// What a person is shown of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFacts {
    /// What it reported.
    #[serde(flatten)]
    pub report: NodeReport,
    /// When it reported: milliseconds since 1970 UTC.
    pub seen_unix_ms: i64,
    /// Whether it reported within a minute.
    pub is_there: bool,
    /// Whether others are told of it.
    pub shares: bool,
}

/// All nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodesReply {
    /// By id.
    pub nodes: Vec<NodeFacts>,
    /// The newest revision of the hoard.
    pub hoard_revision: u64,
}

fn address(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "description": "IP:PORT; [IP]:PORT for IPv6" })
}
