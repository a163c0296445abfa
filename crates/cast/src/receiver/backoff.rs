//! Random delays before a receiver speaks: most wait long, so that what the first ones say makes the others unnecessary.
//!
//! The delay of one of `n` receivers is at most `longest`, and distributed so that, however many of them have something to say, only
//! a few speak first (Nonnenmacher and Biersack 1998, "Scalable feedback for large groups"; RFC 5401 section 4.2).

use std::time::Duration;

use crate::random::Random;

/// Up to this many receivers, delays are distributed evenly.
const RECEIVERS_EVEN: u32 = 64;

/// Returns a delay up to `longest` for one of so many receivers.
pub(super) fn backoff(random: &mut Random, longest: Duration, receivers: u32) -> Duration {
    let random = (random.below(1 << 32) + 1) as f64 / (1u64 << 32) as f64;
    let part = match receivers {
        0..=RECEIVERS_EVEN => random,
        _ => (1.0 + random.ln() / f64::from(receivers).ln()).max(0.0),
    };
    longest.mul_f64(part.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_of_many_receivers_speak_early() {
        let mut random = Random::new(1);
        let longest = Duration::from_millis(100);
        let delays: Vec<_> = (0..10_000).map(|_| backoff(&mut random, longest, 10_000)).collect();
        assert!(delays.iter().all(|delay| *delay <= longest));
        let early = |part: u32| delays.iter().filter(|delay| **delay < longest * part / 100).count();
        assert!((1..10).contains(&early(10)), "{}", early(10));
        assert!(early(50) < 150 && early(90) > 3000, "{} {}", early(50), early(90));
        let mean = (0..1000).map(|_| backoff(&mut random, longest, 8)).sum::<Duration>() / 1000;
        assert!((45..55).contains(&mean.as_millis()), "{mean:?}");
    }
}
