//! Chunks of which symbols were dropped because no buffer was free.
//!
//! A receiver that is slower than the sender receives whole chunks and skips others: a buffer with only the end of a chunk would
//! be occupied until its beginning is sent again. Owns the number of dropped symbols of the last few chunks. Must never refuse a chunk that is
//! sent from its start again.

use std::collections::VecDeque;

/// Number of chunks that are remembered: more than are sent at a time.
const CHUNKS_MAX: usize = 64;
/// A chunk may lack this many symbols: repair symbols restore them.
const DROPPED_MAX: u32 = 64;
/// A chunk is being sent from its start again if the symbol's number is below this.
const START_SYMBOLS: u16 = 64;

/// Counts of dropped symbols: pairs of the chunk's wire number and the count.
#[derive(Debug, Default)]
pub(crate) struct Skipped(VecDeque<(u32, u32)>);

impl Skipped {
    /// Adds a dropped symbol.
    pub(crate) fn add(&mut self, chunk: u32) {
        if let Some((_, dropped)) = self.0.iter_mut().find(|(known, _)| *known == chunk) {
            *dropped += 1;
            return;
        }
        if self.0.len() >= CHUNKS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((chunk, 1));
    }

    /// Returns whether so much of a chunk was dropped that what follows with this symbol is not worth a buffer.
    pub(crate) fn is_mostly_gone(&self, chunk: u32, symbol: u16) -> bool {
        symbol >= START_SYMBOLS
            && self.0.iter().any(|(known, dropped)| *known == chunk && *dropped > DROPPED_MAX)
    }

    /// Forgets a chunk that gets a buffer.
    pub(crate) fn remove(&mut self, chunk: u32) {
        self.0.retain(|(known, _)| *known != chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_dropped_chunk_is_left_out_until_it_starts_again() {
        let mut skipped = Skipped::default();
        (0..DROPPED_MAX).for_each(|_| skipped.add(7));
        assert!(!skipped.is_mostly_gone(7, 65), "repair symbols restore them");
        skipped.add(7);
        assert!(skipped.is_mostly_gone(7, 66) && !skipped.is_mostly_gone(8, 66));
        assert!(!skipped.is_mostly_gone(7, 3), "it starts again");
        skipped.remove(7);
        assert!(!skipped.is_mostly_gone(7, 66));
        (0..1000).for_each(|chunk| skipped.add(chunk));
        assert_eq!(skipped.0.len(), CHUNKS_MAX);
    }
}
