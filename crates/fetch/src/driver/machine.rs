//! The decisions, without threads or sockets of its own: whom to ask ([`platter_cast::peer::Scheduler`]), what to send
//! ([`platter_cast::peer::Exchange`]), and who waits for what. Never blocks.
//!
//! This file has its parts and its main step, which executes the consequences of events and returns when more is due;
//! `machine_linking` has the connections, `machine_answering` the handling of frames and requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use platter_cast::peer::{
    Ask, Exchange, ExchangeEvent, ExchangeOptions, Failure, Hello, NodeId, ScheduleEvent, ScheduleOptions,
    Scheduler, Source,
};
use platter_image::frame::FrameHeader;
use platter_image::frame::stream::FramesRequest;
use platter_image::{BlockId, Domain, ErrorKind};

use super::counts::PeerCounts;
use super::directory::Learned;
use super::frame::{Key, VerifiedFrame};
use super::holdings::{HeldChanges, Holdings};
use super::link::Link;
use super::links::Links;
use super::origin::Origin;
use super::reads::Reads;
use super::serving::{Asked, Serving};
use super::shelf::{Shelf, ShelfLimits};
use super::wants::{WantKey, Wants};

/// Interval of checks of neighbours and silence, and of changes of held frames.
const TICK: Duration = Duration::from_millis(500);
const HELD_LOOK: Duration = Duration::from_millis(100);
/// Most bytes of replies under way, counted as 16 KiB per block.
const BYTES_IN_FLIGHT_MAX: u64 = 64 << 20;

/// Context for sharing.
pub(super) struct Sharing {
    pub(super) links: Arc<Links>,
    pub(super) holdings: Arc<dyn Holdings>,
    pub(super) serving: Serving,
    pub(super) silence_max: Duration,
}

/// A connection that is in use.
pub(super) struct Linked {
    pub(super) link: Link,
    pub(super) since: Duration,
    /// Time of the last complete message.
    pub(super) heard: Duration,
    /// The peer has sent its greeting.
    pub(super) has_greeted: bool,
}

/// The machine.
pub(super) struct Machine {
    pub(super) scheduler: Scheduler,
    /// Without peers until it shares.
    pub(super) exchange: Exchange,
    pub(super) origin: Origin,
    /// `None` until it shares.
    pub(super) sharing: Option<Sharing>,
    pub(super) shelf: Shelf,
    pub(super) wants: Wants,
    pub(super) reads: Reads,
    pub(super) linked: HashMap<NodeId, Linked>,
    pub(super) dialing: BTreeSet<NodeId>,
    /// Connections that were replaced by another one between the same nodes, until the other side has noticed.
    pub(super) superseded: Vec<(Duration, Link)>,
    /// Peers whose announcements this node has requested.
    pub(super) subscribed: BTreeSet<NodeId>,
    /// Own requests to peers.
    pub(super) asked: BTreeMap<(NodeId, u32), Ask>,
    /// Since when peers owe the end of a reply, including cancelled requests.
    pub(super) owed: BTreeMap<(NodeId, u32), Duration>,
    /// Requests of peers being served, with their unique numbers.
    pub(super) serving: HashMap<(NodeId, u32), u64>,
    pub(super) next_serving: u64,
    /// The header of the last received frame.
    pub(super) header: Option<FrameHeader>,
    pub(super) counts: PeerCounts,
    /// The last error of the origin.
    pub(super) origin_failure: (ErrorKind, String),
    /// Whether received frames are also stored outside of memory.
    pub(super) keeps: bool,
    /// Received frames to be stored.
    pub(super) to_keep: Vec<Arc<VerifiedFrame>>,
    own_reads: u64,
    held_mark: u64,
    next_tick: Duration,
    next_held_look: Duration,
    has_ended: bool,
    /// Whether the timer's thread runs, and when it wakes.
    pub(super) has_timer: bool,
    pub(super) timer_at: Option<Duration>,
}

impl Machine {
    /// Creates a machine that knows only the origin.
    pub(super) fn new(seed: u64, origin: Origin, keeps: bool, limits: ShelfLimits) -> Self {
        let node = NodeId([0; 16]);
        let schedule = ScheduleOptions {
            seed,
            own: node,
            bytes_in_flight_max: BYTES_IN_FLIGHT_MAX,
            homes: false,
            ahead_bytes_max: limits.ahead_bytes_max,
        };
        let exchange = ExchangeOptions {
            hello: Hello { group: [0; 16], domain: Domain::SHARED, node },
            salt: 0,
            share_bits_per_second: 0,
        };
        Self {
            scheduler: Scheduler::new(schedule),
            exchange: Exchange::new(exchange),
            origin,
            sharing: None,
            shelf: Shelf::new(limits),
            wants: Wants::default(),
            reads: Reads::default(),
            linked: HashMap::new(),
            dialing: BTreeSet::new(),
            superseded: Vec::new(),
            subscribed: BTreeSet::new(),
            asked: BTreeMap::new(),
            owed: BTreeMap::new(),
            serving: HashMap::new(),
            next_serving: 0,
            header: None,
            counts: PeerCounts::default(),
            origin_failure: (ErrorKind::Transient, String::new()),
            keeps,
            to_keep: Vec::new(),
            own_reads: 0,
            held_mark: 0,
            next_tick: Duration::ZERO,
            next_held_look: Duration::ZERO,
            has_ended: false,
            has_timer: false,
            timer_at: None,
        }
    }

    /// Starts to share held frames.
    pub(super) fn share(&mut self, now: Duration, exchange: Exchange, sharing: Sharing) {
        if self.sharing.is_some() {
            return;
        }
        self.exchange = exchange;
        self.own_reads = sharing.holdings.own_reads();
        (self.next_tick, self.next_held_look) = (now, now);
        self.sharing = Some(sharing);
    }

    /// Starts to talk to peers under this id, at once with stored nodes.
    pub(super) fn join(&mut self, node: NodeId, homes: bool) {
        self.scheduler.join(node, homes);
        let known = self.sharing.as_ref().map(|sharing| sharing.links.directory.sharing());
        known.into_iter().flatten().for_each(|node| self.scheduler.add_peer(node));
    }

    /// Ends, and tells all waiting readers.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
        self.origin.close();
        self.sharing = None;
        self.linked.clear();
        self.superseded.clear();
        // Dropping the senders ends the readers' channels.
        drop(self.wants.take_all());
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(super) fn has(&self, key: Key) -> bool {
        self.shelf.find(key).is_some()
    }

    pub(super) fn announced_bytes(&self) -> u64 {
        self.scheduler.announced_bytes()
    }

    pub(super) fn take_to_keep(&mut self) -> Vec<Arc<VerifiedFrame>> {
        std::mem::take(&mut self.to_keep)
    }

    /// A source's reader announces blocks that it will read.
    pub(super) fn hint(&mut self, now: Duration, source: u64, places: &[(WantKey, BlockId)]) {
        for (place, id) in places {
            match self.shelf.find(Key { kind: place.kind, id: *id }) {
                // The frame arrived while the cache had no room for it.
                Some(frame) if self.keeps => self.to_keep.push(frame.clone()),
                Some(_) => {}
                None => {
                    let ids = std::iter::once(*id);
                    self.wants.hint(&mut self.scheduler, now, source, *place, ids);
                }
            }
        }
    }

    /// A source's reader has ended.
    pub(super) fn forget(&mut self, source: u64) {
        self.wants.forget(&mut self.scheduler, source);
    }

    /// Executes everything that is due. Returns when more is due.
    pub(super) fn pump(&mut self, now: Duration) -> Option<Duration> {
        let ticks = self.tick_when_due(now);
        let expires = self.shelf.expire(now);
        self.scheduler.set_unread(self.shelf.unread_bytes());
        let begins = self.wants.begin_due(&mut self.scheduler, now);
        loop {
            let mut is_quiet = true;
            while let Some(event) = self.scheduler.poll_event(now) {
                is_quiet = false;
                self.handle_schedule(now, event);
            }
            is_quiet &= !self.poll_exchange(now);
            while let Some((node, message)) = self.exchange.poll_message(now) {
                self.send(node, message);
            }
            if is_quiet {
                break;
            }
        }
        let exchange = if self.sharing.is_some() { self.exchange.poll_timeout() } else { None };
        let timeouts = [self.scheduler.poll_timeout(), exchange, begins, ticks, expires];
        timeouts.into_iter().flatten().min()
    }

    /// Checks peers and held frames, if it shares. Returns when to do so again.
    fn tick_when_due(&mut self, now: Duration) -> Option<Duration> {
        let holdings = self.sharing.as_ref()?.holdings.clone();
        let own_reads = holdings.own_reads();
        if std::mem::replace(&mut self.own_reads, own_reads) != own_reads {
            self.exchange.own_traffic(now);
        }
        if now >= self.next_held_look {
            self.next_held_look = now + HELD_LOOK;
            let changes = holdings.changes(self.held_mark);
            self.held_mark = changes.mark;
            self.handle_held(&changes);
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.tick(now);
        }
        Some(self.next_tick.min(self.next_held_look))
    }

    /// Executes the exchange's actions. Returns true when there were any.
    pub(super) fn poll_exchange(&mut self, now: Duration) -> bool {
        let mut was_anything = false;
        while let Some(event) = self.exchange.poll_event() {
            was_anything = true;
            self.handle_exchange(now, event);
        }
        was_anything
    }

    /// Takes changes by a reply of the registry.
    pub(super) fn handle_nodes(&mut self, now: Duration, learned: Learned) {
        for node in learned.known {
            let Some(sharing) = &self.sharing else { return };
            let known = sharing.links.directory.get(&node);
            if known.is_some_and(|known| known.address.is_some()) {
                self.scheduler.add_peer(node);
            }
        }
        for node in learned.gone {
            self.scheduler.remove_peer(now, node);
            self.unlink(now, node);
        }
        self.next_tick = now;
    }

    fn handle_held(&mut self, changes: &HeldChanges) {
        let exchange = &mut self.exchange;
        if changes.whole {
            exchange.hold_only(&changes.added);
        } else {
            changes.dropped.iter().for_each(|id| exchange.drop_held(id));
            changes.added.iter().for_each(|id| exchange.hold(id));
        }
    }

    fn handle_schedule(&mut self, now: Duration, event: ScheduleEvent) {
        match event {
            ScheduleEvent::Ask(ask) => match ask.source {
                Source::Peer(node) => {
                    self.exchange.ask(node, &ask);
                    self.owed.insert((node, ask.request), now);
                    self.asked.insert((node, ask.request), ask);
                }
                Source::Origin => {
                    let Ask { request, score, kind, exact, ids, .. } = ask;
                    self.origin.ask(request, FramesRequest { score, kind, exact, ids });
                }
            },
            ScheduleEvent::Cancel { source: Source::Peer(node), request } => {
                self.asked.remove(&(node, request));
                self.exchange.cancel(node, request);
            }
            ScheduleEvent::Cancel { source: Source::Origin, request } => self.origin.cancel(request),
            ScheduleEvent::Done(piece) => drop(self.wants.ended(piece, &[])),
            ScheduleEvent::Failed { piece, ids } => self.handle_failed_piece(piece, &ids),
        }
    }

    fn handle_exchange(&mut self, now: Duration, event: ExchangeEvent) {
        match event {
            ExchangeEvent::Connect(node) => self.connect(now, node),
            ExchangeEvent::Joined(node) => {
                if let Some(linked) = self.linked.get_mut(&node) {
                    linked.has_greeted = true;
                }
            }
            ExchangeEvent::Filter(node, piece) => {
                if self.scheduler.handle_filter(node, piece).is_err() {
                    self.drop_liar(now, node);
                }
            }
            ExchangeEvent::Changes(node, changes) => {
                if self.scheduler.handle_changes(node, &changes).is_err() {
                    self.drop_liar(now, node);
                }
            }
            ExchangeEvent::Asked(node, ask) => {
                let number = self.next_serving;
                self.next_serving += 1;
                self.serving.insert((node, ask.request), number);
                if let Some(sharing) = &self.sharing {
                    sharing.serving.read(Asked { number, node, ask });
                }
            }
            ExchangeEvent::Cancelled(node, request) => {
                if let Some(number) = self.serving.remove(&(node, request)) {
                    self.reads.cancel(number);
                }
            }
            ExchangeEvent::Frame(node, request, stored) => self.take_from_peer(now, node, request, stored),
            ExchangeEvent::Answered(node, request, missing, version) => {
                self.asked.remove(&(node, request));
                self.scheduler.handle_answered(now, request, &missing, Some(version));
            }
            ExchangeEvent::Busy(node, request, after) => {
                self.asked.remove(&(node, request));
                self.scheduler.handle_failed(now, request, Failure::Busy(after));
            }
        }
    }

    pub(super) fn counts(&self) -> PeerCounts {
        let (scheduler, exchange) = (self.scheduler.statistics(), self.exchange.statistics());
        PeerCounts {
            known: self.sharing.as_ref().map_or(0, |sharing| sharing.links.directory.len() as u64),
            connected: self.linked.len() as u64,
            frames_sent: exchange.frames_sent,
            frame_bytes_sent: exchange.frame_bytes_sent,
            filter_bytes_sent: exchange.filter_bytes_sent,
            peer_questions: scheduler.peer_asks,
            home_questions: scheduler.home_asks,
            origin_questions: scheduler.origin_asks,
            hedges: scheduler.hedges,
            false_positives: scheduler.false_positives,
            stale: scheduler.stale,
            failures: scheduler.failures,
            liars: scheduler.liars,
            ..self.counts
        }
    }
}
