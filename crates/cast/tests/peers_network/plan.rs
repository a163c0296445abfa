//! The parameters of a simulated network: nodes, links, boots, failures and liars.

use std::time::Duration;

use super::node::READ_FRAMES;

/// Number of concurrent reads of one boot.
const BOOT_READS: usize = 2;

/// The parameters of a simulated network.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub nodes: usize,
    pub node_bits_per_second: u64,
    pub origin_bits_per_second: u64,
    pub delay: Duration,
    /// Number of neighbours whose filters each node subscribes to.
    pub neighbours: usize,
    pub homes: bool,
    pub bytes_in_flight_max: u64,
    /// Number of boots per node, and the mean time between two of them.
    pub boots: usize,
    pub boot_interval: Duration,
    /// Number of concurrent reads of one boot, and of frames in a read.
    pub window: usize,
    pub read_frames: usize,
    /// The whole image is fetched for later, as on nodes that fill a disk: pieces can wait.
    pub fills: bool,
    /// Fraction of the nodes that fail per minute, and that lie.
    pub failing: f64,
    pub lying: f64,
    /// Encodes and parses every message.
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
