//! What a node tells the origin of itself: `POST /api/v1/nodes` (`docs/api.md`).

use serde::Serialize;

use super::node_cache::NodeCounters;

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
    /// What its cache did.
    pub(crate) counters: NodeCounters,
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
