//! Chunks whose datagrams were corrupt, and which are fetched over the reliable channel, one at a time.
//!
//! Anybody on the network can send a datagram with the session's number, and a forged symbol is noticed only when its chunk is
//! complete. What arrives over the join connection can only come from the sender that was joined. Owns the chunk that is being
//! fetched, and how often each chunk was corrupt. Must never hold more than one chunk, nor have requests open for more than
//! [`FETCH_BYTES_MAX`] bytes.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::sender::FETCH_BYTES_MAX;

/// Maximum number of corrupt fetches of a chunk. If the sender itself sends it corrupt so often, its data is damaged.
const WRONG_FETCHES_MAX: u8 = 3;
/// An unanswered request is repeated after this time. The channel loses nothing, but the sender may have been busy.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The chunk that is being fetched.
#[derive(Debug)]
struct Fetched {
    chunk: u32,
    length: u32,
    bytes: Vec<u8>,
    /// The end of the requested range, and when it was requested; `None` if the rest was not requested.
    asked: Option<(u32, Duration)>,
}

/// A request for bytes of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) chunk: u32,
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

/// The chunks to fetch, by wire number, so that directory and recipe are fetched first.
#[derive(Debug, Default)]
pub(crate) struct Fetching {
    queue: BTreeSet<u32>,
    current: Option<Fetched>,
    wrong: HashMap<u32, u8>,
}

impl Fetching {
    /// Drops everything, for a new session.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds a chunk to fetch.
    pub(crate) fn add(&mut self, chunk: u32) {
        self.queue.insert(chunk);
    }

    /// Adds a corrupt chunk to fetch. Returns false if it was corrupt so often that the sender's data must be damaged.
    #[must_use]
    pub(crate) fn add_wrong(&mut self, chunk: u32) -> bool {
        let times = self.wrong.entry(chunk).or_default();
        *times += 1;
        if *times > WRONG_FETCHES_MAX {
            return false;
        }
        self.add(chunk);
        true
    }

    /// Returns whether there is nothing to fetch.
    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_none() && self.queue.is_empty()
    }

    /// Returns the number of chunks held: the one that is being fetched.
    pub(crate) fn held(&self) -> usize {
        usize::from(self.current.is_some())
    }

    /// Forgets the open request, because the channel was connected again.
    pub(crate) fn forget_question(&mut self) {
        if let Some(current) = &mut self.current {
            current.asked = None;
        }
    }

    /// Returns the next request to send. `length` returns a chunk's length in bytes. The next chunk is begun only if `has_room`.
    pub(crate) fn next_question(
        &mut self,
        now: Duration,
        has_room: bool,
        length: impl Fn(u32) -> Option<u32>,
    ) -> Option<Question> {
        while self.current.is_none() && has_room {
            let chunk = self.queue.pop_first()?;
            let Some(length) = length(chunk) else { continue };
            self.current = Some(Fetched { chunk, length, bytes: Vec::new(), asked: None });
        }
        let current = self.current.as_mut()?;
        let offset = current.bytes.len() as u32;
        if current.asked.is_some_and(|(end, at)| offset < end && now < at + ASK_AGAIN) {
            return None;
        }
        let length = (current.length - offset).min(FETCH_BYTES_MAX);
        current.asked = Some((offset + length, now));
        Some(Question { chunk: current.chunk, offset, length })
    }

    /// Adds received bytes, if they continue the chunk. Returns the chunk when it is complete.
    pub(crate) fn take(&mut self, chunk: u32, offset: u32, bytes: &[u8]) -> Option<(u32, Vec<u8>)> {
        let current = self.current.as_mut().filter(|it| it.chunk == chunk)?;
        let length = current.length as usize;
        if offset as usize != current.bytes.len() || bytes.len() > length - current.bytes.len() {
            return None;
        }
        current.bytes.extend_from_slice(bytes);
        if current.bytes.len() < length {
            return None;
        }
        self.current.take().map(|whole| (whole.chunk, whole.bytes))
    }

    /// Returns when to repeat the request if nothing arrives.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.current.as_ref()?.asked.map(|(_, at)| at + ASK_AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(9);

    #[test]
    fn a_chunk_arrives_in_pieces_and_the_lowest_is_fetched_first() {
        let mut fetching = Fetching::default();
        let length = |chunk| (chunk < 9).then_some(FETCH_BYTES_MAX + 10);
        [7, 3, 20].into_iter().for_each(|chunk| fetching.add(chunk));
        let first = Question { chunk: 3, offset: 0, length: FETCH_BYTES_MAX };
        assert_eq!(fetching.next_question(NOW, true, length), Some(first));
        assert_eq!((fetching.next_question(NOW, true, length), fetching.held()), (None, 1));
        assert_eq!(fetching.next_question(NOW + ASK_AGAIN, true, length), Some(first), "no answer");
        let half = vec![5; FETCH_BYTES_MAX as usize / 2];
        assert_eq!(fetching.take(3, 0, &half), None);
        assert_eq!(fetching.take(3, 0, &half), None, "received twice");
        assert_eq!(fetching.take(7, FETCH_BYTES_MAX / 2, &half), None, "another chunk");
        assert_eq!(fetching.take(3, FETCH_BYTES_MAX / 2, &[1; 1 << 20]), None, "too much");
        assert_eq!(fetching.next_question(NOW, true, length), None);
        assert_eq!(fetching.take(3, FETCH_BYTES_MAX / 2, &half), None);
        let rest = Question { chunk: 3, offset: FETCH_BYTES_MAX, length: 10 };
        assert_eq!(fetching.next_question(NOW, true, length), Some(rest));
        let (chunk, bytes) = fetching.take(3, FETCH_BYTES_MAX, &[6; 10]).unwrap();
        assert_eq!((chunk, bytes.len()), (3, FETCH_BYTES_MAX as usize + 10));
        assert_eq!(fetching.next_question(NOW, true, length).map(|it| it.chunk), Some(7));
        fetching.forget_question();
        assert_eq!(fetching.next_question(NOW, true, length).map(|it| it.offset), Some(0));
    }

    #[test]
    fn a_chunk_that_stays_corrupt_is_damaged_at_the_sender() {
        let mut fetching = Fetching::default();
        for _ in 0..WRONG_FETCHES_MAX {
            assert!(fetching.add_wrong(1) && fetching.add_wrong(2));
        }
        assert!(!fetching.add_wrong(1));
    }
}
