//! The machine's loop: takes what happens, does what follows from it, sleeps until something is due.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, select};
use platter_cast::peer::{Ask, Choice, ChoiceEvent, Exchange, ExchangeEvent, Failure, NodeId, Source};
use platter_image::frame::FrameHeader;
use platter_image::frame::stream::FramesRequest;

use super::event::{Command, Event};
use crate::peers::counts::PeerCounts;
use crate::peers::directory::{Directory, Learned};
use crate::peers::holdings::{HeldChanges, Holdings};
use crate::peers::keeper::Keeper;
use crate::peers::link::Link;
use crate::peers::links::Links;
use crate::peers::origin::Origin;
use crate::peers::reads::Reads;
use crate::peers::serving::{Asked, Serving};
use crate::peers::shelf::Shelf;
use crate::peers::wants::Wants;

/// How often it is looked after neighbours and silence.
const TICK: Duration = Duration::from_millis(500);
/// Events that are taken before what follows from them is done.
const EVENTS_TOGETHER: usize = 64;

/// What a machine is made of.
pub(in crate::peers) struct Parts {
    pub(in crate::peers) choice: Choice,
    pub(in crate::peers) exchange: Exchange,
    pub(in crate::peers) directory: Arc<Directory>,
    pub(in crate::peers) holdings: Arc<dyn Holdings>,
    pub(in crate::peers) links: Arc<Links>,
    pub(in crate::peers) origin: Origin,
    pub(in crate::peers) keeper: Keeper,
    pub(in crate::peers) serving: Serving,
    pub(in crate::peers) memory_bytes_max: u64,
    pub(in crate::peers) silence_max: Duration,
    pub(in crate::peers) commands: Receiver<Command>,
    pub(in crate::peers) events: Receiver<Event>,
}

/// A connection that is in use.
pub(super) struct Linked {
    pub(super) link: Link,
    pub(super) since: Duration,
    /// When something whole last came.
    pub(super) heard: Duration,
    /// The peer has said who it is.
    pub(super) has_greeted: bool,
}

/// The machine.
pub(in crate::peers) struct Machine {
    pub(super) parts: Parts,
    pub(super) started: Instant,
    pub(super) shelf: Shelf,
    pub(super) wants: Wants,
    pub(super) reads: Reads,
    pub(super) linked: HashMap<NodeId, Linked>,
    pub(super) dialing: BTreeSet<NodeId>,
    /// Connections that lost against another of the same two nodes, until the other side has seen it too.
    pub(super) superseded: Vec<(Duration, Link)>,
    /// Peers that are asked to tell what they hold.
    pub(super) subscribed: BTreeSet<NodeId>,
    /// Our questions to peers.
    pub(super) asked: BTreeMap<(NodeId, u32), Ask>,
    /// Since when peers owe the end of an answer, of cancelled questions too.
    pub(super) owed: BTreeMap<(NodeId, u32), Duration>,
    /// Questions of peers that are served here, by the number that tells them apart.
    pub(super) serving: HashMap<(NodeId, u32), u64>,
    pub(super) next_serving: u64,
    /// The header of the frame that came last.
    pub(super) header: Option<FrameHeader>,
    pub(super) counts: PeerCounts,
    /// What the origin last said when it gave nothing.
    pub(super) origin_failure: String,
    own_reads: u64,
    next_tick: Duration,
}

impl Machine {
    pub(in crate::peers) fn new(parts: Parts) -> Self {
        Self {
            started: Instant::now(),
            shelf: Shelf::new(parts.memory_bytes_max),
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
            origin_failure: String::new(),
            own_reads: parts.holdings.own_reads(),
            next_tick: Duration::ZERO,
            parts,
        }
    }

    /// Runs until it is told to end. Whoever waits then hears of it.
    pub(in crate::peers) fn run(mut self) {
        let known = self.parts.directory.sharing();
        known.into_iter().for_each(|node| self.parts.choice.add_peer(node));
        loop {
            let due = self.pump();
            if !self.wait(due) {
                break;
            }
        }
        // Their channels end.
        drop(self.wants.take_all());
    }

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits for something to happen, or until then, and takes what happened. False when it is over.
    fn wait(&mut self, due: Duration) -> bool {
        let pause = due.saturating_sub(self.now());
        let (commands, events) = (self.parts.commands.clone(), self.parts.events.clone());
        select! {
            recv(commands) -> command => match command {
                Ok(Command::End) | Err(_) => return false,
                Ok(command) => self.handle_command(command),
            },
            recv(events) -> event => if let Ok(event) = event {
                self.handle_event(event);
            },
            default(pause) => {}
        }
        for _ in 0..EVENTS_TOGETHER {
            let Ok(event) = events.try_recv() else { break };
            self.handle_event(event);
        }
        for _ in 0..EVENTS_TOGETHER {
            match commands.try_recv() {
                Ok(Command::End) => return false,
                Ok(command) => self.handle_command(command),
                Err(_) => break,
            }
        }
        true
    }

    /// Does all that is to be done now. Gives when there is more.
    fn pump(&mut self) -> Duration {
        self.look_at_own_traffic();
        let now = self.now();
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.tick(now);
        }
        let begins = self.wants.begin_due(&mut self.parts.choice, now);
        loop {
            let mut is_quiet = true;
            while let Some(event) = self.parts.choice.poll_event(now) {
                is_quiet = false;
                self.handle_choice(now, event);
            }
            is_quiet &= !self.poll_exchange(now);
            while let Some((node, message)) = self.parts.exchange.poll_message(now) {
                self.send(node, message);
            }
            if is_quiet {
                break;
            }
        }
        let timeouts = [self.parts.choice.poll_timeout(), self.parts.exchange.poll_timeout(), begins];
        timeouts.into_iter().flatten().fold(self.next_tick, Duration::min)
    }

    /// Does what the exchange says. True when there was anything.
    pub(super) fn poll_exchange(&mut self, now: Duration) -> bool {
        let mut was_anything = false;
        while let Some(event) = self.parts.exchange.poll_event() {
            was_anything = true;
            self.handle_exchange(now, event);
        }
        was_anything
    }

    fn look_at_own_traffic(&mut self) {
        let own_reads = self.parts.holdings.own_reads();
        let reads = own_reads != self.own_reads;
        self.own_reads = own_reads;
        if reads {
            let now = self.now();
            self.parts.exchange.own_traffic(now);
        }
    }

    fn handle_command(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Want { place, id, waiter } => self.want(now, place, id, waiter),
            Command::Hint { source, places } => {
                for (place, id) in places {
                    match self.shelf.find(place.kind, &id) {
                        // It came while there was too much to keep.
                        Some(frame) => _ = self.parts.keeper.keep(frame.clone()),
                        None => {
                            let ids = std::iter::once(id);
                            self.wants.hint(&mut self.parts.choice, now, source, place, ids);
                        }
                    }
                }
            }
            Command::Forget(source) => self.wants.forget(&mut self.parts.choice, source),
            Command::Nodes(learned) => self.handle_nodes(now, learned),
            Command::Counts(sender) => _ = sender.send(self.counts()),
            Command::End => {}
        }
    }

    fn handle_nodes(&mut self, now: Duration, learned: Learned) {
        for node in learned.known {
            let known = self.parts.directory.get(&node);
            if known.is_some_and(|known| known.address.is_some()) {
                self.parts.choice.add_peer(node);
            }
        }
        for node in learned.gone {
            self.parts.choice.remove_peer(now, node);
            self.unlink(now, node);
        }
        self.next_tick = now;
    }

    fn handle_event(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Linked(link) => self.handle_linked(now, link),
            Event::NotLinked(node) => self.handle_not_linked(now, node),
            Event::Message { number, node, message, header } => {
                self.handle_message(now, number, node, message, header);
            }
            Event::Drained { number, node } => {
                if self.is_current(number, &node) {
                    self.parts.exchange.handle_full(node, false);
                }
            }
            Event::Closed { number, node, lie } => self.handle_closed(now, number, node, lie.as_ref()),
            Event::Served(answer) => self.handle_served(now, answer),
            Event::OriginFrame { number, frame } => {
                self.counts.origin_frames += 1;
                self.counts.origin_frame_bytes += frame.stored.len() as u64;
                self.take(now, number, &frame);
            }
            Event::OriginEnded { number, result } => self.handle_origin_ended(now, number, result),
            Event::Held(changes) => self.handle_held(&changes),
        }
    }

    fn handle_held(&mut self, changes: &HeldChanges) {
        let exchange = &mut self.parts.exchange;
        if changes.whole {
            exchange.hold_only(&changes.added);
        } else {
            changes.dropped.iter().for_each(|id| exchange.drop_held(id));
            changes.added.iter().for_each(|id| exchange.hold(id));
        }
    }

    fn handle_choice(&mut self, now: Duration, event: ChoiceEvent) {
        match event {
            ChoiceEvent::Ask(ask) => match ask.source {
                Source::Peer(node) => {
                    self.parts.exchange.ask(node, &ask);
                    self.owed.insert((node, ask.request), now);
                    self.asked.insert((node, ask.request), ask);
                }
                Source::Origin => {
                    let Ask { request, score, kind, ids, .. } = ask;
                    // Else a frame on the border of two groups came with each of them.
                    let exact = ids.len() > 1;
                    self.parts.origin.ask(request, FramesRequest { score, kind, exact, ids });
                }
            },
            ChoiceEvent::Cancel { source: Source::Peer(node), request } => {
                self.asked.remove(&(node, request));
                self.parts.exchange.cancel(node, request);
            }
            ChoiceEvent::Cancel { source: Source::Origin, request } => self.parts.origin.cancel(request),
            ChoiceEvent::Done(piece) => drop(self.wants.ended(piece, &[])),
            ChoiceEvent::Failed { piece, ids } => self.handle_failed_piece(piece, &ids),
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
                if self.parts.choice.handle_filter(node, piece).is_err() {
                    self.drop_liar(now, node);
                }
            }
            ExchangeEvent::Changes(node, changes) => {
                if self.parts.choice.handle_changes(node, &changes).is_err() {
                    self.drop_liar(now, node);
                }
            }
            ExchangeEvent::Asked(node, ask) => {
                let number = self.next_serving;
                self.next_serving += 1;
                self.serving.insert((node, ask.request), number);
                self.parts.serving.read(Asked { number, node, ask });
            }
            ExchangeEvent::Cancelled(node, request) => {
                if let Some(number) = self.serving.remove(&(node, request)) {
                    self.reads.cancel(number);
                }
            }
            ExchangeEvent::Frame(node, request, stored) => self.take_from_peer(now, node, request, stored),
            ExchangeEvent::Answered(node, request, missing, version) => {
                self.asked.remove(&(node, request));
                self.parts.choice.handle_answered(now, request, &missing, Some(version));
            }
            ExchangeEvent::Busy(node, request, after) => {
                self.asked.remove(&(node, request));
                self.parts.choice.handle_failed(now, request, Failure::Busy(after));
            }
        }
    }

    fn counts(&self) -> PeerCounts {
        let (choice, exchange) = (self.parts.choice.statistics(), self.parts.exchange.statistics());
        PeerCounts {
            known: self.parts.directory.len() as u64,
            connected: self.linked.len() as u64,
            frames_sent: exchange.frames_sent,
            frame_bytes_sent: exchange.frame_bytes_sent,
            filter_bytes_sent: exchange.filter_bytes_sent,
            peer_questions: choice.peer_asks,
            home_questions: choice.home_asks,
            origin_questions: choice.origin_asks,
            hedges: choice.hedges,
            false_positives: choice.false_positives,
            stale: choice.stale,
            failures: choice.failures,
            liars: choice.liars,
            ..self.counts
        }
    }
}
