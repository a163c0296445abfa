//! Handles deadlines: hedges a piece whose reply is late by requesting it elsewhere too, lets requests without a reply
//! fail, and ends pieces that take too long.
//!
//! Owns the limits of hedges. Must never leave a piece without a deadline.

use std::time::Duration;

use super::event::ScheduleEvent;
use super::patience;
use super::peer::SILENCE_MAX;
use super::piece::{Failure, PieceId, Source, UnderWay};
use super::scheduler::Scheduler;
use crate::peer::NodeId;

/// Without peers, a request fails after this time without progress; with peers, after [`SILENCE_MAX`]. It is longer because there
/// is no other source, and on a slow link the frames of other requests may come first.
const SILENCE_ALONE_MAX: Duration = Duration::from_secs(60);
/// Maximum number of requests in flight for one piece.
pub(super) const ASKS_MAX: usize = 3;
/// Every request earns the credit for 1/16 of a hedge, so that a slow network does not get everything twice. Without
/// credit, a request is hedged only after [`HEDGE_ALWAYS`] without progress.
const HEDGE_COST: u32 = 16;
pub(super) const HEDGE_CREDIT_MAX: u32 = 16 * HEDGE_COST;
const HEDGE_ALWAYS: Duration = Duration::from_secs(2);
/// The same for a piece that no reader waits for: busy peers normally reply this late, and each hedge adds to their
/// load.
const HEDGE_WAITING: Duration = Duration::from_secs(6);
/// A piece with more ids is hedged at the origin only if all sources are silent for [`HEDGE_ALWAYS`]: its home is
/// probably receiving it from the origin, which would then send it twice.
const ORIGIN_HEDGE_IDS_MAX: usize = 16;
/// If at least this many peers are missing, and at least 1/[`MISSING_PART`] of the number present, a request to a peer that may be
/// missing too is hedged at once. A node among many peers that are off would otherwise wait for each of them.
const MISSING_MIN: usize = 4;
/// See [`MISSING_MIN`].
const MISSING_PART: usize = 5;

impl Scheduler {
    /// How long a request may be without progress before it is hedged.
    pub(super) fn patience(&self, now: Duration, request: u32) -> Duration {
        match self.under_way.get(&request) {
            Some(UnderWay { source: Source::Peer(node), .. }) if self.is_doubted(now, *node) => {
                patience::LEAST
            }
            Some(UnderWay { source: Source::Peer(_), fetch, .. }) => {
                if *fetch {
                    self.home_patience.limit()
                } else {
                    self.peer_patience.limit()
                }
            }
            _ => self.silence_max(),
        }
    }

    /// Whether a peer is probably missing, because many others are.
    fn is_doubted(&self, now: Duration, node: NodeId) -> bool {
        if !self.peers.get(&node).is_some_and(|peer| peer.is_unproven(now)) {
            return false;
        }
        let missing = self.peers.values().filter(|peer| peer.is_missing(now)).count();
        let there = self.peers.values().filter(|peer| peer.is_there(now)).count();
        missing >= MISSING_MIN.max(there / MISSING_PART)
    }

    fn silence_max(&self) -> Duration {
        if self.is_alone() { SILENCE_ALONE_MAX } else { SILENCE_MAX }
    }

    pub(super) fn handle_deadline(&mut self, now: Duration, id: PieceId) {
        let Some(piece) = self.pieces.get(&id) else { return };
        if now >= piece.ends_at {
            // On a slow link, bytes for other pieces count as progress: the piece fails only when nothing arrives.
            let ends_at = self.origin.progress_at + piece.want.patience;
            if !self.is_alone() || now >= ends_at || self.origin.progress_at == Duration::ZERO {
                self.fail_piece(id);
                return;
            }
            if let Some(piece) = self.pieces.get_mut(&id) {
                piece.ends_at = ends_at;
            }
            self.set_deadline(id, ends_at);
            return;
        }
        self.is_stuck = false;
        let silence_max = self.silence_max();
        for request in piece.asks.clone() {
            let silent = self.under_way.get(&request).filter(|ask| now >= ask.progress_at + silence_max);
            if let Some(source) = silent.map(|ask| ask.source) {
                self.events.push_back(ScheduleEvent::Cancel { source, request });
                self.handle_failed(now, request, Failure::Gone);
            }
        }
        let Some(piece) = self.pieces.get(&id) else { return };
        let next = if piece.asks.is_empty() {
            // The piece is in `ready`.
            if now < piece.not_before { piece.not_before } else { piece.ends_at }
        } else {
            self.hedge(now, id)
        };
        self.set_deadline(id, next.max(now + Duration::from_millis(1)));
    }

    /// Requests the rest of a piece from another source, if a hedge is allowed now. Returns the next deadline of the piece.
    fn hedge(&mut self, now: Duration, id: PieceId) -> Duration {
        let Some(piece) = self.pieces.get(&id) else { return now };
        let asks: Vec<&UnderWay> =
            piece.asks.iter().filter_map(|request| self.under_way.get(request)).collect();
        let progress = asks.iter().map(|ask| ask.progress_at);
        let (first, last) = (progress.clone().min().unwrap_or(now), progress.max().unwrap_or(now));
        // The origin is the last source: a request to it is never hedged.
        if asks.len() >= ASKS_MAX || asks.iter().any(|ask| ask.source == Source::Origin) {
            return first + self.silence_max();
        }
        // The slowest kind of source in use determines the limit.
        let limit = piece.asks.iter().map(|request| self.patience(now, *request)).max().unwrap_or_default();
        let is_doubted = asks.iter().all(|ask| match ask.source {
            Source::Peer(node) => self.is_doubted(now, node),
            Source::Origin => false,
        });
        // A home that answers is probably receiving the piece from the origin, which would then send it twice.
        let is_fetched = asks.iter().any(|ask| ask.fetch) && !is_doubted;
        let (can_wait, piece_length) = (piece.want.can_wait, piece.want.ids.len());
        let always_at = last + if can_wait { HEDGE_WAITING } else { HEDGE_ALWAYS };
        let may_hedge = (self.hedge_credit >= HEDGE_COST || is_doubted) && !can_wait;
        if now < last + limit || (!may_hedge && now < always_at) {
            return if may_hedge { last + limit } else { always_at };
        }
        // A piece that can wait is not hedged at the origin.
        let source = match self.pick_holder(now, id) {
            Some(Some(node)) => Some((Source::Peer(node), false)),
            _ if can_wait => None,
            _ => self.pick(now, id),
        };
        let Some((source, fetch)) = source else {
            return (now + HEDGE_ALWAYS).min(first + self.silence_max());
        };
        let is_large = piece_length > ORIGIN_HEDGE_IDS_MAX && !is_doubted;
        let from_origin = source == Source::Origin || fetch;
        if from_origin && (is_large || is_fetched) && now < always_at {
            return always_at;
        }
        self.hedge_credit = self.hedge_credit.saturating_sub(HEDGE_COST);
        self.statistics.hedges += 1;
        self.ask(now, vec![id], source, fetch);
        self.pieces.get(&id).map_or(now, |piece| piece.deadline)
    }

    pub(super) fn set_deadline(&mut self, id: PieceId, deadline: Duration) {
        if let Some(piece) = self.pieces.get_mut(&id) {
            self.deadlines.remove(&(piece.deadline, id));
            piece.deadline = deadline.min(piece.ends_at);
            self.deadlines.insert((piece.deadline, id));
        }
    }
}
