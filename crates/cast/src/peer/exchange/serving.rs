//! The questions of one asker, and the share of the uplink for all of them.
//!
//! Owns the bounds of what an asker can make this node hold, and when frames may go out. Own disks come first: after
//! each word of their traffic, peers get an eighth of their share for a while.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::pacing::Pacer;
use crate::peer::wire::{AskMessage, PeerMessage};

/// Questions of one peer that are not answered; the next one is told to come back.
pub const ASKS_PER_PEER_MAX: usize = 32;
/// Of them with the driver at a time, without those that it fetches for: one who does not read has so much made ready for him.
pub(super) const SERVING_PER_PEER_MAX: usize = 8;
/// After the node's own traffic, peers' frames yield for that long.
const YIELD: Duration = Duration::from_millis(50);
/// To that part of their rate.
const YIELD_PART: u64 = 8;

/// The questions of one peer.
#[derive(Debug, Default)]
pub(super) struct Asker {
    /// Not yet given to the driver.
    pub(super) waiting: VecDeque<AskMessage>,
    /// With the driver: it reads the frames.
    pub(super) serving: BTreeSet<u32>,
    /// Frames and ends on their way out.
    pub(super) out: VecDeque<PeerMessage>,
}

impl Asker {
    /// Questions that are not answered.
    pub(super) fn open(&self) -> usize {
        self.waiting.len() + self.serving.len()
    }

    /// Whether that number is in use.
    pub(super) fn has(&self, request: u32) -> bool {
        self.serving.contains(&request) || self.waiting.iter().any(|ask| ask.request == request)
    }

    /// Forgets a question and its frames. Gives whether the driver knows of it, and the bytes that will not go out;
    /// `None` when it was answered already.
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

    /// Puts a frame behind the others.
    pub(super) fn give(&mut self, request: u32, frame: Arc<[u8]>) {
        self.out.push_back(PeerMessage::Frame { request, frame });
    }
}

/// The share of the uplink.
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

    /// The node's own disks are reading or fetching now.
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

    /// When something may be sent again.
    pub(super) fn ready_at(&self) -> Duration {
        let yielding = self.yielding.ready_at().min(self.yields_until);
        self.full.ready_at().max(yielding)
    }
}
