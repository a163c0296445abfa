//! How long to wait for an answer before another is asked too: the 95th percentile of the last answers.
//!
//! Owns the sample. Must never grow.

use std::time::Duration;

/// Answers remembered.
const SAMPLE: usize = 128;
/// The percentile is taken anew after so many answers.
const RENEWED_AFTER: usize = 16;
/// Before anything was seen.
const FIRST: Duration = Duration::from_millis(500);
/// Bounds of the result. Less would hedge noise; more would let one who hangs cost seconds.
const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(2);

/// The last answers of one kind of source.
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
    /// An answer took so long.
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

    /// So long nearly every answer takes at most.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }
}
