//! A link that several casts and a TCP flow share: a queue that drops what does not fit.
//!
//! Owns the time at which each datagram leaves the link. Must never reorder.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Bytes of a datagram on the wire that are not its payload.
pub const OVERHEAD: usize = 66;
const TCP_BYTES: usize = 1514;

/// A link with a rate and a queue.
pub struct SharedLink {
    bits_per_second: u64,
    queue: Duration,
    free_at: Duration,
    /// Bytes that each flow has passed through.
    pub passed: Vec<u64>,
}

pub type Uplink = Rc<RefCell<SharedLink>>;

impl SharedLink {
    pub fn new(bits_per_second: u64, queue: Duration, flows: usize) -> Uplink {
        let link = Self { bits_per_second, queue, free_at: Duration::ZERO, passed: vec![0; flows] };
        Rc::new(RefCell::new(link))
    }

    /// Sends bytes of a flow. Returns when they have left the link; `None` if the queue is full.
    pub fn pass(&mut self, flow: usize, now: Duration, bytes: usize) -> Option<Duration> {
        let time = Duration::from_nanos(bytes as u64 * 8 * 1_000_000_000 / self.bits_per_second);
        let done_at = self.free_at.max(now) + time;
        if done_at > now + self.queue {
            return None;
        }
        self.free_at = done_at;
        self.passed[flow] += bytes as u64;
        Some(done_at)
    }
}

/// A bulk TCP flow with the window of CUBIC (RFC 9438) or Reno and selective acknowledgements. No timeouts but one.
pub struct TcpFlow {
    link: Uplink,
    flow: usize,
    is_cubic: bool,
    /// Delay on both ways, without the link.
    delay: Duration,
    window: f64,
    threshold: f64,
    next: u64,
    recover: u64,
    in_flight: BTreeSet<u64>,
    sent_at: HashMap<u64, Duration>,
    acks: VecDeque<(Duration, u64)>,
    acked_at: Duration,
    window_max: f64,
    epoch: Option<Duration>,
    as_reno: f64,
    least_round_trip: f64,
    pub now: Duration,
}

impl TcpFlow {
    pub fn new(link: Uplink, flow: usize, is_cubic: bool, delay: Duration, start: Duration) -> Self {
        Self {
            link,
            flow,
            is_cubic,
            delay,
            window: 10.0,
            threshold: f64::MAX,
            next: 1,
            recover: 0,
            in_flight: BTreeSet::new(),
            sent_at: HashMap::new(),
            acks: VecDeque::new(),
            acked_at: start,
            window_max: 0.0,
            epoch: None,
            as_reno: 0.0,
            least_round_trip: f64::MAX,
            now: start,
        }
    }

    /// Handles the next acknowledgement and sends what the window permits.
    pub fn step(&mut self) {
        while let Some((_, packet)) = self.acks.front().copied().filter(|(at, _)| *at <= self.now) {
            self.acks.pop_front();
            self.acknowledged(packet);
        }
        while self.in_flight.len() as f64 + 1.0 <= self.window {
            let packet = self.next;
            self.next += 1;
            self.in_flight.insert(packet);
            self.sent_at.insert(packet, self.now);
            if let Some(at) = self.link.borrow_mut().pass(self.flow, self.now, TCP_BYTES) {
                self.acks.push_back((at + self.delay, packet));
            }
        }
        match self.acks.front() {
            Some((at, _)) => self.now = (*at).max(self.now),
            // Everything in flight was lost.
            None => {
                self.now += Duration::from_millis(300);
                self.in_flight.clear();
                self.cut(2.0 / self.window);
            }
        }
    }

    fn acknowledged(&mut self, packet: u64) {
        if let Some(sent_at) = self.sent_at.remove(&packet) {
            self.least_round_trip = self.least_round_trip.min((self.now - sent_at).as_secs_f64());
        }
        self.acked_at = self.now;
        self.in_flight.remove(&packet);
        let lost: Vec<u64> = self.in_flight.range(..packet.saturating_sub(3)).copied().collect();
        for lost in &lost {
            self.in_flight.remove(lost);
            self.sent_at.remove(lost);
        }
        if lost.iter().any(|lost| *lost >= self.recover) {
            self.recover = self.next;
            self.cut(if self.is_cubic { 0.7 } else { 0.5 });
        } else if self.window < self.threshold {
            self.window += 1.0;
        } else if self.is_cubic {
            self.grow_as_cubic();
        } else {
            self.window += 1.0 / self.window;
        }
    }

    fn cut(&mut self, kept: f64) {
        let released = self.window < self.window_max;
        self.window_max = self.window * if released { 0.85 } else { 1.0 };
        self.window = (self.window * kept).max(2.0);
        self.threshold = self.window;
        self.epoch = None;
    }

    fn grow_as_cubic(&mut self) {
        if self.epoch.is_none() {
            self.as_reno = self.window;
            self.window_max = self.window_max.max(self.window);
        }
        let epoch = *self.epoch.get_or_insert(self.now);
        let plateau = ((self.window_max - self.threshold) / 0.4).max(0.0).cbrt();
        let time = (self.now - epoch).as_secs_f64() + self.least_round_trip - plateau;
        self.as_reno += 0.53 / self.window;
        let target = (0.4 * time.powi(3) + self.window_max).max(self.as_reno).min(self.window * 1.5);
        self.window += (target - self.window).max(0.01) / self.window;
    }
}
