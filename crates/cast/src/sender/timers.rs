//! How often receivers report, and after which silence one is missed: by the number of receivers.
//!
//! All reports together stay at 50 a second: 30 of spokesmen, 20 of all others. Owns the announced timers. Must never call a
//! receiver silent because it was told to report rarely.

use std::time::Duration;

use crate::wire::announce::{FeedbackTimers, OTHERS_US_OF_EACH};

/// Time between two reports of all spokesmen, in microseconds, if all receivers are spokesmen, and if there are others.
const SPOKESMEN_US_ALONE: u32 = 25_000;
const SPOKESMEN_US: u32 = 33_000;
/// The least interval of others, in microseconds.
const OTHERS_US_MIN: u32 = 200_000;
/// Longest random delay of a request in a small room, and what each doubling of a larger room adds, in microseconds: a plan must be able
/// to stop most of the requests about one chunk.
const BACKOFF_US: u32 = 1_000;
const BACKOFF_US_OF_DOUBLING: u32 = 4_000;
/// Up to this many receivers, a room is small.
const SMALL_ROOM: u32 = 64;
/// A receiver is silent after this many intervals, at least.
const SILENT_INTERVALS: u32 = 3;

/// The announced timers.
#[derive(Debug)]
pub(super) struct ReportTimers {
    /// The number of receivers for which they are.
    receivers: u32,
    /// When the interval last became shorter. Before, receivers did not have to report as often.
    shortened_at: Duration,
}

impl ReportTimers {
    pub(super) fn new() -> Self {
        Self { receivers: 0, shortened_at: Duration::ZERO }
    }

    /// Adapts the timers to the number of receivers that take part. They become shorter only if a quarter of them has gone, so that
    /// intervals do not change all the time.
    pub(super) fn update(&mut self, now: Duration, present: usize) {
        let present = u32::try_from(present).unwrap_or(u32::MAX);
        if present > self.receivers {
            self.receivers = present;
        } else if present <= self.receivers / 4 * 3 {
            self.receivers = present;
            self.shortened_at = now;
        }
    }

    fn others_us(&self) -> u32 {
        self.receivers.saturating_mul(OTHERS_US_OF_EACH).max(OTHERS_US_MIN)
    }

    /// Returns what to announce. `samples`: up to so many receivers are all spokesmen.
    pub(super) fn timers(&self, samples: usize) -> FeedbackTimers {
        let is_alone = self.receivers as usize <= samples;
        let doublings = self.receivers.div_ceil(SMALL_ROOM).next_power_of_two().trailing_zeros();
        FeedbackTimers {
            spokesmen_us: if is_alone { SPOKESMEN_US_ALONE } else { SPOKESMEN_US },
            backoff_us_max: BACKOFF_US + doublings * BACKOFF_US_OF_DOUBLING,
            others_us: self.others_us(),
        }
    }

    /// Returns for how long a receiver must have been silent, at least, to be missed.
    pub(super) fn silence(&self) -> Duration {
        Duration::from_micros(u64::from(self.others_us())) * SILENT_INTERVALS
    }

    /// Returns for how long a receiver that was last heard then has been silent although it had to report.
    pub(super) fn silent_for(&self, now: Duration, heard_at: Duration) -> Duration {
        now.saturating_sub(heard_at.max(self.shortened_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_report_less_often_in_larger_rooms() {
        let mut timers = ReportTimers::new();
        let mut interval = |present| {
            timers.update(Duration::ZERO, present);
            timers.timers(3).others_us / 1000
        };
        assert_eq!(
            [0, 1, 4, 5, 20, 200, 10_000].map(&mut interval),
            [200, 200, 200, 250, 1000, 10_000, 500_000]
        );
        assert_eq!([9_000, 7_500, 3].map(interval), [500_000, 375_000, 200]);
    }

    #[test]
    fn silence_counts_from_when_a_report_was_due() {
        let mut timers = ReportTimers::new();
        let second = Duration::from_secs(1);
        timers.update(second, 200);
        assert_eq!(timers.silence(), second * 30);
        timers.update(second * 40, 4);
        assert_eq!(timers.silent_for(second * 41, second * 5), second);
        assert!(timers.silence() < second);
    }

    #[test]
    fn requests_wait_longer_in_larger_rooms() {
        let backoff = |present| {
            let mut timers = ReportTimers::new();
            timers.update(Duration::ZERO, present);
            timers.timers(3).backoff_us_max / 1000
        };
        assert_eq!([1, 64, 65, 200, 10_000].map(backoff), [1, 1, 5, 9, 33]);
    }
}
