//! Pacing: a token bucket with a rate that follows the path to the receivers.
//!
//! Owns the count of bits on the wire, and the loss of each receiver. The rate is decided by [`Congestion`]. Only loss above a
//! receiver's long-term base counts, so that a link with constant loss is not starved (design: repair). Must never exceed the
//! ceiling.

use std::time::Duration;

use crate::congestion::{Congestion, Reading};
use crate::family::Family;

/// Bytes of a frame of Ethernet around a packet: header 14, checksum 4, preamble 8, gap 12.
const FRAME_OVERHEAD_BYTES: usize = 38;
/// Capacity of the bucket, as time at the current rate: how much a late wake-up can catch up. A busy machine may wake a thread
/// several scheduler slices late; bandwidth beyond the bucket is lost.
const BUCKET: Duration = Duration::from_millis(20);
/// Datagrams are sent in batches of about this much time.
const BATCH: Duration = Duration::from_micros(1500);
/// Minimum capacity of the bucket in bytes: one batch. Otherwise low rates could never send one.
const BUCKET_BYTES_MIN: u64 = 1600;
/// Lowest ceiling in bits per second.
const CEILING_MIN: u64 = 100_000;
/// Time after a cut in which its effect becomes visible.
const CUT_HOLD: Duration = Duration::from_millis(250);
/// Steps of the start: three of this length, with an eighth, a quarter and half of the rate. So the first reports measure the path
/// without a queue, even if several casts start at once.
const START_STEP: Duration = Duration::from_millis(10);
/// Loss of more than this above the base cuts the rate. It is several times what a good network shows, and a lost batch of 44
/// datagrams in a sample of [`LOSS_SAMPLE_PACKETS`] stays below it.
pub(crate) const LOSS_TOLERATED: f64 = 0.10;
/// Number of packets in one sample of loss.
const LOSS_SAMPLE_PACKETS: u64 = 1024;
/// Weight of a sample above and below the base: the base rises slowly and falls fast.
const BASE_RISE: f64 = 0.02;
const BASE_FALL: f64 = 0.25;

/// The token bucket and its rate.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    ceiling: u64,
    /// The rate since the last call of [`Pacer::advance`].
    rate: u64,
    congestion: Congestion,
    /// Bytes on the wire for each datagram, besides its payload.
    overhead_bytes: usize,
    started_at: Option<Duration>,
    /// Bits that may be sent now; negative if the last batch exceeded them.
    tokens: i64,
    filled_at: Duration,
}

/// Returns the overhead of a datagram on Ethernet in bytes, the headers of its packet included.
pub(crate) fn wire_overhead_bytes(family: Family) -> usize {
    FRAME_OVERHEAD_BYTES + family.header_bytes()
}

impl Pacer {
    /// Makes a pacer for a ceiling in bits per second, at least [`CEILING_MIN`].
    pub(crate) fn new(ceiling_bits_per_second: u64) -> Self {
        Self::seeded(ceiling_bits_per_second, 0, Family::Ipv4)
    }

    /// Makes a pacer for datagrams of that family, whose seed varies the times at which the path is read.
    pub(crate) fn seeded(ceiling_bits_per_second: u64, seed: u64, family: Family) -> Self {
        let ceiling = ceiling_bits_per_second.max(CEILING_MIN);
        Self {
            ceiling,
            rate: ceiling,
            congestion: Congestion::new(ceiling, seed),
            overhead_bytes: wire_overhead_bytes(family),
            started_at: None,
            tokens: 0,
            filled_at: Duration::ZERO,
        }
    }

    /// Records that data is sent from now on.
    pub(crate) fn start(&mut self, now: Duration) {
        self.started_at = Some(now);
    }

    /// Returns the current rate in bits per second.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Returns the maximum rate in bits per second.
    pub(crate) fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Returns whether the network does not take the ceiling, or a tenth less.
    pub(crate) fn is_cut(&self) -> bool {
        self.congestion.is_cut()
    }

    /// Changes the ceiling. A sender at the old ceiling continues at the new one; the rate of any other is only cut.
    pub(crate) fn set_ceiling(&mut self, ceiling_bits_per_second: u64) {
        let ceiling = ceiling_bits_per_second.max(CEILING_MIN);
        if ceiling != self.ceiling {
            self.ceiling = ceiling;
            self.congestion.set_ceiling(ceiling);
            self.rate = self.congestion.rate(self.filled_at).min(ceiling);
        }
        self.tokens = self.tokens.min(self.bucket_bits());
    }

    /// Adds the tokens for the time that has passed.
    pub(crate) fn advance(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled_at);
        self.rate = self.congestion.rate(now) / self.start_divisor(now);
        self.filled_at = now.max(self.filled_at);
        let earned = self.bits_in(passed.min(Duration::from_secs(1)));
        self.tokens = (self.tokens + earned).min(self.bucket_bits());
    }

    fn start_divisor(&self, now: Duration) -> u64 {
        let Some(started_at) = self.started_at else { return 1 };
        let steps = now.saturating_sub(started_at).as_nanos() / START_STEP.as_nanos();
        8 >> steps.min(3)
    }

    /// Returns whether a datagram may be sent now.
    pub(crate) fn may_send(&self) -> bool {
        self.tokens > 0
    }

    /// Subtracts the tokens for a sent datagram with that many payload bytes.
    pub(crate) fn spend(&mut self, payload_bytes: usize) {
        self.tokens -= ((payload_bytes + self.overhead_bytes) * 8) as i64;
    }

    /// Returns when there will be enough tokens for a batch.
    pub(crate) fn ready_at(&self) -> Duration {
        let batch = self.bits_in(BATCH).max(BUCKET_BYTES_MIN as i64 * 4);
        let missing = batch - self.tokens;
        let nanoseconds = i128::from(missing.max(1)) * 1_000_000_000 / i128::from(self.rate);
        self.filled_at + Duration::from_nanos(nanoseconds as u64)
    }

    /// Cuts the rate because a receiver's loss exceeds its base by `loss`.
    pub(crate) fn cut(&mut self, now: Duration, loss: f64) {
        self.congestion.cut(now, loss, CUT_HOLD);
        self.rate = self.congestion.rate(now);
    }

    /// Returns whether the path is to be read now.
    pub(crate) fn reads_now(&mut self, now: Duration) -> bool {
        self.congestion.is_due(now)
    }

    /// Adapts the rate to a reading of the path. Returns whether the rate was cut.
    pub(crate) fn read(&mut self, now: Duration, reading: Option<Reading>) -> bool {
        self.congestion.read(now, reading)
    }

    fn bucket_bits(&self) -> i64 {
        self.bits_in(BUCKET).max(BUCKET_BYTES_MIN as i64 * 8)
    }

    fn bits_in(&self, time: Duration) -> i64 {
        (u128::from(self.rate) * time.as_nanos() / 1_000_000_000) as i64
    }
}

/// Measures the loss of one receiver from its reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossMeter {
    seen: u64,
    received: u64,
    base: f64,
    excess: Option<f64>,
}

impl LossMeter {
    /// Starts counting at this packet.
    pub(crate) fn starting_at(packet: u64) -> Self {
        Self { seen: packet, ..Self::default() }
    }

    /// Continues counting from here and ignores earlier loss.
    pub(crate) fn skip_to(&mut self, seen: u64, received: u64) {
        (self.seen, self.received) = (seen, received);
    }

    /// Continues counting from here, and forgets the last sample: it is of long ago.
    pub(crate) fn restart(&mut self, seen: u64, received: u64) {
        self.skip_to(seen, received);
        self.excess = None;
    }

    /// Returns how far the last sample was above the base; `None` if there was none.
    pub(crate) fn excess(&self) -> Option<f64> {
        self.excess
    }

    /// Processes a report: the highest packet seen, and the number of packets received. Returns how far the loss is above the
    /// base, and the number of samples that it is of, if one is complete. Only samples that count (`is_usual`) change the base.
    pub(crate) fn report(&mut self, seen: u64, received: u64, is_usual: bool) -> Option<(f64, u32)> {
        let sent = seen.saturating_sub(self.seen);
        if sent < LOSS_SAMPLE_PACKETS {
            return None;
        }
        let arrived = received.saturating_sub(self.received).min(sent);
        let loss = 1.0 - arrived as f64 / sent as f64;
        (self.seen, self.received) = (seen, received);
        self.excess = Some(loss - self.base);
        if is_usual {
            let weight = if loss > self.base { BASE_RISE } else { BASE_FALL };
            self.base += (loss - self.base) * weight;
        }
        let samples = u32::try_from(sent / LOSS_SAMPLE_PACKETS).unwrap_or(u32::MAX);
        self.excess.map(|excess| (excess, samples))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits on the wire, with the headers of IPv4.
    fn sent_in_a_second(pacer: &mut Pacer, start: Duration) -> u64 {
        let mut bits = 0;
        for step in 0..1000 {
            pacer.advance(start + Duration::from_millis(step));
            while pacer.may_send() {
                pacer.spend(1432);
                bits += (1432 + 66) * 8;
            }
        }
        bits
    }

    #[test]
    fn it_sends_at_the_ceiling_but_not_above() {
        for ceiling in [1_000_000, 100_000_000, 1_000_000_000] {
            let bits = sent_in_a_second(&mut Pacer::new(ceiling), Duration::ZERO);
            assert!(bits <= ceiling + 20_000 && bits > ceiling * 98 / 100, "{bits} of {ceiling}");
        }
    }

    #[test]
    fn longer_headers_leave_less_for_contents() {
        let sent = |family| sent_in_a_second(&mut Pacer::seeded(100_000_000, 0, family), Duration::ZERO);
        let (ipv4, ipv6) = (sent(Family::Ipv4), sent(Family::Ipv6));
        let least = ipv4 * (1432 + 66) / (1432 + 86);
        assert!((least * 999 / 1000..least * 1001 / 1000).contains(&ipv6), "{ipv4} {ipv6}");
    }

    #[test]
    fn another_ceiling_counts_at_once() {
        let mut pacer = Pacer::new(100_000_000);
        for ceiling in [20_000_000, 300_000_000] {
            pacer.set_ceiling(ceiling);
            let start = pacer.filled_at;
            let bits = sent_in_a_second(&mut pacer, start);
            assert!(bits <= ceiling * 103 / 100 && bits > ceiling * 97 / 100, "{bits} of {ceiling}");
        }
        // A sender that loss has slowed down is not sped up.
        pacer.cut(Duration::from_secs(9), 0.5);
        pacer.set_ceiling(600_000_000);
        assert_eq!(pacer.rate(), 150_000_000);
        pacer.set_ceiling(70_000_000);
        assert_eq!(pacer.rate(), 70_000_000);
    }

    #[test]
    fn idle_time_is_not_caught_up() {
        let mut pacer = Pacer::new(100_000_000);
        pacer.advance(Duration::from_secs(100));
        let bits = sent_in_a_second(&mut pacer, Duration::from_secs(100));
        assert!(bits < 102_500_000, "{bits}");
    }

    /// Cuts the rate if a report shows too much loss.
    fn report(meter: &mut LossMeter, now: Duration, (seen, received): (u64, u64), pacer: &mut Pacer) {
        let excess = meter.report(seen, received, true);
        if let Some((excess, _)) = excess.filter(|(excess, _)| *excess > LOSS_TOLERATED) {
            pacer.cut(now, excess);
        }
    }

    #[test]
    fn sudden_loss_cuts_the_rate_and_constant_loss_does_not_starve_it() {
        let mut pacer = Pacer::new(1_000_000_000);
        let mut meter = LossMeter::starting_at(0);
        report(&mut meter, Duration::from_secs(1), (2000, 1000), &mut pacer);
        assert_eq!(pacer.rate(), 500_000_000);
        let (mut seen, mut received) = (2000, 1000);
        for step in 0..400 {
            let now = Duration::from_secs(2) + Duration::from_millis(100 * step);
            (seen, received) = (seen + 2000, received + 1600);
            report(&mut meter, now, (seen, received), &mut pacer);
            pacer.read(now, None);
            pacer.advance(now);
        }
        assert_eq!(pacer.rate(), 1_000_000_000);
        for step in 0..400 {
            let now = Duration::from_secs(60) + Duration::from_millis(100 * step);
            (seen, received) = (seen + 2000, received + 600);
            report(&mut meter, now, (seen, received), &mut pacer);
        }
        assert!(pacer.rate() < 100_000_000 && pacer.rate() >= 10_000_000);
    }
}
