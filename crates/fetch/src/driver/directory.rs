//! The known nodes: as listed by the origin's registry, and stored for times when no origin answers.
//!
//! Owns a small file beside the cache. A node that is missing from more than [`MISSED_MAX`] consecutive replies of the
//! registry is forgotten; while the origin does not answer, none is. A restarted origin knows no nodes at first.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use platter_api::NodePeer;
use platter_cast::peer::NodeId;
use platter_image::Result;
use platter_transport::{Fingerprint, KnownPeers, private_file, to_hex};
use serde::{Deserialize, Serialize};

use super::identity::node_from_hex;

/// Number of replies without a node after which it is forgotten: five minutes.
const MISSED_MAX: u32 = 30;
/// Most nodes.
const NODES_MAX: usize = 4096;
/// Most bytes of the file that are read.
const FILE_LENGTH_MAX: u64 = 4 << 20;
const FORMAT_VERSION: u32 = 1;

/// A node that other nodes may trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNode {
    pub(crate) id: NodeId,
    /// The address at which it serves others; `None` if it does not.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) fingerprint: Fingerprint,
}

/// A node's form in the registry's reply and in the file.
#[derive(Debug, Serialize, Deserialize)]
struct WrittenNode {
    id: String,
    peer_address: Option<SocketAddr>,
    fingerprint: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WrittenDirectory {
    platter_peers: u32,
    group: String,
    nodes: Vec<WrittenNode>,
}

/// The changes by a reply of the registry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Learned {
    pub(crate) known: Vec<NodeId>,
    pub(crate) gone: Vec<NodeId>,
}

#[derive(Clone, Debug)]
struct Remembered {
    node: KnownNode,
    missed: u32,
}

/// The known nodes, without this one.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    group: [u8; 16],
    own: NodeId,
    nodes: Mutex<BTreeMap<NodeId, Remembered>>,
    /// Number of connections from unknown nodes.
    strangers: AtomicU64,
}

impl KnownNode {
    /// Parses a node of the registry's reply; `None` if nobody could recognize it.
    fn of(written: &WrittenNode) -> Option<Self> {
        let fingerprint = Fingerprint::from_hex(written.fingerprint.as_deref()?)?;
        Some(Self { id: node_from_hex(&written.id)?, address: written.peer_address, fingerprint })
    }

    /// Parses the nodes of the registry's reply.
    pub fn all_of(nodes: &[NodePeer]) -> Vec<Self> {
        let known = nodes.iter().filter_map(|node| {
            let fingerprint = Fingerprint::from_hex(node.fingerprint.as_deref()?)?;
            Some(Self { id: node_from_hex(&node.id)?, address: node.peer_address, fingerprint })
        });
        known.take(NODES_MAX).collect()
    }

    fn written(&self) -> WrittenNode {
        WrittenNode {
            id: to_hex(&self.id.0),
            peer_address: self.address,
            fingerprint: Some(self.fingerprint.to_string()),
        }
    }
}

impl Directory {
    /// Reads the stored nodes of this group. A damaged file, or one of another sharing group, is ignored.
    pub(crate) fn open(path: PathBuf, group: [u8; 16], own: NodeId) -> Self {
        let nodes = read(&path, group).unwrap_or_default();
        let nodes = nodes.into_iter().filter(|node| node.id != own);
        let nodes = nodes.map(|node| (node.id, Remembered { node, missed: 0 })).collect();
        Self { path, group, own, nodes: Mutex::new(nodes), strangers: AtomicU64::new(0) }
    }

    /// Takes a reply of the registry.
    ///
    /// # Errors
    /// `Io` when they cannot be stored; they are known anyway.
    pub(crate) fn learn(&self, told: &[KnownNode]) -> (Learned, Result<()>) {
        let mut nodes = self.nodes.lock();
        let mut learned = Learned::default();
        nodes.values_mut().for_each(|node| node.missed += 1);
        for node in told.iter().filter(|node| node.id != self.own) {
            let remembered = Remembered { node: node.clone(), missed: 0 };
            let is_new = nodes.get(&node.id).is_none_or(|before| before.node != *node);
            if is_new && (nodes.len() < NODES_MAX || nodes.contains_key(&node.id)) {
                learned.known.push(node.id);
            }
            if nodes.len() < NODES_MAX || nodes.contains_key(&node.id) {
                nodes.insert(node.id, remembered);
            }
        }
        let gone = nodes.values().filter(|node| node.missed > MISSED_MAX).map(|node| node.node.id);
        learned.gone = gone.collect();
        learned.gone.iter().for_each(|node| _ = nodes.remove(node));
        let written = if learned == Learned::default() { Ok(()) } else { self.write(&nodes) };
        (learned, written)
    }

    /// Returns the node whose certificate has this fingerprint.
    pub(super) fn node_of(&self, fingerprint: &Fingerprint) -> Option<NodeId> {
        let nodes = self.nodes.lock();
        let found = nodes.values().find(|known| known.node.fingerprint == *fingerprint);
        found.map(|known| known.node.id)
    }

    pub(super) fn strangers(&self) -> u64 {
        self.strangers.load(Ordering::Relaxed)
    }

    pub(super) fn get(&self, node: &NodeId) -> Option<KnownNode> {
        self.nodes.lock().get(node).map(|known| known.node.clone())
    }

    /// Returns all nodes that serve others.
    pub(super) fn sharing(&self) -> Vec<NodeId> {
        let nodes = self.nodes.lock();
        nodes.values().filter(|known| known.node.address.is_some()).map(|known| known.node.id).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.lock().len()
    }

    fn write(&self, nodes: &BTreeMap<NodeId, Remembered>) -> Result<()> {
        let nodes = nodes.values().map(|known| known.node.written()).collect();
        let written = WrittenDirectory { platter_peers: FORMAT_VERSION, group: to_hex(&self.group), nodes };
        let text = serde_json::to_string_pretty(&written).unwrap_or_default();
        private_file::replace(&self.path, format!("{text}\n").as_bytes())
    }
}

impl KnownPeers for Directory {
    fn knows(&self, fingerprint: &Fingerprint) -> bool {
        let is_known = self.node_of(fingerprint).is_some();
        if !is_known {
            // Perhaps a new node that the registry has not listed yet: it is asked at the next report.
            self.strangers.fetch_add(1, Ordering::Relaxed);
        }
        is_known
    }
}

fn read(path: &Path, group: [u8; 16]) -> Option<Vec<KnownNode>> {
    if fs::metadata(path).ok()?.len() > FILE_LENGTH_MAX {
        return None;
    }
    let written: WrittenDirectory = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    if written.platter_peers != FORMAT_VERSION || written.group != to_hex(&group) {
        return None;
    }
    Some(written.nodes.iter().filter_map(KnownNode::of).take(NODES_MAX).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(number: u8) -> KnownNode {
        let address = format!("10.0.0.{number}:7442").parse().ok();
        KnownNode { id: NodeId([number; 16]), address, fingerprint: Fingerprint([number; 32]) }
    }

    #[test]
    fn nodes_are_stored_and_forgotten_only_by_replies_of_the_origin() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("peers.json");
        let open = |group| Directory::open(path.clone(), group, NodeId([1; 16]));
        let directory = open([9; 16]);
        let (learned, written) = directory.learn(&[node(1), node(2), node(3)]);
        assert!(written.is_ok());
        assert_eq!(learned.known, [NodeId([2; 16]), NodeId([3; 16])], "without this node");
        assert_eq!(directory.node_of(&Fingerprint([2; 32])), Some(NodeId([2; 16])));
        assert_eq!(
            (directory.node_of(&Fingerprint([1; 32])), directory.node_of(&Fingerprint([4; 32]))),
            (None, None)
        );
        let again = open([9; 16]);
        assert_eq!(again.get(&NodeId([3; 16])), Some(node(3)));
        assert_eq!(open([8; 16]).len(), 0, "nodes of another group");
        for _ in 0..MISSED_MAX {
            assert_eq!(again.learn(&[node(2)]).0, Learned::default());
        }
        assert_eq!(again.learn(&[node(2)]).0.gone, [NodeId([3; 16])]);
        assert_eq!((again.node_of(&Fingerprint([3; 32])), open([9; 16]).len()), (None, 1));
        let moved = KnownNode { address: None, fingerprint: Fingerprint([7; 32]), ..node(2) };
        assert_eq!(again.learn(&[moved]).0.known, [NodeId([2; 16])]);
        assert_eq!((again.node_of(&Fingerprint([2; 32])), again.sharing()), (None, vec![]));
        std::fs::write(&path, "{").unwrap();
        assert_eq!(open([9; 16]).len(), 0);
    }

    #[test]
    fn invalid_nodes_in_a_reply_are_skipped() {
        let told = json!([
            { "id": "01".repeat(16), "name": "a", "peer_address": "[::1]:1", "fingerprint": "02".repeat(32),
              "hoard_revision": 1, "seen_unix_ms": 1, "new": 1 },
            { "id": "03".repeat(16), "name": "b", "peer_address": null, "fingerprint": null, "seen_unix_ms": 1 },
            { "id": "x", "name": "c", "peer_address": null, "fingerprint": "02".repeat(32), "seen_unix_ms": 1 },
        ]);
        let told: Vec<NodePeer> = serde_json::from_value(told).unwrap();
        let known = KnownNode::all_of(&told);
        let address = "[::1]:1".parse().ok();
        assert_eq!(known, [KnownNode { id: NodeId([1; 16]), address, fingerprint: Fingerprint([2; 32]) }]);
    }
}
