//! A simulated room: one sender and its receivers on a network that loses, delays, reorders and duplicates datagrams, by seed.
//!
//! Owns a virtual clock and a queue of deliveries. Must never use anything that the seed does not determine.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "a part of test binaries")]

pub mod shared;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use platter_cast::{
    CastFilter, MessageBuffer, Receiver, ReceiverEvent, ReceiverOptions, Segment, Sender, SenderOptions,
    SessionDescription, Transmit, Wanted,
};
use platter_image::{BlockId, Score};
use shared::{OVERHEAD, Uplink};

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 <= probability && probability > 0.0
    }
}

/// Types of datagrams.
const REQUEST: u8 = 4;
const REPORT: u8 = 5;
/// Number of chunks with distinct contents: later ones repeat them.
const DISTINCT_MAX: usize = 100;
/// Bytes that wait for a link with a limited rate.
const QUEUE_BYTES: u64 = 256 << 10;

/// Connection and behaviour of one receiver.
#[derive(Clone, Copy)]
pub struct Link {
    /// The share of datagrams that are lost.
    pub loss: f64,
    /// So many are lost in a row.
    pub burst: u32,
    pub doubled: f64,
    pub delay: Duration,
    pub jitter: Duration,
    /// Rate of its link. Datagrams that would wait in its queue of [`QUEUE_BYTES`] beyond its end are dropped.
    pub bits_per_second: Option<u64>,
    pub buffer_chunks: usize,
    pub joins_at: Duration,
    /// When it falls silent for good.
    pub crashes_at: Option<Duration>,
    /// Time that its sink takes for each chunk.
    pub sink_time: Duration,
    /// It wants only the content chunks from this number on.
    pub wants_from: u32,
    /// The first delivery of this chunk counts as corrupt.
    pub bad_chunk: Option<u32>,
    /// Its disk accepts nothing from the first time to the second.
    pub disk_hangs: Option<(Duration, Duration)>,
    /// The whole machine is suspended from the first time to the second.
    pub stopped: Option<(Duration, Duration)>,
    /// It is a restart of the receiver with this number, with the same name and address.
    pub again: Option<usize>,
    /// It is not expected to finish.
    pub never_ends: bool,
    /// It requests the same symbols of the first chunks of data again and again, and nothing else.
    pub demands: bool,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            loss: 0.0,
            burst: 1,
            doubled: 0.0,
            delay: Duration::from_micros(200),
            jitter: Duration::from_micros(50),
            bits_per_second: None,
            buffer_chunks: 64,
            joins_at: Duration::ZERO,
            crashes_at: None,
            sink_time: Duration::ZERO,
            wants_from: 0,
            bad_chunk: None,
            disk_hangs: None,
            stopped: None,
            again: None,
            never_ends: false,
            demands: false,
        }
    }
}

/// An attacker in the group who sees every datagram and sends forged ones to all receivers.
#[derive(Clone, Copy)]
pub struct Forger {
    /// Forge a datagram after every this many datagrams of the sender.
    pub every: u64,
    /// Number of datagrams that are still to be forged.
    pub left: u64,
    /// Forge symbols of any chunk, instead of the chunk that was just seen.
    pub anywhere: bool,
    /// Forge plans and high packet numbers, too.
    pub lies: bool,
    /// Forge nothing except plans with high packet numbers.
    pub outdates: bool,
    /// Use each number before the sender does, for a datagram that says nothing.
    pub occupies: bool,
    /// It joined the cast, so it knows the session key. Otherwise receivers reject whatever it sends.
    pub insider: bool,
}

enum Delivery {
    ToReceiver(usize, Arc<[u8]>),
    ToSender(Vec<u8>),
    /// Over this connection.
    MessageToReceiver(u64, Vec<u8>),
    MessageToSender(u64, Vec<u8>),
    Connect(usize),
    SinkDone(usize, u32, u32, Vec<u8>),
}

struct Event {
    at: Duration,
    order: u64,
    delivery: Delivery,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

pub struct SimulatedReceiver {
    pub machine: Receiver,
    pub link: Link,
    pub chunks: Vec<Option<[u8; 32]>>,
    pub sessions: u32,
    pub finished_at: Option<Duration>,
    pub acknowledged: bool,
    /// Senders that it ignored.
    pub ignored: u32,
    sink_free_at: Duration,
    link_free_at: Duration,
    /// Datagrams that are still to be lost in a row.
    burst_left: u32,
    bad_seen: bool,
    /// Its connection to the sender; [`receiver_of`] says whose one is.
    pub connection: Option<u64>,
    /// Its number and the key of its datagrams, once it has joined.
    keys: Option<(u32, [u8; 32])>,
}

pub struct Room {
    pub now: Duration,
    pub sender: Sender,
    pub receivers: Vec<SimulatedReceiver>,
    pub description: SessionDescription,
    contents: Vec<Arc<[u8]>>,
    random: Random,
    queue: BinaryHeap<Reverse<Event>>,
    order: u64,
    /// Number of connections so far. Messages of those that have ended are lost.
    connections: u64,
    pub group_bytes: u64,
    /// Numbers of reports and of requests that receivers have sent.
    pub reports: u64,
    pub requests: u64,
    pub forger: Option<Forger>,
    /// A link that everything sent to the group passes first, and this cast's number there.
    pub uplink: Option<(Uplink, usize)>,
    /// Half of all threads that wake do so this much later than they should.
    pub late: Duration,
    /// When the threads of the sender and of the receivers run, or ran last.
    runs_at: Vec<Duration>,
    /// When the sender's thread must run.
    sender_due: Duration,
    seen: u64,
    /// The session key of the last WELCOME, for forgers.
    session_key: [u8; 32],
    trace: blake3::Hasher,
}

/// Most receivers of a room.
const RECEIVERS_MAX: u64 = 1000;

/// The number of the receiver with this connection.
pub fn receiver_of(connection: u64) -> usize {
    (connection % RECEIVERS_MAX) as usize
}

/// The packet number of a datagram.
pub fn packet_of(datagram: &[u8]) -> u64 {
    let mut number = [0; 8];
    number[..6].copy_from_slice(&datagram[8..14]);
    u64::from_le_bytes(number)
}

/// Appends the tag that a datagram has without a join key.
pub fn retag(datagram: &mut Vec<u8>, key: &[u8; 32]) {
    let tag = blake3::keyed_hash(key, datagram);
    datagram.extend_from_slice(&tag.as_bytes()[..16]);
}

/// The keys in a WELCOME: of the receiver, and of the session.
pub fn keys_of(welcome: &[u8]) -> ([u8; 32], [u8; 32]) {
    (welcome[10..42].try_into().unwrap(), welcome[42..74].try_into().unwrap())
}

pub fn description(lengths: Vec<u32>) -> SessionDescription {
    SessionDescription {
        secret: Default::default(),
        offer: Vec::new(),
        score: Score(BlockId([3; 32])),
        name: "lab/x".into(),
        segment_length: 1 << 36,
        segments: vec![Segment { chunks: lengths.len() as u32, recipe_chunks: 1 }],
        chunk_lengths: lengths,
    }
}

pub fn sender_options(seed: u8, rate: u64) -> SenderOptions {
    SenderOptions {
        seed: [seed; 32],
        join_key: None,
        rate_bits_per_second: rate,
        group: "239.255.1.1:7580".parse().unwrap(),
        join: "10.0.0.1:7580".parse().unwrap(),
        feedback: "10.0.0.1:9000".parse().unwrap(),
        wait_receivers: 1,
        wait: Duration::from_secs(5),
        linger: Duration::from_millis(500),
        give_up: Some(Duration::from_secs(60)),
        is_unlisted: false,
    }
}

impl Room {
    pub fn new(seed: u64, lengths: Vec<u32>, mut options: SenderOptions, links: &[Link]) -> Self {
        let join_key = options.join_key.clone();
        let early = links.iter().filter(|link| link.joins_at.is_zero()).count();
        options.wait_receivers = early as u32;
        let mut random = Random(seed * 2 + 1);
        let mut contents: Vec<Arc<[u8]>> = lengths
            .iter()
            .take(DISTINCT_MAX)
            .map(|length| (0..*length).map(|_| random.next() as u8).collect::<Vec<u8>>().into())
            .collect();
        for (number, length) in lengths.iter().enumerate().skip(DISTINCT_MAX) {
            let repeated = Arc::clone(&contents[number % DISTINCT_MAX]);
            assert_eq!(repeated.len(), *length as usize, "many chunks have one length");
            contents.push(repeated);
        }
        let description = description(lengths);
        let receivers = links.iter().enumerate().map(|(number, link)| SimulatedReceiver {
            machine: Receiver::new(ReceiverOptions {
                seed: seed ^ (number as u64 * 7919),
                wanted: Wanted::Name("lab/x".into()),
                filter: CastFilter::default(),
                join_key: join_key.clone(),
                nonce_seed: [number as u8; 32],
                hello: format!("pc{}", link.again.unwrap_or(number)),
                buffer_chunks: link.buffer_chunks,
                everything: link.wants_from == 0,
            }),
            link: *link,
            chunks: vec![None; contents.len()],
            sessions: 0,
            finished_at: None,
            acknowledged: false,
            ignored: 0,
            sink_free_at: Duration::ZERO,
            link_free_at: Duration::ZERO,
            burst_left: 0,
            bad_seen: false,
            connection: None,
            keys: None,
        });
        Self {
            now: Duration::ZERO,
            sender: Sender::new(options, &description).unwrap(),
            receivers: receivers.collect(),
            description,
            contents,
            random,
            queue: BinaryHeap::new(),
            order: 0,
            connections: 0,
            group_bytes: 0,
            reports: 0,
            requests: 0,
            forger: None,
            uplink: None,
            late: Duration::ZERO,
            runs_at: vec![Duration::ZERO; links.len() + 1],
            sender_due: Duration::ZERO,
            seen: 0,
            session_key: [0; 32],
            trace: blake3::Hasher::new(),
        }
    }

    fn push(&mut self, delay: Duration, delivery: Delivery) {
        self.order += 1;
        self.queue.push(Reverse(Event { at: self.now + delay, order: self.order, delivery }));
    }

    /// Bytes of the data datagrams that are needed without loss.
    pub fn least_bytes(&self) -> u64 {
        self.contents.iter().map(|bytes| bytes.len().div_ceil(1408) as u64 * 1448).sum()
    }

    pub fn trace(&self) -> String {
        self.trace.finalize().to_string()
    }

    fn is_alive(&self, number: usize) -> bool {
        let link = &self.receivers[number].link;
        let stopped = link.stopped.is_some_and(|(from, until)| (from..until).contains(&self.now));
        self.now >= link.joins_at && link.crashes_at.is_none_or(|at| self.now < at) && !stopped
    }

    /// Replaces the sender by one with another session that knows nothing.
    pub fn restart_sender(&mut self, options: SenderOptions) {
        self.sender = Sender::new(options, &self.description).unwrap();
        for receiver in &mut self.receivers {
            receiver.connection = None;
            receiver.machine.handle_disconnected(self.now);
        }
    }

    /// Ends a receiver's connection, if it has one, at both ends.
    pub fn disconnect(&mut self, number: usize) {
        if let Some(connection) = self.receivers[number].connection.take() {
            self.sender.handle_disconnect(connection);
            self.receivers[number].machine.handle_disconnected(self.now);
        }
    }

    /// Runs until all receivers that have not crashed are done, or until that time.
    pub fn run(&mut self, until: Duration) {
        while self.now < until && !self.all_done() {
            self.step();
        }
    }

    pub fn all_done(&self) -> bool {
        let is_done =
            |it: &SimulatedReceiver| it.acknowledged || it.link.crashes_at.is_some() || it.link.never_ends;
        self.receivers.iter().all(is_done)
    }

    pub fn step(&mut self) {
        while self.queue.peek().is_some_and(|Reverse(event)| event.at <= self.now) {
            if let Some(Reverse(event)) = self.queue.pop() {
                self.deliver(event.delivery);
            }
        }
        let has_run = self.late.is_zero() || self.runs_at[0] == self.now;
        if has_run || (self.sender_due <= self.now && self.runs(0)) {
            self.pump_sender();
            self.sender_due = self.sender.next_deadline(self.now);
        }
        for number in 0..self.receivers.len() {
            let is_due = self.receivers[number].machine.next_deadline().is_some_and(|at| at <= self.now);
            let has_run = self.late.is_zero() || self.runs_at[number + 1] == self.now;
            if self.is_alive(number) && (has_run || (is_due && self.runs(number + 1))) {
                self.pump_receiver(number);
            }
        }
        let mut next = self.sender_due.max(self.runs_at[0]);
        for number in 0..self.receivers.len() {
            if !self.is_alive(number) {
                let link = &self.receivers[number].link;
                if link.joins_at > self.now {
                    next = next.min(link.joins_at);
                }
                if let Some((_, until)) = link.stopped.filter(|(_, until)| *until > self.now) {
                    next = next.min(until);
                }
            } else if let Some(deadline) = self.receivers[number].machine.next_deadline() {
                next = next.min(deadline.max(self.runs_at[number + 1]));
            }
        }
        if let Some(Reverse(event)) = self.queue.peek() {
            next = next.min(event.at);
        }
        self.now = next.max(self.now + Duration::from_micros(1));
    }

    /// Returns whether this thread, which has something to do, runs now. If it sleeps, it wakes now or late.
    fn runs(&mut self, thread: usize) -> bool {
        if self.runs_at[thread] < self.now {
            let is_late = !self.late.is_zero() && self.random.chance(0.5);
            self.runs_at[thread] = self.now + if is_late { self.late } else { Duration::ZERO };
        }
        self.runs_at[thread] == self.now
    }

    fn deliver(&mut self, delivery: Delivery) {
        let now = self.now;
        let thread = match &delivery {
            Delivery::ToReceiver(number, _) => number + 1,
            Delivery::MessageToReceiver(connection, _) => receiver_of(*connection) + 1,
            Delivery::Connect(number) | Delivery::SinkDone(number, ..) => number + 1,
            Delivery::ToSender(_) | Delivery::MessageToSender(..) => 0,
        };
        if !self.runs(thread) {
            let delay = self.runs_at[thread] - now;
            self.push(delay, delivery);
            return;
        }
        match delivery {
            Delivery::ToReceiver(number, datagram) => {
                if self.is_alive(number) {
                    self.receivers[number].machine.handle_datagram(now, &datagram);
                }
            }
            Delivery::ToSender(datagram) => self.sender.handle_datagram(now, &datagram),
            Delivery::MessageToReceiver(connection, bytes) => {
                let number = receiver_of(connection);
                let stopped = self.receivers[number].link.stopped;
                if let Some((_, until)) = stopped.filter(|(from, until)| (*from..*until).contains(&now)) {
                    self.push(until - now, Delivery::MessageToReceiver(connection, bytes));
                } else if self.is_alive(number) && self.receivers[number].connection == Some(connection) {
                    let receiver = &mut self.receivers[number];
                    let mut buffer = MessageBuffer::default();
                    assert!(buffer.push(&bytes));
                    receiver.machine.handle_message(now, &buffer.next_message().unwrap());
                }
            }
            Delivery::MessageToSender(connection, bytes) => {
                let number = receiver_of(connection);
                if self.receivers[number].connection == Some(connection) {
                    let mut buffer = MessageBuffer::default();
                    assert!(buffer.push(&bytes));
                    let machine = self.receivers[number].link.again.unwrap_or(number);
                    let address = [10, 0, 1, machine as u8].into();
                    self.sender.handle_message(now, connection, address, &buffer.next_message().unwrap());
                }
            }
            Delivery::Connect(number) => {
                self.connections += 1;
                let connection = self.connections * RECEIVERS_MAX + number as u64;
                self.receivers[number].connection = Some(connection);
                self.receivers[number].machine.handle_connected(now);
            }
            Delivery::SinkDone(number, generation, index, bytes) => {
                self.sink(number, generation, index, bytes);
            }
        }
    }

    fn sink(&mut self, number: usize, generation: u32, index: u32, bytes: Vec<u8>) {
        let now = self.now;
        let right = blake3::hash(&bytes) == blake3::hash(&self.contents[index as usize]);
        let receiver = &mut self.receivers[number];
        if !right || (receiver.link.bad_chunk == Some(index) && !receiver.bad_seen) {
            receiver.bad_seen = true;
            receiver.machine.chunk_bad(now, generation, index, bytes).unwrap();
            return;
        }
        let recipe = self.description.recipe_chunks(0).end as usize;
        if receiver.link.wants_from == 0 && index as usize >= recipe {
            assert!(receiver.chunks[..recipe].iter().all(Option::is_some), "data before the recipe");
        }
        receiver.chunks[index as usize] = Some(*blake3::hash(&bytes).as_bytes());
        receiver.machine.chunk_accepted(generation, index, bytes);
        let statistics = receiver.machine.statistics();
        if statistics.done == statistics.wanted && receiver.finished_at.is_none() {
            receiver.finished_at = Some(now);
            receiver.machine.finish(now, Ok(self.description.score), 1);
        }
    }

    fn pump_sender(&mut self) {
        while let Some(index) = self.sender.poll_chunk_needed() {
            self.sender.handle_chunk(index, Arc::clone(&self.contents[index as usize])).unwrap();
        }
        let mut transmit = Transmit::new();
        while self.sender.poll_transmit(self.now, &mut transmit) {
            self.group_bytes += transmit.bytes.len() as u64;
            let datagrams: Vec<Arc<[u8]>> = transmit.datagrams().map(Arc::from).collect();
            for datagram in datagrams {
                self.trace.update(&datagram);
                self.multicast(&datagram);
                self.forge(&datagram);
            }
        }
        while let Some((connection, bytes)) = self.sender.poll_message() {
            let number = receiver_of(connection);
            // Type 2 is WELCOME. Encrypted ones start with other bytes, except by chance.
            if bytes[4..6] == [1, 2] && bytes.len() > 74 {
                let (own, session) = keys_of(&bytes);
                let id = u32::from_le_bytes([bytes[6], bytes[7], bytes[8], bytes[9]]);
                self.receivers[number].keys = Some((id, own));
                self.session_key = session;
            }
            let delay = self.receivers[number].link.delay;
            self.push(delay, Delivery::MessageToReceiver(connection, bytes));
        }
        while let Some(connection) = self.sender.poll_close() {
            self.sender.handle_disconnect(connection);
            if self.receivers[receiver_of(connection)].connection == Some(connection) {
                self.disconnect(receiver_of(connection));
            }
        }
    }

    /// Sends a forged datagram after this one if it is due.
    fn forge(&mut self, seen: &[u8]) {
        let Some(forger) = &mut self.forger else { return };
        self.seen += 1;
        if forger.left == 0 || !self.seen.is_multiple_of(forger.every) {
            return;
        }
        forger.left -= 1;
        let Forger { every, anywhere, lies, outdates, occupies, insider, .. } = *forger;
        let mut forged = seen[..18].to_vec();
        // The next number, which the sender has not used yet.
        let next = packet_of(seen) + 1 + every;
        forged[8..14].copy_from_slice(&next.to_le_bytes()[..6]);
        let kind = match (outdates, lies) {
            (true, _) => 2,
            (false, true) => self.random.next() % 3,
            (false, false) => 0,
        };
        if kind > 0 {
            let step =
                if outdates { 4_000_000 * (self.seen / every) } else { self.random.next() % (1 << 23) };
            let high = next + step;
            forged[8..14].copy_from_slice(&high.to_le_bytes()[..6]);
        }
        if occupies {
            forged[1] = 3;
            // Sent a second ago.
            let sent_us =
                u32::from_le_bytes([seen[14], seen[15], seen[16], seen[17]]).wrapping_sub(1_000_000);
            forged[14..18].copy_from_slice(&sent_us.to_le_bytes());
        } else if kind > 1 {
            // A plan: nothing is pending, and one chunk ended long ago with all of its repair symbols.
            forged[1] = 3;
            forged.extend([0; 10]);
            forged.extend([1, 0, 0, 0]);
            // It counts on any number of free buffers.
            forged.extend([0xff; 4]);
            forged.extend(((self.random.next() % 20) as u32).to_le_bytes());
            forged.extend([0xff; 10]);
        } else {
            let of_data = seen[1] == 2 && !anywhere;
            let random_chunk = (self.random.next() % (self.contents.len() as u64 + 1)) as u32;
            let chunk = if of_data {
                u32::from_le_bytes([seen[18], seen[19], seen[20], seen[21]])
            } else {
                random_chunk
            };
            forged[1] = 2;
            forged.extend(chunk.to_le_bytes());
            forged.extend(((self.random.next() % 1024) as u16).to_le_bytes());
            forged.extend((0..1408).map(|_| self.random.next() as u8));
        }
        if insider {
            retag(&mut forged, &self.session_key);
        } else {
            forged.extend([7; 16]);
        }
        self.multicast(&forged.into());
    }

    fn multicast(&mut self, datagram: &Arc<[u8]>) {
        let passed_at = match &self.uplink {
            Some((link, flow)) => link.borrow_mut().pass(*flow, self.now, datagram.len() + OVERHEAD),
            None => Some(self.now),
        };
        let Some(passed_at) = passed_at else { return };
        for number in 0..self.receivers.len() {
            let link = self.receivers[number].link;
            let left = &mut self.receivers[number].burst_left;
            if *left == 0 && self.random.chance(link.loss / f64::from(link.burst)) {
                *left = link.burst;
            }
            if *left > 0 {
                *left -= 1;
                continue;
            }
            let queued = link.bits_per_second.map(|rate| {
                let time = |bytes: u64| Duration::from_nanos(bytes * 8 * 1_000_000_000 / rate);
                let free_at = self.receivers[number].link_free_at.max(passed_at);
                let is_full = free_at > passed_at + time(QUEUE_BYTES);
                (free_at + time((datagram.len() + OVERHEAD) as u64), is_full)
            });
            if queued.is_some_and(|(_, is_full)| is_full) {
                continue;
            }
            let arrives_at = queued.map_or(passed_at, |(at, _)| at);
            self.receivers[number].link_free_at = arrives_at;
            let copies = 1 + usize::from(self.random.chance(link.doubled));
            for _ in 0..copies {
                let jitter = self.random.next() % (link.jitter.as_nanos() as u64 + 1);
                self.push(
                    arrives_at - self.now + link.delay + Duration::from_nanos(jitter),
                    Delivery::ToReceiver(number, Arc::clone(datagram)),
                );
            }
        }
    }

    /// Puts a request for all symbols of eight chunks in the place of a datagram.
    fn demand(&self, number: usize, datagram: &mut Vec<u8>) {
        let Some((id, key)) = self.receivers[number].keys else { return };
        datagram.truncate(18);
        datagram[1] = REQUEST;
        datagram.extend(id.to_le_bytes());
        datagram.extend([0xff; 6]);
        datagram.extend(8u16.to_le_bytes());
        for chunk in 2..10u32 {
            datagram.push(3);
            datagram.extend(chunk.to_le_bytes());
            datagram.extend((1023u32 << 16).to_le_bytes());
        }
        retag(datagram, &key);
    }

    fn pump_receiver(&mut self, number: usize) {
        let now = self.now;
        while let Some(event) = self.receivers[number].machine.poll_event() {
            self.handle_event(number, event);
        }
        let link = self.receivers[number].link;
        let mut datagram = Vec::new();
        while let Some(to) = self.receivers[number].machine.poll_transmit(now, &mut datagram) {
            let feedback: SocketAddr = "10.0.0.1:9000".parse().unwrap();
            assert_eq!(to, feedback);
            if link.demands && packet_of(&datagram) % 2 == 1 {
                self.demand(number, &mut datagram);
            }
            self.trace.update(&datagram);
            self.reports += u64::from(datagram[1] == REPORT);
            self.requests += u64::from(datagram[1] == REQUEST);
            if !self.random.chance(link.loss) {
                self.push(link.delay, Delivery::ToSender(datagram.clone()));
            }
        }
        while let Some(bytes) = self.receivers[number].machine.poll_message() {
            if let Some(connection) = self.receivers[number].connection {
                self.push(link.delay, Delivery::MessageToSender(connection, bytes));
            }
        }
        // What became of time alone.
        while let Some(event) = self.receivers[number].machine.poll_event() {
            self.handle_event(number, event);
        }
    }

    fn handle_event(&mut self, number: usize, event: ReceiverEvent) {
        let link = self.receivers[number].link;
        match event {
            ReceiverEvent::Connect { .. } | ReceiverEvent::Reconnect => {
                self.push(link.delay, Delivery::Connect(number));
            }
            ReceiverEvent::Session(description) => {
                let receiver = &mut self.receivers[number];
                assert_eq!(description, self.description);
                receiver.sessions += 1;
                let wanted: Vec<_> = (0..receiver.chunks.len() as u32)
                    .filter(|index| *index >= link.wants_from && receiver.chunks[*index as usize].is_none())
                    .map(|index| index..index + 1)
                    .collect();
                receiver.machine.want(self.now, &wanted);
            }
            ReceiverEvent::Chunk { generation, index, bytes } => {
                let mut start = self.receivers[number].sink_free_at.max(self.now);
                if let Some((_, until)) =
                    link.disk_hangs.filter(|(from, until)| (*from..*until).contains(&start))
                {
                    start = until;
                }
                self.receivers[number].sink_free_at = start + link.sink_time;
                let delay = start + link.sink_time - self.now;
                self.push(delay, Delivery::SinkDone(number, generation, index, bytes));
            }
            ReceiverEvent::Refused(reason) | ReceiverEvent::Unusable(reason) => panic!("refused: {reason}"),
            ReceiverEvent::Ignored { .. } => self.receivers[number].ignored += 1,
            ReceiverEvent::SenderLost | ReceiverEvent::Forgotten => {
                self.disconnect(number);
                self.receivers[number].machine.handle_disconnected(self.now);
            }
            ReceiverEvent::Acknowledged => self.receivers[number].acknowledged = true,
            ReceiverEvent::Joined(_) => {}
        }
    }

    /// Checks that every receiver that did not crash has exactly the sender's bytes of all chunks that it wanted.
    pub fn assert_identical(&self) {
        for (number, receiver) in self.receivers.iter().enumerate() {
            if receiver.link.crashes_at.is_some() || receiver.link.never_ends {
                continue;
            }
            let statistics = receiver.machine.statistics();
            assert!(receiver.acknowledged, "receiver {number} is not done at {:?}: {statistics:?}", self.now);
            for (index, contents) in self.contents.iter().enumerate().skip(receiver.link.wants_from as usize)
            {
                let hash = blake3::hash(contents);
                assert_eq!(
                    receiver.chunks[index].as_ref(),
                    Some(hash.as_bytes()),
                    "receiver {number}, chunk {index}"
                );
            }
        }
    }
}
