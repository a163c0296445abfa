//! The counters that a node reports to the origin (`docs/api.md`).

use std::collections::BTreeMap;

use platter_api::NodeCounters;
use serde_json::Value;

use crate::PeerCounts;

/// Returns all counters in one map; names of peer counters have a prefix.
pub fn counters_of(node: &NodeCounters, peers: Option<&PeerCounts>) -> BTreeMap<String, u64> {
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
        // An origin accepts 64.
        assert!(counters.len() < 64 && counters_of(&node, None).len() < counters.len());
    }
}
