//! Pieces that can wait, mostly because a whole disk is read.
//!
//! A node waits until peers have these pieces, and requests only a few at a time from the origin. First, pieces whose
//! group it is the *home* of ([`super::home`]). When none of these is left, it stands in for homes: it requests pieces
//! that it is the second choice for. When that yields nothing either, it requests the rest from the homes. So the
//! origin sends each piece about once, and all nodes share the work.
//!
//! Owns these pieces until they are requested. Must never contain a piece that a reader waits for.

use std::collections::VecDeque;
use std::time::Duration;

use super::piece::{PieceId, Source};
use super::scheduler::{LOOK_AHEAD, Scheduler};

/// Maximum number of pieces that are examined when the first ones must wait.
const WAITING_LOOK_AHEAD: usize = 512;
/// A node stands in for homes after this time without own pieces, while no peer claims the rest.
const STAND_IN_PATIENCE: Duration = Duration::from_millis(500);
/// A node requests pieces from their homes after this time without pieces for the origin, while no peer claims the
/// rest.
const HOMES_PATIENCE: Duration = Duration::from_secs(2);
/// A piece that no peer had completely is tried again after this time.
const RETRY: Duration = Duration::from_millis(200);

/// The waiting pieces, and the times of the next steps.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Pieces whose home is this node.
    pub(super) at_home: VecDeque<PieceId>,
    pub(super) others: VecDeque<PieceId>,
    /// Time from which this node stands in for homes.
    stands_in_at: Duration,
    /// Time from which waiting pieces are requested from their homes.
    asks_homes_at: Duration,
    /// Time at which to continue if nothing happens before.
    pub(super) due: Option<Duration>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            at_home: VecDeque::new(),
            others: VecDeque::new(),
            stands_in_at: Duration::ZERO,
            asks_homes_at: Duration::ZERO,
            due: None,
        }
    }
}

impl Waiting {
    /// Number of all waiting pieces.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.at_home.len() + self.others.len()
    }
}

impl Scheduler {
    /// Adds a piece that can wait.
    pub(super) fn wait(&mut self, now: Duration, id: PieceId) {
        let Some(nodes_nearer) = self.pieces.get(&id).map(|piece| self.nodes_nearer(now, piece)) else {
            return;
        };
        if nodes_nearer == 0 {
            self.waiting.at_home.push_back(id);
            return;
        }
        if self.waiting.others.is_empty() {
            self.waiting.stands_in_at = self.waiting.stands_in_at.max(now + STAND_IN_PATIENCE);
        }
        if let Some(piece) = self.pieces.get_mut(&id) {
            piece.stands_in = nodes_nearer == 1;
        }
        // In random order: otherwise all nodes would request the same pieces at the same time.
        let place = self.random.below(self.waiting.others.len() as u64 + 1) as usize;
        self.waiting.others.insert(place, id);
    }

    /// Adds a piece again that no peer had completely: a peer may have it soon.
    pub(super) fn wait_again(&mut self, now: Duration, id: PieceId) {
        let Some(piece) = self.pieces.get_mut(&id) else { return };
        piece.tried.clear();
        piece.homes_tried.clear();
        piece.not_before = piece.not_before.max(now + RETRY);
        piece.ends_at = Duration::MAX;
        let not_before = piece.not_before;
        self.set_deadline(id, not_before);
        self.wait(now, id);
    }

    /// Requests pieces that can wait: from peers, all that they have; from the origin, a few whose home this node is,
    /// and later a few for whose home it stands in.
    pub(super) fn start_waiting(&mut self, now: Duration) {
        if self.is_alone() {
            self.start_waiting_alone(now);
            return;
        }
        let mut at_home = std::mem::take(&mut self.waiting.at_home);
        if !at_home.is_empty() {
            self.waiting.stands_in_at = now + STAND_IN_PATIENCE;
        }
        self.start_first_hand(now, &mut at_home, self.origin.ahead_max);
        let mut stood_in_for = VecDeque::new();
        if now >= self.waiting.stands_in_at || !self.options.homes {
            stood_in_for = self.stood_in_for();
            // One at a time, because a piece that its home has requested meanwhile is transferred twice.
            let under_way_max = if self.options.homes { 1 } else { self.origin.ahead_max };
            self.start_first_hand(now, &mut stood_in_for, under_way_max);
        }
        self.waiting.at_home = at_home;
        // While this node is busy with these, the other homes mostly fetch the rest without a request.
        if !self.waiting.at_home.is_empty() || !stood_in_for.is_empty() || self.origin.ahead > 0 {
            self.waiting.asks_homes_at = now + HOMES_PATIENCE;
        }
        let later =
            [self.waiting.stands_in_at, self.waiting.asks_homes_at].into_iter().filter(|at| *at > now);
        self.waiting.due = later.min().filter(|_| !self.waiting.others.is_empty());
        for _ in 0..self.waiting.others.len().min(WAITING_LOOK_AHEAD) {
            let Some(id) = self.waiting.others.pop_front() else { break };
            if !self.still_waits(id) {
                continue;
            }
            if !self.has_room(id) {
                self.waiting.others.push_front(id);
                break;
            }
            let other = if now >= self.waiting.asks_homes_at { self.pick_home(now, id) } else { None };
            if !self.start_one(now, id, other) {
                self.waiting.others.push_back(id);
            }
        }
    }

    /// Returns the pieces for whose home this node stands in, in reverse order, because the home begins at the start.
    /// If no other node knows this one (`options.homes` is false), it begins at the start.
    fn stood_in_for(&self) -> VecDeque<PieceId> {
        let stands_in = |id: &PieceId| self.pieces.get(id).is_some_and(|piece| piece.stands_in);
        let mut ids: Vec<PieceId> =
            self.waiting.others.iter().copied().filter(|id| stands_in(id) && self.still_waits(*id)).collect();
        ids.sort_unstable();
        if self.options.homes {
            ids.reverse();
        }
        ids.into()
    }

    /// Requests some of these pieces: from holders if there are any, otherwise from the origin.
    fn start_first_hand(&mut self, now: Duration, pieces: &mut VecDeque<PieceId>, under_way_max: usize) {
        let mut place = 0;
        while self.origin.ahead < under_way_max
            && place < LOOK_AHEAD
            && let Some(id) = pieces.get(place).copied()
        {
            let origin = self.pick_origin(now, id);
            if self.still_waits(id) && !self.start_one(now, id, origin) {
                place += 1;
            } else {
                pieces.remove(place);
                self.waiting.others.retain(|other| *other != id);
            }
        }
    }

    /// Whether a piece still waits: it was neither hurried nor requested.
    pub(super) fn still_waits(&self, id: PieceId) -> bool {
        self.pieces.get(&id).is_some_and(|piece| piece.want.can_wait && piece.asks.is_empty())
    }

    /// Requests a piece from a holder or, if there is none, from `other`. Returns false if the piece must wait.
    fn start_one(&mut self, now: Duration, id: PieceId, other: Option<(Source, bool)>) -> bool {
        let is_due = self.pieces.get(&id).is_some_and(|piece| now >= piece.not_before);
        if !is_due || !self.has_room(id) {
            return false;
        }
        let source = match self.pick_holder(now, id) {
            Some(Some(node)) => Some((Source::Peer(node), false)),
            Some(None) => None,
            None => other,
        };
        if let Some((source, fetch)) = source {
            self.ask(now, vec![id], source, fetch);
        }
        source.is_some()
    }
}
