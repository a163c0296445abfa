//! The state of a peer as the scheduler sees it: its filter, reply times, load and failures.
//!
//! Decides whether a peer can be used, and with what probability. A banned peer stays banned.

use std::time::Duration;

use platter_image::BlockId;

use super::home::node_hash;
use crate::peer::NodeId;
use crate::peer::filter::{FilterVersion, RemoteFilter};

/// Maximum number of requests in flight at one peer.
pub(super) const PEER_ASKS_MAX: u32 = 16;
/// At this number of requests in flight at one peer, a further one that can wait (part of a large read) is held back;
/// for slow peers the number is lower. Other peers will have the same blocks soon, and a busy peer should send each
/// node blocks that no other node has yet.
const PEER_WAITING_ASKS_MAX: u32 = 4;
const LATE_US: u64 = 250_000;
/// After its first failure a peer is not asked for `BACKOFF_MIN`; each further failure doubles the time, up to `BACKOFF_MAX`.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// A peer that owes a reply and sends nothing for this long is silent: one that answers slowly sends parts of other replies. A peer
/// that was not heard since it was added or failed, so that it is perhaps not connected, is silent earlier.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(10);
const SILENCE_STRANGER_MAX: Duration = Duration::from_secs(2);
/// Assumed reply time of a new peer: short, so that it is tried.
const TIME_FIRST_US: u64 = 5_000;
/// A filter is evaluated after this many requested ids. It is ignored if more than 1/`FALSE_PART_MAX` of them were
/// missing although the filter was not outdated.
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
    /// When something came from it last; `None` if nothing did since it was added or failed.
    heard_at: Option<Duration>,
    /// When a part of a reply came from it last.
    replied_at: Option<Duration>,
    /// Since when it owes a reply: the first request, or the last message if requests were in flight then.
    owes_since: Option<Duration>,
    /// Moving average of the reply time in microseconds.
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
            heard_at: None,
            replied_at: None,
            owes_since: None,
            time_us: TIME_FIRST_US,
            asked_ids: 0,
            false_ids: 0,
        }
    }

    /// Whether the peer can be used now. A peer that failed gets one request at a time until it replies.
    pub(super) fn is_alive(&self, now: Duration) -> bool {
        let unused_from = if self.failures > 0 { self.owes_since } else { self.silent_at() };
        let unused_until = self.silent_at().map_or(self.retry_at, |at| at + self.backoff());
        let is_unused = unused_from.is_some_and(|from| now >= from) && now < unused_until;
        !self.banned && now >= self.retry_at && !is_unused
    }

    /// When it became or becomes silent, if nothing comes.
    fn silent_at(&self) -> Option<Duration> {
        let limit = if self.heard_at.is_some() { SILENCE_MAX } else { SILENCE_STRANGER_MAX };
        self.owes_since.map(|since| since.saturating_add(limit))
    }

    /// How long it is not used after one more failure.
    fn backoff(&self) -> Duration {
        BACKOFF_MIN.saturating_mul(1 << self.failures.min(16)).min(BACKOFF_MAX)
    }

    /// Whether it failed or is silent, and nothing came from it since.
    pub(super) fn is_missing(&self, now: Duration) -> bool {
        let has_failed = self.failures > 0 && self.heard_at.is_none();
        has_failed || self.silent_at().is_some_and(|at| now >= at)
    }

    /// Whether it was heard, and is neither silent nor failed.
    pub(super) fn is_there(&self, now: Duration) -> bool {
        self.heard_at.is_some() && !self.is_missing(now)
    }

    /// Whether no reply came from it for so long that it may be missing.
    pub(super) fn is_unproven(&self, now: Duration) -> bool {
        self.replied_at.is_none_or(|at| now >= at.saturating_add(SILENCE_MAX))
    }

    /// Records a request. If the peer was silent since an earlier one, that counts as a failure.
    pub(super) fn asked(&mut self, now: Duration) {
        self.in_flight += 1;
        if self.silent_at().is_some_and(|at| now >= at) {
            (self.failures, self.heard_at, self.owes_since) = (self.failures.saturating_add(1), None, None);
        }
        self.owes_since.get_or_insert(now);
    }

    /// Records that a part of a reply came from the peer, or that it is overloaded.
    pub(super) fn replied(&mut self, now: Duration) {
        self.replied_at = Some(now);
        self.heard(now);
    }

    /// Records that something came from the peer.
    pub(super) fn heard(&mut self, now: Duration) {
        self.heard_at = Some(now);
        self.owes_since = (self.in_flight > 0).then_some(now);
    }

    pub(super) fn is_banned(&self) -> bool {
        self.banned
    }

    /// Whether another request may be sent to it. Requests that can wait have a lower limit: more peers will have these
    /// blocks later, and all uplinks are used evenly.
    pub(super) fn has_room_for(&self, what_can_wait: bool) -> bool {
        let late = (self.time_us / LATE_US).min(u64::from(PEER_WAITING_ASKS_MAX) - 1) as u32;
        self.in_flight < if what_can_wait { PEER_WAITING_ASKS_MAX - late } else { PEER_ASKS_MAX }
    }

    /// Weight of the peer in the random choice among holders: the inverse of the expected time of another request.
    pub(super) fn weight(&self) -> u64 {
        1_000_000_000 / (self.time_us.max(1) * u64::from(1 + self.in_flight)).max(1) + 1
    }

    /// Returns how many of these ids its filter claims. With `in_a_hurry`, the result is 0 if the first id is not
    /// claimed: many pieces are checked, and the blocks of a group mostly occur together.
    pub(super) fn claims(&self, ids: &[BlockId], in_a_hurry: bool) -> usize {
        if in_a_hurry && ids.first().is_some_and(|first| !self.filter.contains(first)) {
            return 0;
        }
        ids.iter().filter(|id| self.filter.contains(id)).count()
    }

    /// Records a reply to a request for `ids` ids.
    pub(super) fn answered(&mut self, took: Duration, ids: usize) {
        self.failures = 0;
        let took = took.as_micros() as u64;
        self.time_us = (self.time_us * 7 + took) / 8;
        self.asked_ids = self.asked_ids.saturating_add(ids as u32);
    }

    /// Records that the peer does not have some of the requested blocks; its own filter had this version. Returns for
    /// how many of them the filter here, though not outdated, was wrong. A filter that is wrong too often is dropped
    /// until the peer sends a complete one.
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

    /// Records that the peer did not reply, disconnected or aborted.
    pub(super) fn failed(&mut self, now: Duration) {
        // When a stream ends, many requests fail together: they count as one failure.
        if now >= self.retry_at {
            self.retry_at = now + self.backoff();
            self.failures = self.failures.saturating_add(1);
        }
        (self.heard_at, self.owes_since) = (None, None);
    }

    /// Records that the peer is available. Earlier failures matter only if it fails again.
    pub(super) fn came(&mut self, now: Duration) {
        self.retry_at = Duration::ZERO;
        self.heard(now);
    }

    /// Records that the peer is overloaded.
    pub(super) fn is_busy_until(&mut self, until: Duration, now: Duration) {
        self.retry_at = self.retry_at.max(until.min(now + BACKOFF_MAX));
    }

    /// Excludes the peer permanently, because it sent wrong bytes.
    pub(super) fn ban(&mut self) {
        self.banned = true;
        self.filter = RemoteFilter::default();
    }
}
