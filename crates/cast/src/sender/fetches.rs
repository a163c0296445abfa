//! Chunks that receivers fetch over the reliable channel, because what came of them by datagrams was wrong.
//!
//! Owns the open questions, one for each connection, and the share of the rate that their answers may take. A receiver
//! asks for the next bytes when it has those before, so nothing piles up behind one that does not read. Must never
//! answer faster than the share while there are datagrams to send: who fetches must not slow the others.

use std::collections::VecDeque;
use std::time::Duration;

/// Most bytes of one question. They fit the driver's queue of a connection.
pub(crate) const FETCH_BYTES_MAX: u32 = 32 << 10;
/// While there are datagrams to send, all fetches together take one part in so many of the rate.
const SHARE: u64 = 8;
/// The share adds up to that many questions, so that few are answered at once.
const SAVED_MAX: i64 = 4 * FETCH_BYTES_MAX as i64 * 8;
/// Questions looked at for one whose chunk is at hand, and whose chunks are read ahead.
const WINDOW: usize = 8;
/// While questions are open, the machine wants to be woken that often.
pub(crate) const FETCH_TICK: Duration = Duration::from_millis(2);

/// Bytes of a chunk, and who wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) connection: u64,
    pub(crate) chunk: u32,
    pub(crate) offset: u32,
    /// At most [`FETCH_BYTES_MAX`].
    pub(crate) length: u32,
}

/// The open questions, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    open: VecDeque<Fetch>,
    /// Bits that may be sent now; negative after an answer.
    tokens: i64,
    filled_at: Duration,
}

impl Fetches {
    /// A connection asks; what it asked before and has no answer is forgotten.
    pub(crate) fn ask(&mut self, fetch: Fetch) {
        let fetch = Fetch { length: fetch.length.min(FETCH_BYTES_MAX), ..fetch };
        match self.open.iter_mut().find(|open| open.connection == fetch.connection) {
            Some(open) => *open = fetch,
            None => self.open.push_back(fetch),
        }
    }

    /// A connection ended.
    pub(crate) fn forget(&mut self, connection: u64) {
        self.open.retain(|open| open.connection != connection);
    }

    /// Whether nobody waits for an answer.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Chunks whose contents are wanted.
    pub(crate) fn upcoming(&self) -> impl Iterator<Item = u32> + '_ {
        self.open.iter().take(WINDOW).map(|open| open.chunk)
    }

    /// The next question to answer now, of those whose chunk `has` says is at hand. `idle`: there are no datagrams to send.
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
    fn answers_take_their_share_and_all_of_it_when_nothing_else_is_sent() {
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
    fn each_connection_has_one_question_and_its_turn() {
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
