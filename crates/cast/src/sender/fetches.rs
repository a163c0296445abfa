//! Requests for chunks over the reliable channel, because their datagrams were corrupt.
//!
//! Owns the open requests, one per connection, and the share of the rate for the answers. A receiver requests the next bytes
//! when it has the previous ones, so nothing accumulates for one that does not read. Must never exceed the share while there are
//! datagrams to send: fetches must not slow the other receivers.

use std::collections::VecDeque;
use std::time::Duration;

/// Maximum bytes of one request. They fit the driver's queue of a connection.
pub(crate) const FETCH_BYTES_MAX: u32 = 32 << 10;
/// While there are datagrams to send, all fetches together get 1/8 of the rate.
const SHARE: u64 = 8;
/// Maximum unused share, in bits: four requests, so that only few are answered at once.
const SAVED_MAX: i64 = 4 * FETCH_BYTES_MAX as i64 * 8;
/// Number of requests that are searched for one whose chunk is in memory, and whose chunks are read ahead.
const WINDOW: usize = 8;
/// Interval at which the machine must be called while requests are open.
pub(crate) const FETCH_TICK: Duration = Duration::from_millis(2);

/// A request for bytes of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) connection: u64,
    pub(crate) chunk: u32,
    pub(crate) offset: u32,
    /// At most [`FETCH_BYTES_MAX`].
    pub(crate) length: u32,
}

/// The open requests, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    open: VecDeque<Fetch>,
    /// Bits that may be sent now; negative after an answer.
    tokens: i64,
    filled_at: Duration,
}

impl Fetches {
    /// Adds a request. It replaces an unanswered one of the same connection.
    pub(crate) fn ask(&mut self, fetch: Fetch) {
        let fetch = Fetch { length: fetch.length.min(FETCH_BYTES_MAX), ..fetch };
        match self.open.iter_mut().find(|open| open.connection == fetch.connection) {
            Some(open) => *open = fetch,
            None => self.open.push_back(fetch),
        }
    }

    /// Drops the requests of a connection that ended.
    pub(crate) fn forget(&mut self, connection: u64) {
        self.open.retain(|open| open.connection != connection);
    }

    /// Returns whether a request of this connection is open.
    pub(crate) fn has(&self, connection: u64) -> bool {
        self.open.iter().any(|open| open.connection == connection)
    }

    /// Returns whether there are no open requests.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the chunks whose contents are needed.
    pub(crate) fn upcoming(&self) -> impl Iterator<Item = u32> + '_ {
        self.open.iter().take(WINDOW).map(|open| open.chunk)
    }

    /// Returns the next request to answer, among those whose chunk is in memory (`has`). `idle`: there are no datagrams to send.
    pub(crate) fn next(
        &mut self,
        now: Duration,
        rate_bits_per_second: u64,
        idle: bool,
        has: impl Fn(u32) -> bool,
    ) -> Option<Fetch> {
        let passed = now.saturating_sub(self.filled_at).min(Duration::from_secs(1));
        self.filled_at = now.max(self.filled_at);
        let earned = u128::from(rate_bits_per_second / SHARE) * passed.as_nanos() / 1_000_000_000;
        self.tokens = (self.tokens + earned as i64).min(SAVED_MAX);
        if self.tokens <= 0 && !idle {
            return None;
        }
        let position = self.open.iter().take(WINDOW).position(|open| has(open.chunk))?;
        let fetch = self.open.remove(position)?;
        self.tokens = (self.tokens - i64::from(fetch.length) * 8).max(-SAVED_MAX);
        Some(fetch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(connection: u64, chunk: u32) -> Fetch {
        Fetch { connection, chunk, offset: 0, length: u32::MAX }
    }

    #[test]
    fn answers_keep_to_their_share_unless_nothing_else_is_sent() {
        let mut fetches = Fetches::default();
        let mut answered = |idle| {
            let mut bytes = 0;
            for ms in 0..1000 {
                fetches.ask(fetch(1, 5));
                let now = Duration::from_millis(ms + if idle { 1000 } else { 0 });
                bytes += fetches.next(now, 80_000_000, idle, |_| true).map_or(0, |it| u64::from(it.length));
            }
            bytes
        };
        let share = answered(false);
        assert!((1_200_000..1_400_000).contains(&share), "{share} bytes of 10,000,000 a second");
        assert_eq!(answered(true), 1000 * u64::from(FETCH_BYTES_MAX));
    }

    #[test]
    fn each_connection_has_one_request_and_they_take_turns() {
        let mut fetches = Fetches::default();
        for chunk in [1, 2, 3] {
            fetches.ask(fetch(7, chunk));
            fetches.ask(fetch(8, chunk + 10));
        }
        fetches.ask(fetch(9, 1));
        fetches.forget(9);
        assert_eq!(fetches.upcoming().collect::<Vec<_>>(), [3, 13]);
        let mut next = |has: fn(u32) -> bool| fetches.next(Duration::ZERO, 1, true, has).map(|it| it.chunk);
        assert_eq!(next(|chunk| chunk == 13), Some(13));
        assert_eq!((next(|_| false), next(|_| true), next(|_| true)), (None, Some(3), None));
    }
}
