//! What sharing did since the node was started.

use serde::Serialize;

/// Counters, and how many nodes there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeerCounts {
    /// Other nodes that are known.
    pub known: u64,
    /// Nodes that there is a connection with.
    pub connected: u64,
    /// Frames taken from peers, and their bytes.
    pub frames_received: u64,
    /// See `frames_received`.
    pub frame_bytes_received: u64,
    /// Frames taken from the origin, and their bytes.
    pub origin_frames: u64,
    /// See `origin_frames`.
    pub origin_frame_bytes: u64,
    /// Frames sent to peers, and their bytes.
    pub frames_sent: u64,
    /// See `frames_sent`.
    pub frame_bytes_sent: u64,
    /// Bytes of filters sent.
    pub filter_bytes_sent: u64,
    /// Questions to peers that said to hold the blocks, to homes, and to the origin.
    pub peer_questions: u64,
    /// See `peer_questions`.
    pub home_questions: u64,
    /// See `peer_questions`.
    pub origin_questions: u64,
    /// Of all these, second ones because the first was slow.
    pub hedges: u64,
    /// Questions of peers that this node fetched for, as the home of the blocks.
    pub fetches_for_peers: u64,
    /// Blocks that a filter said were there, and were not.
    pub false_positives: u64,
    /// Blocks that were not there any more, by a filter newer than the one here.
    pub stale: u64,
    /// Questions that failed.
    pub failures: u64,
    /// Peers dropped because they were silent while an answer was due.
    pub silent: u64,
    /// Peers dropped for good, because they lied.
    pub liars: u64,
}
