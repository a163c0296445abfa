//! Decides which receivers are far slower than the rest. These do not hold the others, and are served after them.
//!
//! There are two measures. *Waiting*: the sender could send, but a receiver has no free buffer, while most other receivers
//! have some and are not busy. *Loss*: far more datagrams are lost on the way to a receiver than to most others. A receiver
//! returns after a time in which neither was true; each return doubles that time, so a receiver that comes and goes costs the
//! others little. Owns the measures of one receiver. Must never judge a receiver without others to compare it with.

use std::time::Duration;

use crate::pacing::LOSS_TOLERATED;

/// A receiver is far slower if the sender has waited this long for it, in sum. Other time reduces the sum by 3/7 of that
/// time, so a receiver that takes at least 7/10 of what the others could take is never far slower.
const WAITED_MAX: Duration = Duration::from_millis(60);
/// Loss of more than this above the usual loss is far more than that of the others.
pub(super) const LOSS_FAR: f64 = 0.3;
/// Without a queue, loss is congestion only if it is more than this above the usual loss.
const LOSS_WITHOUT_QUEUE: f64 = 0.2;
/// A receiver is far slower after this many such samples of loss.
const LOSSY_SAMPLES_MAX: u32 = 3;
/// A receiver returns if it has kept up for this long; the time doubles with each return.
const CALM: Duration = Duration::from_millis(500);
/// Maximum number of doublings of [`CALM`].
const CALM_DOUBLINGS: u32 = 5;
/// A receiver that is busy for at most this share of the time could take more.
pub(super) const BUSY_PERCENT_MAX: u8 = 70;

/// How the other voting receivers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Others {
    /// Their number.
    pub(super) count: usize,
    /// Those of which the measure is known.
    pub(super) known: usize,
    /// Those that could take more.
    pub(super) able: usize,
}

impl Others {
    /// Adds one of them. `None`: its measure is not known.
    pub(super) fn add(&mut self, is_able: Option<bool>) {
        self.count += 1;
        self.known += usize::from(is_able.is_some());
        self.able += usize::from(is_able == Some(true));
    }

    /// Returns whether at least half of them could take more.
    pub(super) fn are_able(self) -> bool {
        self.count > 0 && self.able * 2 >= self.count
    }

    /// Returns whether the measure of less than half of them is known.
    pub(super) fn are_unknown(self) -> bool {
        self.known * 2 < self.count
    }
}

/// What a sample of loss means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossVerdict {
    /// Nothing, for now.
    Tolerated,
    /// The rate must be cut.
    Cut,
    /// The receiver is far slower than the rest.
    Slow,
}

/// The measures of a receiver.
#[derive(Clone, Debug, Default)]
pub(super) struct Slowness {
    waited: Duration,
    lossy_samples: u32,
    /// Since when a slow receiver has kept up.
    calm_since: Option<Duration>,
    returns: u32,
}

impl Slowness {
    /// Adds some time in which the sender waited for this receiver (`is_held`) or did not. Returns whether it is far slower.
    pub(super) fn waited(&mut self, time: Duration, is_held: bool) -> bool {
        self.waited = match is_held {
            true => (self.waited + time).min(WAITED_MAX * 2),
            false => self.waited.saturating_sub(time * 3 / 7),
        };
        self.waited >= WAITED_MAX
    }

    /// Returns whether the sender has waited long enough.
    pub(super) fn is_over(&self) -> bool {
        self.waited >= WAITED_MAX
    }

    /// Adds loss above the usual loss, and the number of samples that it is of. `has_queue`: datagrams waited in a queue on the way to this receiver.
    pub(super) fn lost(
        &mut self,
        (excess, samples): (f64, u32),
        has_queue: bool,
        others: Others,
    ) -> LossVerdict {
        if excess <= if has_queue { LOSS_TOLERATED } else { LOSS_WITHOUT_QUEUE } {
            self.lossy_samples = 0;
            return LossVerdict::Tolerated;
        }
        if excess <= LOSS_FAR || !(others.are_able() || others.are_unknown()) {
            self.lossy_samples = 0;
            return LossVerdict::Cut;
        }
        self.lossy_samples += if others.are_able() { samples } else { 0 };
        if self.lossy_samples < LOSSY_SAMPLES_MAX { LossVerdict::Tolerated } else { LossVerdict::Slow }
    }

    /// Records whether a slow receiver keeps up now. Returns whether it returns.
    pub(super) fn keeps_up(&mut self, now: Duration, keeps_up: bool) -> bool {
        if !keeps_up {
            self.calm_since = None;
            return false;
        }
        let since = *self.calm_since.get_or_insert(now);
        let is_back = now.saturating_sub(since) >= CALM * 2u32.pow(self.returns.min(CALM_DOUBLINGS));
        self.returns += u32::from(is_back);
        is_back
    }

    /// Returns whether it keeps up, but not for long enough.
    pub(super) fn is_calm(&self) -> bool {
        self.calm_since.is_some()
    }

    /// Starts measuring anew.
    pub(super) fn restart(&mut self) {
        *self = Self { returns: self.returns, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn others(able: usize, count: usize) -> Others {
        Others { count, known: count, able }
    }

    /// Whether a receiver for which the sender waits this share of the time counts as far slower within ten seconds.
    fn is_slow_at(waited_percent: u32) -> bool {
        let mut slowness = Slowness::default();
        (0..10_000).any(|at| slowness.waited(MS, at % 100 < waited_percent))
    }

    #[test]
    fn only_a_receiver_far_slower_than_the_rest_is_slow() {
        assert!(is_slow_at(75) && is_slow_at(31));
        assert!(!is_slow_at(29) && !is_slow_at(10));
    }

    #[test]
    fn loss_of_one_receiver_is_its_own_and_loss_of_most_cuts_the_rate() {
        let mut slowness = Slowness::default();
        assert_eq!(slowness.lost((0.05, 1), true, others(7, 7)), LossVerdict::Tolerated);
        assert_eq!(slowness.lost((0.2, 1), true, others(7, 7)), LossVerdict::Cut, "it is not far slower");
        assert_eq!(slowness.lost((0.2, 1), false, others(7, 7)), LossVerdict::Tolerated, "there is no queue");
        assert_eq!(slowness.lost((0.25, 1), false, others(7, 7)), LossVerdict::Cut, "it is much");
        assert_eq!(slowness.lost((0.75, 1), true, others(0, 0)), LossVerdict::Cut, "there is nobody else");
        assert_eq!(
            slowness.lost((0.75, 1), true, others(3, 7)),
            LossVerdict::Cut,
            "most others have loss, too"
        );
        assert_eq!(
            slowness.lost((0.75, 1), true, Others { count: 7, known: 3, able: 3 }),
            LossVerdict::Tolerated
        );
        let samples = [0.75; 3].map(|excess| slowness.lost((excess, 1), true, others(4, 7)));
        assert_eq!(samples, [LossVerdict::Tolerated, LossVerdict::Tolerated, LossVerdict::Slow]);
        assert_eq!(
            Slowness::default().lost((0.75, 3), true, others(4, 7)),
            LossVerdict::Slow,
            "three at once"
        );
    }

    #[test]
    fn each_return_takes_twice_as_long_as_the_one_before() {
        let mut slowness = Slowness::default();
        let mut took = Vec::new();
        for _ in 0..8 {
            assert!(!slowness.keeps_up(Duration::ZERO, false));
            took.push((0..).find(|at| slowness.keeps_up(MS * *at, true)).unwrap());
            slowness.restart();
        }
        assert_eq!(took, [500, 1000, 2000, 4000, 8000, 16_000, 16_000, 16_000]);
        assert!(!slowness.keeps_up(Duration::ZERO, true));
        assert!(
            !slowness.keeps_up(MS * 15_999, false) && !slowness.keeps_up(MS * 20_000, true),
            "interrupted"
        );
    }
}
