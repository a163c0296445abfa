//! Where a connection's next request is executed: by the thread that read it, or by a worker.
//!
//! Owns the memory of how long the device took for the last eight requests. To hand a request to a worker and its reply
//! to the writer costs two thread switches, which is more than a warm block takes; but a reader that waits for a
//! device keeps all later requests of its client waiting. Only a hint: a wrong guess costs time, nothing else.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// A request of that time, and half a nanosecond for each byte, has not waited.
const QUICK: Duration = Duration::from_micros(50);
/// A request that is alone may take that long before it goes to a worker: nobody is behind it.
const PATIENCE: Duration = Duration::from_millis(1);
/// So many of the last eight may be slower: a thread that was preempted looks slow too.
const EXCEPTIONS: u32 = 2;

/// The last eight requests: in the low byte those that were not quick, in the high byte those past patience.
#[derive(Default)]
pub(crate) struct Pace(AtomicU16);

impl Pace {
    /// Notes that the device took that long for so many bytes.
    pub(crate) fn note(&self, time: Duration, bytes: u32) {
        let waited = time > QUICK + Duration::from_nanos(u64::from(bytes) / 2);
        let past = self.0.load(Ordering::Relaxed);
        let shifted = past << 1 & 0xfefe;
        // Notes of two threads at once may lose one: see above.
        self.0.store(shifted | u16::from(waited) | u16::from(time > PATIENCE) << 8, Ordering::Relaxed);
    }

    /// Whether the reader should execute the next request; `is_alone` when no other of its client is known.
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
