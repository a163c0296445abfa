//! Pieces that can wait: they are for later, mostly of a disk that is read whole.
//!
//! A node waits for peers to have them, and asks the origin only for a few at a time: of those whose group it is the *home* of first
//! ([`super::home`]). When it has none of these left, it stands in for homes: it asks the origin for pieces that it is the
//! second choice for. When that brings nothing either, it asks the homes. So the origin gives each piece about once, to whoever has time for it.
//!
//! Owns these pieces until they are asked for, and when what is tried. Must never hold one that somebody waits for.

use std::collections::VecDeque;
use std::time::Duration;

use super::piece::{PieceId, Source};
use super::scheduler::{LOOK_AHEAD, Scheduler};

/// Pieces looked at when those in front have to wait.
const WAITING_LOOK_AHEAD: usize = 512;
/// A node that has no more pieces of its own, and knows of no peer that has the rest, stands in for homes after that time.
const STAND_IN_PATIENCE: Duration = Duration::from_millis(500);
/// A node that has nothing more to ask the origin for, and knows of no peer that has the rest, asks the homes after that time.
const HOMES_PATIENCE: Duration = Duration::from_secs(2);
/// A piece that nobody had all of is tried again after that time.
const RETRY: Duration = Duration::from_millis(200);

/// What waits, and since when nothing came.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Those whose home is this node.
    pub(super) at_home: VecDeque<PieceId>,
    pub(super) others: VecDeque<PieceId>,
    /// When this node stands in for homes.
    stands_in_at: Duration,
    /// When others are asked to fetch what can wait.
    asks_homes_at: Duration,
    /// When more may be asked for though nothing happened.
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
    /// Pieces in all.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.at_home.len() + self.others.len()
    }
}

impl Scheduler {
    /// Puts a piece that can wait where it does.
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
        // Not in the order in which all nodes want them, or all would ask for the same at the same time.
        let place = self.random.below(self.waiting.others.len() as u64 + 1) as usize;
        self.waiting.others.insert(place, id);
    }

    /// Nobody had all of it: somebody may soon.
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

    /// Asks for pieces that can wait: from peers, all that they have; from the origin, a few that this node is the home of, and later a
    /// few that it is the second choice for.
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
            // What its home has asked for meanwhile comes twice.
            let under_way_max = if self.options.homes { 1 } else { self.origin.ahead_max };
            self.start_first_hand(now, &mut stood_in_for, under_way_max);
        }
        self.waiting.at_home = at_home;
        // The other homes read the same mostly, and need not be asked to.
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

    /// Those of the others for whose home this node stands in, the last first: the home begins at the other end. Who stands in for all
    /// begins with the first.
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

    /// Asks the origin for some of these that no peer has.
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

    /// Whether it still waits: who was hurried is in `ready`, or further.
    pub(super) fn still_waits(&self, id: PieceId) -> bool {
        self.pieces.get(&id).is_some_and(|piece| piece.want.can_wait && piece.asks.is_empty())
    }

    /// Asks a peer that says to have it, or, if there is none, that other. False when it has to wait.
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
