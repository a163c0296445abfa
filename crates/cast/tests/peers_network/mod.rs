//! A simulated network of nodes and an origin: links with rate and delay, boots, failures and liars, by seed.
//!
//! Owns a virtual clock and a queue of events. Must never use anything that the seed does not determine.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "a part of a test binary")]

mod node;
mod plan;
mod universe;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use platter_cast::peer::{
    Ask, ExchangeEvent, Failure, NodeId, PIECE_TIME_MAX, PeerMessage, ScheduleEvent, ScheduleStatistics,
    Source, Want,
};
use platter_image::{BlockId, Kind, Score};

pub use node::{Boot, Character, Node, Waiter};
pub use plan::Plan;
pub use universe::{FRAME_SCALE, Universe, decode};

/// Bytes of an HTTP request, and of a response's head, at the origin; and of the TCP/IP headers of each message.
const ORIGIN_HEAD_BYTES: u64 = 300;
const PACKET_BYTES: u64 = 54;
/// Time that a guest computes between reads.
const THINK: Duration = Duration::from_millis(4);
/// Interval at which nodes look for neighbours.
const TICK: Duration = Duration::from_secs(5);
/// Time until a stream to a peer that vanished silently is noticed.
const SILENT_END: Duration = Duration::from_secs(15);
const DOWN: Duration = Duration::from_secs(60);

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the time to the next event of a Poisson process.
    pub fn interval(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.unit()).ln())
    }
}

#[derive(Clone, Copy, Default)]
struct Link {
    up_free: Duration,
    down_free: Duration,
}

enum Event {
    Message {
        from: usize,
        to: usize,
        lives: (u32, u32),
        message: PeerMessage,
    },
    OriginAsked {
        node: usize,
        life: u32,
        request: u32,
        ids: Vec<BlockId>,
    },
    /// A frame of the origin reaches a node's link. Only now it takes time on that link.
    OriginSent {
        node: usize,
        life: u32,
        request: u32,
        frame: u32,
    },
    OriginFrame {
        node: usize,
        life: u32,
        request: u32,
        frame: u32,
    },
    OriginEndSent {
        node: usize,
        life: u32,
        request: u32,
        missing: Vec<BlockId>,
    },
    OriginEnd {
        node: usize,
        life: u32,
        request: u32,
        missing: Vec<BlockId>,
    },
    Connect {
        from: usize,
        to: usize,
        lives: (u32, u32),
    },
    Disconnected {
        node: usize,
        life: u32,
        gone: usize,
        gone_life: u32,
    },
    Boot {
        node: usize,
        image: usize,
    },
    Continue {
        node: usize,
        life: u32,
        boot: usize,
    },
    Wake {
        node: usize,
        life: u32,
    },
    Tick {
        node: usize,
    },
    Fail {
        node: usize,
    },
    Recover {
        node: usize,
    },
}

struct Due {
    at: Duration,
    order: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Counters of a run.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Bytes that the origin sent, as on a link.
    pub origin_bytes: u64,
    /// Bytes of frames that nodes sent each other, and of filters.
    pub peer_bytes: u64,
    pub filter_bytes: u64,
    /// Bytes of frames that nodes received: without peers, the origin would send all of them.
    pub held_bytes: u64,
    /// Duration of each read that was not held.
    pub fetches: Vec<Duration>,
    pub failed_reads: u64,
    /// Frames that were accepted but differ from the origin's.
    pub wrong_frames: u64,
    pub failures: u64,
    pub boots_done: usize,
}

pub struct Network {
    pub now: Duration,
    pub plan: Plan,
    pub universe: Universe,
    pub nodes: Vec<Node>,
    pub counts: Counts,
    links: Vec<Link>,
    origin_free: Duration,
    random: Random,
    events: BinaryHeap<Reverse<Due>>,
    order: u64,
    open_boots: usize,
    streams: BTreeSet<(usize, usize)>,
}

fn number_of(node: NodeId) -> usize {
    let (number, _) = node.0.split_first_chunk().unwrap();
    u64::from_be_bytes(*number) as usize
}

fn score() -> Score {
    Score(BlockId([5; 32]))
}

impl Network {
    pub fn new(plan: Plan, universe: Universe) -> Self {
        let mut random = Random(plan.seed);
        // The machines see 1/64 of the bytes on the links.
        let share = plan.node_bits_per_second / FRAME_SCALE;
        let liars = (plan.nodes as f64 * plan.lying).ceil() as usize;
        let kinds = [Character::WrongBytes, Character::Hangs, Character::ClaimsAll];
        let mut nodes: Vec<Node> = (0..plan.nodes)
            .map(|number| {
                let character = if number < liars { kinds[number % kinds.len()] } else { Character::Honest };
                Node::new(number, random.next(), share, plan.bytes_in_flight_max, plan.homes, character)
            })
            .collect();
        for node in nodes.iter_mut().filter(|node| node.character == Character::ClaimsAll) {
            universe.ids.iter().for_each(|id| node.exchange.hold(id));
        }
        let mut network = Self {
            now: Duration::ZERO,
            links: vec![Link::default(); plan.nodes],
            counts: Counts::default(),
            origin_free: Duration::ZERO,
            events: BinaryHeap::new(),
            order: 0,
            open_boots: 0,
            streams: BTreeSet::new(),
            universe,
            nodes,
            random,
            plan,
        };
        for node in 0..network.plan.nodes {
            network.introduce(node);
            network.schedule_boots(node);
            let first = Duration::from_millis(network.random.below(200));
            network.push(first, Event::Tick { node });
        }
        network.schedule_failure();
        network
    }

    /// Tells a node about all others, as the origin does.
    fn introduce(&mut self, node: usize) {
        let ids: Vec<NodeId> = self.nodes.iter().map(|node| node.id).collect();
        ids.into_iter().for_each(|id| self.nodes[node].scheduler.add_peer(id));
    }

    fn schedule_boots(&mut self, node: usize) {
        let mut after = Duration::ZERO;
        for _ in 0..self.plan.boots {
            after += self.random.interval(self.plan.boot_interval);
            let image = self.random.below(self.universe.images.len() as u64) as usize;
            self.push(after, Event::Boot { node, image });
            self.open_boots += 1;
        }
    }

    fn schedule_failure(&mut self) {
        if self.plan.failing > 0.0 {
            let mean = Duration::from_secs(60).div_f64(self.plan.failing * self.plan.nodes as f64);
            let after = self.random.interval(mean);
            let node = self.random.below(self.plan.nodes as u64) as usize;
            self.push(after, Event::Fail { node });
        }
    }

    fn push(&mut self, after: Duration, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Due { at: self.now + after, order: self.order, event }));
    }

    /// Runs until every boot has ended.
    pub fn run(&mut self, limit: Duration) {
        while self.open_boots > 0 {
            let Some(Reverse(Due { at, event, .. })) = self.events.pop() else { break };
            assert!(at <= limit, "{} boots have not ended at {at:?}", self.open_boots);
            self.now = at;
            self.handle(event);
        }
    }

    fn is_alive(&self, node: usize, life: u32) -> bool {
        self.nodes[node].is_up && self.nodes[node].life == life
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Message { from, to, lives, message } => {
                if self.is_alive(to, lives.1)
                    && self.streams.contains(&pair(from, to))
                    && self.nodes[from].life == lives.0
                {
                    self.deliver(from, to, message);
                    self.pump(to);
                }
            }
            Event::OriginAsked { node, life, request, ids } => self.origin_answers(node, life, request, &ids),
            Event::OriginSent { node, life, request, frame } => {
                let bytes = self.universe.frames[frame as usize].len() as u64 * FRAME_SCALE + PACKET_BYTES;
                let time = Duration::from_nanos(bytes * 8_000_000_000 / self.plan.node_bits_per_second);
                let free = &mut self.links[node].down_free;
                *free = self.now.max(*free + time);
                let after = *free - self.now;
                self.push(after, Event::OriginFrame { node, life, request, frame });
            }
            Event::OriginFrame { node, life, request, frame } => {
                if self.is_alive(node, life) {
                    let bytes = Arc::clone(&self.universe.frames[frame as usize]);
                    self.take_frame(node, None, request, &bytes);
                    self.pump(node);
                }
            }
            Event::OriginEndSent { node, life, request, missing } => {
                let after = self.links[node].down_free.saturating_sub(self.now);
                self.push(after, Event::OriginEnd { node, life, request, missing });
            }
            Event::OriginEnd { node, life, request, missing } => {
                if self.is_alive(node, life) {
                    self.nodes[node].scheduler.handle_answered(self.now, request, &missing, None);
                    self.pump(node);
                }
            }
            Event::Connect { from, to, lives } => self.connect(from, to, lives),
            Event::Disconnected { node, life, gone, gone_life } => {
                let is_back = self.nodes[gone].life != gone_life && self.streams.contains(&pair(node, gone));
                if self.is_alive(node, life) && !is_back {
                    self.disconnected(node, gone);
                    self.pump(node);
                }
            }
            Event::Boot { node, image } => self.begin_boot(node, image),
            Event::Continue { node, life, boot } => {
                if self.is_alive(node, life) {
                    self.read_on(node, boot);
                    self.pump(node);
                }
            }
            Event::Wake { node, life } => {
                if self.is_alive(node, life) {
                    self.nodes[node].wake_at = None;
                    self.pump(node);
                }
            }
            Event::Tick { node } => {
                self.tick(node);
                self.push(TICK, Event::Tick { node });
            }
            Event::Fail { node } => self.fail(node),
            Event::Recover { node } => self.recover(node),
        }
    }

    fn tick(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.is_up {
            for peer in node.scheduler.neighbours_wanted(self.now, self.plan.neighbours) {
                node.exchange.subscribe(peer, true);
            }
            self.pump(number);
        }
    }

    /// Returns when that many bytes from one link have passed the other.
    fn transmit(&mut self, from: Option<usize>, to: Option<usize>, bytes: u64) -> Duration {
        let time = |bits_per_second: u64| Duration::from_nanos(bytes * 8_000_000_000 / bits_per_second);
        let (node_time, origin_time) =
            (time(self.plan.node_bits_per_second), time(self.plan.origin_bits_per_second));
        let now = self.now;
        let sent = match from {
            Some(from) => {
                let free = &mut self.links[from].up_free;
                *free = now.max(*free) + node_time;
                *free
            }
            None => {
                self.origin_free = now.max(self.origin_free) + origin_time;
                self.origin_free
            }
        };
        // Both links are busy at the same time, because bytes flow through.
        let arrives = sent + self.plan.delay;
        match to {
            Some(to) => {
                let free = &mut self.links[to].down_free;
                *free = arrives.max(*free + node_time);
                *free
            }
            None => arrives,
        }
    }

    fn send(&mut self, from: usize, to: usize, message: PeerMessage) {
        let bytes = match &message {
            PeerMessage::Frame { frame, .. } => {
                let bytes = frame.len() as u64 * FRAME_SCALE;
                self.counts.peer_bytes += bytes;
                bytes
            }
            PeerMessage::Filter(_) | PeerMessage::Changes(_) => {
                let bytes = message.head().len() as u64;
                self.counts.filter_bytes += bytes;
                bytes
            }
            // Approximate lengths: exact ones are not worth the time of encoding.
            PeerMessage::Ask(ask) => 80 + 32 * ask.ids.len() as u64,
            _ => 32,
        };
        let at = self.transmit(Some(from), Some(to), bytes + PACKET_BYTES);
        let lives = (self.nodes[from].life, self.nodes[to].life);
        let message = if self.plan.through_bytes {
            let parsed = PeerMessage::parse(&message.to_bytes()[4..]).unwrap();
            assert_eq!(parsed, message);
            parsed
        } else {
            message
        };
        self.push(at - self.now, Event::Message { from, to, lives, message });
    }

    fn origin_answers(&mut self, node: usize, life: u32, request: u32, ids: &[BlockId]) {
        let frames: BTreeSet<u32> = ids.iter().filter_map(|id| self.universe.frame_of(id)).collect();
        let missing: Vec<BlockId> =
            ids.iter().filter(|id| self.universe.frame_of(id).is_none()).copied().collect();
        let mut at = self.now;
        for frame in frames {
            let bytes = self.universe.frames[frame as usize].len() as u64 * FRAME_SCALE + PACKET_BYTES;
            self.counts.origin_bytes += bytes;
            at = self.transmit(None, None, bytes);
            self.push(at - self.now, Event::OriginSent { node, life, request, frame });
        }
        let end = self.transmit(None, None, ORIGIN_HEAD_BYTES).max(at);
        self.push(end - self.now, Event::OriginEndSent { node, life, request, missing });
    }

    fn connect(&mut self, from: usize, to: usize, lives: (u32, u32)) {
        if !self.is_alive(from, lives.0) {
            return;
        }
        let (from_id, to_id) = (self.nodes[from].id, self.nodes[to].id);
        if self.is_alive(to, lives.1) {
            self.streams.insert(pair(from, to));
            assert!(self.nodes[from].exchange.handle_connected(to_id));
            assert!(self.nodes[to].exchange.handle_connected(from_id));
            self.pump(to);
        } else {
            self.disconnected(from, to);
        }
        self.pump(from);
    }

    fn disconnected(&mut self, number: usize, gone: usize) {
        self.streams.remove(&pair(number, gone));
        let (now, gone) = (self.now, self.nodes[gone].id);
        self.nodes[number].exchange.handle_disconnected(gone);
        self.nodes[number].scheduler.peer_gone(now, gone);
    }

    /// Ends a stream because the peer lies.
    fn drop_liar(&mut self, number: usize, liar: usize) {
        let (now, id) = (self.now, self.nodes[liar].id);
        self.nodes[number].scheduler.ban(now, id);
        self.disconnected(number, liar);
        let (life, gone_life) = (self.nodes[liar].life, self.nodes[number].life);
        let event = Event::Disconnected { node: liar, life, gone: number, gone_life };
        self.push(self.plan.delay, event);
    }

    fn deliver(&mut self, from: usize, to: usize, message: PeerMessage) {
        let id = self.nodes[from].id;
        if self.nodes[to].exchange.handle_message(id, message).is_err() {
            self.drop_liar(to, from);
        }
    }

    /// Does all that a node has to do now.
    fn pump(&mut self, number: usize) {
        loop {
            let mut quiet = true;
            while let Some(event) = self.nodes[number].scheduler.poll_event(self.now) {
                quiet = false;
                self.handle_schedule(number, event);
            }
            while let Some(event) = self.nodes[number].exchange.poll_event() {
                quiet = false;
                self.handle_exchange(number, event);
            }
            while let Some((to, message)) = self.nodes[number].exchange.poll_message(self.now) {
                self.send(number, number_of(to), message);
            }
            if quiet {
                break;
            }
        }
        let node = &mut self.nodes[number];
        let timeouts = [node.scheduler.poll_timeout(), node.exchange.poll_timeout()];
        let Some(wanted) = timeouts.into_iter().flatten().min() else { return };
        if node.wake_at.is_none_or(|at| wanted < at) {
            let at = wanted.max(self.now + Duration::from_micros(1));
            node.wake_at = Some(at);
            let life = node.life;
            self.push(at - self.now, Event::Wake { node: number, life });
        }
    }

    fn handle_schedule(&mut self, number: usize, event: ScheduleEvent) {
        match event {
            ScheduleEvent::Ask(ask) => self.ask(number, ask),
            ScheduleEvent::Cancel { source: Source::Peer(peer), request } => {
                self.nodes[number].exchange.cancel(peer, request);
            }
            ScheduleEvent::Cancel { source: Source::Origin, .. } => {}
            ScheduleEvent::Done(piece) => _ = self.nodes[number].pieces.remove(&piece),
            ScheduleEvent::Failed { piece, .. } => {
                for frame in self.nodes[number].pieces.remove(&piece).unwrap_or_default() {
                    if !self.nodes[number].held.contains(&frame) {
                        self.end_reads(number, frame, true);
                    }
                }
            }
        }
    }

    fn ask(&mut self, number: usize, ask: Ask) {
        match ask.source {
            Source::Peer(peer) => self.nodes[number].exchange.ask(peer, &ask),
            Source::Origin => {
                let bytes = ORIGIN_HEAD_BYTES + 32 * ask.ids.len() as u64;
                let at = self.transmit(Some(number), None, bytes);
                let life = self.nodes[number].life;
                let event = Event::OriginAsked { node: number, life, request: ask.request, ids: ask.ids };
                self.push(at - self.now, event);
            }
        }
    }

    fn handle_exchange(&mut self, number: usize, event: ExchangeEvent) {
        let now = self.now;
        let node = &mut self.nodes[number];
        match event {
            ExchangeEvent::Connect(peer) => {
                let to = number_of(peer);
                let lives = (node.life, self.nodes[to].life);
                self.push(self.plan.delay * 2, Event::Connect { from: number, to, lives });
            }
            ExchangeEvent::Joined(_) => {}
            ExchangeEvent::Filter(peer, piece) => {
                if node.scheduler.handle_filter(peer, piece).is_err() {
                    self.drop_liar(number, number_of(peer));
                }
            }
            ExchangeEvent::Changes(peer, changes) => {
                if node.scheduler.handle_changes(peer, &changes).is_err() {
                    self.drop_liar(number, number_of(peer));
                }
            }
            ExchangeEvent::Asked(peer, ask) => self.serve(number, peer, &ask),
            ExchangeEvent::Cancelled(..) => {}
            ExchangeEvent::Frame(peer, request, frame) => {
                self.take_frame(number, Some(peer), request, &frame);
            }
            ExchangeEvent::Answered(_, request, missing, version) => {
                node.scheduler.handle_answered(now, request, &missing, Some(version));
            }
            ExchangeEvent::Busy(_, request, after) => {
                node.scheduler.handle_failed(now, request, Failure::Busy(after));
            }
        }
    }

    /// Answers a peer's question from the held frames. Fetches missing ones if the peer regards this node as their home.
    fn serve(&mut self, number: usize, peer: NodeId, ask: &platter_cast::peer::AskMessage) {
        let node = &mut self.nodes[number];
        let (frames, missing) = node.look_up(ask, &self.universe);
        match node.character {
            Character::Hangs => {}
            Character::ClaimsAll => node.exchange.finish(peer, ask.request, ask.ids.clone()),
            Character::WrongBytes => {
                for frame in frames {
                    let mut bytes = self.universe.frames[frame as usize].to_vec();
                    *bytes.last_mut().unwrap() ^= 1;
                    node.exchange.give(peer, ask.request, bytes.into());
                }
                node.exchange.finish(peer, ask.request, missing);
            }
            Character::Honest if ask.fetch && !missing.is_empty() => {
                let wanted = missing.iter().filter_map(|id| self.universe.frame_of(id));
                let wanted: BTreeSet<u32> = wanted.chain(frames).collect();
                // Pieces that are already being fetched become urgent.
                for frame in &wanted {
                    if let Some(piece) = node.piece_of.get(frame) {
                        node.scheduler.hurry(self.now, *piece);
                    }
                }
                let waiter = Waiter::Peer(peer, ask.request);
                let unasked = node.begin_read(self.now, waiter, wanted.into_iter().collect());
                self.fetch(number, &unasked, true);
            }
            Character::Honest => self.give(number, peer, ask.request, &frames, missing),
        }
    }

    fn give(&mut self, number: usize, peer: NodeId, request: u32, frames: &[u32], missing: Vec<BlockId>) {
        let exchange = &mut self.nodes[number].exchange;
        for frame in frames {
            exchange.give(peer, request, Arc::clone(&self.universe.frames[*frame as usize]));
        }
        exchange.finish(peer, request, missing);
    }

    /// Requests frames in pieces, each of one group.
    fn fetch(&mut self, number: usize, frames: &[u32], origin_only: bool) {
        let universe = &self.universe;
        for frames in frames.chunk_by(|a, b| universe.group_of(*a) == universe.group_of(*b)) {
            let ids = frames.iter().flat_map(|frame| universe.ids_of(*frame)).copied().collect();
            let group = universe.group_of(frames[0]);
            let can_wait = self.plan.fills && !origin_only;
            let patience = PIECE_TIME_MAX;
            let (score, kind, exact) = (score(), Kind::Data, false);
            let want = Want { score, kind, group, ids, origin_only, can_wait, exact, patience };
            let node = &mut self.nodes[number];
            let piece = node.scheduler.want(self.now, want).unwrap();
            node.piece_of.extend(frames.iter().map(|frame| (*frame, piece)));
            node.pieces.insert(piece, frames.to_vec());
        }
    }

    /// Verifies a received frame and then holds it.
    fn take_frame(&mut self, number: usize, peer: Option<NodeId>, request: u32, bytes: &Arc<[u8]>) {
        let ids = decode(bytes);
        let known = ids.as_ref().and_then(|ids| self.universe.frame_of(ids.first()?));
        let (Some(ids), Some(frame)) = (ids, known) else {
            let peer = peer.expect("the origin does not lie");
            self.nodes[number].scheduler.handle_failed(self.now, request, Failure::Lied);
            self.drop_liar(number, number_of(peer));
            return;
        };
        // Unlike a node, the simulation knows the true bytes.
        self.counts.wrong_frames += u64::from(**bytes != *self.universe.frames[frame as usize]);
        let node = &mut self.nodes[number];
        if node.held.insert(frame) {
            self.counts.held_bytes += bytes.len() as u64 * FRAME_SCALE;
            ids.iter().for_each(|id| node.exchange.hold(id));
        }
        node.scheduler.handle_arrived(self.now, request, &ids);
        self.end_reads(number, frame, false);
    }

    fn end_reads(&mut self, number: usize, frame: u32, failed: bool) {
        for read in self.nodes[number].end_frame(frame, failed) {
            match read.waiter {
                Waiter::Boot(boot) => {
                    self.counts.fetches.push(self.now - read.began);
                    self.counts.failed_reads += u64::from(read.failed);
                    let node = &mut self.nodes[number];
                    node.boots[boot].reading -= 1;
                    let life = node.life;
                    self.push(self.think(), Event::Continue { node: number, life, boot });
                }
                Waiter::Peer(peer, request) => {
                    let held = |frame: &u32| self.nodes[number].held.contains(frame);
                    let (frames, lacking): (Vec<u32>, Vec<u32>) =
                        read.frames.iter().partition(|frame| held(frame));
                    // The peer may not have requested all blocks of a frame; report only those as missing that it requested.
                    let missing = if lacking.is_empty() { Vec::new() } else { self.asked_of(&lacking) };
                    self.give(number, peer, request, &frames, missing);
                }
            }
        }
    }

    fn asked_of(&self, frames: &[u32]) -> Vec<BlockId> {
        frames.iter().flat_map(|frame| self.universe.ids_of(*frame)).copied().collect()
    }

    fn think(&self) -> Duration {
        if self.plan.fills { Duration::ZERO } else { THINK }
    }

    fn begin_boot(&mut self, number: usize, image: usize) {
        let node = &mut self.nodes[number];
        let boot = Boot { image, next: 0, reading: 0, began: self.now, ended: None };
        node.boots.push(boot);
        if node.is_up {
            self.read_on(number, self.nodes[number].boots.len() - 1);
            self.pump(number);
        }
    }

    /// Continues a boot until enough reads are in progress.
    fn read_on(&mut self, number: usize, index: usize) {
        loop {
            let node = &mut self.nodes[number];
            let boot = &mut node.boots[index];
            let list = &self.universe.images[boot.image];
            if boot.next >= list.len() {
                if boot.reading == 0 && boot.ended.is_none() {
                    boot.ended = Some(self.now);
                    self.open_boots -= 1;
                    self.counts.boots_done += 1;
                }
                return;
            }
            if boot.reading >= self.plan.window {
                return;
            }
            let end = (boot.next + self.plan.read_frames).min(list.len());
            let range = boot.next..end;
            boot.next = end;
            let frames: Vec<u32> = list[range].to_vec();
            if frames.iter().all(|frame| node.held.contains(frame)) {
                continue;
            }
            boot.reading += 1;
            let unasked = node.begin_read(self.now, Waiter::Boot(index), frames);
            self.fetch(number, &unasked, false);
        }
    }

    fn fail(&mut self, number: usize) {
        self.schedule_failure();
        if !self.nodes[number].is_up {
            return;
        }
        self.counts.failures += 1;
        self.nodes[number].is_up = false;
        let gone_life = self.nodes[number].life;
        // Half of the failures are noticed at once, half only by silence.
        let after = if self.random.below(2) == 0 { self.plan.delay } else { SILENT_END };
        let ends: Vec<(usize, usize)> =
            self.streams.iter().copied().filter(|(a, b)| *a == number || *b == number).collect();
        for (a, b) in ends {
            let node = if a == number { b } else { a };
            let life = self.nodes[node].life;
            self.push(after, Event::Disconnected { node, life, gone: number, gone_life });
        }
        self.push(DOWN, Event::Recover { node: number });
    }

    fn recover(&mut self, number: usize) {
        self.streams.retain(|(a, b)| *a != number && *b != number);
        self.nodes[number].restart(&self.universe);
        self.introduce(number);
        self.tick(number);
        for boot in 0..self.nodes[number].boots.len() {
            self.read_on(number, boot);
        }
        self.pump(number);
    }

    /// Returns the sums of all nodes' counters.
    pub fn statistics(&self) -> ScheduleStatistics {
        let mut sum = ScheduleStatistics::default();
        for node in &self.nodes {
            let one = node.scheduler.statistics();
            sum.peer_asks += one.peer_asks;
            sum.home_asks += one.home_asks;
            sum.origin_asks += one.origin_asks;
            sum.hedges += one.hedges;
            sum.false_positives += one.false_positives;
            sum.stale += one.stale;
            sum.failures += one.failures;
            sum.liars += one.liars;
        }
        sum
    }

    /// Returns the total bytes of all frames that were read, on a link.
    pub fn universe_bytes(&self) -> u64 {
        let read: BTreeSet<u32> = self.nodes.iter().flat_map(|node| node.held.iter().copied()).collect();
        read.iter().map(|frame| self.universe.frames[*frame as usize].len() as u64 * FRAME_SCALE).sum()
    }

    /// Returns the given per-mille quantile of the duration of fetches.
    pub fn fetch_time(&self, per_mille: usize) -> Duration {
        let mut sorted = self.counts.fetches.clone();
        sorted.sort_unstable();
        sorted
            .get((sorted.len() * per_mille / 1000).min(sorted.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }

    /// Returns the duration of the slowest fetch, including those in progress.
    pub fn fetch_longest(&self) -> Duration {
        let open = self.nodes.iter().filter(|node| node.is_up).flat_map(|node| node.reads.values());
        let open = open.map(|read| self.now - read.began).max().unwrap_or_default();
        self.fetch_time(1000).max(open)
    }
}

fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}
