//! How many bytes to have in flight: slightly more than fill the link to the origin for one round trip.
//!
//! A link of rate R and delay D holds R times D bytes. Both are measured: the delay as the minimum time from a request
//! to its first byte, the rate as the maximum of recent requests. The next request is sent when the bytes still to
//! arrive are about as many as the link holds, so its reply begins when they have arrived. The link is then full, but
//! mostly only one connection receives bytes. This matters because a shared link gives each connection its share, and
//! one reader must not use many. Requests are long for the same reason; near the origin they are short, and several are
//! verified at once. No I/O: the caller passes the time since a start.

use std::collections::VecDeque;
use std::time::Duration;

/// Bytes in flight before the first measurement.
const LENGTH_START: u64 = 4 << 20;
/// Limits of the bytes in flight.
const LENGTH_MIN: u64 = 256 << 10;
pub(super) const LENGTH_MAX: u64 = 32 << 20;
/// The bytes that arrive in this time may be in flight in addition, for the time that the other side needs before it
/// replies; at most `RESERVE_MAX`.
const RESERVE_TIME: Duration = Duration::from_millis(20);
const RESERVE_MAX: u64 = 4 << 20;
/// Approximate limits of the length of a request in bytes. Between them, it is `REQUEST_PARTS` times what the link
/// holds.
const REQUEST_MIN: u64 = 1 << 20;
const REQUEST_MAX: u64 = 12 << 20;
const REQUEST_PARTS: u64 = 3;
/// Number of measurements that are kept. Several are needed because those made while other requests were in flight are
/// too high.
const RATES: usize = 16;
const DELAYS: usize = 256;

/// The measurements.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Bytes received in total.
    delivered: u64,
    delays: VecDeque<Duration>,
    /// In bytes per second.
    rates: VecDeque<u64>,
}

/// The state when a request was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    at: Duration,
    delivered: u64,
}

impl Window {
    /// Returns the state when a request is sent.
    pub(super) fn sent(&self, now: Duration) -> Sent {
        Sent { at: now, delivered: self.delivered }
    }

    /// Records the arrival of the first byte.
    pub(super) fn answered(&mut self, sent: Sent, now: Duration) {
        push(&mut self.delays, now.saturating_sub(sent.at), DELAYS);
    }

    /// Records received bytes.
    pub(super) fn received(&mut self, bytes: u64) {
        self.delivered += bytes;
    }

    /// Records the end of the reply.
    pub(super) fn ended(&mut self, sent: Sent, now: Duration) {
        let time = now.saturating_sub(sent.at).as_secs_f64();
        if time > 0.0 {
            push(&mut self.rates, ((self.delivered - sent.delivered) as f64 / time) as u64, RATES);
        }
    }

    /// Returns the maximum number of bytes in flight at which another request is sent.
    pub(super) fn length(&self) -> u64 {
        let Some(rate) = self.rates.iter().max() else { return LENGTH_START };
        let reserve = (*rate as f64 * RESERVE_TIME.as_secs_f64()) as u64;
        let held = self.held();
        (held + held / 4 + reserve.min(RESERVE_MAX)).clamp(LENGTH_MIN, LENGTH_MAX)
    }

    /// Returns the length of a request in bytes.
    pub(super) fn request_length(&self) -> u64 {
        self.held().saturating_mul(REQUEST_PARTS).clamp(REQUEST_MIN, REQUEST_MAX)
    }

    /// Returns the number of bytes that the link holds.
    fn held(&self) -> u64 {
        let delay = self.delays.iter().min().copied().unwrap_or_default();
        let rate = self.rates.iter().max().copied().unwrap_or_default();
        (rate as f64 * delay.as_secs_f64()) as u64
    }
}

fn push<T>(samples: &mut VecDeque<T>, sample: T, count_max: usize) {
    if samples.len() == count_max {
        samples.pop_front();
    }
    samples.push_back(sample);
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: u64 = 128 << 10;

    /// Simulates a link as a queue: a request reaches the other side after half the delay, its frames leave one after
    /// another at the rate, and arrive after another half of the delay. Returns the share of the rate that was used in
    /// the second half of the time, and the maximum number of bytes in flight.
    fn use_of_link(rate: u64, delay: Duration, total: u64) -> (f64, u64) {
        struct Frame {
            arrives: Duration,
            sent: Sent,
            is_first: bool,
            is_last: bool,
        }
        let mut window = Window::default();
        let mut under_way: VecDeque<Frame> = VecDeque::new();
        let (mut now, mut free_at, mut asked, mut got) = (Duration::ZERO, Duration::ZERO, 0, 0);
        let (mut half, mut most) = (None, 0);
        while got < total {
            let bytes = under_way.len() as u64 * FRAME;
            if asked < total && bytes < window.length() {
                let (frames, sent) = (window.request_length() / FRAME, window.sent(now));
                free_at = free_at.max(now + delay / 2);
                for n in 0..frames {
                    free_at += Duration::from_secs_f64(FRAME as f64 / rate as f64);
                    let arrives = free_at + delay / 2;
                    under_way.push_back(Frame { arrives, sent, is_first: n == 0, is_last: n + 1 == frames });
                }
                asked += frames * FRAME;
                most = most.max(bytes + frames * FRAME);
                continue;
            }
            let frame = under_way.pop_front().unwrap();
            now = now.max(frame.arrives);
            if frame.is_first {
                window.answered(frame.sent, now);
            }
            window.received(FRAME);
            got += FRAME;
            if frame.is_last {
                window.ended(frame.sent, now);
            }
            if got > total / 2 && half.is_none() {
                half = Some((now, got));
            }
        }
        let (then, had) = half.unwrap();
        ((got - had) as f64 / (now - then).as_secs_f64() / rate as f64, most)
    }

    #[test]
    fn long_links_are_filled_and_bytes_in_flight_are_limited() {
        for (megabits, delay_ms) in
            [(10, 200), (100, 0), (1000, 1), (100, 50), (100, 200), (200, 200), (500, 200), (1000, 100)]
        {
            let delay = Duration::from_millis(delay_ms);
            let (used, most) = use_of_link(megabits * 125_000, delay, 1 << 30);
            assert!(used > 0.97, "{megabits} Mbit/s, {delay_ms} ms: {used}");
            assert!(most <= LENGTH_MAX + REQUEST_MAX, "{most}");
            // Only slightly more than one reply at a time.
            let held = megabits * 125 * delay_ms;
            assert!(
                delay_ms < 50 || most < 5 * held + LENGTH_START + REQUEST_MIN,
                "{most} where {held} are held"
            );
        }
    }

    /// Measures `count` requests of 512 KiB that are answered after `delay_us`.
    fn measure(window: &mut Window, count: u64, delay_us: u64) {
        for n in 0..count {
            let at = Duration::from_millis(n * 5);
            let sent = window.sent(at);
            window.answered(sent, at + Duration::from_micros(delay_us));
            window.received(512 << 10);
            window.ended(sent, at + Duration::from_millis(4));
        }
    }

    #[test]
    fn a_near_origin_has_several_short_requests() {
        let mut window = Window::default();
        assert_eq!((window.length(), window.request_length()), (LENGTH_START, REQUEST_MIN));
        measure(&mut window, 100, 200);
        let length = window.length();
        assert!((2 * REQUEST_MIN..=RESERVE_MAX).contains(&length), "{length}");
        assert_eq!(window.request_length(), REQUEST_MIN);
    }

    #[test]
    fn old_measurements_are_forgotten() {
        let mut window = Window::default();
        measure(&mut window, 16, 100);
        let near = window.length();
        measure(&mut window, DELAYS as u64 - 1, 3900);
        assert_eq!(window.length(), near);
        measure(&mut window, 1, 3900);
        assert!(window.length() > near + near / 10, "{} after {near}", window.length());
    }
}
