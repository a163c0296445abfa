//! Counters of sharing since the node's start.

use serde::Serialize;

/// Counters, and numbers of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeerCounts {
    /// Number of known other nodes.
    pub known: u64,
    /// Number of connected nodes.
    pub connected: u64,
    /// Frames received from peers, and their bytes.
    pub frames_received: u64,
    /// See `frames_received`.
    pub frame_bytes_received: u64,
    /// Frames received from the origin, and their bytes.
    pub origin_frames: u64,
    /// See `origin_frames`.
    pub origin_frame_bytes: u64,
    /// Frames sent to peers, and their bytes.
    pub frames_sent: u64,
    /// See `frames_sent`.
    pub frame_bytes_sent: u64,
    /// Bytes of filters sent.
    pub filter_bytes_sent: u64,
    /// Requests to peers that announced the blocks, to homes, and to the origin.
    pub peer_questions: u64,
    /// See `peer_questions`.
    pub home_questions: u64,
    /// See `peer_questions`.
    pub origin_questions: u64,
    /// Of these, second requests because the first was slow.
    pub hedges: u64,
    /// Requests of peers for which this node fetched, as the home of the blocks.
    pub fetches_for_peers: u64,
    /// Blocks that a filter announced although the peer never had them.
    pub false_positives: u64,
    /// Blocks that the peer had dropped, according to a newer filter than the known one.
    pub stale: u64,
    /// Failed requests.
    pub failures: u64,
    /// Peers dropped because they were silent while a reply was due.
    pub silent: u64,
    /// Peers dropped permanently, because they sent wrong data.
    pub liars: u64,
}
