//! What limits a receiver: the sender, its network, or one of the two stages that process its chunks.
//!
//! Owns the decision, from the reports of the receiver, and the measure of the load that these contain. Must never be trusted:
//! it is displayed, and only decides in which order receivers are served.

use std::time::Duration;

/// A receiver's sink limits it if it is busy for at least this share of the time, and this many chunks wait.
const BUSY_PERCENT_MIN: u8 = 80;
const WAITING_CHUNKS_MIN: u32 = 4;
/// Time over which the load is measured.
const WINDOW: Duration = Duration::from_millis(200);

/// A stage that processes received chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SinkStage {
    /// Decoding and verifying.
    Decoding,
    /// Writing to the target.
    #[default]
    Disk,
}

/// What limits a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// What is sent: it could take more.
    Sender,
    /// The network, which loses far more than usual, or does not take the rate that the operator has set.
    Network,
    /// Decoding and verifying.
    Decoding,
    /// Writing to the target.
    Disk,
}

/// Counts what limited a receiver in its reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bottlenecks([u32; 4]);

impl Bottlenecks {
    /// Adds a report: how busy the sink is, how many chunks wait for it, its slowest stage, and whether the network is behind.
    /// Returns what limits the receiver now.
    pub(crate) fn add(
        &mut self,
        busy_percent: u8,
        waiting_chunks: u32,
        stage: SinkStage,
        is_network_behind: bool,
    ) -> Bottleneck {
        let is_behind = busy_percent >= BUSY_PERCENT_MIN && waiting_chunks >= WAITING_CHUNKS_MIN;
        let now = match stage {
            _ if !is_behind && is_network_behind => Bottleneck::Network,
            _ if !is_behind => Bottleneck::Sender,
            SinkStage::Decoding => Bottleneck::Decoding,
            SinkStage::Disk => Bottleneck::Disk,
        };
        let count = &mut self.0[now as usize];
        *count = count.saturating_add(1);
        now
    }

    /// Returns what most reports showed.
    pub(crate) fn most(&self) -> Option<Bottleneck> {
        let kinds = [Bottleneck::Sender, Bottleneck::Network, Bottleneck::Decoding, Bottleneck::Disk];
        kinds.into_iter().filter(|kind| self.0[*kind as usize] > 0).max_by_key(|kind| self.0[*kind as usize])
    }
}

/// Measures the share of the time in which chunks wait for the sink or are processed by it.
#[derive(Debug, Default)]
pub(crate) struct LoadMeter {
    measured_at: Duration,
    window_at: Duration,
    busy: Duration,
    percent: u8,
}

impl LoadMeter {
    /// Adds the time since the last call, in which the sink was busy or not.
    pub(crate) fn measure(&mut self, now: Duration, was_busy: bool) {
        let passed = now.saturating_sub(self.measured_at);
        self.measured_at = now.max(self.measured_at);
        self.busy += if was_busy { passed } else { Duration::ZERO };
        let window = self.measured_at.saturating_sub(self.window_at);
        if window >= WINDOW {
            self.percent = (self.busy.as_micros() * 100 / window.as_micros().max(1)).min(100) as u8;
            self.busy = Duration::ZERO;
            self.window_at = self.measured_at;
        }
    }

    /// Returns the share in the last complete window.
    pub(crate) fn percent(&self) -> u8 {
        self.percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_the_share_of_busy_time() {
        let mut meter = LoadMeter::default();
        for ms in 0..2000 {
            meter.measure(Duration::from_millis(ms), ms % 4 == 1);
        }
        assert_eq!(meter.percent(), 25);
        meter.measure(Duration::from_secs(10), true);
        assert!(meter.percent() > 95, "one long write");
    }

    #[test]
    fn a_receiver_is_limited_by_the_stage_that_is_behind() {
        let mut all = Bottlenecks::default();
        assert_eq!(all.most(), None);
        assert_eq!(all.add(99, 1, SinkStage::Disk, false), Bottleneck::Sender);
        assert_eq!(all.add(50, 9, SinkStage::Disk, true), Bottleneck::Network);
        assert_eq!(all.add(90, 9, SinkStage::Decoding, true), Bottleneck::Decoding);
        (0..3).for_each(|_| assert_eq!(all.add(90, 9, SinkStage::Disk, false), Bottleneck::Disk));
        assert_eq!(all.most(), Some(Bottleneck::Disk));
    }
}
