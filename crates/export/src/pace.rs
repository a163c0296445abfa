//! Decides whether the reading thread or a worker executes a connection's next request.
//!
//! Owns the service times of the last eight requests. Handing a request to a worker and its reply to the writer costs
//! two thread switches, more than reading a cached block. But while the reader waits for a device, all later requests
//! of its client wait. A wrong guess only costs time.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// A request within this time, plus half a nanosecond per byte, did not wait for a device.
const QUICK: Duration = Duration::from_micros(50);
/// A single request may take this long before requests go to a worker, because no other request waits for it.
const PATIENCE: Duration = Duration::from_millis(1);
/// This many of the last eight may be slower, because a preempted thread also looks slow.
const EXCEPTIONS: u32 = 2;

/// The last eight requests, one bit each: the low byte marks slow ones, the high byte very slow ones.
#[derive(Default)]
pub(crate) struct Pace(AtomicU16);

impl Pace {
    /// Records the service time of a request.
    pub(crate) fn note(&self, time: Duration, bytes: u32) {
        let waited = time > QUICK + Duration::from_nanos(u64::from(bytes) / 2);
        let past = self.0.load(Ordering::Relaxed);
        let shifted = past << 1 & 0xfefe;
        // Concurrent updates may lose one, which is harmless: see above.
        self.0.store(shifted | u16::from(waited) | u16::from(time > PATIENCE) << 8, Ordering::Relaxed);
    }

    /// Whether the reader should execute the next request; `is_alone`: no other request of the client is known.
    pub(crate) fn is_quick(&self, is_alone: bool) -> bool {
        let past = self.0.load(Ordering::Relaxed);
        let slow = if is_alone { past >> 8 } else { past & 0xff };
        slow.count_ones() <= EXCEPTIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times_us: &[u64]) -> Pace {
        let pace = Pace::default();
        times_us.iter().for_each(|time| pace.note(Duration::from_micros(*time), 4096));
        pace
    }

    #[test]
    fn a_device_that_waits_leaves_the_reader_free() {
        assert!(Pace::default().is_quick(false));
        assert!(after(&[20; 8]).is_quick(false));
        assert!(after(&[20, 20, 200, 200]).is_quick(false));
        assert!(!after(&[200; 3]).is_quick(false));
        assert!(after(&[200; 3]).is_quick(true));
        assert!(!after(&[20_000; 3]).is_quick(true));
    }

    #[test]
    fn and_when_it_is_quick_again_the_reader_is_back() {
        assert!(!after(&[20_000, 20_000, 20_000, 20, 20, 20, 20, 20]).is_quick(true));
        assert!(after(&[20_000, 20_000, 20_000, 20, 20, 20, 20, 20, 20]).is_quick(true));
    }

    #[test]
    fn long_requests_may_take_longer() {
        let pace = Pace::default();
        (0..8).for_each(|_| pace.note(Duration::from_micros(500), 1 << 20));
        assert!(pace.is_quick(false));
    }
}
