//! How long to wait for a reply before the request is hedged: the 95th percentile of recent reply times.
//!
//! Owns the recent reply times, a list of fixed size.

use std::time::Duration;

/// Number of reply times that are kept.
const SAMPLE: usize = 128;
/// The percentile is recomputed after this many replies.
const RENEWED_AFTER: usize = 16;
/// Result before the first computation.
const FIRST: Duration = Duration::from_millis(500);
/// Limits of the result. A lower minimum would hedge normal variation; a higher maximum would wait seconds for a source that hangs.
pub(super) const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(2);

/// The recent reply times of one kind of source.
#[derive(Clone, Debug)]
pub(super) struct Patience {
    last: Vec<Duration>,
    next: usize,
    limit: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { last: Vec::new(), next: 0, limit: FIRST }
    }
}

impl Patience {
    /// Adds a reply time.
    pub(super) fn saw(&mut self, took: Duration) {
        if self.last.len() < SAMPLE {
            self.last.push(took);
        } else {
            self.last[self.next % SAMPLE] = took;
        }
        self.next += 1;
        if self.next.is_multiple_of(RENEWED_AFTER) {
            let mut sorted = self.last.clone();
            sorted.sort_unstable();
            self.limit = sorted[(sorted.len() * 95).div_ceil(100) - 1].clamp(LEAST, MOST);
        }
    }

    /// Returns the time within which nearly all replies arrive.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }
}
