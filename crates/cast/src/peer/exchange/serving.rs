//! The questions of one asker, and the share of the uplink for all askers.
//!
//! Owns the limits on what an asker can make this node hold, and when frames may be sent. The node's own disks have priority: for
//! a while after their traffic, peers get only an eighth of their share.
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::pacing::Pacer;
use crate::peer::wire::{AskMessage, PeerMessage};

/// Maximum number of unanswered questions of a peer. Further ones are refused with BUSY.
pub const ASKS_PER_PEER_MAX: usize = 32;
/// Maximum number of a peer's questions with the driver, not counting fetches for it. This limits what is prepared for a
/// peer that does not read.
pub(super) const SERVING_PER_PEER_MAX: usize = 8;
/// Time for which peers' frames yield after the node's own traffic.
const YIELD: Duration = Duration::from_millis(50);
/// While yielding, peers get this fraction (1/8) of their rate.
const YIELD_PART: u64 = 8;

/// The questions of one peer.
#[derive(Debug, Default)]
pub(super) struct Asker {
    /// Questions that were not yet passed to the driver.
    pub(super) waiting: VecDeque<AskMessage>,
    /// Questions with the driver, which reads the frames.
    pub(super) serving: BTreeSet<u32>,
    /// Frames and ENDs that wait to be sent.
    pub(super) out: VecDeque<PeerMessage>,
}

impl Asker {
    /// Returns the number of unanswered questions.
    pub(super) fn open(&self) -> usize {
        self.waiting.len() + self.serving.len()
    }

    /// Returns whether that request number is in use.
    pub(super) fn has(&self, request: u32) -> bool {
        self.serving.contains(&request) || self.waiting.iter().any(|ask| ask.request == request)
    }

    /// Drops a question and its frames. Returns whether the driver has the question, and the bytes that will not be sent;
    /// `None` if it was already answered.
    pub(super) fn cancel(&mut self, request: u32) -> Option<(bool, u64)> {
        let before = self.waiting.len();
        self.waiting.retain(|ask| ask.request != request);
        let was_waiting = self.waiting.len() < before;
        let was_serving = self.serving.remove(&request);
        let mut bytes = 0;
        self.out.retain(|message| match message {
            PeerMessage::Frame { request: of, frame } if *of == request => {
                bytes += frame.len() as u64;
                false
            }
            _ => true,
        });
        (was_waiting || was_serving).then_some((was_serving, bytes)).or((bytes > 0).then_some((false, bytes)))
    }

    /// Appends a frame to those that wait to be sent.
    pub(super) fn give(&mut self, request: u32, frame: Arc<[u8]>) {
        self.out.push_back(PeerMessage::Frame { request, frame });
    }
}

/// The share of the uplink for peers.
#[derive(Debug)]
pub(super) struct Share {
    full: Pacer,
    yielding: Pacer,
    yields_until: Duration,
}

impl Share {
    pub(super) fn new(bits_per_second: u64) -> Self {
        Self {
            full: Pacer::new(bits_per_second),
            yielding: Pacer::new(bits_per_second / YIELD_PART),
            yields_until: Duration::ZERO,
        }
    }

    /// Records that the node's own disks are reading or fetching now.
    pub(super) fn own_traffic(&mut self, now: Duration) {
        self.yields_until = now + YIELD;
    }

    pub(super) fn may_send(&mut self, now: Duration) -> bool {
        self.full.advance(now);
        self.yielding.advance(now);
        self.full.may_send() && (now >= self.yields_until || self.yielding.may_send())
    }

    pub(super) fn spend(&mut self, bytes: usize) {
        self.full.spend(bytes);
        self.yielding.spend(bytes);
    }

    /// Returns when something may be sent again.
    pub(super) fn ready_at(&self) -> Duration {
        let yielding = self.yielding.ready_at().min(self.yields_until);
        self.full.ready_at().max(yielding)
    }
}
