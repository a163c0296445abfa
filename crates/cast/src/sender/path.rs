//! What the reports of one receiver say about the path to it.
//!
//! A report contains the send time of the newest datagram and the time since it arrived, so every report measures a round trip,
//! with the delays of threads that were woken late. The least of them is the round trip without a queue; the least of a reading
//! and the one before exceeds it by the time in a queue. Owns these measures and the usual loss. Must never trust a number of a
//! report: each only shifts the measures of its own receiver.

use std::time::Duration;

use crate::congestion::{PACKET_BITS, READING_INTERVAL, Reading};
use crate::wire::format::low_microseconds;
use crate::wire::report::Report;

/// The least round trip is that of the last one to two periods of this length, because a path may change.
const BASE_PERIOD: Duration = Duration::from_secs(60);
/// Longer round trips and older datagrams are not believed.
const AGE_US_MAX: u32 = 60_000_000;
/// Loss without a queue of this length is mostly no congestion.
const QUEUE_LOW: Duration = Duration::from_millis(2);
/// Number of datagrams from which a loss rate is computed, at least.
const PACKETS_MIN: u64 = 16;
/// A receiver that reports, but has seen none of this many datagrams for this long and two round trips, is cut off.
const UNSEEN_MAX: u64 = 64;
const UNSEEN_TIME: Duration = Duration::from_millis(500);
/// The usual loss that is assumed from the first reading of this many datagrams, at most.
const USUAL_MAX: f64 = 0.12;
const USUAL_PACKETS_MIN: f64 = 500.0;
/// Time over which a rate is computed, at least, in seconds.
const SPAN_MIN: f64 = 0.02;

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    seen: u64,
    received: u64,
    sent_at: Duration,
    round_trip: Duration,
}

/// Measures the path to one receiver.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    joined: u64,
    base: Option<Duration>,
    base_before: Option<Duration>,
    base_since: Duration,
    /// The least round trip since the last reading, and that of the reading before with its time.
    least: Option<Duration>,
    least_before: Option<(Duration, Duration)>,
    from: Option<Mark>,
    latest: Option<Mark>,
    /// The newest report. It becomes `latest` with the next one, because datagrams that were overtaken look lost until then.
    newest: Option<Mark>,
    usual_loss: Option<f64>,
    has_reported: bool,
    /// Loss before the next report says nothing about the path.
    restarts: bool,
    /// Since when it has not seen what was sent.
    unseen_since: Option<Duration>,
}

impl Path {
    /// Starts measuring with the datagrams after this one.
    pub(super) fn starting_at(packet: u64) -> Self {
        Self { joined: packet, ..Self::default() }
    }

    /// Processes a report. The caller has checked that the packet exists.
    pub(super) fn report(&mut self, now: Duration, report: &Report) {
        self.has_reported = true;
        if report.seen_packet <= self.seen() {
            return;
        }
        let age = low_microseconds(now).wrapping_sub(report.echo_us);
        let Some(round_trip) = age.checked_sub(report.echo_delay_us).filter(|_| age < AGE_US_MAX) else {
            return;
        };
        let round_trip = Duration::from_micros(round_trip.into());
        if now >= self.base_since + BASE_PERIOD {
            self.base_before = self.base.take();
            self.base_since = now;
        }
        self.base = Some(self.base.map_or(round_trip, |base| base.min(round_trip)));
        self.least = Some(self.least.map_or(round_trip, |least| least.min(round_trip)));
        let sent_at = now.saturating_sub(Duration::from_micros(age.into()));
        let mark = Mark { seen: report.seen_packet, received: report.received, sent_at, round_trip };
        let before = self.newest.replace(mark);
        if std::mem::take(&mut self.restarts) {
            (self.from, self.latest) = (None, None);
        } else if let Some(mut before) = before {
            let lost = mark.seen.saturating_sub(mark.received);
            before.received = before.received.max(before.seen.saturating_sub(lost));
            self.from.get_or_insert(before);
            self.latest = Some(before);
        }
    }

    /// The newest datagram that it has seen.
    fn seen(&self) -> u64 {
        self.newest.map_or(self.joined, |newest| newest.seen)
    }

    /// Returns the newest datagram seen and the number of datagrams received.
    pub(super) fn latest(&self) -> Option<(u64, u64)> {
        self.latest.map(|latest| (latest.seen, latest.received))
    }

    /// Returns whether datagrams waited in a queue since the last reading.
    pub(super) fn has_queue(&self) -> bool {
        let least = self.least.or(self.least_before.map(|(_, least)| least));
        least.zip(self.least_base()).is_some_and(|(least, base)| least.saturating_sub(base) >= QUEUE_LOW)
    }

    fn least_base(&self) -> Option<Duration> {
        self.base.map(|base| base.min(self.base_before.unwrap_or(base)))
    }

    /// Forgets everything since the last reading, because the receiver does not count now.
    pub(super) fn skip(&mut self) {
        (self.least, self.least_before) = (None, None);
        (self.has_reported, self.unseen_since, self.restarts) = (false, None, true);
    }

    /// Returns what was measured since the last call; `None` if there is nothing new. `packet` is the last one that was sent.
    pub(super) fn read(&mut self, now: Duration, packet: u64) -> Option<Reading> {
        let has_reported = std::mem::take(&mut self.has_reported);
        let seen = self.seen();
        let base = self.least_base();
        let Some(least) = self.least.take() else {
            let base = base.unwrap_or(READING_INTERVAL);
            let is_behind = packet > seen + UNSEEN_MAX;
            self.unseen_since = is_behind.then(|| self.unseen_since.unwrap_or(now));
            let is_cut_off = self.unseen_since.is_some_and(|since| now >= since + UNSEEN_TIME + base * 2);
            let nothing = Reading {
                base,
                queue: Duration::ZERO,
                passed: 0.5,
                delivered: 0.0,
                is_lossy: true,
                loses: true,
            };
            return (has_reported && is_cut_off).then_some(nothing);
        };
        self.unseen_since = None;
        let recent = |at: &Duration| now.saturating_sub(*at) <= READING_INTERVAL * 4;
        let before = self.least_before.replace((now, least)).filter(|(at, _)| recent(at));
        let standing = before.map_or(least, |(_, before)| least.min(before));
        let base = base?;
        let queue = standing.saturating_sub(base);
        let reading = Reading { base, queue, passed: 1.0, delivered: 0.0, is_lossy: false, loses: false };
        let Some((from, latest)) = self.from.zip(self.latest) else { return Some(reading) };
        if latest.seen < from.seen + PACKETS_MIN {
            return Some(reading);
        }
        self.from = Some(latest);
        Some(self.compare(from, latest, reading))
    }

    /// Adds loss and delivered rate between two marks to a reading.
    fn compare(&mut self, from: Mark, latest: Mark, reading: Reading) -> Reading {
        let sent = latest.seen - from.seen;
        let lost = (sent - latest.received.saturating_sub(from.received).min(sent)) as f64;
        let sent = sent as f64;
        let loss = lost / sent;
        let is_low = reading.queue < QUEUE_LOW;
        let first = if is_low { loss.min(USUAL_MAX) } else { 0.0 };
        if sent >= USUAL_PACKETS_MIN || !is_low {
            self.usual_loss.get_or_insert(first);
        }
        let usual = self.usual_loss.unwrap_or(first);
        let expected = sent * usual;
        // Four standard deviations and more, so that random loss is not taken for congestion.
        let slack = if is_low { 4.0 + sent * 0.05 } else { 2.0 + sent * 0.01 };
        let is_lossy = lost > expected + 4.0 * expected.sqrt() + slack;
        let loses = lost > expected + 3.0 * expected.sqrt() + 0.5;
        if self.usual_loss.is_some() && (is_low || loss < usual) {
            // Loss without a queue that remains is no congestion. What is usual falls faster than it rises.
            let weight = if loss > usual && !is_lossy { 0.05 } else { 0.25 };
            self.usual_loss = Some(usual + (loss - usual) * weight);
        }
        let span = latest.sent_at.saturating_sub(from.sent_at).as_secs_f64();
        let growth = latest.round_trip.saturating_sub(from.round_trip).as_secs_f64();
        let is_measured = span > SPAN_MIN;
        let stretched = if is_measured { span / (span + growth) } else { 1.0 };
        let arrived = ((1.0 - loss) / (1.0 - usual).max(0.01)).min(1.0);
        let passed = (arrived * stretched).max(0.01);
        let delivered = if is_measured { sent * PACKET_BITS / span * passed } else { 0.0 };
        Reading { passed, delivered, is_lossy, loses, ..reading }
    }
}

/// Combines the readings of several receivers: what more than half of them show, so that one receiver behind a link of its own
/// does not slow the others.
pub(super) fn of_most(mut readings: Vec<Reading>) -> Option<Reading> {
    let count = readings.len();
    let is_most = |number: usize| number * 2 > count;
    let is_lossy = is_most(readings.iter().filter(|it| it.is_lossy).count());
    let loses = is_most(readings.iter().filter(|it| it.loses).count());
    readings.sort_by(|a, b| a.passed.total_cmp(&b.passed));
    let typical = *readings.get(count / 2)?;
    readings.sort_by_key(|it| it.queue);
    let shortest = readings.get(count.saturating_sub(1) / 2)?;
    let Reading { passed, delivered, .. } = typical;
    Some(Reading { base: shortest.base, queue: shortest.queue, passed, delivered, is_lossy, loses })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Reports after `packets` more datagrams in 10 ms, with `lost` of them lost and a round trip of 1 ms and `queue`.
    fn report(path: &mut Path, at: Duration, (packets, lost): (u64, u64), queue: Duration) {
        let latest = path.newest.unwrap_or_default();
        let age = MS + queue;
        let report = Report {
            seen_packet: latest.seen + packets,
            received: latest.received + packets - lost,
            echo_us: low_microseconds(at - age),
            echo_delay_us: 0,
            ..Report::default()
        };
        path.report(at, &report);
    }

    /// The readings of a second of reports.
    fn second(path: &mut Path, from: u64, sample: (u64, u64), queue: Duration) -> Vec<Reading> {
        let mut readings = Vec::new();
        for step in 1..=100 {
            let now = MS * (1000 * from as u32 + 10 * step);
            report(path, now, sample, queue);
            if step % 10 == 0 {
                readings.extend(path.read(now, 0));
            }
        }
        readings
    }

    #[test]
    fn a_queue_is_what_exceeds_the_least_round_trip() {
        let mut path = Path::default();
        assert!(second(&mut path, 1, (100, 0), Duration::ZERO).iter().all(|it| it.queue.is_zero()));
        assert!(!path.has_queue());
        let readings = second(&mut path, 2, (100, 0), MS * 20);
        assert_eq!((readings[0].queue, readings[9].queue), (Duration::ZERO, MS * 20));
        assert!(path.has_queue());
        assert!(readings[0].passed < 0.9, "it grew");
        assert!((readings[9].delivered / (10_000.0 * PACKET_BITS) - 1.0).abs() < 0.02);
    }

    #[test]
    fn constant_loss_is_usual_and_sudden_loss_is_not() {
        let mut path = Path::default();
        let mut readings = second(&mut path, 1, (100, 10), Duration::ZERO);
        readings.extend(second(&mut path, 2, (100, 10), MS * 20));
        assert!(readings.iter().all(|it| !it.is_lossy && !it.loses && it.passed > 0.7), "{readings:?}");
        let readings = second(&mut path, 3, (100, 25), MS * 20);
        assert!(readings[1..].iter().all(|it| it.is_lossy && it.loses));
    }

    #[test]
    fn datagrams_that_were_overtaken_are_not_lost() {
        let mut path = Path::default();
        // The newest of 1,000 datagrams arrived first.
        for (at, seen, received) in [(1, 1000, 1000), (9, 2000, 1300), (17, 2010, 2010)] {
            let echo_us = low_microseconds(MS * at - MS);
            path.report(MS * at, &Report { seen_packet: seen, received, echo_us, ..Report::default() });
        }
        assert_eq!(path.latest(), Some((2000, 2000)));
    }

    #[test]
    fn loss_while_a_receiver_does_not_count_is_not_measured() {
        let mut path = Path::default();
        second(&mut path, 1, (100, 0), Duration::ZERO);
        path.skip();
        report(&mut path, MS * 3000, (1000, 1000), Duration::ZERO);
        let readings = second(&mut path, 4, (100, 0), Duration::ZERO);
        assert!(readings.iter().all(|it| !it.is_lossy && it.passed > 0.9), "{readings:?}");
    }

    #[test]
    fn a_receiver_that_sees_nothing_is_cut_off() {
        let mut path = Path::default();
        second(&mut path, 1, (100, 0), Duration::ZERO);
        let silent = |path: &mut Path, at| {
            path.report(MS * at, &Report { seen_packet: 10_000, ..Report::default() });
            path.read(MS * at, 20_000)
        };
        assert_eq!(silent(&mut path, 2100), None);
        assert!(silent(&mut path, 2700).is_some_and(|reading| reading.is_lossy));
    }

    #[test]
    fn most_receivers_decide() {
        let reading = |queue: u32, is_lossy| Reading {
            base: MS,
            queue: MS * queue,
            passed: 1.0,
            delivered: 1.0,
            is_lossy,
            loses: is_lossy,
        };
        let most = |readings: &[Reading]| of_most(readings.to_vec()).map(|it| (it.queue, it.is_lossy));
        assert_eq!(most(&[]), None);
        assert_eq!(most(&[reading(9, true)]), Some((MS * 9, true)));
        assert_eq!(most(&[reading(9, true), reading(1, false)]), Some((MS, false)));
        assert_eq!(most(&[reading(9, true), reading(1, false), reading(8, true)]), Some((MS * 8, true)));
        let one_of_four = [reading(0, false), reading(0, false), reading(90, true), reading(0, false)];
        assert_eq!(most(&one_of_four), Some((Duration::ZERO, false)));
    }
}
