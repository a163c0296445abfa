//! Selects the source for a piece: a holder (a peer whose filter claims it), the group's home, or the origin.
//!
//! Owns the order of preference and the random choice. Must never select a peer that was tried for the same piece in
//! the same way, nor the origin while holders are only busy.

use std::time::Duration;

use super::home::affinity;
use super::peer::Peer;
use super::piece::{Piece, PieceId, Source};
use super::scheduler::Scheduler;
use crate::peer::NodeId;

/// Number of homes of a group that are tried before the origin: the first one, and its replacement if that is gone.
const HOMES_MAX: usize = 2;

impl Scheduler {
    /// Selects the source, and whether it should fetch missing blocks. `None` if the possible sources are busy.
    pub(super) fn pick(&mut self, now: Duration, id: PieceId) -> Option<(Source, bool)> {
        let piece = self.pieces.get(&id)?;
        if !piece.want.origin_only {
            if let Some(holder) = self.pick_holder(now, id) {
                return holder.map(|node| (Source::Peer(node), false));
            }
            if self.home_to_try(now, id).is_some() {
                return self.pick_home(now, id);
            }
        }
        self.pick_origin(now, id)
    }

    /// Returns the home to use for the piece, or its replacement if that is gone.
    fn home_to_try(&self, now: Duration, id: PieceId) -> Option<(NodeId, &Peer)> {
        let piece = self
            .pieces
            .get(&id)
            .filter(|piece| piece.homes_tried.len() < HOMES_MAX && piece.asks.is_empty())?;
        self.home(now, piece).filter(|_| self.options.homes)
    }

    /// Selects the home. `None` if it is busy, or is this node.
    pub(super) fn pick_home(&self, now: Duration, id: PieceId) -> Option<(Source, bool)> {
        let can_wait = self.pieces.get(&id)?.want.can_wait;
        let (node, peer) = self.home_to_try(now, id)?;
        peer.has_room_for(can_wait).then_some((Source::Peer(node), true))
    }

    /// Selects the origin, unless it is busy or has just failed.
    pub(super) fn pick_origin(&self, now: Duration, id: PieceId) -> Option<(Source, bool)> {
        let piece = self.pieces.get(&id)?;
        let has_room = match self.is_alone() {
            true => self.origin.has_room_for(piece),
            false => !self.origin.groups.contains(&piece.want.group),
        };
        (self.origin.may_be_asked(now) && has_room).then_some((Source::Origin, false))
    }

    /// Selects a peer whose filter claims the whole piece or, if a reader waits for it, most of it. `Some(None)` if these are busy.
    pub(super) fn pick_holder(&mut self, now: Duration, id: PieceId) -> Option<Option<NodeId>> {
        let piece = self.pieces.get(&id)?;
        let ids = &piece.want.ids;
        let mut best = if piece.want.can_wait { ids.len() } else { ids.len().div_ceil(2) };
        let mut holders: Vec<(NodeId, u64)> = Vec::new();
        let mut waits = false;
        for node in self.telling.iter().filter(|node| !piece.tried.contains(node)) {
            let Some(peer) = self.peers.get(node).filter(|peer| peer.is_alive(now)) else { continue };
            let claims = peer.claims(ids, piece.want.can_wait);
            if claims < best {
                continue;
            }
            if claims > best {
                (best, waits) = (claims, false);
                holders.clear();
            }
            if peer.has_room_for(piece.want.can_wait) {
                holders.push((*node, peer.weight()));
            } else {
                waits = true;
            }
        }
        let total: u64 = holders.iter().map(|(_, weight)| weight).sum();
        let mut point = self.random.below(total);
        for (node, weight) in holders {
            if point < weight {
                return Some(Some(node));
            }
            point -= weight;
        }
        waits.then_some(None)
    }

    /// Returns the group's home, if it is another node that was not tried as the home.
    pub(super) fn home(&self, now: Duration, piece: &Piece) -> Option<(NodeId, &Peer)> {
        let alive =
            self.peers.iter().filter(|(node, peer)| peer.is_alive(now) && !piece.homes_tried.contains(node));
        let group = piece.want.group;
        let (node, home) = alive.max_by_key(|(_, peer)| affinity(peer.hash, group))?;
        let is_own = affinity(self.own_hash, group) > affinity(home.hash, group);
        (!is_own).then_some((*node, home))
    }

    /// Returns how many nodes are preferred to this one as the home of the piece: 0 means that this node is the home, 1
    /// that it is the second choice. A node that other nodes do not know (`options.homes` is false) counts as the
    /// second choice for every group.
    pub(super) fn nodes_nearer(&self, now: Duration, piece: &Piece) -> usize {
        if self.is_alone() {
            return 0;
        }
        if !self.options.homes {
            return 1;
        }
        let (group, alive) = (piece.want.group, self.peers.values().filter(|peer| peer.is_alive(now)));
        let own = affinity(self.own_hash, group);
        alive.filter(|peer| affinity(peer.hash, group) > own).count()
    }
}
