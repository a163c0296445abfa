//! How much to have under way: as much as fills the way to the origin and back, and some.
//!
//! A link of rate R and delay D holds R times D bytes. Both are measured: the delay as the least time of late from a
//! request to its first byte, the rate as the best of late. Twice their product is under way, so as long as the window is
//! what limits the rate, the window doubles; once the link does, it stays. Pure: time is an argument, since a start.

use std::collections::VecDeque;
use std::time::Duration;

/// Least and most bytes that may be under way.
pub(super) const LENGTH_MIN: u64 = 4 << 20;
pub(super) const LENGTH_MAX: u64 = 32 << 20;
/// Least and most bytes that one request asks for, about.
const REQUEST_MIN: u64 = 1 << 20;
const REQUEST_MAX: u64 = 4 << 20;
/// Into so many requests the window is cut: fewer are larger, and a frame at the border of two may come twice.
const REQUESTS: u64 = 4;
/// Measurements that count.
const SAMPLES: usize = 16;

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Bytes that came, ever.
    delivered: u64,
    delays: VecDeque<Duration>,
    /// Bytes each second.
    rates: VecDeque<u64>,
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    at: Duration,
    delivered: u64,
}

impl Window {
    /// A request is sent.
    pub(super) fn sent(&self, now: Duration) -> Sent {
        Sent { at: now, delivered: self.delivered }
    }

    /// Its first byte came.
    pub(super) fn answered(&mut self, sent: Sent, now: Duration) {
        push(&mut self.delays, now.saturating_sub(sent.at));
    }

    /// Some bytes came.
    pub(super) fn received(&mut self, bytes: u64) {
        self.delivered += bytes;
    }

    /// All of it came.
    pub(super) fn ended(&mut self, sent: Sent, now: Duration) {
        let time = now.saturating_sub(sent.at).as_secs_f64();
        if time > 0.0 {
            push(&mut self.rates, ((self.delivered - sent.delivered) as f64 / time) as u64);
        }
    }

    /// Bytes that may be under way.
    pub(super) fn length(&self) -> u64 {
        let delay = self.delays.iter().min().copied().unwrap_or_default();
        let rate = self.rates.iter().max().copied().unwrap_or_default();
        let held = (rate as f64 * delay.as_secs_f64()) as u64;
        held.saturating_mul(2).clamp(LENGTH_MIN, LENGTH_MAX)
    }

    /// Bytes that one request should ask for.
    pub(super) fn request_length(&self) -> u64 {
        (self.length() / REQUESTS).clamp(REQUEST_MIN, REQUEST_MAX)
    }
}

fn push<T>(samples: &mut VecDeque<T>, sample: T) {
    if samples.len() == SAMPLES {
        samples.pop_front();
    }
    samples.push_back(sample);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link as a queue: a request reaches the other side after half the delay, its bytes leave one after another at the
    /// rate, and arrive half the delay later. Gives the part of the rate that was used in the last half of the time.
    fn use_of_link(rate: u64, delay: Duration, total: u64) -> (f64, u64) {
        let mut window = Window::default();
        let mut under_way: VecDeque<(Sent, u64, Duration, Duration)> = VecDeque::new();
        let (mut now, mut free_at, mut asked, mut got) = (Duration::ZERO, Duration::ZERO, 0, 0);
        let mut half = None;
        let mut most = 0;
        while got < total {
            let bytes: u64 = under_way.iter().map(|(_, length, ..)| length).sum();
            if asked < total && bytes < window.length() {
                let length = window.request_length();
                let begin = free_at.max(now + delay / 2);
                free_at = begin + Duration::from_secs_f64(length as f64 / rate as f64);
                under_way.push_back((window.sent(now), length, begin + delay / 2, free_at + delay / 2));
                asked += length;
                most = most.max(bytes + length);
                continue;
            }
            let (sent, length, first, last) = under_way.pop_front().unwrap();
            window.answered(sent, first);
            window.received(length);
            window.ended(sent, last);
            now = now.max(last);
            got += length;
            if got > total / 2 && half.is_none() {
                half = Some((now, got));
            }
        }
        let (then, had) = half.unwrap();
        ((got - had) as f64 / (now - then).as_secs_f64() / rate as f64, most)
    }

    #[test]
    fn long_links_are_filled_and_bytes_under_way_are_bounded() {
        for (megabits, delay_ms) in [(100, 0), (1000, 1), (100, 50), (200, 200), (500, 200), (1000, 100)] {
            let delay = Duration::from_millis(delay_ms);
            let (used, most) = use_of_link(megabits * 125_000, delay, 1 << 30);
            assert!(used > 0.95, "{megabits} Mbit/s, {delay_ms} ms: {used}");
            assert!(most <= LENGTH_MAX + REQUEST_MAX, "{most}");
        }
    }

    #[test]
    fn a_near_origin_has_little_under_way() {
        let mut window = Window::default();
        for n in 0..100_u64 {
            let at = Duration::from_millis(n * 5);
            let sent = window.sent(at);
            window.answered(sent, at + Duration::from_micros(200));
            window.received(512 << 10);
            window.ended(sent, at + Duration::from_millis(4));
        }
        assert_eq!((window.length(), window.request_length()), (LENGTH_MIN, REQUEST_MIN));
    }

    #[test]
    fn what_was_measured_long_ago_does_not_count() {
        let mut window = Window::default();
        let sample = |window: &mut Window, n: u64, delay_ms| {
            let at = Duration::from_secs(n);
            let sent = window.sent(at);
            window.answered(sent, at + Duration::from_millis(delay_ms));
            window.received(8 << 20);
            window.ended(sent, at + Duration::from_millis(400));
        };
        (0..16).for_each(|n| sample(&mut window, n, 200));
        let far = window.length();
        (16..32).for_each(|n| sample(&mut window, n, 1));
        assert!(far > LENGTH_MIN && window.length() == LENGTH_MIN, "{far}");
    }
}
