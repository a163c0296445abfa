//! The sender of a probe: gathers receivers, sends the series, and collects the counts.
//!
//! Owns what is sent and when. Must never send more than the series because of anything that it receives.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::series::{NUMBERS_MAX, PACKET_BYTES, ProbeCounts, ProbeSent, ProbeSeries, Tally};
use super::wire::{ProbeDatagram, ProbeMessage, SMALL_BYTES, payload_bytes};
use crate::family::Family;
use crate::join_key::JoinKey;
use crate::pacing::wire_overhead_bytes;
use crate::wire::channel::Channel;
use crate::wire::format::DATAGRAM_BYTES_MAX;
use crate::wire::join::JoinMessage;
use crate::wire::protection::DatagramKey;

/// Most receivers of a probe.
const RECEIVERS_MAX: usize = 4096;
/// Time between two announcements.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(500);
/// Time in which the network learns the new members of the group.
const SETTLE: Duration = Duration::from_millis(1800);
/// Further joins prolong that up to this many times.
const SETTLES_MAX: u32 = 5;
/// Datagrams of a series that tests whether anything arrives, and the time between two of them.
const FEW: u32 = 10;
const FEW_INTERVAL: Duration = Duration::from_millis(20);
/// Times that each packet length is sent.
const LENGTH_TIMES: u32 = 3;
/// Duration of a series at a rate.
const RATE_TIME: Duration = Duration::from_secs(2);
/// A series that takes this much longer, because the machine or its network is slower, is cut.
const LATE_TIMES: u32 = 3;
/// The slow series has the rate divided by this.
const SLOW_DIVISOR: u64 = 10;
/// Most datagrams of one transmit: a GSO batch.
const BATCH: u32 = 32;
/// Shortest time between two batches of a series.
const BATCH_INTERVAL: Duration = Duration::from_millis(1);
/// Time for the last datagrams of a series to arrive, before the counts are asked for.
const ARRIVE: Duration = Duration::from_millis(500);
/// Time for the counts to arrive.
const COUNTS_TIME: Duration = Duration::from_secs(3);

/// The options of a probe's sender.
#[derive(Clone)]
pub struct ProbeSenderOptions {
    /// Random bytes, from which session and keys are made.
    pub seed: [u8; 32],
    /// The secret that receivers must have, too.
    pub join_key: Option<JoinKey>,
    /// The rate of the last series on the wire.
    pub bits_per_second: u64,
    /// The group of the series.
    pub group: SocketAddr,
    /// The address for joins (TCP).
    pub join: SocketAddr,
    /// The address for the receivers' datagrams (UDP).
    pub feedback: SocketAddr,
    /// Start once this many receivers have joined.
    pub receivers: u32,
    /// Start after this time with those that have joined. With none, the probe ends.
    pub wait: Duration,
}

/// Where to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeTarget {
    /// The discovery address.
    Discovery,
    /// The link-local group.
    LinkLocal,
    /// The group of the probe.
    Group,
    /// A receiver.
    Unicast(SocketAddr),
    /// A receiver, with a time to live of 1.
    Neighbour(SocketAddr),
}

/// Datagrams to send.
#[derive(Clone, Debug)]
pub struct ProbeTransmit {
    /// Where to.
    pub target: ProbeTarget,
    /// The datagrams, one after another.
    pub bytes: Vec<u8>,
    /// The length of each.
    pub datagram_bytes: usize,
}

/// A receiver of a probe.
#[derive(Clone, Debug)]
pub struct ProbedReceiver {
    /// Its name.
    pub name: String,
    /// Its address, and the port of its datagrams.
    pub address: SocketAddr,
    /// What was sent to it.
    pub sent: ProbeSent,
    /// What it counted. `None`: it did not say.
    pub counts: Option<ProbeCounts>,
}

struct Member {
    id: u32,
    receiver: ProbedReceiver,
    /// `None`: it has ended.
    connection: Option<u64>,
    feedback: Tally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Gathering,
    Settling { until: Duration, latest: Duration, members: usize },
    Sending { course: usize, since: Duration, sent: u32 },
    Arriving { until: Duration },
    Asking { until: Duration },
    Over,
}

/// A series as it is sent.
struct Course {
    series: ProbeSeries,
    count: u32,
    interval: Duration,
}

/// The sender's machine.
pub struct ProbeSender {
    options: ProbeSenderOptions,
    session: u32,
    key: [u8; 32],
    announce_key: DatagramKey,
    series_key: DatagramKey,
    phase: Phase,
    announced_at: Option<Duration>,
    polled_at: Duration,
    packet: u64,
    sent: ProbeSent,
    members: Vec<Member>,
    next_id: u32,
    channels: HashMap<u64, Channel>,
    greetings: u64,
    messages: VecDeque<(u64, Vec<u8>)>,
    scratch: Vec<u8>,
}

impl ProbeSender {
    /// Returns the session in its datagrams.
    pub fn session(&self) -> u32 {
        self.session
    }

    /// Starts to gather receivers, at time zero.
    pub fn new(options: ProbeSenderOptions) -> Self {
        let key = blake3::derive_key("platter 2026-11-27 probe datagrams", &options.seed);
        let [a, b, c, d, ..] = blake3::derive_key("platter 2026-11-27 probe session", &options.seed);
        let (has_join_key, family) = (options.join_key.is_some(), Family::of(options.group.ip()));
        let announce_key = options.join_key.as_ref().map_or(key, JoinKey::of_announcements);
        Self {
            session: u32::from_le_bytes([a, b, c, d]),
            key,
            announce_key: DatagramKey::of_announcements(announce_key, has_join_key),
            series_key: DatagramKey::of_announcements(key, has_join_key),
            phase: Phase::Gathering,
            announced_at: None,
            polled_at: Duration::ZERO,
            packet: 0,
            sent: ProbeSent { family, ..ProbeSent::default() },
            members: Vec::new(),
            next_id: 0,
            channels: HashMap::new(),
            greetings: 0,
            messages: VecDeque::new(),
            scratch: Vec::new(),
            options,
        }
    }

    /// Handles a message (without its length) of the reliable channel.
    pub fn handle_message(&mut self, connection: u64, from: IpAddr, message: &[u8]) {
        let opened = match self.channels.get_mut(&connection) {
            Some(channel) => channel.open(message).map(Cow::Owned),
            None => Some(Cow::Borrowed(message)),
        };
        let is_open = self.channels.contains_key(&connection) || self.options.join_key.is_none();
        let Some(opened) = opened else {
            return self.refuse(connection, "it has another key file");
        };
        match (JoinMessage::parse(&opened), ProbeMessage::parse(&opened)) {
            (Some(JoinMessage::Greeting { nonce }), _) => self.handle_greeting(connection, &nonce),
            _ if !is_open => self.refuse(connection, "this probe needs a key file (--key-file FILE)"),
            (_, Some(ProbeMessage::Begin { port, name })) => {
                self.handle_begin(connection, SocketAddr::new(from, port), name);
            }
            (_, Some(ProbeMessage::Counts(counts))) => {
                if let Some(member) = self.members.iter_mut().find(|it| it.connection == Some(connection)) {
                    member.receiver.counts.get_or_insert(counts);
                }
            }
            _ => self
                .refuse(connection, "this is a probe of the network, not a cast: `platter receive --probe`"),
        }
    }

    fn handle_greeting(&mut self, connection: u64, receiver_nonce: &[u8; 32]) {
        let Some(join_key) =
            self.options.join_key.as_ref().filter(|_| !self.channels.contains_key(&connection))
        else {
            return self.refuse(connection, "this probe has no key file: join it without --key-file");
        };
        self.greetings += 1;
        let nonces = blake3::derive_key("platter 2026-11-27 probe greetings", &self.options.seed);
        let nonce = *blake3::keyed_hash(&nonces, &self.greetings.to_le_bytes()).as_bytes();
        let keys = join_key.of_connection(receiver_nonce, &nonce);
        self.messages.push_back((connection, JoinMessage::Greeting { nonce }.to_bytes()));
        self.channels.insert(connection, Channel::of_sender(&keys));
    }

    fn handle_begin(&mut self, connection: u64, address: SocketAddr, name: String) {
        if self.has_joined(connection) {
            return;
        }
        if !matches!(self.phase, Phase::Gathering | Phase::Settling { .. }) {
            return self.refuse(connection, "this probe has started already");
        }
        if self.members.len() >= RECEIVERS_MAX {
            return self.refuse(connection, "too many receivers joined this probe");
        }
        let receiver = self.next_id;
        self.next_id += 1;
        let (sent, counts) = (ProbeSent::default(), None);
        self.members.push(Member {
            id: receiver,
            receiver: ProbedReceiver { name, address, sent, counts },
            connection: Some(connection),
            feedback: Tally::default(),
        });
        let (group, feedback) = (self.options.group, self.options.feedback);
        let (session, key) = (self.session, self.key);
        self.say(connection, ProbeMessage::Welcome { session, key, receiver, group, feedback }.to_bytes());
    }

    /// Handles a datagram of a receiver.
    pub fn handle_datagram(&mut self, datagram: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let parsed = self.series_key.open(datagram, &mut scratch).and_then(ProbeDatagram::parse);
        if let Some(parsed) = parsed.filter(|it| it.series == ProbeSeries::Feedback && it.number < FEW)
            && let Some(member) = self.members.iter_mut().find(|it| it.id == parsed.receiver)
        {
            member.feedback.add(parsed.number);
        }
        self.scratch = scratch;
    }

    /// Handles the end of a connection.
    pub fn handle_disconnect(&mut self, connection: u64) {
        self.channels.remove(&connection);
        let is_of_it = |member: &Member| member.connection == Some(connection);
        if !self.has_begun() {
            // It took no part yet, and may join again.
            self.members.retain(|member| !is_of_it(member));
        }
        self.members.iter_mut().filter(|it| is_of_it(it)).for_each(|it| it.connection = None);
    }

    /// Whether a receiver has joined over this connection.
    pub fn has_joined(&self, connection: u64) -> bool {
        self.members.iter().any(|member| member.connection == Some(connection))
    }

    /// Returns the next message for the reliable channel (with its length).
    pub fn poll_message(&mut self) -> Option<(u64, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// Whether everything is done.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// How many receivers have joined.
    pub fn joined(&self) -> usize {
        self.members.len()
    }

    /// Whether the series have begun.
    pub fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::Gathering | Phase::Settling { .. })
    }

    /// The receivers, with their counts.
    pub fn receivers(&self) -> Vec<ProbedReceiver> {
        self.members.iter().map(|member| member.receiver.clone()).collect()
    }

    /// Returns when to poll again.
    pub fn next_deadline(&self) -> Duration {
        match self.phase {
            Phase::Sending { .. } => self.polled_at + BATCH_INTERVAL,
            _ => self.polled_at + FEW_INTERVAL,
        }
    }

    /// Returns the next datagrams that are due.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<ProbeTransmit> {
        self.polled_at = now;
        self.advance(now);
        match self.phase {
            Phase::Gathering | Phase::Settling { .. } => self.announce(now),
            Phase::Sending { course, since, sent } => self.send(now, course, since, sent),
            _ => None,
        }
    }

    fn advance(&mut self, now: Duration) {
        match self.phase {
            Phase::Gathering => {
                let joined = self.joined();
                if joined >= self.options.receivers as usize || (now >= self.options.wait && joined > 0) {
                    let (until, latest) = (now + SETTLE, now + SETTLES_MAX * SETTLE);
                    self.phase = Phase::Settling { until, latest, members: self.members.len() };
                } else if now >= self.options.wait {
                    self.phase = Phase::Over;
                }
            }
            Phase::Settling { .. } if self.joined() == 0 => self.phase = Phase::Gathering,
            // Switches have to learn of those that joined meanwhile, too.
            Phase::Settling { latest, members, .. } if self.members.len() != members => {
                let until = latest.min(now + SETTLE);
                self.phase = Phase::Settling { until, latest, members: self.members.len() };
            }
            Phase::Settling { until, .. } if now >= until => {
                self.phase = Phase::Sending { course: 0, since: now, sent: 0 };
            }
            Phase::Sending { course, since, sent } => {
                let current = self.course(course);
                let is_late =
                    now.saturating_sub(since) > current.interval * current.count.max(1) * LATE_TIMES + ARRIVE;
                if sent >= current.count || is_late {
                    self.end_course(now, &current, since, sent);
                    self.phase = match current.series {
                        ProbeSeries::Full => Phase::Arriving { until: now + ARRIVE },
                        _ => Phase::Sending { course: course + 1, since: now, sent: 0 },
                    };
                }
            }
            Phase::Arriving { until } if now >= until => {
                self.ask();
                self.phase = Phase::Asking { until: now + COUNTS_TIME };
            }
            Phase::Asking { until } => {
                let mut present = self.members.iter().filter(|it| it.connection.is_some());
                if now >= until || present.all(|it| it.receiver.counts.is_some()) {
                    self.phase = Phase::Over;
                }
            }
            _ => {}
        }
    }

    fn course(&self, index: usize) -> Course {
        let members = (self.members.len() as u32).max(1);
        let few = |series| Course { series, count: FEW, interval: FEW_INTERVAL };
        let each = |series| Course { series, count: FEW * members, interval: FEW_INTERVAL / members };
        let rate = self.options.bits_per_second;
        match index {
            0 => few(ProbeSeries::LinkLocal),
            1 => each(ProbeSeries::Unicast),
            2 => each(ProbeSeries::Neighbour),
            3 => Course { count: PACKET_BYTES.len() as u32 * LENGTH_TIMES, ..few(ProbeSeries::Lengths) },
            4 => at_rate(ProbeSeries::Slow, rate / SLOW_DIVISOR, self.bits()),
            _ => at_rate(ProbeSeries::Full, rate, self.bits()),
        }
    }

    fn announce(&mut self, now: Duration) -> Option<ProbeTransmit> {
        if self.announced_at.is_some_and(|at| now < at + ANNOUNCE_INTERVAL) {
            return None;
        }
        self.announced_at = Some(now);
        let number = self.sent.numbers[ProbeSeries::Announcement as usize];
        self.sent.numbers[ProbeSeries::Announcement as usize] += 1;
        let join = Some(self.options.join);
        let mut bytes = Vec::new();
        self.datagram(ProbeSeries::Announcement, number, join).append(&mut bytes, SMALL_BYTES);
        self.announce_key.seal(&mut bytes, 0);
        Some(ProbeTransmit { target: ProbeTarget::Discovery, datagram_bytes: bytes.len(), bytes })
    }

    fn send(&mut self, now: Duration, course: usize, since: Duration, sent: u32) -> Option<ProbeTransmit> {
        let current = self.course(course);
        let elapsed = now.saturating_sub(since).as_nanos();
        let due = (elapsed / current.interval.as_nanos().max(1)) as u64 + 1;
        let due = due.min(u64::from(current.count)) as u32;
        let count = due.saturating_sub(sent).min(BATCH);
        let (target, bytes_each, batch) = match current.series {
            ProbeSeries::LinkLocal => (ProbeTarget::LinkLocal, SMALL_BYTES, count),
            ProbeSeries::Lengths => (ProbeTarget::Group, payload_bytes(sent), count.min(1)),
            ProbeSeries::Slow | ProbeSeries::Full => (ProbeTarget::Group, DATAGRAM_BYTES_MAX, count),
            series => {
                let address = self.members.get(sent as usize % self.members.len().max(1))?.receiver.address;
                let target = match series {
                    ProbeSeries::Unicast => ProbeTarget::Unicast(address),
                    _ => ProbeTarget::Neighbour(address),
                };
                (target, SMALL_BYTES, count.min(1))
            }
        };
        if batch == 0 {
            return None;
        }
        let mut bytes = Vec::with_capacity(bytes_each * batch as usize);
        for number in sent..sent + batch {
            let number = match target {
                ProbeTarget::Unicast(_) | ProbeTarget::Neighbour(_) => {
                    number / self.members.len().max(1) as u32
                }
                _ => number,
            };
            let start = bytes.len();
            self.datagram(current.series, number, None).append(&mut bytes, bytes_each);
            self.series_key.seal(&mut bytes, start);
        }
        self.phase = Phase::Sending { course, since, sent: sent + batch };
        Some(ProbeTransmit { target, bytes, datagram_bytes: bytes_each })
    }

    fn datagram(&mut self, series: ProbeSeries, number: u32, join: Option<SocketAddr>) -> ProbeDatagram {
        self.packet += 1;
        ProbeDatagram { session: self.session, packet: self.packet, series, number, join, receiver: 0 }
    }

    fn end_course(&mut self, now: Duration, course: &Course, since: Duration, sent: u32) {
        let is_to_each = matches!(course.series, ProbeSeries::Unicast | ProbeSeries::Neighbour);
        let members = if is_to_each { self.members.len().max(1) as u32 } else { 1 };
        self.sent.numbers[course.series as usize] = sent / members;
        if course.series == ProbeSeries::Full {
            let seconds = now.saturating_sub(since).as_secs_f64().max(0.001);
            self.sent.bits_per_second = (f64::from(sent) * self.bits() as f64 / seconds) as u64;
        }
    }

    /// Bits of a datagram of a cast on the wire.
    fn bits(&self) -> u64 {
        (DATAGRAM_BYTES_MAX + wire_overhead_bytes(self.sent.family)) as u64 * 8
    }

    fn ask(&mut self) {
        let mut asked = Vec::new();
        for member in &mut self.members {
            member.receiver.sent =
                ProbeSent { feedback_received: member.feedback.arrivals.received, ..self.sent };
            member.receiver.sent.numbers[ProbeSeries::Feedback as usize] = FEW;
            let message = ProbeMessage::Sent(member.receiver.sent).to_bytes();
            asked.extend(member.connection.map(|connection| (connection, message)));
        }
        asked.into_iter().for_each(|(connection, message)| self.say(connection, message));
    }

    /// Tells a connection why nobody can join over it.
    pub fn refuse(&mut self, connection: u64, reason: &str) {
        self.say(connection, JoinMessage::Refused { reason: reason.into() }.to_bytes());
    }

    fn say(&mut self, connection: u64, message: Vec<u8>) {
        let message = match self.channels.get_mut(&connection) {
            Some(channel) => channel.seal(&message),
            None => message,
        };
        self.messages.push_back((connection, message));
    }
}

/// A series of datagrams, each with so many bits on the wire.
fn at_rate(series: ProbeSeries, bits_per_second: u64, bits: u64) -> Course {
    let interval = Duration::from_nanos(bits * 1_000_000_000 / bits_per_second.max(1));
    let count = RATE_TIME.as_nanos() / interval.as_nanos().max(1);
    Course { series, count: (count as u64).clamp(u64::from(FEW), u64::from(NUMBERS_MAX)) as u32, interval }
}
