//! The state of the origin as the scheduler sees it: how much may be in flight, and when to retry after a failure.
//!
//! Two limits apply to reading ahead. The number of requests follows the time to the first frame, with or without
//! peers. Without peers, the bytes in flight also follow [`super::window`], and pieces share requests: only the link to
//! the origin is then used, and long requests fill it with few connections.

use std::collections::BTreeSet;
use std::time::Duration;

use super::piece::Piece;
use super::window::Window;

/// Maximum number of requests in flight at the origin.
const ASKS_MAX: u32 = 64;
/// Limits of the number of requests ahead of need. The number grows by one when the first frame arrives in less than
/// twice the minimum time, and shrinks by one when it takes more than four times as long, because that indicates a
/// queue (TCP Vegas, Brakmo and Peterson 1995, uses the same signal). So a long link is filled, and a short one gets
/// few requests: each needs a connection, and many would take bandwidth from the connection on which a peer sends. With
/// fewer than four, the origin is sometimes idle while replies of peers are ahead in the same queue.
const AHEAD_MAX: usize = 16;
const AHEAD_MIN: usize = 4;
/// Minimum times below this are treated as this value, because such short delays do not indicate a queue.
const LEAST_TIME_MIN: Duration = Duration::from_millis(2);
/// The minimum time is forgotten after this time, because the delay of a link can increase.
const LEAST_TIME_KEPT: Duration = Duration::from_secs(60);
/// Assumed stored length of a block before any was received.
const BLOCK_LENGTH_GUESS: u64 = 16 << 10;
/// After a failure, nothing is requested from the origin for `PAUSE_MIN`; the time doubles with each further failure,
/// up to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Stored bytes that a sequential reader should announce if there are peers: enough that each of many peers is the home
/// of some.
const ANNOUNCED_AMONG_PEERS: u64 = 16 << 20;

/// State of the origin.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) window: Window,
    pub(super) in_flight: u32,
    /// With peers: the groups of the requests in flight. A frame mostly belongs to one group, so two requests for parts
    /// of a group would transfer it twice.
    pub(super) groups: BTreeSet<u64>,
    /// Number of requests in flight ahead of need, and its limit.
    pub(super) ahead: usize,
    pub(super) ahead_max: usize,
    /// The minimum time to the first frame, and when it was measured.
    least_time: (Duration, Duration),
    /// Estimated number of bytes that were requested and have not arrived.
    pub(super) expected: u64,
    /// Number of bytes that arrived ahead of need and were not read yet.
    unread: u64,
    /// Average stored length of a received block.
    block_length: u64,
    /// Time at which bytes last arrived.
    pub(super) progress_at: Duration,
    pause: Duration,
    retry_at: Duration,
    /// Time of the next attempt after a failure, if one is planned.
    pub(super) due: Option<Duration>,
}

impl Default for Origin {
    fn default() -> Self {
        Self {
            window: Window::default(),
            in_flight: 0,
            groups: BTreeSet::new(),
            ahead: 0,
            ahead_max: AHEAD_MIN,
            least_time: (Duration::MAX, Duration::ZERO),
            expected: 0,
            unread: 0,
            block_length: BLOCK_LENGTH_GUESS,
            progress_at: Duration::ZERO,
            pause: Duration::ZERO,
            retry_at: Duration::ZERO,
            due: None,
        }
    }
}

impl Origin {
    /// Records the time to the first frame of a request ahead of need.
    pub(super) fn answer_began(&mut self, now: Duration, took: Duration) {
        let took = took.max(LEAST_TIME_MIN);
        if took <= self.least_time.0 || now > self.least_time.1 + LEAST_TIME_KEPT {
            self.least_time = (took, now);
        }
        let (least, _) = self.least_time;
        if took < least * 2 {
            self.ahead_max = (self.ahead_max + 1).min(AHEAD_MAX);
        } else if took > least * 4 {
            self.ahead_max = (self.ahead_max - 1).max(AHEAD_MIN);
        }
    }

    /// Whether requests may be sent to it now.
    pub(super) fn may_be_asked(&self, now: Duration) -> bool {
        self.in_flight < ASKS_MAX && now >= self.retry_at
    }

    /// Without peers: whether a piece may be requested now. A piece of a random reader never waits. An announced piece
    /// waits while the bytes in flight fill the link.
    pub(super) fn has_room_for(&self, piece: &Piece) -> bool {
        !piece.announced || self.expected < self.window.length()
    }

    /// Without peers: whether more may be requested ahead of need, if at most `ahead_bytes_max` bytes may be in flight or unread.
    pub(super) fn has_room_ahead(&self, ahead_bytes_max: u64) -> bool {
        self.ahead < self.ahead_max
            && self.expected < self.window.length()
            && self.expected + self.unread < ahead_bytes_max
    }

    /// Number of ids that one request should contain.
    pub(super) fn request_ids(&self) -> usize {
        (self.window.request_length() / self.block_length.max(1)).max(1) as usize
    }

    /// Estimated stored bytes of this number of ids.
    pub(super) fn expected_of(&self, ids: usize) -> u64 {
        self.block_length * ids as u64
    }

    /// Records that a request for `ids` ids was answered with `came` bytes.
    pub(super) fn answered(&mut self, ids: usize, came: u64) {
        self.block_length = (self.block_length * 7 + came / ids.max(1) as u64).div_ceil(8);
    }

    /// Records that bytes arrived: the origin is reachable.
    pub(super) fn progressed(&mut self, now: Duration) {
        self.progress_at = now;
        (self.pause, self.retry_at, self.due) = (Duration::ZERO, Duration::ZERO, None);
    }

    /// Records a failed request. Returns the time of the next attempt. Requests in flight together fail together, so
    /// there is one pause for all of them.
    pub(super) fn failed(&mut self, now: Duration) -> Duration {
        if now >= self.retry_at {
            self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            self.retry_at = now + self.pause;
            self.due = Some(self.retry_at);
        }
        self.retry_at
    }

    /// Sets the number of bytes that arrived ahead of need and were not read yet. Returns whether it decreased.
    pub(super) fn set_unread(&mut self, bytes: u64) -> bool {
        bytes < std::mem::replace(&mut self.unread, bytes)
    }

    /// Stored bytes that a sequential reader should announce ahead of its position.
    pub(super) fn announced_bytes(&self, is_alone: bool) -> u64 {
        if is_alone { self.window.length() + self.window.request_length() } else { ANNOUNCED_AMONG_PEERS }
    }
}
