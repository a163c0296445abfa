//! What a simulated network is like: nodes, links, boots, failures and liars.

use std::time::Duration;

use super::node::READ_FRAMES;

/// Reads of one boot at a time.
const BOOT_READS: usize = 2;

/// What a network is like.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub nodes: usize,
    pub node_bits_per_second: u64,
    pub origin_bits_per_second: u64,
    pub delay: Duration,
    /// Neighbours whose filters each node hears.
    pub neighbours: usize,
    pub homes: bool,
    pub bytes_in_flight_max: u64,
    /// Boots of each node, and the mean time between two of them.
    pub boots: usize,
    pub boot_interval: Duration,
    /// Reads of one boot at a time, and frames of a read.
    pub window: usize,
    pub read_frames: usize,
    /// The whole image is wanted for later, as by nodes that are filled: pieces can wait.
    pub fills: bool,
    /// Part of the nodes that fail in a minute, and that lie.
    pub failing: f64,
    pub lying: f64,
    /// Carry every message through its bytes.
    pub through_bytes: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            nodes: 60,
            node_bits_per_second: 1_000_000_000,
            origin_bits_per_second: 10_000_000_000,
            delay: Duration::from_micros(200),
            neighbours: 16,
            homes: true,
            bytes_in_flight_max: 64 << 20,
            boots: 4,
            boot_interval: Duration::from_secs(20),
            window: BOOT_READS,
            read_frames: READ_FRAMES,
            fills: false,
            failing: 0.01,
            lying: 0.01,
            through_bytes: false,
        }
    }
}
