//! The distinct pieces of one image while it is read, in bounded memory.

use std::collections::HashMap;

use crate::tally::{Digest, Sample};

/// Bytes of memory for each piece, in a hash table that is at worst 7/16 full.
const PIECE_BYTES: u64 = 80;
/// Every image may have this many pieces before only a sample is collected.
const PIECES_MIN: u64 = 1 << 10;

/// The pieces of one image by digest, each with what is known of it.
#[derive(Debug)]
pub(crate) struct Pieces<V> {
    sample: Sample,
    pieces_max: usize,
    found: HashMap<Digest, V>,
}

impl<V: Default> Pieces<V> {
    /// No pieces, in about `bytes_max` bytes of memory.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let pieces_max = (bytes_max / PIECE_BYTES).max(PIECES_MIN) as usize;
        Self { sample: Sample::default(), pieces_max, found: HashMap::new() }
    }

    /// Changes what is known of a piece, if it is collected.
    pub(crate) fn update(&mut self, digest: Digest, change: impl FnOnce(&mut V)) {
        if self.sample.has(&digest) {
            change(self.found.entry(digest).or_default());
            if self.found.len() > self.pieces_max
                && let Some(half) = self.sample.half()
            {
                self.sample = half;
                self.found.retain(|digest, _| half.has(digest));
            }
        }
    }

    /// Which pieces were collected.
    pub(crate) fn sample(&self) -> Sample {
        self.sample
    }

    /// The pieces.
    pub(crate) fn into_found(self) -> HashMap<Digest, V> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_the_limit_a_sample_is_collected() {
        let mut pieces: Pieces<u64> = Pieces::new(0);
        let digest = |number: u64| {
            let mut digest = [0; 16];
            digest[8..].copy_from_slice(&number.to_be_bytes());
            digest
        };
        for number in (0..4096).chain(0..4096) {
            pieces.update(digest(number), |count| *count += 1);
        }
        assert_eq!(pieces.sample().factor(), 4);
        let found = pieces.into_found();
        assert_eq!(found.len(), 1024);
        assert!((0..4096).step_by(4).all(|number| found[&digest(number)] == 2));
    }
}
