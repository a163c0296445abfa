//! What the machine sends, and in which order: small messages first, then filters and frames, with peers taking turns.
//!
//! Owns when subscribers get updates of the filter.

use std::time::Duration;

use super::machine::Exchange;
use crate::peer::wire::{NodeId, PeerMessage};

/// Interval of updates to subscribers. Nodes that read the same data at once ask each other for blocks from these updates.
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

    /// Returns when subscribers get the next update.
    pub(super) fn tells_at(&self) -> Duration {
        self.told_at + UPDATE_INTERVAL
    }

    /// Marks all subscribers as due if there are new blocks and the last update was long enough ago.
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

    /// Returns the next part of the filter for a subscriber.
    pub(super) fn poll_filter(&mut self) -> Option<(NodeId, PeerMessage)> {
        while let Some(node) = self.telling.pop_front() {
            // A full connection gets its turn when it is no longer full.
            if self.is_full(&node) {
                continue;
            }
            let reader = self.streams.get_mut(&node).and_then(|stream| stream.reader.as_mut());
            if let Some(message) = reader.and_then(|reader| reader.next_message(&self.holdings)) {
                // There may be more, after the others have had their turn.
                self.telling.push_back(node);
                return Some((node, message));
            }
        }
        None
    }

    /// Returns the next frame or END; askers take turns message by message.
    pub(super) fn poll_frame(&mut self) -> Option<(NodeId, PeerMessage)> {
        while let Some(node) = self.sending.pop_front() {
            if self.is_full(&node) {
                continue;
            }
            let Some(stream) = self.streams.get_mut(&node) else { continue };
            // The frames of a cancelled question were removed.
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

/// Returns the bytes of a frame in a message; 0 for other messages.
pub(super) fn frame_bytes(message: &PeerMessage) -> u64 {
    match message {
        PeerMessage::Frame { frame, .. } => frame.len() as u64,
        _ => 0,
    }
}
