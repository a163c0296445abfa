//! The session that a receiver joined.
//!
//! Owns its counters and the state of its chunks. Must never mix two sessions: each has its own.

use std::ops::Range;
use std::time::Duration;

use super::guard::Guard;
use super::wants::{ChunkState, Wants};
use crate::session::ChunkTable;
use crate::wire::announce::Announce;
use crate::wire::format::Header;

/// A number above all others is forged if so many datagrams in a row are further behind it than this: no network reorders as much.
const BEHIND_MAX: u64 = 2048;
const BEHIND_ROW: u32 = 64;

/// The current session, or the last one.
pub(super) struct Session {
    pub(super) announce: Announce,
    pub(super) receiver: u32,
    pub(super) guard: Guard,
    pub(super) joined_packet: u64,
    pub(super) seen_packet: u64,
    pub(super) seen_sent_us: u32,
    pub(super) seen_at: Duration,
    /// Number of datagrams in a row that were far behind that one.
    pub(super) behind: u32,
    pub(super) received: u64,
    pub(super) table: ChunkTable,
    pub(super) wants: Wants,
    pub(super) directory: Vec<Option<Vec<u8>>>,
}

impl Session {
    /// Records a datagram. It is the newest one if its number is the highest; or if the highest one must be forged, because what arrives
    /// is far behind it: reports would otherwise speak of a datagram that was not sent yet, until the sender gets there.
    pub(super) fn saw(&mut self, now: Duration, header: &Header) {
        self.received += 1;
        let is_far_behind = header.packet.saturating_add(BEHIND_MAX) < self.seen_packet;
        self.behind = if is_far_behind { self.behind + 1 } else { 0 };
        if header.packet > self.seen_packet || self.behind >= BEHIND_ROW {
            (self.seen_packet, self.seen_sent_us, self.seen_at) = (header.packet, header.sent_us, now);
            self.behind = 0;
        }
    }

    /// Returns whether a chunk is data that nobody can use yet, because the recipe is incomplete.
    pub(super) fn must_wait(&self, chunk: u32) -> bool {
        chunk >= self.recipe().end && self.wants_recipe()
    }

    /// Returns whether a part of the recipe is wanted and not yet accepted.
    pub(super) fn wants_recipe(&self) -> bool {
        let open = |chunk| !matches!(self.wants.state(chunk), ChunkState::Unwanted | ChunkState::Done);
        self.recipe().any(open)
    }

    /// Returns the chunks of the first segment's recipe. Later segments are requested one at a time, recipe before data.
    fn recipe(&self) -> Range<u32> {
        let first = self.table.directory_chunks();
        first..first.saturating_add(self.announce.first_segment.recipe_chunks)
    }
}
