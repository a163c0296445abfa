//! What is known of the origin: how much may be under way there, and when it is asked again after a failure.
//!
//! Two limits decide how much it is asked for ahead of need. The number of requests follows the time to a first frame, with
//! peers or without. Without peers, the bytes under way follow [`super::window`] too, and pieces share requests: the link to
//! the origin is then the only one, and long requests fill it with few connections.

use std::collections::BTreeSet;
use std::time::Duration;

use super::piece::Piece;
use super::window::Window;

/// Requests under way at the origin.
const ASKS_MAX: u32 = 64;
/// Requests ahead of need: one more when the first frame came in less than twice the least time that one took, one less when that
/// was over four times as long, which is a queue (TCP Vegas, Brakmo and Peterson 1995, looks at the same). So a long link is
/// filled, and on a near one there are few requests: each is a connection, and many would take the link from the one on which a
/// peer sends. With fewer than four, where answers of peers are before theirs in one queue, the origin has nothing to do at times.
const AHEAD_MAX: usize = 16;
const AHEAD_MIN: usize = 4;
/// Less than that is no sign of a queue.
const LEAST_TIME_MIN: Duration = Duration::from_millis(2);
/// The least time is of the last answers only: a link can become longer.
const LEAST_TIME_KEPT: Duration = Duration::from_secs(60);
/// Stored bytes of a block, before any came.
const BLOCK_LENGTH_GUESS: u64 = 16 << 10;
/// After a failure the origin is asked for nothing for that long, and twice as long after each further one, up to the second.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// What a sequential reader among peers should announce: enough that each of many peers is the home of some of it, in stored bytes.
const ANNOUNCED_AMONG_PEERS: u64 = 16 << 20;

/// The origin as the scheduler knows it.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) window: Window,
    pub(super) in_flight: u32,
    /// Groups under way, among peers. A frame lies in one group mostly: two requests for parts of one would bring it twice.
    pub(super) groups: BTreeSet<u64>,
    /// Requests ahead of need, and how many may be.
    pub(super) ahead: usize,
    pub(super) ahead_max: usize,
    /// The least time to a first frame, and when that came.
    least_time: (Duration, Duration),
    /// Estimated bytes that are under way and have not come.
    pub(super) expected: u64,
    /// Bytes that came ahead of need and nobody has read.
    unread: u64,
    /// Stored bytes that came for an id, on average.
    block_length: u64,
    /// When something last came.
    pub(super) progress_at: Duration,
    pause: Duration,
    retry_at: Duration,
    /// When to try again after a failure, if that is to be.
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
    /// An answer to a request ahead of need began after that time.
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

    /// Whether it may be asked for something at all.
    pub(super) fn may_be_asked(&self, now: Duration) -> bool {
        self.in_flight < ASKS_MAX && now >= self.retry_at
    }

    /// Without peers: whether a piece can be asked for now. A piece of a random reader never waits. A piece that was announced waits
    /// while as many bytes are under way as the link holds.
    pub(super) fn has_room_for(&self, piece: &Piece) -> bool {
        !piece.announced || self.expected < self.window.length()
    }

    /// Without peers: whether more may be requested ahead of need, if at most `ahead_bytes_max` bytes may be under way or unread.
    pub(super) fn has_room_ahead(&self, ahead_bytes_max: u64) -> bool {
        self.ahead < self.ahead_max
            && self.expected < self.window.length()
            && self.expected + self.unread < ahead_bytes_max
    }

    /// Bytes of ids that one request should ask for, in ids.
    pub(super) fn request_ids(&self) -> usize {
        (self.window.request_length() / self.block_length.max(1)).max(1) as usize
    }

    /// Bytes that so many ids stand for.
    pub(super) fn expected_of(&self, ids: usize) -> u64 {
        self.block_length * ids as u64
    }

    /// A request for so many ids was answered with so many bytes.
    pub(super) fn answered(&mut self, ids: usize, came: u64) {
        self.block_length = (self.block_length * 7 + came / ids.max(1) as u64).div_ceil(8);
    }

    /// Something came: it is there.
    pub(super) fn progressed(&mut self, now: Duration) {
        self.progress_at = now;
        (self.pause, self.retry_at, self.due) = (Duration::ZERO, Duration::ZERO, None);
    }

    /// A request failed. Gives when to ask again. Requests that were under way together fail together: one pause is for them all.
    pub(super) fn failed(&mut self, now: Duration) -> Duration {
        if now >= self.retry_at {
            self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            self.retry_at = now + self.pause;
            self.due = Some(self.retry_at);
        }
        self.retry_at
    }

    /// Sets the bytes that came ahead of need and nobody has read. True when there are fewer than before.
    pub(super) fn set_unread(&mut self, bytes: u64) -> bool {
        bytes < std::mem::replace(&mut self.unread, bytes)
    }

    /// Stored bytes that a sequential reader should announce ahead of where it is.
    pub(super) fn announced_bytes(&self, is_alone: bool) -> u64 {
        if is_alone { self.window.length() + self.window.request_length() } else { ANNOUNCED_AMONG_PEERS }
    }
}
