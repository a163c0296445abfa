//! Suppresses repeated failure reports, so a client that retries does not fill the log.
//!
//! Owns the recent failures. Reports are limited whatever clients do: a number of different failures per interval, each
//! once.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use platter_image::Error;

/// A failure is reported again after this time.
const TOLD_FOR: Duration = Duration::from_secs(60);
/// Maximum number of different failures reported in that time.
const FAILURES_MAX: usize = 64;

struct Told {
    at: Instant,
    /// Number of repetitions since.
    repeats: u64,
}

/// The failures of a server.
#[derive(Default)]
pub(super) struct Failures(Mutex<HashMap<(String, String), Told>>);

impl Failures {
    /// Records a failure of a disk. If it should be reported, returns the number of repetitions since its last report.
    pub(super) fn note(&self, export: &str, error: &Error, now: Instant) -> Option<u64> {
        let mut told = self.0.lock();
        let key = (export.to_owned(), cause(error));
        let repeats = match told.get_mut(&key) {
            Some(before) if now.saturating_duration_since(before.at) < TOLD_FOR => {
                before.repeats += 1;
                return None;
            }
            Some(before) => before.repeats,
            None => 0,
        };
        if told.len() >= FAILURES_MAX {
            told.retain(|_, before| now.saturating_duration_since(before.at) < TOLD_FOR);
        }
        if told.len() >= FAILURES_MAX {
            return None;
        }
        told.insert(key, Told { at: now, repeats: 0 });
        Some(repeats)
    }
}

/// The root cause, without the request: a damaged frame is one failure, whichever request reads it.
fn cause(error: &Error) -> String {
    let mut innermost = error;
    while let Some(below) = std::error::Error::source(innermost).and_then(|below| below.downcast_ref()) {
        innermost = below;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_later_with_how_often_it_came() {
        let failures = Failures::default();
        let (start, error) = (Instant::now(), Error::corrupt("damaged"));
        assert_eq!(failures.note("a", &error, start), Some(0));
        for n in 0..10 {
            assert_eq!(failures.note("a", &error, start + Duration::from_secs(n)), None);
        }
        assert_eq!(failures.note("b", &error, start), Some(0));
        assert_eq!(failures.note("a", &Error::corrupt("more"), start), Some(0));
        assert_eq!(failures.note("a", &error, start + TOLD_FOR), Some(10));
        assert_eq!(failures.note("a", &error, start + TOLD_FOR), None);
    }

    #[test]
    fn the_same_damage_elsewhere_is_the_same() {
        let failures = Failures::default();
        let told = |at: u64| {
            let error = Error::corrupt("frame 7 is damaged").within(format!("reading at {at}"));
            failures.note("a", &error, Instant::now())
        };
        assert_eq!((told(0), told(4096)), (Some(0), None));
    }

    #[test]
    fn different_ones_are_bounded_too() {
        let failures = Failures::default();
        let start = Instant::now();
        let told = |now| {
            let tell = |n: &u32| failures.note("a", &Error::refused(format!("{n}")), now).is_some();
            (0..1000).filter(tell).count()
        };
        assert_eq!((told(start), told(start)), (FAILURES_MAX, 0));
        assert_eq!(told(start + TOLD_FOR), FAILURES_MAX);
    }
}
