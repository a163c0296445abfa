//! The scheduler's state machine. Input: pieces to fetch, replies, filters and time. Output: requests, cancellations and results.
//!
//! Owns the pieces, their requests, and all limits on what is in flight. Pieces that can wait are in
//! [`super::waiting`], requests to the origin for several pieces in [`super::alone`]. Must never leave a piece without
//! a deadline, nor have two requests for a piece at the same source at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use platter_image::{BlockId, Error, Kind, Result};

use super::deadline::HEDGE_CREDIT_MAX;
use super::event::{ScheduleEvent, ScheduleStatistics};
use super::home::node_hash;
use super::origin::Origin;
use super::patience::Patience;
use super::peer::Peer;
use super::piece::{Ask, Failure, Piece, PieceId, Source, UnderWay, Want};
use super::waiting::Waiting;
use crate::peer::filter::{FilterChanges, FilterPiece, FilterVersion};
use crate::peer::{ASK_IDS_MAX, NodeId};
use crate::random::Random;

/// Maximum number of unfinished pieces.
pub const PIECES_MAX: usize = 4096;
/// Maximum number of known peers.
const PEERS_MAX: usize = 4096;
/// Each id counts as this many bytes in flight: most compressed blocks are not longer.
const ID_BYTES: u64 = 16 << 10;
/// A piece that was requested by a peer fails after this many failures of the origin: the peer then tries another node.
const ORIGIN_FAILURES_MAX: u32 = 4;
/// Maximum number of pieces that are examined when the first ones must wait.
pub(super) const LOOK_AHEAD: usize = 16;

/// Options of the scheduler.
#[derive(Clone, Debug)]
pub struct ScheduleOptions {
    /// Seed of all random choices.
    pub seed: u64,
    /// This node.
    pub own: NodeId,
    /// Maximum number of bytes in flight, with 16 KiB for each id.
    pub bytes_in_flight_max: u64,
    /// Whether other nodes know this one, so that all agree on homes. If not, pieces that no filter claims are requested from the origin.
    pub homes: bool,
    /// Without peers: maximum number of bytes ahead of need that are in flight or were not read yet.
    pub ahead_bytes_max: u64,
}

/// The scheduler.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) options: ScheduleOptions,
    pub(super) own_hash: u64,
    pub(super) random: Random,
    pub(super) peers: BTreeMap<NodeId, Peer>,
    /// Peers that sent a filter.
    pub(super) telling: BTreeSet<NodeId>,
    pub(super) pieces: BTreeMap<PieceId, Piece>,
    pub(super) ready: VecDeque<PieceId>,
    pub(super) waiting: Waiting,
    /// None of the first pieces in `ready` can be requested until a reply arrives.
    pub(super) is_stuck: bool,
    pub(super) deadlines: BTreeSet<(Duration, PieceId)>,
    pub(super) under_way: BTreeMap<u32, UnderWay>,
    pub(super) bytes_in_flight: u64,
    pub(super) origin: Origin,
    pub(super) peer_patience: Patience,
    pub(super) home_patience: Patience,
    pub(super) hedge_credit: u32,
    pub(super) next_request: u32,
    pub(super) next_piece: u64,
    pub(super) events: VecDeque<ScheduleEvent>,
    pub(super) statistics: ScheduleStatistics,
}

impl Scheduler {
    /// Creates a scheduler that knows only the origin.
    pub fn new(options: ScheduleOptions) -> Self {
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
            origin: Origin::default(),
            peer_patience: Patience::default(),
            home_patience: Patience::default(),
            hedge_credit: HEDGE_CREDIT_MAX,
            next_request: 0,
            next_piece: 0,
            events: VecDeque::new(),
            statistics: ScheduleStatistics::default(),
            options,
        }
    }

    /// Sets this node's id, and whether other nodes know it from now on.
    pub fn join(&mut self, own: NodeId, homes: bool) {
        self.own_hash = node_hash(&own);
        (self.options.own, self.options.homes) = (own, homes);
    }

    /// Whether there are no peers.
    pub(super) fn is_alone(&self) -> bool {
        self.peers.is_empty()
    }

    /// Sets the number of bytes that arrived ahead of need and were not read yet.
    pub fn set_unread(&mut self, bytes: u64) {
        if self.origin.set_unread(bytes) {
            self.is_stuck = false;
        }
    }

    /// Stored bytes that a sequential reader should announce ahead of its position.
    pub fn announced_bytes(&self) -> u64 {
        self.origin.announced_bytes(self.is_alone())
    }

    /// Adds a peer. Beyond 4,096 peers, new ones are ignored.
    pub fn add_peer(&mut self, node: NodeId) {
        if node != self.options.own && self.peers.len() < PEERS_MAX {
            self.peers.entry(node).or_insert_with(|| Peer::new(&node));
        }
    }

    /// Removes a peer. A peer that lied stays banned.
    pub fn remove_peer(&mut self, now: Duration, node: NodeId) {
        self.peer_gone(now, node);
        if self.peers.get(&node).is_some_and(|peer| !peer.is_banned()) {
            self.peers.remove(&node);
        }
    }

    /// Returns random peers to request filters from, so that `count` peers send filters in total.
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

    /// Handles a part of a peer's filter.
    ///
    /// # Errors
    /// `Corrupt`: the peer lies ([`Scheduler::ban`]).
    pub fn handle_filter(&mut self, node: NodeId, piece: FilterPiece) -> Result<()> {
        if let Some(peer) = self.peers.get_mut(&node).filter(|peer| !peer.is_banned()) {
            self.telling.insert(node);
            self.is_stuck = false;
            peer.filter.handle_piece(piece)?;
        }
        Ok(())
    }

    /// Handles changes of a peer's filter. Ignored if that filter was dropped.
    ///
    /// # Errors
    /// `Corrupt`: the peer lies ([`Scheduler::ban`]).
    pub fn handle_changes(&mut self, node: NodeId, changes: &FilterChanges) -> Result<()> {
        self.is_stuck = false;
        match self.peers.get_mut(&node) {
            Some(peer) if peer.filter.version().is_some() => peer.filter.handle_changes(changes),
            _ => Ok(()),
        }
    }

    /// Adds a piece to fetch.
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
        let ends_at = if want.can_wait { Duration::MAX } else { now + want.patience };
        let can_wait = want.can_wait;
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
            announced: can_wait,
        };
        let goes_first = piece.want.kind == Kind::Page;
        self.deadlines.insert((ends_at, id));
        self.pieces.insert(id, piece);
        if can_wait {
            self.wait(now, id);
        } else if goes_first {
            // Pages first: they contain the ids of everything else.
            self.ready.push_front(id);
        } else {
            self.ready.push_back(id);
        }
        self.is_stuck = false;
        Ok(id)
    }

    /// Marks that a reader now waits for a piece that could wait before: it is requested as soon as possible.
    pub fn hurry(&mut self, now: Duration, id: PieceId) {
        let Some(piece) = self.pieces.get_mut(&id).filter(|piece| piece.want.can_wait) else { return };
        piece.want.can_wait = false;
        piece.ends_at = piece.ends_at.min(now + piece.want.patience);
        let (deadline, is_idle) = (piece.deadline, piece.asks.is_empty());
        self.set_deadline(id, deadline);
        if is_idle {
            self.ready.push_front(id);
            self.is_stuck = false;
        }
    }

    /// Removes blocks from a piece, because they arrived with another one or are no longer needed. A piece without
    /// remaining blocks is done.
    pub fn strike(&mut self, id: PieceId, ids: &[BlockId]) {
        let Some(piece) = self.pieces.get_mut(&id) else { return };
        piece.want.ids.retain(|wanted| !ids.contains(wanted));
        if piece.want.ids.is_empty() {
            self.end_piece(id);
            self.events.push_back(ScheduleEvent::Done(id));
        }
    }

    /// Records bytes from the origin for a request, to measure the link.
    pub fn handle_bytes(&mut self, now: Duration, request: u32, bytes: u64) {
        let Some(ask) = self.under_way.get_mut(&request).filter(|ask| ask.source == Source::Origin) else {
            return;
        };
        if ask.came == 0 {
            self.origin.window.answered(ask.sent, now);
        }
        ask.came += bytes;
        self.origin.window.received(bytes);
        let expected = ask.expected.min(bytes);
        ask.expected -= expected;
        self.origin.expected -= expected;
        self.is_stuck = false;
    }

    /// Handles verified blocks of a reply.
    pub fn handle_arrived(&mut self, now: Duration, request: u32, ids: &[BlockId]) {
        let Some(ask) = self.under_way.get_mut(&request) else { return };
        if ask.source == Source::Origin {
            self.origin.progressed(now);
        }
        if ask.is_first_hand && ask.progress_at == ask.asked_at {
            self.origin.answer_began(now, now.saturating_sub(ask.asked_at));
        }
        ask.progress_at = now;
        let (parts, source) = (ask.pieces.clone(), ask.source);
        if let Source::Peer(node) = source
            && let Some(peer) = self.peers.get_mut(&node)
        {
            peer.replied(now);
        }
        let limit = self.patience(now, request);
        for id in parts {
            let Some(piece) = self.pieces.get_mut(&id) else { continue };
            piece.want.ids.retain(|wanted| !ids.contains(wanted));
            if piece.want.ids.is_empty() {
                if self.leave_ask(request, id) {
                    self.end_ask(now, request);
                }
                self.end_piece(id);
                self.events.push_back(ScheduleEvent::Done(id));
            } else if piece.asks.len() == 1 {
                self.set_deadline(id, now + limit);
            }
        }
    }

    /// Handles the end of a reply. The source does not have the blocks `missing`. A peer reports the version of its filter.
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
                ask.pieces.iter().for_each(|id| self.try_again(now, *id));
            }
            Source::Origin => {
                self.origin.progressed(now);
                for id in ask.pieces {
                    // If there is also a request to a peer, the peer may still send them.
                    if self.pieces.get(&id).is_some_and(|piece| piece.asks.is_empty()) {
                        self.fail_piece(id);
                    }
                }
            }
        }
    }

    /// Handles a failed request.
    pub fn handle_failed(&mut self, now: Duration, request: u32, failure: Failure) {
        let Some(ask) = self.take_ask(request) else { return };
        self.statistics.failures += 1;
        match ask.source {
            Source::Origin if failure == Failure::Refused => {
                ask.pieces.into_iter().for_each(|id| self.fail_piece(id));
            }
            Source::Origin => {
                let retry_at = self.origin.failed(now);
                ask.pieces.into_iter().for_each(|id| self.origin_failed(now, id, retry_at));
            }
            Source::Peer(node) => {
                match (failure, self.peers.get_mut(&node)) {
                    (Failure::Busy(after), Some(peer)) => {
                        peer.replied(now);
                        peer.is_busy_until(now.saturating_add(after), now);
                    }
                    (Failure::Gone | Failure::Refused, Some(peer)) => peer.failed(now),
                    (Failure::Lied, _) => self.ban(now, node),
                    (_, None) => {}
                }
                ask.pieces.into_iter().for_each(|id| self.try_again(now, id));
            }
        }
    }

    /// Handles the end of a peer's stream: its requests have failed, and its filter is no longer updated.
    pub fn peer_gone(&mut self, now: Duration, node: NodeId) {
        self.fail_asks(now, node);
        self.telling.remove(&node);
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.failed(now);
            peer.filter = crate::peer::filter::RemoteFilter::default();
        }
    }

    /// Handles a stream that a peer opened: the peer is available, regardless of earlier failures.
    pub fn peer_came(&mut self, now: Duration, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.came(now);
            self.is_stuck = false;
        }
    }

    /// Handles any message of a peer: it is not silent.
    pub fn peer_heard(&mut self, now: Duration, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.heard(now);
        }
    }

    /// Bans a peer that lied.
    pub fn ban(&mut self, now: Duration, node: NodeId) {
        self.telling.remove(&node);
        let peer = self.peers.entry(node).or_insert_with(|| Peer::new(&node));
        if !peer.is_banned() {
            peer.ban();
            self.statistics.liars += 1;
            self.fail_asks(now, node);
        }
    }

    /// Whether a peer is banned.
    pub fn is_banned(&self, node: &NodeId) -> bool {
        self.peers.get(node).is_some_and(Peer::is_banned)
    }

    /// Returns the statistics.
    pub fn statistics(&self) -> ScheduleStatistics {
        self.statistics
    }

    /// Returns the next event.
    pub fn poll_event(&mut self, now: Duration) -> Option<ScheduleEvent> {
        while let Some((_, id)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            self.handle_deadline(now, id);
        }
        for due in [&mut self.waiting.due, &mut self.origin.due] {
            if due.is_some_and(|at| now >= at) {
                (*due, self.is_stuck) = (None, false);
            }
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
        let first = self.deadlines.first().map(|(deadline, _)| *deadline);
        [first, self.waiting.due, self.origin.due].into_iter().flatten().min()
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
                Some((Source::Origin, _)) if self.is_alone() => self.ask_alone(now, id),
                Some((source, fetch)) => self.ask(now, vec![id], source, fetch),
                None => self.ready.push_back(id),
            }
        }
    }

    /// Whether the limit of bytes in flight permits requesting this piece.
    pub(super) fn has_room(&self, id: PieceId) -> bool {
        if self.is_alone() {
            // The origin's window is the limit.
            return true;
        }
        let bytes = self.pieces.get(&id).map_or(0, |piece| piece.want.ids.len() as u64 * ID_BYTES);
        self.bytes_in_flight == 0 || self.bytes_in_flight + bytes <= self.options.bytes_in_flight_max
    }

    /// Requests pieces from one source: several only from the origin, with the same recipe, kind and `exact`.
    pub(super) fn ask(&mut self, now: Duration, ids_of: Vec<PieceId>, source: Source, fetch: bool) {
        let request = self.next_request;
        let (mut ids, mut groups) = (Vec::new(), Vec::new());
        let mut lead = None;
        for id in &ids_of {
            let Some(piece) = self.pieces.get_mut(id) else { continue };
            piece.asks.push(request);
            piece.ends_at = piece.ends_at.min(now + piece.want.patience);
            if let Source::Peer(node) = source {
                // A peer that was to fetch the piece does not get another request for it.
                piece.tried.push(node);
                piece.homes_tried.extend(fetch.then_some(node));
            }
            ids.extend_from_slice(&piece.want.ids);
            groups.push(piece.want.group);
            let Want { score, kind, exact, can_wait, .. } = piece.want;
            lead.get_or_insert((score, kind, exact, can_wait));
        }
        let Some((score, kind, exact, can_wait)) = lead else { return };
        self.next_request = self.next_request.wrapping_add(1);
        self.bytes_in_flight += ids.len() as u64 * ID_BYTES;
        let is_first_hand = can_wait && source == Source::Origin;
        self.origin.ahead += usize::from(is_first_hand);
        self.hedge_credit = (self.hedge_credit + 1).min(HEDGE_CREDIT_MAX);
        let expected = self.count_ask(now, source, fetch, ids.len(), &groups);
        // With peers, whole groups are read. A request for one block should return its whole frame. A request for
        // several must not return blocks outside of their group, because a frame on the border of two groups would be
        // sent for each of them.
        let exact = if self.is_alone() { exact } else { ids.len() > 1 };
        let sent = self.origin.window.sent(now);
        self.events.push_back(ScheduleEvent::Ask(Ask {
            request,
            source,
            score,
            kind,
            fetch,
            exact,
            ids: ids.clone(),
        }));
        let pieces = ids_of;
        let ask = UnderWay {
            pieces: pieces.clone(),
            groups,
            source,
            fetch,
            is_first_hand,
            asked_at: now,
            progress_at: now,
            ids,
            sent,
            expected,
            came: 0,
        };
        self.under_way.insert(request, ask);
        let limit = self.patience(now, request);
        pieces.into_iter().for_each(|id| self.set_deadline(id, now + limit));
    }

    /// Counts a request for `ids` ids at its source. Returns the number of bytes expected from the origin.
    fn count_ask(&mut self, now: Duration, source: Source, fetch: bool, ids: usize, groups: &[u64]) -> u64 {
        match source {
            Source::Origin => {
                let expected = self.origin.expected_of(ids);
                self.origin.expected += expected;
                self.origin.in_flight += 1;
                self.origin.groups.extend(groups);
                self.statistics.origin_asks += 1;
                expected
            }
            Source::Peer(node) => {
                let counter =
                    if fetch { &mut self.statistics.home_asks } else { &mut self.statistics.peer_asks };
                *counter += 1;
                if let Some(peer) = self.peers.get_mut(&node) {
                    peer.asked(now);
                }
                0
            }
        }
    }

    /// A piece no longer needs that request. Returns whether no other piece needs it either.
    fn leave_ask(&mut self, request: u32, id: PieceId) -> bool {
        if let Some(piece) = self.pieces.get_mut(&id) {
            piece.asks.retain(|other| *other != request);
        }
        let Some(ask) = self.under_way.get_mut(&request) else { return false };
        ask.pieces.retain(|other| *other != id);
        ask.pieces.is_empty()
    }

    /// Removes a request that has ended in any way.
    fn take_ask(&mut self, request: u32) -> Option<UnderWay> {
        let ask = self.under_way.remove(&request)?;
        self.is_stuck = false;
        self.bytes_in_flight -= ask.ids.len() as u64 * ID_BYTES;
        self.origin.ahead -= usize::from(ask.is_first_hand);
        match ask.source {
            Source::Origin => {
                self.origin.in_flight -= 1;
                self.origin.expected -= ask.expected;
                ask.groups.iter().for_each(|group| _ = self.origin.groups.remove(group));
            }
            Source::Peer(node) => {
                if let Some(peer) = self.peers.get_mut(&node) {
                    peer.in_flight = peer.in_flight.saturating_sub(1);
                }
            }
        }
        for id in &ask.pieces {
            if let Some(piece) = self.pieces.get_mut(id) {
                piece.asks.retain(|other| *other != request);
            }
        }
        Some(ask)
    }

    /// Removes a request that was answered.
    fn end_ask(&mut self, now: Duration, request: u32) -> Option<UnderWay> {
        let ask = self.take_ask(request)?;
        let took = now.saturating_sub(ask.asked_at);
        match ask.source {
            Source::Peer(node) => {
                if let Some(peer) = self.peers.get_mut(&node) {
                    peer.answered(took, ask.ids.len());
                    peer.replied(now);
                }
                if ask.fetch { self.home_patience.saw(took) } else { self.peer_patience.saw(took) }
            }
            Source::Origin if ask.came > 0 => {
                self.origin.window.ended(ask.sent, now);
                self.origin.answered(ask.ids.len(), ask.came);
            }
            Source::Origin => {}
        }
        Some(ask)
    }

    /// Tries another source for a piece, unless it has a request in flight.
    fn try_again(&mut self, now: Duration, id: PieceId) {
        let Some(piece) = self.pieces.get_mut(&id).filter(|piece| piece.asks.is_empty()) else { return };
        if !piece.want.can_wait {
            self.ready.push_front(id);
            return;
        }
        self.wait_again(now, id);
    }

    /// Handles a failure of the origin for a piece. It is retried at `retry_at` or later.
    fn origin_failed(&mut self, now: Duration, id: PieceId, retry_at: Duration) {
        let Some(piece) = self.pieces.get_mut(&id) else { return };
        piece.origin_failures += 1;
        // Peers that were tried may now have it, or be available again. Those that have not replied yet are not tried again.
        let asked: Vec<Source> =
            piece.asks.iter().filter_map(|request| Some(self.under_way.get(request)?.source)).collect();
        let has_not_answered = |node: &NodeId| asked.contains(&Source::Peer(*node));
        piece.tried.retain(has_not_answered);
        piece.homes_tried.retain(has_not_answered);
        piece.not_before = retry_at;
        let is_over =
            now >= piece.ends_at || piece.want.origin_only && piece.origin_failures >= ORIGIN_FAILURES_MAX;
        if is_over && piece.asks.is_empty() {
            self.fail_piece(id);
            return;
        }
        self.try_again(now, id);
        self.set_deadline(id, retry_at);
    }

    fn fail_asks(&mut self, now: Duration, node: NodeId) {
        let asks = self.under_way.iter().filter(|(_, ask)| ask.source == Source::Peer(node));
        let requests: Vec<u32> = asks.map(|(request, _)| *request).collect();
        for request in requests {
            self.handle_failed(now, request, Failure::Gone);
        }
    }

    /// Removes a piece, and cancels its requests.
    fn end_piece(&mut self, id: PieceId) -> Option<Piece> {
        let piece = self.pieces.remove(&id)?;
        self.deadlines.remove(&(piece.deadline, id));
        for request in &piece.asks {
            if self.leave_ask(*request, id)
                && let Some(ask) = self.take_ask(*request)
            {
                self.events.push_back(ScheduleEvent::Cancel { source: ask.source, request: *request });
            }
        }
        Some(piece)
    }

    pub(super) fn fail_piece(&mut self, id: PieceId) {
        if let Some(piece) = self.end_piece(id) {
            self.events.push_back(ScheduleEvent::Failed { piece: id, ids: piece.want.ids });
        }
    }
}
