//! When a receiver reports.
//!
//! *Spokesmen*, whom plans name, report often: all together at the announced rate. Every other receiver reports rarely, and speaks up
//! when it has fewer free buffers than the sender counts on: after a random delay, in which a plan may show that the sender knows of
//! a receiver that is worse. So the number of reports does not grow with the number of receivers. Must never report more
//! often than [`REPORT_INTERVAL_MIN`], whoever forges plans.

use std::time::Duration;

use super::backoff::backoff;
use crate::random::Random;
use crate::wire::announce::FeedbackTimers;
use crate::wire::plan::Plan;

/// A receiver reports at least after this time if the room is small enough, or if it is a spokesman.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// Minimum interval between two reports.
const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(8);
/// Maximum interval, whatever the sender announces.
const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// A spokesman reports after this time if many of its buffers became free.
const FREED_INTERVAL: Duration = Duration::from_millis(20);
/// This share of the buffers is many.
const FREED_SHARE: usize = 4;
/// A receiver that has spoken up does so again after this time, if it is still worse and has not become a spokesman; the time doubles
/// each time. So whoever forges plans cannot make it speak often.
const AGAIN: Duration = Duration::from_millis(100);
/// Maximum number of doublings of [`AGAIN`].
const AGAIN_DOUBLINGS: u32 = 10;
/// Longest delay before it speaks up, for each doubling of the number of receivers.
const SPEAK_DELAY: Duration = Duration::from_millis(10);

/// When to report.
#[derive(Debug)]
pub(super) struct Reporting {
    random: Random,
    spokesmen_interval: Duration,
    others_interval: Duration,
    receivers: u32,
    reported_at: Duration,
    /// When to report if it is no spokesman.
    due: Duration,
    /// Number of spokesmen in the last plan; 0 if it was not among them.
    spokesmen: u32,
    /// A plan asked for a report.
    is_asked: bool,
    /// Something has happened since the last report.
    has_news: bool,
    /// Buffers that became free since the last report, and the number of all.
    freed: usize,
    buffers: usize,
    speak_at: Option<Duration>,
    /// When it last spoke up, and how often in a row.
    spoken_at: Duration,
    spoken: u32,
}

impl Reporting {
    pub(super) fn new(seed: u64, buffers: usize) -> Self {
        Self {
            random: Random::new(seed ^ 0x5a5a_5a5a_5a5a_5a5a),
            spokesmen_interval: REPORT_INTERVAL,
            others_interval: REPORT_INTERVAL,
            receivers: 1,
            reported_at: Duration::ZERO,
            due: Duration::ZERO,
            spokesmen: 0,
            is_asked: false,
            has_news: false,
            freed: 0,
            buffers,
            speak_at: None,
            spoken_at: Duration::ZERO,
            spoken: 0,
        }
    }

    /// Starts with a session: the first report is due after a random part of the interval, and not before an announcement has told how many
    /// others join.
    pub(super) fn begin(&mut self, now: Duration, timers: FeedbackTimers) {
        self.set_timers(now, timers);
        let delay = self.random.below(self.others_interval.as_micros() as u64);
        self.due = now + REPORT_INTERVAL + Duration::from_micros(delay);
        (self.spokesmen, self.is_asked, self.speak_at) = (0, false, None);
    }

    /// Takes announced timers. When the interval changes, so does the time that is left, in proportion: the reports of a room stay
    /// evenly spread.
    pub(super) fn set_timers(&mut self, now: Duration, timers: FeedbackTimers) {
        let time = |us: u32| Duration::from_micros(u64::from(us)).max(REPORT_INTERVAL_MIN);
        self.spokesmen_interval = time(timers.spokesmen_us).min(REPORT_INTERVAL);
        self.receivers = timers.receivers();
        let interval = time(timers.others_us).clamp(REPORT_INTERVAL, REPORT_INTERVAL_MAX);
        if interval != self.others_interval {
            let left = self.due.saturating_sub(now);
            self.due = now + left.mul_f64(interval.as_secs_f64() / self.others_interval.as_secs_f64());
            self.others_interval = interval;
        }
    }

    /// Processes a plan: whether it names this receiver, and whether the sender counts on more free buffers than it has.
    pub(super) fn heed(&mut self, now: Duration, plan: &Plan, receiver: u32, free: usize) {
        let is_named = plan.spokesmen.contains(&receiver);
        if is_named {
            // Before the first data, every plan asks for a proof that the group reaches this receiver.
            let is_new = self.spokesmen == 0 && now >= self.reported_at + AGAIN;
            self.is_asked |= is_new || plan.last_data_packet == 0;
        }
        self.spokesmen = if is_named { plan.spokesmen.len() as u32 } else { 0 };
        let is_worse = !is_named && (free as u64) < u64::from(plan.least_free) && free <= self.buffers / 2;
        if !is_worse {
            self.speak_at = None;
        } else if self.speak_at.is_none() {
            let longest = SPEAK_DELAY.mul_f64(f64::from(self.receivers.max(2)).log2());
            let delay = backoff(&mut self.random, longest, self.receivers);
            self.speak_at = Some((now + delay).max(self.silent_until()));
        }
    }

    /// Until when it does not speak up again.
    fn silent_until(&self) -> Duration {
        match self.spoken {
            0 => Duration::ZERO,
            spoken => self.spoken_at + AGAIN * 2u32.pow((spoken - 1).min(AGAIN_DOUBLINGS)),
        }
    }

    /// Records that something has happened.
    pub(super) fn happened(&mut self) {
        self.has_news = true;
    }

    /// Records that a buffer became free.
    pub(super) fn freed(&mut self) {
        self.freed += 1;
        self.has_news = true;
    }

    /// Returns when to report.
    pub(super) fn next_deadline(&self) -> Duration {
        let least = self.reported_at + REPORT_INTERVAL_MIN;
        if self.spokesmen == 0 {
            return self.due.min(self.speak_at.unwrap_or(self.due)).max(least);
        }
        if self.is_asked {
            return least;
        }
        let interval = self.spokesmen_interval * self.spokesmen;
        let often = self.reported_at + if self.has_news { interval } else { interval.max(REPORT_INTERVAL) };
        let has_freed = self.freed >= (self.buffers / FREED_SHARE).max(1);
        if has_freed { often.min(self.reported_at + FREED_INTERVAL) } else { often }
    }

    /// Records that a report is sent.
    pub(super) fn reported(&mut self, now: Duration) {
        (self.reported_at, self.due) = (now, now + self.others_interval);
        if self.spokesmen > 0 {
            self.spoken = 0;
        } else if self.speak_at.take().is_some_and(|at| now >= at) {
            self.spoken_at = now;
            self.spoken = self.spoken.saturating_add(1);
        }
        (self.is_asked, self.has_news, self.freed) = (false, false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::plan::LEAST_FREE_UNKNOWN;

    const ME: u32 = 7;
    const SECOND: u64 = 1_000_000;

    fn at(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn timers(receivers: u32) -> FeedbackTimers {
        FeedbackTimers { spokesmen_us: 33_000, backoff_us_max: 1_000, others_us: receivers * 50_000 }
    }

    /// A plan while data is sent.
    fn plan(spokesmen: &[u32], least_free: u32) -> Plan {
        Plan { last_data_packet: 9, spokesmen: spokesmen.to_vec(), least_free, ..Plan::default() }
    }

    /// The times at which it reports within so many seconds, with that plan every 50 ms, and `free` buffers of 16.
    fn reports(
        reporting: &mut Reporting,
        seconds: std::ops::Range<u64>,
        plan: &Plan,
        free: usize,
    ) -> Vec<u64> {
        let mut times = Vec::new();
        for us in (seconds.start * SECOND..seconds.end * SECOND).step_by(1000) {
            if us % 50_000 == 0 {
                reporting.heed(at(us), plan, ME, free);
            }
            reporting.happened();
            if at(us) >= reporting.next_deadline() {
                reporting.reported(at(us));
                times.push(us / 1000);
            }
        }
        times
    }

    #[test]
    fn spokesmen_share_the_reports_and_others_report_rarely() {
        let mut reporting = Reporting::new(1, 16);
        reporting.begin(at(0), timers(200));
        assert_eq!(reports(&mut reporting, 1..31, &plan(&[1, 2], 9), 16).len(), 3);
        let often = reports(&mut reporting, 31..32, &plan(&[1, 2, ME], 9), 16);
        assert!((10..=11).contains(&often.len()) && often[0] == 31_000, "{often:?}");
        assert_eq!(reports(&mut reporting, 32..42, &plan(&[1, 2], 9), 16).len(), 1);
    }

    #[test]
    fn a_receiver_with_few_buffers_speaks_up_unless_a_worse_one_is_known() {
        let mut reporting = Reporting::new(5, 16);
        reporting.begin(at(0), timers(10_000));
        assert!(reports(&mut reporting, 1..4, &plan(&[1], 3), 3).is_empty(), "another one is as bad");
        assert!(reports(&mut reporting, 4..7, &plan(&[1], 16), 9).is_empty(), "it has many");
        reporting.heed(at(7 * SECOND), &plan(&[1], 4), ME, 3);
        assert!(reporting.next_deadline() <= at(7 * SECOND + 140_000));
        reporting.heed(at(7 * SECOND + 10), &plan(&[1], 3), ME, 3);
        assert!(reporting.next_deadline() > at(8 * SECOND), "a worse one is known now");
        // Nobody names it, as somebody who forges plans may do.
        let many = reports(&mut reporting, 8..38, &plan(&[1], LEAST_FREE_UNKNOWN), 0);
        assert!((5..=10).contains(&many.len()), "{many:?}");
    }

    #[test]
    fn the_time_that_is_left_changes_with_the_interval() {
        let mut reporting = Reporting::new(3, 16);
        reporting.begin(at(0), timers(4));
        let first = reporting.next_deadline();
        assert!(first >= REPORT_INTERVAL && first <= REPORT_INTERVAL * 2);
        reporting.set_timers(at(0), timers(4000));
        assert_eq!(reporting.next_deadline(), first * 1000);
        reporting.set_timers(at(0), timers(40));
        assert_eq!(reporting.next_deadline(), first * 10);
    }

    #[test]
    fn many_freed_buffers_are_reported_soon() {
        let mut reporting = Reporting::new(1, 16);
        reporting.begin(at(0), timers(4));
        reporting.heed(at(SECOND), &plan(&[ME, 1, 2, 3], 4), ME, 4);
        reporting.reported(at(SECOND));
        (0..3).for_each(|_| reporting.freed());
        assert_eq!(reporting.next_deadline(), at(SECOND + 132_000));
        reporting.freed();
        assert_eq!(reporting.next_deadline(), at(SECOND) + FREED_INTERVAL);
    }
}
