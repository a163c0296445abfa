//! Fetching from the origin without peers: pieces share requests, and the bytes in flight fill the link.
//!
//! A request contains a piece that a reader waits for, and is filled up with announced pieces, in order. Random reads
//! are sent at once; sequential reads wait until the link has room. Must never put pieces of different recipes, kinds
//! or values of `exact` into one request.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use platter_image::frame::stream::REQUEST_IDS_MAX;
use platter_image::{Kind, Score};

use super::piece::{PieceId, Source};
use super::scheduler::Scheduler;

/// The properties that all pieces of a request have in common.
type Likeness = (Score, Kind, bool);

impl Scheduler {
    /// Requests a piece that a reader waits for, with others that fit into the same request.
    pub(super) fn ask_alone(&mut self, now: Duration, lead: PieceId) {
        let Some(like) = self.likeness(lead) else { return };
        let is_announced = self.pieces.get(&lead).is_some_and(|piece| piece.announced);
        if is_announced {
            self.ask_in_order(now, lead, like);
            return;
        }
        // A random reader needs only this block, at once.
        let mut request = Request { pieces: vec![lead], ids: self.length_of(lead) };
        let mut ready = std::mem::take(&mut self.ready);
        self.move_into(now, &mut ready, like, REQUEST_IDS_MAX, &mut request);
        self.ready = ready;
        self.ask(now, request.pieces, Source::Origin, false);
    }

    /// Requests an announced piece that a sequential reader waits for. The threads of such a reader wait in any order, but the
    /// pieces are requested in their order and without gaps: two requests that each contain a part of a frame transfer it twice.
    fn ask_in_order(&mut self, now: Duration, lead: PieceId, like: Likeness) {
        let mut order: Vec<PieceId> = self.ready.iter().chain(&self.waiting.at_home).copied().collect();
        order.push(lead);
        order.sort_unstable();
        order.dedup();
        let mut request = self.run_with(now, &order, lead, like);
        if request.pieces.last().is_none_or(|last| *last < lead) {
            // The piece that the reader waits for is too far behind the first one.
            let at = order.partition_point(|id| *id < lead);
            request = self.run_with(now, &order[at..], lead, like);
        }
        let pieces: BTreeSet<PieceId> = request.pieces.iter().copied().collect();
        self.ready.retain(|id| !pieces.contains(id));
        self.waiting.at_home.retain(|id| !pieces.contains(id));
        self.ask(now, request.pieces, Source::Origin, false);
    }

    /// Returns the first pieces of `order` that make one request. Behind `lead`, those that no reader waits for are part of it only
    /// if there is room to read ahead.
    fn run_with(&self, now: Duration, order: &[PieceId], lead: PieceId, like: Likeness) -> Request {
        let ids_max = self.origin.request_ids().min(REQUEST_IDS_MAX);
        let has_room_ahead = self.origin.has_room_ahead(self.options.ahead_bytes_max);
        let mut request = Request { pieces: Vec::new(), ids: 0 };
        for id in order.iter().copied() {
            let Some(piece) = self.pieces.get(&id).filter(|piece| piece.announced && piece.asks.is_empty())
            else {
                continue;
            };
            if now < piece.not_before || self.likeness(id) != Some(like) {
                continue;
            }
            let ids = request.ids + piece.want.ids.len();
            let is_full = ids > ids_max && !request.pieces.is_empty();
            if is_full || id > lead && piece.want.can_wait && !has_room_ahead {
                break;
            }
            request.pieces.push(id);
            request.ids = ids;
        }
        request
    }

    /// Requests announced pieces that no reader waits for yet, as far as the limits permit.
    pub(super) fn start_waiting_alone(&mut self, now: Duration) {
        if !self.waiting.others.is_empty() {
            // These began to wait while there were peers.
            let mut others: Vec<PieceId> = self.waiting.others.drain(..).collect();
            others.sort_unstable();
            self.waiting.at_home.extend(others);
        }
        self.waiting.due = None;
        while self.origin.may_be_asked(now) && self.origin.has_room_ahead(self.options.ahead_bytes_max) {
            let Some(lead) = self.waiting.at_home.pop_front() else { break };
            if !self.still_waits(lead) {
                continue;
            }
            let not_before = self.pieces.get(&lead).map_or(now, |piece| piece.not_before);
            if now < not_before {
                self.waiting.at_home.push_front(lead);
                self.waiting.due = Some(not_before);
                break;
            }
            let Some(like) = self.likeness(lead) else { continue };
            let mut request = Request { pieces: vec![lead], ids: self.length_of(lead) };
            let mut at_home = std::mem::take(&mut self.waiting.at_home);
            let ids = self.origin.request_ids();
            self.move_into(now, &mut at_home, like, ids, &mut request);
            self.waiting.at_home = at_home;
            self.ask(now, request.pieces, Source::Origin, false);
        }
    }

    /// Moves pieces from the front of `queue` into a request while they have the properties `like` and it has at most `ids_max` ids.
    fn move_into(
        &self,
        now: Duration,
        queue: &mut VecDeque<PieceId>,
        like: Likeness,
        ids_max: usize,
        request: &mut Request,
    ) {
        while let Some(id) = queue.front().copied() {
            let Some(piece) = self.pieces.get(&id) else {
                queue.pop_front();
                continue;
            };
            if !piece.asks.is_empty() || request.pieces.contains(&id) {
                // It was already requested from another queue.
                queue.pop_front();
                continue;
            }
            let ids = request.ids + piece.want.ids.len();
            // A sequential read that waits for the link is not sent together with a random one.
            let has_room = piece.want.can_wait || self.origin.has_room_for(piece);
            let fits = has_room && self.likeness(id) == Some(like) && ids <= ids_max.min(REQUEST_IDS_MAX);
            if !fits || now < piece.not_before {
                return;
            }
            queue.pop_front();
            request.pieces.push(id);
            request.ids = ids;
        }
    }

    fn likeness(&self, id: PieceId) -> Option<Likeness> {
        self.pieces.get(&id).map(|piece| (piece.want.score, piece.want.kind, piece.want.exact))
    }

    fn length_of(&self, id: PieceId) -> usize {
        self.pieces.get(&id).map_or(0, |piece| piece.want.ids.len())
    }
}

/// A request that is being assembled.
struct Request {
    pieces: Vec<PieceId>,
    ids: usize,
}
