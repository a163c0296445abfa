//! What one peer was seen to do: its filter, its answers, its load, its failures.
//!
//! Owns who may be asked and how likely. Must never let a liar back in.

use std::time::Duration;

use platter_image::BlockId;

use super::home::node_hash;
use crate::peer::NodeId;
use crate::peer::filter::{FilterVersion, RemoteFilter};

/// Asks under way at one peer.
pub(super) const PEER_ASKS_MAX: u32 = 16;
/// Limit on the asks at one peer at which a further ask that can wait (part of a large read) is held back; the limit is lower for a
/// peer that answers late. Other peers will have the same blocks soon, and a busy peer should send each node what nobody has yet.
const PEER_WAITING_ASKS_MAX: u32 = 4;
const LATE_US: u64 = 250_000;
/// After its first failure a peer is not asked for `BACKOFF_MIN`; each further failure doubles the time, up to `BACKOFF_MAX`.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// An answer time before any was seen: newcomers are tried.
const TIME_FIRST_US: u64 = 5_000;
/// A filter is judged after so many ids, and ignored when more than this part of them was not there, though the
/// filter was not stale.
const JUDGED_IDS: u32 = 256;
const FALSE_PART_MAX: u32 = 4;

/// One peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) hash: u64,
    pub(super) filter: RemoteFilter,
    pub(super) in_flight: u32,
    banned: bool,
    failures: u32,
    retry_at: Duration,
    /// Moving average of what an answer takes, microseconds.
    time_us: u64,
    asked_ids: u32,
    false_ids: u32,
}

impl Peer {
    pub(super) fn new(node: &NodeId) -> Self {
        Self {
            hash: node_hash(node),
            filter: RemoteFilter::default(),
            in_flight: 0,
            banned: false,
            failures: 0,
            retry_at: Duration::ZERO,
            time_us: TIME_FIRST_US,
            asked_ids: 0,
            false_ids: 0,
        }
    }

    /// Whether it counts as there.
    pub(super) fn is_alive(&self, now: Duration) -> bool {
        !self.banned && now >= self.retry_at
    }

    pub(super) fn is_banned(&self) -> bool {
        self.banned
    }

    /// Whether it may be sent one more ask. Asks that can wait have a lower limit: later more peers have the blocks, and all uplinks
    /// are used alike.
    pub(super) fn has_room_for(&self, what_can_wait: bool) -> bool {
        let late = (self.time_us / LATE_US).min(u64::from(PEER_WAITING_ASKS_MAX) - 1) as u32;
        self.in_flight < if what_can_wait { PEER_WAITING_ASKS_MAX - late } else { PEER_ASKS_MAX }
    }

    /// How likely it is chosen among those who have the same: the inverse of the time that one ask more would take.
    pub(super) fn weight(&self) -> u64 {
        1_000_000_000 / (self.time_us.max(1) * u64::from(1 + self.in_flight)).max(1) + 1
    }

    /// How many of these it says to hold. In a hurry, a peer that does not hold the first id counts as holding
    /// none: there are many pieces to look at, and blocks of a group mostly come together.
    pub(super) fn claims(&self, ids: &[BlockId], in_a_hurry: bool) -> usize {
        if in_a_hurry && ids.first().is_some_and(|first| !self.filter.contains(first)) {
            return 0;
        }
        ids.iter().filter(|id| self.filter.contains(id)).count()
    }

    /// It answered an ask for so many ids.
    pub(super) fn answered(&mut self, took: Duration, ids: usize) {
        self.failures = 0;
        let took = took.as_micros() as u64;
        self.time_us = (self.time_us * 7 + took) / 8;
        self.asked_ids = self.asked_ids.saturating_add(ids as u32);
    }

    /// Some of what its filter says was not there, when its own filter was at that version. Gives how many were the
    /// filter's fault, which was not older; a filter at fault too often is forgotten until the next whole one.
    pub(super) fn lacked(&mut self, missing: &[BlockId], version: FilterVersion) -> usize {
        let claimed = self.claims(missing, false);
        if self.filter.version().is_none_or(|here| here < version) {
            return 0;
        }
        self.false_ids = self.false_ids.saturating_add(claimed as u32);
        if self.asked_ids >= JUDGED_IDS {
            if self.false_ids > self.asked_ids / FALSE_PART_MAX {
                self.filter = RemoteFilter::default();
            }
            (self.asked_ids, self.false_ids) = (self.asked_ids / 2, self.false_ids / 2);
        }
        claimed
    }

    /// It hung, vanished or broke off.
    pub(super) fn failed(&mut self, now: Duration) {
        // Many asks fail at once when a stream ends: that is one failure.
        if self.is_alive(now) {
            let backoff = BACKOFF_MIN.saturating_mul(1 << self.failures.min(16)).min(BACKOFF_MAX);
            self.failures += 1;
            self.retry_at = now + backoff;
        }
    }

    /// It is there; what failed before counts only when it fails again.
    pub(super) fn came(&mut self) {
        self.retry_at = Duration::ZERO;
    }

    /// It has too much to do.
    pub(super) fn is_busy_until(&mut self, until: Duration, now: Duration) {
        self.retry_at = self.retry_at.max(until.min(now + BACKOFF_MAX));
    }

    /// It gave wrong bytes.
    pub(super) fn ban(&mut self) {
        self.banned = true;
        self.filter = RemoteFilter::default();
    }
}
