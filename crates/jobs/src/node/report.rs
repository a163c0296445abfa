//! What a node tells the origin of itself: `POST /api/v1/nodes` (`docs/api.md`).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::node_cache::NodeCounters;
use crate::PeerCounts;

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeReport {
    /// The cache's id, 32 hexadecimal digits: the same as long as the cache is.
    pub(crate) id: String,
    /// What people call the node.
    pub(crate) name: String,
    /// Where peers reach it, and the SHA-256 of the certificate it shows them; `None` when it gives them nothing.
    pub(crate) peer_address: Option<String>,
    /// See `peer_address`.
    pub(crate) fingerprint: Option<String>,
    /// The revision of the hoard that it holds; 0 for none.
    pub(crate) hoard_revision: u64,
    /// What its cache did, and its peers.
    pub(crate) counters: BTreeMap<String, u64>,
    /// What it serves.
    pub(crate) disks: Vec<ReportedDisk>,
}

/// A disk that a node serves.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReportedDisk {
    /// What exports call it.
    pub(crate) name: String,
    /// The score at the bottom.
    pub(crate) image: String,
    /// Whether it takes writes.
    pub(crate) writable: bool,
    /// Who edits it.
    pub(crate) token_holder: Option<String>,
}

/// All counters in one list, those of peers with that before their names.
pub(crate) fn counters_of(node: &NodeCounters, peers: Option<&PeerCounts>) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    let mut add = |before: &str, value: serde_json::Result<Value>| {
        let Ok(Value::Object(values)) = value else { return };
        let numbers =
            values.iter().filter_map(|(name, value)| Some((format!("{before}{name}"), value.as_u64()?)));
        counters.extend(numbers);
    };
    add("", serde_json::to_value(node));
    if let Some(peers) = peers {
        add("peers_", serde_json::to_value(peers));
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_both_have_names_of_their_own() {
        let node = NodeCounters { hits: 3, ..NodeCounters::default() };
        let peers = PeerCounts { known: 7, ..PeerCounts::default() };
        let counters = counters_of(&node, Some(&peers));
        assert_eq!((counters["hits"], counters["peers_known"], counters["peers_liars"]), (3, 7, 0));
        // An origin takes 64.
        assert!(counters.len() < 64 && counters_of(&node, None).len() < counters.len());
    }
}
