//! What the machine sends, and in which order: small messages first, then news of the filter and frames by turns.
//!
//! Owns when subscribers hear of new blocks.

use std::time::Duration;

use super::machine::Exchange;
use crate::peer::wire::{NodeId, PeerMessage};

/// Subscribers hear of new blocks so often. Nodes that read the same at once ask each other for what they heard of.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

impl Exchange {
    pub(super) fn poll_control(&mut self) -> Option<(NodeId, PeerMessage)> {
        while let Some(node) = self.talking.iter().find(|node| !self.is_full(node)).copied() {
            let message = self.streams.get_mut(&node).and_then(|stream| stream.control.pop_front());
            match message {
                Some(message) => return Some((node, message)),
                None => self.talking.remove(&node),
            };
        }
        None
    }

    /// When subscribers hear again.
    pub(super) fn tells_at(&self) -> Duration {
        self.told_at + UPDATE_INTERVAL
    }

    /// Subscribers are due when there is news, and the last was some time ago.
    pub(super) fn begin_telling(&mut self, now: Duration) {
        let version = self.holdings.version();
        if self.told == version || now < self.tells_at() {
            return;
        }
        (self.told, self.told_at) = (version, now);
        for node in &self.subscribers {
            if !self.telling.contains(node) {
                self.telling.push_back(*node);
            }
        }
    }

    /// What the next subscriber lacks.
    pub(super) fn poll_filter(&mut self) -> Option<(NodeId, PeerMessage)> {
        while let Some(node) = self.telling.pop_front() {
            // Who is full has his turn when he is not.
            if self.is_full(&node) {
                continue;
            }
            let reader = self.streams.get_mut(&node).and_then(|stream| stream.reader.as_mut());
            if let Some(message) = reader.and_then(|reader| reader.next_message(&self.holdings)) {
                // There may be more, after others had their turn.
                self.telling.push_back(node);
                return Some((node, message));
            }
        }
        None
    }

    /// The next frame or end: one message of each asker by turns.
    pub(super) fn poll_frame(&mut self) -> Option<(NodeId, PeerMessage)> {
        while let Some(node) = self.sending.pop_front() {
            if self.is_full(&node) {
                continue;
            }
            let Some(stream) = self.streams.get_mut(&node) else { continue };
            // A cancelled question takes its frames back.
            let Some(message) = stream.asker.out.pop_front() else { continue };
            if !stream.asker.out.is_empty() {
                self.sending.push_back(node);
            }
            self.out_bytes -= frame_bytes(&message);
            return Some((node, message));
        }
        None
    }
}

/// Bytes of a frame in a message; 0 of others.
pub(super) fn frame_bytes(message: &PeerMessage) -> u64 {
    match message {
        PeerMessage::Frame { frame, .. } => frame.len() as u64,
        _ => 0,
    }
}
