//! How the rate of a sender follows the path to its receivers: queueing delay, delivered rate and loss.
//!
//! Owns the rate. It has two modes. Normally the queue at the bottleneck is kept short: the rate grows by an amount that does not
//! depend on the ceiling, and is cut when the queue is longer than a threshold, so that casts on one link converge to equal
//! rates. If the queue never becomes short although the rate was cut, another sender fills it, as TCP does. Then the rate
//! behaves like TCP CUBIC (RFC 9438): only loss cuts it. Must never exceed the ceiling, and must never take constant loss for
//! congestion.

use std::time::Duration;

use crate::random::Random;
use crate::session::SYMBOL_BYTES;

/// Mean time between two readings of the path.
pub(crate) const READING_INTERVAL: Duration = Duration::from_millis(100);
/// The time between two readings varies by this much, so that two casts do not always see the queue in the same order.
const READING_SPREAD: Duration = Duration::from_millis(40);
/// Bits of a full datagram on the wire: of the symbol, 40 bytes of its own, 28 of UDP and IPv4, and 38 of Ethernet with preamble and gap.
pub(crate) const PACKET_BITS: f64 = (SYMBOL_BYTES as f64 + 106.0) * 8.0;
/// A rate at which the numbers below hold.
const REFERENCE_RATE: f64 = 100e6;
/// Growth in bits per second and second at the reference rate. It is proportional to the square root of the rate: the same
/// function for every cast, and less than proportional, so that the slower one of two casts gains on the faster one.
const GROWTH: f64 = 40e6;
/// Share of the rate by which it grows in a second after a cut that was no congestion for most receivers.
const REGROWTH: f64 = 0.5;
/// Delay in the queue that cuts the rate, at the reference rate. A slower cast tolerates more (the fourth root of the rate), so
/// that the faster one of two casts is cut first. Far above the delay of a thread that is woken late.
const THRESHOLD: f64 = 0.012;
const THRESHOLD_MIN: f64 = 0.010;
const THRESHOLD_MAX: f64 = 0.030;
/// The threshold is at most this share of a full queue, once loss has shown how long that is.
const THRESHOLD_OF_FULL: f64 = 0.6;
/// A shorter queue is as good as empty.
const EMPTY: f64 = 0.003;
/// A cut: this share, and one more percent for each 10 ms in the queue, so that a long queue empties in about a second.
const CUT: f64 = 0.07;
const CUT_MAX: f64 = 0.35;
/// After a cut that emptied the queue, this share of the delivered rate is restored at once.
const RESTORED: f64 = 0.97;
/// The rate does not grow while less than this share of what is sent arrives.
const PASSED_MIN: f64 = 0.96;
/// A cut is followed by another one at once if less than this share arrives.
const PASSED_FEW: f64 = 0.7;
/// Another sender fills the queue if it was never short for this long and four round trips.
const PATIENCE: Duration = Duration::from_millis(2500);
/// When another sender filled the queue, emptying it is tried again after this time, which doubles with each failure.
const RETRY: Duration = Duration::from_secs(4);
const RETRY_DOUBLINGS: u32 = 3;
/// The other sender has gone if the queue was nearly empty for this long.
const CALM: Duration = Duration::from_secs(1);
const NEARLY_EMPTY: f64 = 0.005;
/// CUBIC: the cut, the factor of growth, the growth per round trip as fast as Reno, and fast convergence. TCP keeps 0.7; a cast
/// keeps more, because it also waits a reading before it grows, and tries now and then whether the queue empties.
const CUBIC_KEPT: f64 = 0.8;
const CUBIC_FACTOR: f64 = 0.4;
const CUBIC_AS_RENO: f64 = 0.53;
const CUBIC_RELEASED: f64 = 0.85;
/// The rate never falls below this many bits per second, nor below the ceiling divided by the next number if there is loss but
/// no queue.
const RATE_MIN: f64 = 200e3;
const RATE_SHARE_MIN: f64 = 100.0;
/// At the first congestion, this share of the rate is sent until the queue is empty: the time without a queue is measured then. A
/// cast that started on a busy link would take its standing queue for the path, and so most of the link.
const DRAINING: f64 = 0.1;

/// What the voting receivers' reports say about the path since the last reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    /// Least round trip, without a queue.
    pub(crate) base: Duration,
    /// Time that datagrams spend in a queue.
    pub(crate) queue: Duration,
    /// Share of what was sent that arrived, relative to the usual loss, and per time: less than 1 while a queue grows.
    pub(crate) passed: f64,
    /// Bits per second that arrived.
    pub(crate) delivered: f64,
    /// Loss is evidently above the usual loss.
    pub(crate) is_lossy: bool,
    /// Anything is lost above the usual loss.
    pub(crate) loses: bool,
}

/// A competitor's window, as CUBIC computes it, in datagrams.
#[derive(Clone, Copy, Debug)]
struct Cubic {
    window: f64,
    /// The window before the last cut, and when that was.
    window_max: f64,
    since: Duration,
    /// The window that Reno would have.
    as_reno: f64,
}

impl Cubic {
    fn new(now: Duration, window: f64) -> Self {
        let since = now.saturating_sub(Duration::from_secs_f64(plateau_after(window)));
        Self { window, window_max: window, since, as_reno: window }
    }

    fn cut(&mut self, now: Duration) {
        let released = self.window < self.window_max;
        self.window_max = if released { self.window * CUBIC_RELEASED } else { self.window };
        self.window *= CUBIC_KEPT;
        self.as_reno = self.window;
        self.since = now;
    }

    fn grow(&mut self, now: Duration, passed: f64, round_trip: f64, window_most: f64) {
        let time = now.saturating_sub(self.since).as_secs_f64() + round_trip;
        let from_plateau = time - plateau_after(self.window_max);
        let target = CUBIC_FACTOR * from_plateau.powi(3) + self.window_max;
        self.as_reno += CUBIC_AS_RENO * passed / round_trip;
        let target = target.max(self.as_reno).min(self.window * 1.5);
        self.window = target.max(self.window).min(window_most);
    }
}

/// Seconds after a cut at which CUBIC reaches the window before it.
fn plateau_after(window_max: f64) -> f64 {
    (window_max * (1.0 - CUBIC_KEPT) / CUBIC_FACTOR).cbrt()
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    /// The queue is kept short. Contains the window of the other mode, if that ended only to try whether the queue becomes short.
    Short(Option<Cubic>),
    /// Another sender fills the queue.
    Compete(Cubic),
}

/// The rate and what it follows.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    rate: f64,
    ceiling: f64,
    mode: Mode,
    /// Until then the effect of the last cut is not visible.
    hold_until: Duration,
    read_at: Duration,
    next_at: Duration,
    /// Since when the queue has not been short, and the rate at that time.
    long_since: Option<(Duration, f64)>,
    queue_at_cut: f64,
    /// Rate to restore when the queue is empty.
    restore: f64,
    /// Rate before cuts that were no congestion for most receivers: it is reached again sooner.
    regrow: f64,
    /// Length of a full queue in seconds.
    full: Option<f64>,
    has_drained: bool,
    drain_until: Duration,
    retry_at: Duration,
    failed_tries: u32,
    calm_since: Option<Duration>,
    random: Random,
}

impl Congestion {
    /// Starts at the ceiling, in bits per second.
    pub(crate) fn new(ceiling: u64, seed: u64) -> Self {
        Self {
            rate: ceiling as f64,
            ceiling: ceiling as f64,
            mode: Mode::Short(None),
            hold_until: Duration::ZERO,
            read_at: Duration::ZERO,
            next_at: Duration::ZERO,
            long_since: None,
            queue_at_cut: 0.0,
            restore: 0.0,
            regrow: 0.0,
            full: None,
            has_drained: false,
            drain_until: Duration::ZERO,
            retry_at: Duration::ZERO,
            failed_tries: 0,
            calm_since: None,
            random: Random::new(seed),
        }
    }

    /// Returns the rate in bits per second.
    pub(crate) fn rate(&self, now: Duration) -> u64 {
        let share = if now < self.drain_until { DRAINING } else { 1.0 };
        (self.rate * share).max(RATE_MIN.min(self.ceiling) / 2.0) as u64
    }

    /// Returns whether the network does not take the ceiling, or a tenth less.
    pub(crate) fn is_cut(&self) -> bool {
        self.rate < self.ceiling * 0.9
    }

    /// Changes the ceiling. A sender at the old ceiling continues at the new one; the rate of any other is only cut.
    pub(crate) fn set_ceiling(&mut self, ceiling: u64) {
        let was_at_ceiling = self.rate >= self.ceiling;
        self.ceiling = ceiling as f64;
        self.rate = if was_at_ceiling { self.ceiling } else { self.rate.min(self.ceiling) };
    }

    /// Cuts the rate because the loss of a receiver exceeds its usual loss by `loss`, although it is no congestion for most of them.
    pub(crate) fn cut(&mut self, now: Duration, loss: f64, hold: Duration) {
        if now < self.hold_until {
            return;
        }
        self.regrow = self.regrow.max(self.rate);
        self.rate = (self.rate * (1.0 - loss.min(0.9))).max(self.ceiling / RATE_SHARE_MIN);
        self.hold_until = now + hold;
    }

    /// Returns whether the path is to be read now.
    pub(crate) fn is_due(&mut self, now: Duration) -> bool {
        if now < self.next_at {
            return false;
        }
        let spread = Duration::from_micros(self.random.below(READING_SPREAD.as_micros() as u64));
        self.next_at = now + READING_INTERVAL - READING_SPREAD / 2 + spread;
        true
    }

    /// Adapts the rate. `None`: no receiver that counts has reported anything new. Returns whether the rate was cut.
    pub(crate) fn read(&mut self, now: Duration, reading: Option<Reading>) -> bool {
        let passed = now.saturating_sub(self.read_at).min(READING_INTERVAL * 4).as_secs_f64();
        self.read_at = now;
        let before = self.rate;
        match (reading, self.mode) {
            (None, _) if now < self.hold_until => {}
            (None, _) => self.grow(passed, 0.0),
            (Some(reading), Mode::Short(tried)) => self.keep_short(now, passed, reading, tried),
            (Some(reading), Mode::Compete(cubic)) => self.compete(now, passed, reading, cubic),
        }
        self.rate = self.rate.clamp(RATE_MIN.min(self.ceiling), self.ceiling);
        self.rate < before
    }

    /// Lets the rate grow for this many seconds.
    fn grow(&mut self, seconds: f64, round_trip: f64) {
        let slowed = 1.0 + round_trip / READING_INTERVAL.as_secs_f64();
        let regrown = (self.rate * (1.0 + REGROWTH * seconds)).min(self.regrow);
        let grown = self.rate + GROWTH * (self.rate / REFERENCE_RATE).sqrt() / slowed * seconds;
        self.rate = grown.max(regrown);
    }

    fn threshold(&self) -> f64 {
        let threshold = THRESHOLD * (REFERENCE_RATE / self.rate).powf(0.25);
        let most = self.full.map_or(THRESHOLD_MAX, |full| (full * THRESHOLD_OF_FULL).min(THRESHOLD_MAX));
        threshold.min(most).max(THRESHOLD_MIN)
    }

    fn keep_short(&mut self, now: Duration, passed: f64, reading: Reading, tried: Option<Cubic>) {
        let queue = reading.queue.as_secs_f64();
        let round_trip = reading.base + reading.queue;
        let visible_at = now + READING_INTERVAL + round_trip;
        let threshold = self.threshold();
        if reading.is_lossy && queue > EMPTY {
            self.full = Some(self.full.map_or(queue, |full| full * 0.7 + queue * 0.3));
        }
        if queue > threshold {
            self.long_since.get_or_insert((now, self.rate));
        } else if queue < threshold / 2.0 {
            self.long_since = None;
            if queue < EMPTY && !reading.is_lossy {
                (self.mode, self.failed_tries) = (Mode::Short(None), 0);
            }
        }
        if now < self.hold_until {
            if reading.is_lossy && reading.passed < PASSED_FEW {
                // The last cut was far too small.
                self.rate = (reading.delivered * 0.9).clamp(self.rate * reading.passed, self.rate);
                self.hold_until = visible_at;
                if now < self.drain_until {
                    self.drain_until = visible_at;
                }
            }
            return;
        }
        if queue <= threshold && !reading.is_lossy {
            self.queue_at_cut = 0.0;
            if queue < EMPTY && self.rate < self.restore {
                self.rate += (self.restore - self.rate) / 2.0;
            }
            if reading.passed > PASSED_MIN && queue < threshold / 2.0 {
                self.grow(passed, round_trip.as_secs_f64());
            }
            return;
        }
        if let Some((_, rate)) = self
            .long_since
            .filter(|(since, _)| queue > threshold && now >= *since + PATIENCE + round_trip * 4)
        {
            self.begin_to_compete(now, rate, round_trip, tried);
            self.hold_until = visible_at;
            return;
        }
        let falls = queue < self.queue_at_cut - 0.1 * passed.max(READING_INTERVAL.as_secs_f64());
        let was_cut = self.long_since.is_some_and(|(since, _)| since < now);
        self.queue_at_cut = queue;
        if falls && was_cut && !reading.is_lossy {
            return;
        }
        // Of a reading that began before an earlier cut, less passed than would at the rate of now.
        let passes = (self.rate * reading.passed).max(reading.delivered.min(self.rate));
        self.restore = passes * RESTORED;
        // Without a queue, most datagrams were probably lost for another reason than the rate, such as a suspended machine.
        let is_gap = queue < EMPTY && reading.passed < PASSED_FEW;
        self.regrow = if is_gap { self.regrow.max(self.rate) } else { 0.0 };
        self.rate = passes * (1.0 - (CUT + queue).min(CUT_MAX));
        if queue < EMPTY {
            self.rate = self.rate.max(self.ceiling / RATE_SHARE_MIN);
        }
        self.hold_until = visible_at;
        if !self.has_drained {
            self.has_drained = true;
            self.drain_until = visible_at;
            self.hold_until += READING_INTERVAL;
        }
    }

    /// Restores the rate before the cuts, and follows it with the window of a competitor.
    fn begin_to_compete(&mut self, now: Duration, rate: f64, round_trip: Duration, tried: Option<Cubic>) {
        self.rate = rate;
        let window = rate * round_trip.as_secs_f64() / PACKET_BITS;
        self.mode = Mode::Compete(tried.unwrap_or_else(|| Cubic::new(now, window)));
        (self.long_since, self.calm_since) = (None, None);
        self.retry_at = now + RETRY * 2u32.pow(self.failed_tries.min(RETRY_DOUBLINGS));
        self.failed_tries += 1;
    }

    fn compete(&mut self, now: Duration, passed: f64, reading: Reading, mut cubic: Cubic) {
        let queue = reading.queue.as_secs_f64();
        let round_trip = (reading.base + reading.queue).as_secs_f64().max(1e-4);
        self.calm_since = (queue < NEARLY_EMPTY).then(|| self.calm_since.unwrap_or(now));
        if self.calm_since.is_some_and(|since| now >= since + CALM) {
            (self.mode, self.long_since) = (Mode::Short(None), None);
            return;
        }
        if reading.loses && now >= self.hold_until {
            self.hold_until = now + READING_INTERVAL + reading.base + reading.queue;
            cubic.cut(now);
            if now >= self.retry_at {
                self.mode = Mode::Short(Some(cubic));
                (self.long_since, self.queue_at_cut) = (None, 0.0);
                self.rate *= CUBIC_KEPT;
                return;
            }
        } else {
            cubic.grow(now, passed, round_trip, 2.0 * self.ceiling * round_trip / PACKET_BITS);
        }
        self.rate = cubic.window * PACKET_BITS / round_trip;
        self.mode = Mode::Compete(cubic);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reading(queue_ms: u64) -> Reading {
        let queue = Duration::from_millis(queue_ms);
        Reading {
            base: Duration::from_millis(1),
            queue,
            passed: 1.0,
            delivered: 1e8,
            is_lossy: false,
            loses: false,
        }
    }

    /// Reads the same every 100 ms for some seconds.
    fn read_for(congestion: &mut Congestion, seconds: u64, from: u64, reading: Reading) -> Duration {
        let times = (0..seconds * 10).map(|step| Duration::from_secs(from) + READING_INTERVAL * step as u32);
        times.inspect(|now| _ = congestion.read(*now, Some(reading))).last().unwrap()
    }

    #[test]
    fn a_queue_cuts_the_rate_and_an_empty_one_restores_it() {
        let mut congestion = Congestion::new(100_000_000, 0);
        let now = read_for(&mut congestion, 1, 0, reading(0));
        assert_eq!(congestion.rate(now), 100_000_000);
        let now = read_for(&mut congestion, 1, 1, reading(25));
        assert!(congestion.rate(now) < 93_000_000);
        let now = read_for(&mut congestion, 5, 2, reading(0));
        assert_eq!(congestion.rate(now), 100_000_000);
    }

    #[test]
    fn a_queue_that_others_fill_is_shared() {
        let mut congestion = Congestion::new(100_000_000, 0);
        let now = read_for(&mut congestion, 2, 0, reading(40));
        assert!(congestion.rate(now) < 70_000_000);
        let now = read_for(&mut congestion, 10, 2, reading(40));
        assert!(congestion.rate(now) > 95_000_000, "{:?}", congestion.mode);
        let lossy = Reading { loses: true, is_lossy: true, ..reading(40) };
        congestion.read(now + READING_INTERVAL * 3, Some(lossy));
        assert!(congestion.rate(now + READING_INTERVAL * 3) < 85_000_000);
    }

    #[test]
    fn loss_without_a_queue_leaves_a_hundredth_of_the_ceiling() {
        let mut congestion = Congestion::new(1_000_000_000, 0);
        let lossy = Reading { is_lossy: true, passed: 0.1, delivered: 1e6, ..reading(0) };
        let now = read_for(&mut congestion, 1, 1, lossy);
        assert!(congestion.rate(now + READING_INTERVAL * 9) < 100_000_000);
    }

    proptest! {
        /// Whatever receivers report, the rate stays between its limits.
        #[test]
        fn the_rate_has_limits(
            readings in proptest::collection::vec(
                (0u64..70_000_000, 0u64..70_000_000, 0.01f64..=1.0, 0f64..1e12, any::<bool>(), any::<bool>()),
                1..200,
            ),
            ceiling in 100_000u64..2_000_000_000,
        ) {
            let mut congestion = Congestion::new(ceiling, 1);
            for (step, (base, queue, passed, delivered, is_lossy, loses)) in (0u32..).zip(readings) {
                let now = READING_INTERVAL * step;
                let (base, queue) = (Duration::from_micros(base), Duration::from_micros(queue));
                congestion.read(now, Some(Reading { base, queue, passed, delivered, is_lossy, loses }));
                let rate = congestion.rate(now);
                prop_assert!(rate <= ceiling && rate >= 50_000, "{rate}");
            }
        }
    }
}
