//! A very large simulated room: one sender and thousands of receivers, of which some are slow, crash, join late or are hostile.
//!
//! Unlike the [simulated room](../simulated), time passes in steps of a millisecond, and every datagram reaches all receivers at
//! once, so a step costs little for each receiver. Owns the virtual clock. Must never use anything that the seed does not determine.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "a part of test binaries")]

mod hostile;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use hostile::FORGED_NAMES;
use hostile::Hostile;
use platter_cast::{
    CastFilter, Receiver, ReceiverEvent, ReceiverOptions, Sender, SessionDescription, Transmit, Wanted,
};

use super::simulated::{Random, description, keys_of, sender_options};

/// Length of a step.
pub const STEP: Duration = Duration::from_millis(1);
/// Data datagrams a second.
const PACKETS_PER_SECOND: u64 = 8_000;
/// Source symbols of a chunk: enough for the largest loss of 10,000 receivers to cost under 5 %.
const CHUNK_SYMBOLS: usize = 300;
const SYMBOL_BYTES: usize = platter_cast::SYMBOL_BYTES;
/// Time of a chunk on the wire.
const CHUNK_TIME: Duration = Duration::from_micros(CHUNK_SYMBOLS as u64 * 1_000_000 / PACKETS_PER_SECOND);
/// A slow link takes a quarter of the datagrams in each step, and queues some.
const LINK_PACKETS: u64 = PACKETS_PER_SECOND / 4 / 1000;
const LINK_QUEUE: u64 = 180;
/// Receivers with a higher number lose their connections when they have joined, as when a sender has too many.
const CONNECTIONS: usize = 1000;
const LOSS: f64 = 0.01;
const BUFFERS: usize = 12;
/// How many of 1,000 receivers are of each kind; at least one.
const SLOW_LINKS: usize = 5;
const SLOW_DISKS: usize = 5;
const HOSTILE: usize = 1;
const CRASHES: usize = 5;
const LATE: usize = 5;
/// Types of datagrams.
pub const DATA: u8 = 2;
pub const REQUEST: u8 = 4;
pub const REPORT: u8 = 5;

/// What a receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Normal,
    /// A quarter of the datagrams fit through its link.
    SlowLink,
    /// Its disk takes four times as long as the wire.
    SlowDisk,
    /// It falls silent; its connection ends, or does not.
    Crashes {
        at: Duration,
        disconnects: bool,
    },
    Late {
        at: Duration,
    },
    Hostile,
}

struct Member {
    role: Role,
    /// `None` once it is done, or has crashed.
    machine: Option<Receiver>,
    hostile: Option<Hostile>,
    sink_free_at: Duration,
    sink: Vec<(Duration, u32, u32, Vec<u8>)>,
    /// Datagrams that its link can still take, if it is slow.
    link: u64,
    wake_at: Duration,
    chunks: usize,
    finished_at: Option<Duration>,
    is_done: bool,
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Counts {
    /// Data datagrams of each content chunk before it is sent from its start again, until 99 % of the normal receivers are done.
    pub first_pass: Vec<u64>,
    starts: Vec<u32>,
    pub data_datagrams: u64,
    pub datagrams: u64,
    /// Bytes of the datagrams without data.
    pub other_bytes: u64,
    /// Reports and requests of honest receivers, by tenth of a second.
    pub reports: Vec<u32>,
    pub requests: Vec<u32>,
    /// Plans that hostile receivers have forged. Each names a few receivers, which then report.
    pub forged_plans: u32,
    /// Time that the sender's machine took.
    pub sender_time: Duration,
    pub sender_steps: u64,
}

pub struct Crowd {
    pub now: Duration,
    pub sender: Sender,
    members: Vec<Member>,
    contents: Vec<Arc<[u8]>>,
    description: SessionDescription,
    random: Random,
    to_sender: Vec<Vec<u8>>,
    messages_to_sender: Vec<(usize, Vec<u8>)>,
    forged: Vec<(Vec<u8>, bool)>,
    pub counts: Counts,
}

impl Crowd {
    pub fn new(seed: u64, receivers: usize, chunks: usize) -> Self {
        let mut random = Random(seed * 2 + 1);
        let length = (CHUNK_SYMBOLS * SYMBOL_BYTES) as u32;
        let mut lengths = vec![length; chunks];
        lengths[0] = 3 * SYMBOL_BYTES as u32;
        let contents: Vec<Arc<[u8]>> = lengths
            .iter()
            .map(|length| (0..*length).map(|_| random.next() as u8).collect::<Vec<u8>>().into())
            .collect();
        let mut roles = roles(receivers, chunks as u32, joins_during_cast(seed), &mut random);
        let early = roles.iter().filter(|role| !matches!(role, Role::Late { .. })).count();
        let datagram_bits = (SYMBOL_BYTES as u64 + 40 + 66) * 8;
        let mut options = sender_options(seed as u8, PACKETS_PER_SECOND * datagram_bits);
        options.wait_receivers = early as u32;
        options.wait = Duration::from_secs(1);
        let description = description(lengths);
        let members = roles.drain(..).enumerate().map(|(number, role)| Member {
            role,
            machine: Some(Receiver::new(ReceiverOptions {
                seed: seed ^ (number as u64 * 7919),
                wanted: Wanted::Name("lab/x".into()),
                filter: CastFilter::default(),
                join_key: None,
                nonce_seed: [number as u8; 32],
                hello: format!("pc{number}"),
                buffer_chunks: BUFFERS,
                everything: true,
            })),
            hostile: (role == Role::Hostile).then(|| Hostile::new(random.next())),
            sink_free_at: Duration::ZERO,
            sink: Vec::new(),
            link: 0,
            wake_at: Duration::ZERO,
            chunks: 0,
            finished_at: None,
            is_done: false,
        });
        let members = members.collect();
        let counts = Counts { first_pass: vec![0; chunks], starts: vec![0; chunks], ..Counts::default() };
        Self {
            now: Duration::ZERO,
            sender: Sender::new(options, &description).unwrap(),
            members,
            contents,
            description,
            random,
            to_sender: Vec::new(),
            messages_to_sender: Vec::new(),
            forged: Vec::new(),
            counts,
        }
    }

    /// Runs until all receivers that can finish are done.
    pub fn run(&mut self, until: Duration) {
        while self.now < until && !self.members.iter().all(|it| it.is_done || !must_finish(it.role)) {
            self.step();
        }
    }

    fn step(&mut self) {
        let datagrams = self.step_sender();
        // When nearly all normal ones are done, the slow ones get their turn.
        let open = self.members.iter().filter(|it| it.role == Role::Normal && !it.is_done).count();
        if open > self.members.len() / 100 {
            datagrams.iter().for_each(|datagram| self.counts.count(datagram));
        }
        let forged = std::mem::take(&mut self.forged);
        self.counts.forged_plans += forged.iter().filter(|(_, is_for_all)| *is_for_all).count() as u32;
        for number in 0..self.members.len() {
            self.step_member(number, &datagrams, &forged);
        }
        self.now += STEP;
    }

    /// Lets the sender take what has arrived. Returns what it sends.
    fn step_sender(&mut self) -> Vec<Vec<u8>> {
        let began = Instant::now();
        for datagram in std::mem::take(&mut self.to_sender) {
            self.sender.handle_datagram(self.now, &datagram);
        }
        for (number, message) in std::mem::take(&mut self.messages_to_sender) {
            let address = [10, (number >> 16) as u8, (number >> 8) as u8, number as u8].into();
            self.sender.handle_message(self.now, number as u64, address, &message[4..]);
        }
        while let Some(index) = self.sender.poll_chunk_needed() {
            self.sender.handle_chunk(index, Arc::clone(&self.contents[index as usize])).unwrap();
        }
        let mut transmit = Transmit::new();
        let mut datagrams = Vec::new();
        while self.sender.poll_transmit(self.now, &mut transmit) {
            datagrams.extend(transmit.datagrams().map(<[u8]>::to_vec));
        }
        let mut messages = Vec::new();
        while let Some(message) = self.sender.poll_message() {
            messages.push(message);
        }
        self.counts.sender_time += began.elapsed();
        self.counts.sender_steps += 1;
        for (number, message) in messages {
            let member = &mut self.members[number as usize];
            if let Some(hostile) = member.hostile.as_mut().filter(|_| message[4..6] == [1, 2]) {
                hostile.welcomed(&message, keys_of(&message));
            }
            let is_welcome = message[4..6] == [1, 2];
            if let Some(machine) = &mut member.machine {
                machine.handle_message(self.now, &message[4..]);
                member.wake_at = self.now;
                if is_welcome && number as usize >= CONNECTIONS {
                    machine.handle_disconnected(self.now);
                    self.sender.handle_disconnect(number);
                }
            }
        }
        datagrams
    }

    fn step_member(&mut self, number: usize, datagrams: &[Vec<u8>], forged: &[(Vec<u8>, bool)]) {
        let now = self.now;
        let member = &mut self.members[number];
        match member.role {
            Role::Late { at } if now < at => return,
            Role::Crashes { at, disconnects } if now >= at && member.machine.is_some() => {
                member.machine = None;
                if disconnects {
                    self.sender.handle_disconnect(number as u64);
                }
            }
            _ => {}
        }
        let Some(machine) = &mut member.machine else { return };
        let mut is_awake = now >= member.wake_at;
        member.link = (member.link + LINK_PACKETS).min(LINK_QUEUE);
        for datagram in datagrams {
            if self.random.chance(LOSS) {
                continue;
            }
            if member.role == Role::SlowLink {
                let Some(left) = member.link.checked_sub(1) else { continue };
                member.link = left;
            }
            is_awake |= datagram[1] != DATA;
            machine.handle_datagram(now, datagram);
        }
        if let (Some(hostile), Some(newest)) = (&mut member.hostile, datagrams.last()) {
            hostile.saw_sent(newest);
        }
        for (datagram, is_for_all) in forged {
            if *is_for_all || number.is_multiple_of(1000) {
                machine.handle_datagram(now, datagram);
                is_awake = true;
            }
        }
        while let Some(at) = member.sink.iter().position(|(done_at, ..)| *done_at <= now) {
            let (_, generation, index, bytes) = member.sink.swap_remove(at);
            is_awake = true;
            if bytes[..] == self.contents[index as usize][..] {
                member.chunks += 1;
                machine.chunk_accepted(generation, index, bytes);
            } else {
                machine.chunk_bad(now, generation, index, bytes).unwrap();
            }
            let statistics = machine.statistics();
            if statistics.done == statistics.wanted && member.finished_at.is_none() {
                member.finished_at = Some(now);
                machine.finish(now, Ok(self.description.score), 1);
            }
        }
        while let Some(event) = self.members[number].machine.as_mut().and_then(Receiver::poll_event) {
            is_awake = true;
            self.handle_event(number, event);
        }
        if is_awake {
            self.speak(number);
        }
    }

    fn handle_event(&mut self, number: usize, event: ReceiverEvent) {
        let now = self.now;
        let member = &mut self.members[number];
        let Some(machine) = &mut member.machine else { return };
        match event {
            ReceiverEvent::Connect { .. } | ReceiverEvent::Reconnect => machine.handle_connected(now),
            ReceiverEvent::Session(session) => assert!(machine.want(now, &[session.all_chunks()])),
            ReceiverEvent::Chunk { generation, index, bytes } => {
                let time = if member.role == Role::SlowDisk { CHUNK_TIME * 4 } else { CHUNK_TIME / 4 };
                member.sink_free_at = member.sink_free_at.max(now) + time;
                member.sink.push((member.sink_free_at, generation, index, bytes));
            }
            ReceiverEvent::Acknowledged => {
                // Its connection ends, as that of a program that ends.
                (member.is_done, member.machine) = (true, None);
                self.sender.handle_disconnect(number as u64);
            }
            // It has used the numbers of its datagrams for lies.
            ReceiverEvent::Refused(_) if member.hostile.is_some() => {}
            ReceiverEvent::SenderLost | ReceiverEvent::Forgotten => {
                panic!("receiver {number} lost the sender")
            }
            ReceiverEvent::Refused(reason) | ReceiverEvent::Unusable(reason) => {
                panic!("receiver {number}: {reason}")
            }
            ReceiverEvent::Joined(_) | ReceiverEvent::Ignored { .. } => {}
        }
    }

    /// Takes what a receiver sends.
    fn speak(&mut self, number: usize) {
        let now = self.now;
        let tenth = (now.as_millis() / 100) as usize;
        let member = &mut self.members[number];
        let Some(machine) = &mut member.machine else { return };
        let mut datagram = Vec::new();
        while machine.poll_transmit(now, &mut datagram).is_some() {
            if let Some(hostile) = &mut member.hostile {
                // It says what it wants instead.
                hostile.saw(&datagram);
                continue;
            }
            let counts =
                if datagram[1] == REPORT { &mut self.counts.reports } else { &mut self.counts.requests };
            counts.resize(counts.len().max(tenth + 1), 0);
            counts[tenth] += 1;
            if !self.random.chance(LOSS) {
                self.to_sender.push(datagram.clone());
            }
        }
        if let Some(hostile) = &mut member.hostile {
            self.to_sender.extend(hostile.speak(now, self.description.chunk_lengths.len() as u32));
            self.forged.extend(hostile.forge(now));
        }
        while let Some(message) = machine.poll_message() {
            self.messages_to_sender.push((number, message));
        }
        // Data changes no deadline by less than that, and everything else wakes it.
        let deadline = machine.next_deadline().unwrap_or(Duration::MAX);
        let hostile = member.hostile.is_some();
        member.wake_at = if hostile { now + STEP } else { deadline.min(now + STEP * 50) };
    }

    pub fn assert_verified(&self) {
        for (number, member) in self.members.iter().enumerate() {
            let is_right = member.is_done && member.chunks == self.contents.len();
            assert!(
                is_right || !must_finish(member.role),
                "receiver {number}, {:?}, at {:?}: {:?}",
                member.role,
                self.now,
                member.machine.as_ref().map(Receiver::statistics)
            );
        }
    }

    /// How many normal receivers finished more than a tenth later than half of them did.
    pub fn stragglers(&self) -> usize {
        let normal = self.members.iter().filter(|it| it.role == Role::Normal);
        let mut times: Vec<Duration> = normal.filter_map(|it| it.finished_at).collect();
        times.sort_unstable();
        let typical = times.get(times.len() / 2).copied().unwrap_or_default();
        times.iter().filter(|time| **time > typical * 11 / 10).count()
    }

    /// When the last receiver of a kind was done.
    pub fn last_done(&self, is_kind: impl Fn(Role) -> bool) -> Duration {
        let of_kind = self.members.iter().filter(|it| is_kind(it.role));
        of_kind.filter_map(|it| it.finished_at).max().unwrap_or_default()
    }
}

fn must_finish(role: Role) -> bool {
    !matches!(role, Role::Crashes { .. } | Role::Hostile)
}

/// Whether receivers join late while the first pass is being sent. What they miss of each chunk is then sent with its repair.
pub fn joins_during_cast(seed: u64) -> bool {
    seed.is_multiple_of(4)
}

/// Returns the roles of so many receivers, mixed.
fn roles(receivers: usize, chunks: u32, during_cast: bool, random: &mut Random) -> Vec<Role> {
    let cast = CHUNK_TIME * chunks;
    let mut roles = vec![Role::Normal; receivers];
    let mut some = |count: usize, role: &mut dyn FnMut(&mut Random) -> Role| {
        for _ in 0..(receivers * count / 1000).max(1) {
            let at = random.next() as usize % receivers;
            roles[at] = role(random);
        }
    };
    some(SLOW_LINKS, &mut |_| Role::SlowLink);
    some(SLOW_DISKS, &mut |_| Role::SlowDisk);
    some(CRASHES, &mut |random| {
        // After the start, which waits for all.
        let at = cast.mul_f64((random.next() % 1000) as f64 / 1000.0) + STEP * 600;
        Role::Crashes { at, disconnects: random.chance(0.5) }
    });
    some(LATE, &mut |random| {
        let part = (random.next() % 800) as f64 / 1000.0 + if during_cast { 0.0 } else { 1.5 };
        Role::Late { at: cast.mul_f64(part) + STEP * 200 }
    });
    some(HOSTILE, &mut |_| Role::Hostile);
    roles
}

impl Counts {
    fn count(&mut self, datagram: &[u8]) {
        self.datagrams += 1;
        if datagram[1] != DATA {
            self.other_bytes += datagram.len() as u64;
            return;
        }
        self.data_datagrams += 1;
        let chunk = u32::from_le_bytes([datagram[18], datagram[19], datagram[20], datagram[21]]);
        // Chunk 0 is the directory.
        let Some(index) = (chunk as usize).checked_sub(1) else { return };
        self.starts[index] += u32::from(datagram[22..24] == [0, 0]);
        if self.starts[index] <= 1 {
            self.first_pass[index] += 1;
        }
    }

    /// Data datagrams of the first pass, and bytes of all other datagrams, relative to each symbol sent once.
    pub fn traffic(&self, chunks: usize) -> (f64, f64) {
        let least = ((chunks - 1) * CHUNK_SYMBOLS + 3) as f64;
        (self.first_pass.iter().sum::<u64>() as f64 / least, self.other_bytes as f64 / 1448.0 / least)
    }
}
