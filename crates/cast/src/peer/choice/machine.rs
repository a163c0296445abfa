//! The machine: wants, answers, filters and time go in; questions, cancellations and results come out.
//!
//! Owns the pieces, who is asked for each, and every bound on what is under way; pieces that can wait are in [`super::waiting`]. Must never leave a piece without a
//! deadline, nor two questions for one piece to the same source at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use platter_image::{BlockId, Error, Result};

use super::deadline::HEDGE_CREDIT_MAX;
use super::event::{ChoiceEvent, ChoiceStatistics};
use super::home::node_hash;
use super::patience::Patience;
use super::peer::Peer;
use super::piece::{Ask, Failure, PIECE_TIME_MAX, Piece, PieceId, Source, UnderWay, Want};
use super::waiting::Waiting;
use crate::peer::filter::{FilterChanges, FilterPiece, FilterVersion};
use crate::peer::{ASK_IDS_MAX, NodeId};
use crate::random::Random;

/// Most pieces that have not ended.
pub const PIECES_MAX: usize = 4096;
/// Peers known at most.
const PEERS_MAX: usize = 4096;
/// An id counts as that many bytes under way: what blocks mostly have at most, compressed.
const ID_BYTES: u64 = 16 << 10;
/// A piece is given up when the origin failed so often; between tries it waits.
const ORIGIN_FAILURES_MAX: u32 = 4;
const ORIGIN_RETRY: Duration = Duration::from_secs(1);
/// Pieces looked at when those in front have to wait.
pub(super) const LOOK_AHEAD: usize = 16;

/// How a node fetches.
#[derive(Clone, Debug)]
pub struct ChoiceOptions {
    /// Decides everything random.
    pub seed: u64,
    /// This node.
    pub own: NodeId,
    /// Most bytes that answers under way may have, counting 16 KiB for each id.
    pub bytes_in_flight_max: u64,
    /// Whether other nodes know this one, and so come to the same homes. Without homes, what no filter has goes to the origin.
    pub homes: bool,
}

/// The fetching machine.
#[derive(Debug)]
pub struct Choice {
    pub(super) options: ChoiceOptions,
    pub(super) own_hash: u64,
    pub(super) random: Random,
    pub(super) peers: BTreeMap<NodeId, Peer>,
    /// Peers that told of a filter.
    pub(super) telling: BTreeSet<NodeId>,
    pub(super) pieces: BTreeMap<PieceId, Piece>,
    pub(super) ready: VecDeque<PieceId>,
    pub(super) waiting: Waiting,
    /// Nothing in front of `ready` can be asked for until an answer comes.
    pub(super) is_stuck: bool,
    pub(super) deadlines: BTreeSet<(Duration, PieceId)>,
    pub(super) under_way: BTreeMap<u32, UnderWay>,
    pub(super) bytes_in_flight: u64,
    pub(super) origin_in_flight: u32,
    /// Groups that the origin is being asked for. A frame lies in one group mostly: two questions for parts of one would bring it twice.
    pub(super) origin_groups: BTreeSet<u64>,
    pub(super) peer_patience: Patience,
    pub(super) home_patience: Patience,
    pub(super) hedge_credit: u32,
    pub(super) next_request: u32,
    pub(super) next_piece: u64,
    pub(super) events: VecDeque<ChoiceEvent>,
    pub(super) statistics: ChoiceStatistics,
}

impl Choice {
    /// A machine that knows nobody but the origin.
    pub fn new(options: ChoiceOptions) -> Self {
        Self {
            own_hash: node_hash(&options.own),
            random: Random::new(options.seed),
            peers: BTreeMap::new(),
            telling: BTreeSet::new(),
            pieces: BTreeMap::new(),
            ready: VecDeque::new(),
            waiting: Waiting::default(),
            is_stuck: false,
            deadlines: BTreeSet::new(),
            under_way: BTreeMap::new(),
            bytes_in_flight: 0,
            origin_in_flight: 0,
            origin_groups: BTreeSet::new(),
            peer_patience: Patience::default(),
            home_patience: Patience::default(),
            hedge_credit: HEDGE_CREDIT_MAX,
            next_request: 0,
            next_piece: 0,
            events: VecDeque::new(),
            statistics: ChoiceStatistics::default(),
            options,
        }
    }

    /// There is such a node. Beyond 4,096 of them, more are not taken in.
    pub fn add_peer(&mut self, node: NodeId) {
        if node != self.options.own && self.peers.len() < PEERS_MAX {
            self.peers.entry(node).or_insert_with(|| Peer::new(&node));
        }
    }

    /// A node left for good: nothing is asked of it any more. Who lied is remembered.
    pub fn remove_peer(&mut self, now: Duration, node: NodeId) {
        self.peer_gone(now, node);
        if self.peers.get(&node).is_some_and(|peer| !peer.is_banned()) {
            self.peers.remove(&node);
        }
    }

    /// Peers at random to hear the filters of, up to `count` with those that already tell.
    pub fn neighbours_wanted(&mut self, now: Duration, count: usize) -> Vec<NodeId> {
        let candidates =
            self.peers.iter().filter(|(node, peer)| peer.is_alive(now) && !self.telling.contains(node));
        let mut candidates: Vec<NodeId> = candidates.map(|(node, _)| *node).collect();
        let lacking = count.saturating_sub(self.telling.len()).min(candidates.len());
        for place in 0..lacking {
            let other = place + self.random.below((candidates.len() - place) as u64) as usize;
            candidates.swap(place, other);
        }
        candidates.truncate(lacking);
        candidates
    }

    /// A piece of a peer's filter.
    ///
    /// # Errors
    /// `Corrupt`: the peer lies ([`Choice::ban`]).
    pub fn handle_filter(&mut self, node: NodeId, piece: FilterPiece) -> Result<()> {
        if let Some(peer) = self.peers.get_mut(&node).filter(|peer| !peer.is_banned()) {
            self.telling.insert(node);
            self.is_stuck = false;
            peer.filter.handle_piece(piece)?;
        }
        Ok(())
    }

    /// Changes of a peer's filter. They are nothing to who has forgotten that filter.
    ///
    /// # Errors
    /// `Corrupt`: the peer lies ([`Choice::ban`]).
    pub fn handle_changes(&mut self, node: NodeId, changes: &FilterChanges) -> Result<()> {
        self.is_stuck = false;
        match self.peers.get_mut(&node) {
            Some(peer) if peer.filter.version().is_some() => peer.filter.handle_changes(changes),
            _ => Ok(()),
        }
    }

    /// Fetch these.
    ///
    /// # Errors
    /// `Refused`: no ids, or more than [`ASK_IDS_MAX`]. `Transient`: [`PIECES_MAX`] pieces have not ended.
    pub fn want(&mut self, now: Duration, want: Want) -> Result<PieceId> {
        if want.ids.is_empty() || want.ids.len() > ASK_IDS_MAX {
            return Err(Error::refused(format!(
                "{} ids in a piece: 1 to {ASK_IDS_MAX} can be",
                want.ids.len()
            )));
        }
        if self.pieces.len() >= PIECES_MAX {
            return Err(Error::transient(format!("{PIECES_MAX} pieces are being fetched")));
        }
        let id = PieceId(self.next_piece);
        self.next_piece += 1;
        let ends_at = if want.can_wait { Duration::MAX } else { now + PIECE_TIME_MAX };
        let piece = Piece {
            want,
            asks: Vec::new(),
            tried: Vec::new(),
            homes_tried: Vec::new(),
            origin_failures: 0,
            not_before: now,
            ends_at,
            deadline: ends_at,
            stands_in: false,
        };
        let can_wait = piece.want.can_wait;
        self.deadlines.insert((ends_at, id));
        self.pieces.insert(id, piece);
        if can_wait {
            self.wait(now, id);
        } else {
            self.ready.push_back(id);
        }
        self.is_stuck = false;
        Ok(id)
    }

    /// Somebody waits for a piece that could wait: it can no more.
    pub fn hurry(&mut self, now: Duration, id: PieceId) {
        let Some(piece) = self.pieces.get_mut(&id).filter(|piece| piece.want.can_wait) else { return };
        piece.want.can_wait = false;
        piece.ends_at = piece.ends_at.min(now + PIECE_TIME_MAX);
        let (deadline, is_idle) = (piece.deadline, piece.asks.is_empty());
        self.set_deadline(id, deadline);
        if is_idle {
            self.ready.push_front(id);
            self.is_stuck = false;
        }
    }

    /// These blocks of a piece came with another one, or nobody wants them any more: they are not asked for. With the last of
    /// them the piece is done.
    pub fn strike(&mut self, id: PieceId, ids: &[BlockId]) {
        let Some(piece) = self.pieces.get_mut(&id) else { return };
        piece.want.ids.retain(|wanted| !ids.contains(wanted));
        if piece.want.ids.is_empty() {
            self.end_piece(id);
            self.events.push_back(ChoiceEvent::Done(id));
        }
    }

    /// Verified blocks came as an answer to that question.
    pub fn handle_arrived(&mut self, now: Duration, request: u32, ids: &[BlockId]) {
        let Some(ask) = self.under_way.get_mut(&request) else { return };
        if ask.is_first_hand && ask.progress_at == ask.asked_at {
            self.waiting.first_hand_began(now, now.saturating_sub(ask.asked_at));
        }
        ask.progress_at = now;
        let id = ask.piece;
        let limit = self.patience(request);
        let Some(piece) = self.pieces.get_mut(&id) else { return };
        piece.want.ids.retain(|wanted| !ids.contains(wanted));
        if piece.want.ids.is_empty() {
            self.end_ask(now, request);
            self.end_piece(id);
            self.events.push_back(ChoiceEvent::Done(id));
        } else if piece.asks.len() == 1 {
            self.set_deadline(id, now + limit);
        }
    }

    /// That question was answered to its end; `missing` is not there. A peer says its filter's version.
    pub fn handle_answered(
        &mut self,
        now: Duration,
        request: u32,
        missing: &[BlockId],
        version: Option<FilterVersion>,
    ) {
        let Some(ask) = self.end_ask(now, request) else { return };
        match ask.source {
            Source::Peer(node) => {
                if let (Some(peer), Some(version)) = (self.peers.get_mut(&node), version) {
                    let (claimed, at_fault) = (peer.claims(missing, false), peer.lacked(missing, version));
                    self.statistics.false_positives += at_fault as u64;
                    self.statistics.stale += (claimed - at_fault) as u64;
                }
                self.try_again(now, ask.piece);
            }
            Source::Origin => {
                let nobody_has = self.pieces.get(&ask.piece).is_some_and(|piece| {
                    piece.asks.is_empty() && piece.want.ids.iter().any(|id| missing.contains(id))
                });
                if nobody_has {
                    self.fail_piece(ask.piece);
                } else {
                    self.origin_failed(now, ask.piece);
                }
            }
        }
    }

    /// That question got no answer.
    pub fn handle_failed(&mut self, now: Duration, request: u32, failure: Failure) {
        let Some(ask) = self.take_ask(request) else { return };
        self.statistics.failures += 1;
        match ask.source {
            Source::Origin => self.origin_failed(now, ask.piece),
            Source::Peer(node) => {
                match (failure, self.peers.get_mut(&node)) {
                    (Failure::Busy(after), Some(peer)) => peer.is_busy_until(now.saturating_add(after), now),
                    (Failure::Gone, Some(peer)) => peer.failed(now),
                    (Failure::Lied, _) => self.ban(now, node),
                    (_, None) => {}
                }
                self.try_again(now, ask.piece);
            }
        }
    }

    /// A peer's stream ended: its questions failed, its filter is not kept up any more.
    pub fn peer_gone(&mut self, now: Duration, node: NodeId) {
        self.fail_asks(now, node);
        self.telling.remove(&node);
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.failed(now);
            peer.filter = crate::peer::filter::RemoteFilter::default();
        }
    }

    /// A peer opened a stream by itself: it is there, whatever failed before.
    pub fn peer_came(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.came();
            self.is_stuck = false;
        }
    }

    /// A peer lied: it is never asked again.
    pub fn ban(&mut self, now: Duration, node: NodeId) {
        self.telling.remove(&node);
        let peer = self.peers.entry(node).or_insert_with(|| Peer::new(&node));
        if !peer.is_banned() {
            peer.ban();
            self.statistics.liars += 1;
            self.fail_asks(now, node);
        }
    }

    /// Whether that peer lied.
    pub fn is_banned(&self, node: &NodeId) -> bool {
        self.peers.get(node).is_some_and(Peer::is_banned)
    }

    /// Counters.
    pub fn statistics(&self) -> ChoiceStatistics {
        self.statistics
    }

    /// The next thing to do.
    pub fn poll_event(&mut self, now: Duration) -> Option<ChoiceEvent> {
        while let Some((_, id)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            self.handle_deadline(now, id);
        }
        if self.waiting.due.is_some_and(|at| now >= at) {
            (self.waiting.due, self.is_stuck) = (None, false);
        }
        if self.events.is_empty() && !self.is_stuck {
            self.start_pieces(now);
            self.start_waiting(now);
            self.is_stuck = self.events.is_empty();
        }
        self.events.pop_front()
    }

    /// When to poll again, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline).into_iter().chain(self.waiting.due).min()
    }

    fn start_pieces(&mut self, now: Duration) {
        for _ in 0..self.ready.len().min(LOOK_AHEAD) {
            let Some(id) = self.ready.pop_front() else { break };
            let Some(piece) = self.pieces.get(&id) else { continue };
            if !self.has_room(id) {
                self.ready.push_front(id);
                break;
            }
            let source = if now < piece.not_before { None } else { self.pick(now, id) };
            match source {
                Some((source, fetch)) => self.ask(now, id, source, fetch),
                None => self.ready.push_back(id),
            }
        }
    }

    /// Whether so much more may be under way.
    pub(super) fn has_room(&self, id: PieceId) -> bool {
        let bytes = self.pieces.get(&id).map_or(0, |piece| piece.want.ids.len() as u64 * ID_BYTES);
        self.bytes_in_flight == 0 || self.bytes_in_flight + bytes <= self.options.bytes_in_flight_max
    }

    pub(super) fn ask(&mut self, now: Duration, id: PieceId, source: Source, fetch: bool) {
        let Some(piece) = self.pieces.get_mut(&id) else { return };
        let request = self.next_request;
        self.next_request = self.next_request.wrapping_add(1);
        let ids = piece.want.ids.clone();
        self.bytes_in_flight += ids.len() as u64 * ID_BYTES;
        piece.asks.push(request);
        piece.ends_at = piece.ends_at.min(now + PIECE_TIME_MAX);
        let is_first_hand = piece.want.can_wait && source == Source::Origin;
        self.waiting.first_hand += usize::from(is_first_hand);
        self.hedge_credit = (self.hedge_credit + 1).min(HEDGE_CREDIT_MAX);
        match source {
            Source::Origin => {
                self.origin_in_flight += 1;
                self.origin_groups.insert(piece.want.group);
                self.statistics.origin_asks += 1;
            }
            Source::Peer(node) => {
                // Who was asked to fetch it is not asked for it again.
                piece.tried.push(node);
                piece.homes_tried.extend(fetch.then_some(node));
                let counter =
                    if fetch { &mut self.statistics.home_asks } else { &mut self.statistics.peer_asks };
                *counter += 1;
                if let Some(peer) = self.peers.get_mut(&node) {
                    peer.in_flight += 1;
                }
            }
        }
        let Want { score, kind, group, .. } = piece.want;
        self.events.push_back(ChoiceEvent::Ask(Ask {
            request,
            source,
            score,
            kind,
            fetch,
            ids: ids.clone(),
        }));
        let ask =
            UnderWay { piece: id, group, source, fetch, is_first_hand, asked_at: now, progress_at: now, ids };
        self.under_way.insert(request, ask);
        let limit = self.patience(request);
        self.set_deadline(id, now + limit);
    }

    /// A question is over, whatever came of it.
    fn take_ask(&mut self, request: u32) -> Option<UnderWay> {
        let ask = self.under_way.remove(&request)?;
        self.is_stuck = false;
        self.bytes_in_flight -= ask.ids.len() as u64 * ID_BYTES;
        self.waiting.first_hand -= usize::from(ask.is_first_hand);
        match ask.source {
            Source::Origin => {
                self.origin_in_flight -= 1;
                self.origin_groups.remove(&ask.group);
            }
            Source::Peer(node) => {
                if let Some(peer) = self.peers.get_mut(&node) {
                    peer.in_flight = peer.in_flight.saturating_sub(1);
                }
            }
        }
        if let Some(piece) = self.pieces.get_mut(&ask.piece) {
            piece.asks.retain(|other| *other != request);
        }
        Some(ask)
    }

    /// A question was answered.
    fn end_ask(&mut self, now: Duration, request: u32) -> Option<UnderWay> {
        let ask = self.take_ask(request)?;
        let took = now.saturating_sub(ask.asked_at);
        if let Source::Peer(node) = ask.source {
            if let Some(peer) = self.peers.get_mut(&node) {
                peer.answered(took, ask.ids.len());
            }
            if ask.fetch { self.home_patience.saw(took) } else { self.peer_patience.saw(took) }
        }
        Some(ask)
    }

    /// A piece needs another source, unless one is under way.
    fn try_again(&mut self, now: Duration, id: PieceId) {
        let Some(piece) = self.pieces.get_mut(&id).filter(|piece| piece.asks.is_empty()) else { return };
        if !piece.want.can_wait {
            self.ready.push_front(id);
            return;
        }
        self.wait_again(now, id);
    }

    fn origin_failed(&mut self, now: Duration, id: PieceId) {
        let Some(piece) = self.pieces.get_mut(&id) else { return };
        piece.origin_failures += 1;
        // Peers that were tried may have it by now, or be back; of those that have not answered yet, nothing is known.
        let asked: Vec<Source> =
            piece.asks.iter().filter_map(|request| Some(self.under_way.get(request)?.source)).collect();
        let has_not_answered = |node: &NodeId| asked.contains(&Source::Peer(*node));
        piece.tried.retain(has_not_answered);
        piece.homes_tried.retain(has_not_answered);
        piece.not_before = now + ORIGIN_RETRY;
        if piece.origin_failures >= ORIGIN_FAILURES_MAX && piece.asks.is_empty() {
            self.fail_piece(id);
            return;
        }
        let not_before = piece.not_before;
        self.try_again(now, id);
        self.set_deadline(id, not_before);
    }

    fn fail_asks(&mut self, now: Duration, node: NodeId) {
        let asks = self.under_way.iter().filter(|(_, ask)| ask.source == Source::Peer(node));
        let requests: Vec<u32> = asks.map(|(request, _)| *request).collect();
        for request in requests {
            self.handle_failed(now, request, Failure::Gone);
        }
    }

    /// Forgets a piece, and cancels what is under way for it.
    fn end_piece(&mut self, id: PieceId) -> Option<Piece> {
        let piece = self.pieces.remove(&id)?;
        self.deadlines.remove(&(piece.deadline, id));
        for request in &piece.asks {
            if let Some(ask) = self.take_ask(*request) {
                self.events.push_back(ChoiceEvent::Cancel { source: ask.source, request: *request });
            }
        }
        Some(piece)
    }

    pub(super) fn fail_piece(&mut self, id: PieceId) {
        if let Some(piece) = self.end_piece(id) {
            self.events.push_back(ChoiceEvent::Failed { piece: id, ids: piece.want.ids });
        }
    }
}
