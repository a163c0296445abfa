//! Whether a cast on demand may end: receivers that were told of it may still come.
//!
//! Decided in one step, so that nobody is told of a cast that has just decided to end.

use std::time::Instant;

/// How long a cast is kept although no receiver takes part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hold {
    until: Option<Instant>,
    has_ended: bool,
}

impl Hold {
    /// Keeps the cast until this time, at least. Returns `false` if it has ended: another one must be started.
    #[must_use]
    pub fn extend(&mut self, until: Instant) -> bool {
        if !self.has_ended {
            self.until = self.until.max(Some(until));
        }
        !self.has_ended
    }

    /// Ends the cast, unless it is kept. Returns whether it has ended.
    pub fn end(&mut self, now: Instant) -> bool {
        self.has_ended |= self.until.is_none_or(|until| now >= until);
        self.has_ended
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_cast_ends_when_nobody_is_expected_and_then_for_good() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut hold = Hold::default();
        assert!(hold.extend(at(10)));
        assert!(hold.extend(at(5)), "a shorter time changes nothing");
        assert!(!hold.end(at(9)));
        assert!(hold.extend(at(20)));
        assert!(!hold.end(at(19)));
        assert!(hold.end(at(20)));
        assert!(!hold.extend(at(30)));
        assert!(hold.end(at(21)));
        assert!(Hold::default().end(start));
    }
}
