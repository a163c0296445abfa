//! The connections to peers.
//!
//! Two nodes may connect to each other at the same time. The connection opened by the node with the smaller id stays;
//! the other one gets no more replies, and ends when its opener has noticed that, or after [`RACE_TIME_MAX`]. Of two
//! connections that did not start together, the later one stays, because the other side no longer knows the earlier
//! one.

use std::time::Duration;

use platter_cast::peer::{Ask, NodeId, PeerMessage};
use platter_image::frame::FrameHeader;
use platter_image::{Error, ErrorKind};

use super::link::Link;
use super::machine::{Linked, Machine};

/// Connections that start within this time of each other count as started together.
const RACE_TIME_MAX: Duration = Duration::from_secs(5);
/// Most connections.
pub(super) const LINKS_MAX: usize = 512;
/// Peers whose filters are received. Homes cover the rest: more filters would cost more than they save.
const NEIGHBOURS: usize = 16;

impl Machine {
    /// A connection accepts messages again.
    pub(super) fn handle_drained(&mut self, number: u64, node: NodeId) {
        if self.is_current(number, &node) {
            self.exchange.handle_full(node, false);
        }
    }

    /// Whether this connection is the one in use.
    fn is_current(&self, number: u64, node: &NodeId) -> bool {
        self.linked.get(node).is_some_and(|linked| linked.link.number == number)
    }

    pub(super) fn send(&mut self, node: NodeId, message: PeerMessage) {
        let Some(linked) = self.linked.get(&node) else { return };
        if !linked.link.send(message) {
            self.exchange.handle_full(node, true);
        }
    }

    /// The exchange wants to connect to this node.
    pub(super) fn connect(&mut self, now: Duration, node: NodeId) {
        if self.linked.contains_key(&node) {
            let is_there = self.exchange.handle_connected(node);
            debug_assert!(is_there, "a link without its stream");
        } else if !self.dialing.contains(&node) {
            let has_room = self.linked.len() + self.dialing.len() < LINKS_MAX;
            let links = self.sharing.as_ref().map(|sharing| &sharing.links);
            if has_room && links.is_some_and(|links| links.dial(node)) {
                self.dialing.insert(node);
            } else {
                self.forget_stream(now, node);
            }
        }
    }

    pub(super) fn handle_not_linked(&mut self, now: Duration, node: NodeId) {
        if self.dialing.remove(&node) && !self.linked.contains_key(&node) {
            self.forget_stream(now, node);
        }
    }

    pub(super) fn handle_linked(&mut self, now: Duration, link: Link) {
        let node = link.node;
        if link.is_own {
            self.dialing.remove(&node);
        }
        let Some(sharing) = &self.sharing else { return };
        let is_known = sharing.links.directory.get(&node).is_some();
        let own = sharing.links.identity.id;
        if !is_known || self.scheduler.is_banned(&node) {
            self.handle_closed_link(now, node);
            return;
        }
        let Some(before) = self.linked.get(&node) else {
            if self.linked.len() < LINKS_MAX && self.exchange.handle_connected(node) {
                self.linked.insert(node, Linked { link, since: now, heard: now, has_greeted: false });
                self.scheduler.peer_came(now, node);
            } else {
                self.handle_closed_link(now, node);
            }
            return;
        };
        let together = now < before.since + RACE_TIME_MAX && before.link.is_own != link.is_own;
        // Prefers the connection opened by the node with the smaller id.
        let is_better = link.is_own == (own < node);
        if together && !is_better {
            self.superseded.push((now + RACE_TIME_MAX, link));
            return;
        }
        self.scheduler.peer_came(now, node);
        let linked = Linked { link, since: now, heard: now, has_greeted: false };
        if let Some(before) = self.linked.insert(node, linked).filter(|_| together) {
            self.superseded.push((now + RACE_TIME_MAX, before.link));
        }
        self.begin_anew(now, node);
    }

    /// On a new connection, repeats everything that the peer may not have received.
    fn begin_anew(&mut self, now: Duration, node: NodeId) {
        self.exchange.handle_disconnected(node);
        // Its requests on the previous connection are cancelled: it repeats them.
        self.poll_exchange(now);
        if !self.exchange.handle_connected(node) {
            self.unlink(now, node);
            return;
        }
        if self.subscribed.contains(&node) {
            self.exchange.subscribe(node, true);
        }
        // Replies to cancelled requests are no longer owed.
        self.owed.retain(|question, _| question.0 != node || self.asked.contains_key(question));
        let asked = self.asked.range((node, 0)..=(node, u32::MAX));
        let asks: Vec<Ask> = asked.map(|(_, ask)| ask.clone()).collect();
        asks.iter().for_each(|ask| self.exchange.ask(node, ask));
    }

    pub(super) fn handle_message(
        &mut self,
        now: Duration,
        number: u64,
        node: NodeId,
        message: PeerMessage,
        header: Option<FrameHeader>,
    ) {
        let Some(linked) = self.linked.get_mut(&node).filter(|linked| linked.link.number == number) else {
            return;
        };
        linked.heard = now;
        self.scheduler.peer_heard(now, node);
        if let PeerMessage::End { request, .. } | PeerMessage::Busy { request, .. } = &message {
            self.owed.remove(&(node, *request));
        }
        self.header = header;
        match self.exchange.handle_message(node, message) {
            // The exchange's verdict refers to this frame.
            Ok(()) => _ = self.poll_exchange(now),
            Err(error) if error.kind() == ErrorKind::Corrupt => self.drop_liar(now, node),
            Err(_) => self.unlink(now, node),
        }
        self.header = None;
    }

    pub(super) fn handle_closed(&mut self, now: Duration, number: u64, node: NodeId, lie: Option<&Error>) {
        self.superseded.retain(|(_, link)| link.number != number);
        if !self.is_current(number, &node) {
            return;
        }
        match lie {
            Some(error) if error.kind() == ErrorKind::Corrupt => self.drop_liar(now, node),
            _ => self.unlink(now, node),
        }
    }

    /// Rejects a connection; if the exchange waits for one, it is told.
    fn handle_closed_link(&mut self, now: Duration, node: NodeId) {
        if !self.linked.contains_key(&node) {
            self.forget_stream(now, node);
        }
    }

    /// Closes the connection to a peer, if there is one.
    pub(super) fn unlink(&mut self, now: Duration, node: NodeId) {
        if self.linked.remove(&node).is_some() {
            self.forget_stream(now, node);
        }
    }

    /// A peer sent wrong data: ignores it from now on.
    pub(super) fn drop_liar(&mut self, now: Duration, node: NodeId) {
        self.scheduler.ban(now, node);
        self.unlink(now, node);
    }

    fn forget_stream(&mut self, now: Duration, node: NodeId) {
        self.exchange.handle_disconnected(node);
        self.scheduler.peer_gone(now, node);
        self.subscribed.remove(&node);
        self.asked.retain(|(asked, _), _| *asked != node);
        self.owed.retain(|(owing, _), _| *owing != node);
    }

    /// Checks neighbours and silent peers.
    pub(super) fn tick(&mut self, now: Duration) {
        self.superseded.retain(|(until, _)| now < *until);
        let silent: Vec<NodeId> = self
            .linked
            .iter()
            .filter(|(node, it)| self.is_silent(now, node, it))
            .map(|(node, _)| *node)
            .collect();
        for node in silent {
            self.counts.silent += 1;
            self.unlink(now, node);
        }
        let lacking = NEIGHBOURS.saturating_sub(self.subscribed.len());
        let wanted = self.scheduler.neighbours_wanted(now, NEIGHBOURS);
        let new: Vec<NodeId> = wanted.into_iter().filter(|node| !self.subscribed.contains(node)).collect();
        for node in new.into_iter().take(lacking) {
            self.subscribed.insert(node);
            self.exchange.subscribe(node, true);
        }
    }

    /// Whether a peer owes a reply and was silent for too long.
    fn is_silent(&self, now: Duration, node: &NodeId, linked: &Linked) -> bool {
        let asked = self.owed.range((*node, 0)..=(*node, u32::MAX)).map(|(_, at)| *at).min();
        let owes_since = if linked.has_greeted { asked } else { Some(linked.since) };
        let silence_max = self.sharing.as_ref().map_or(Duration::MAX, |sharing| sharing.silence_max);
        owes_since.is_some_and(|since| now > since.max(linked.heard).saturating_add(silence_max))
    }
}
