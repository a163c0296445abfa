//! The digest of a file's contents. Pages of zeros are skipped, whether the disk stores them or not: a file with holes is the same
//! as one in which they are written, and an empty file of a terabyte costs nothing.

use platter_filesystem::Piece;
use platter_image::{Error, Result};

use crate::tally::Digest;

/// The unit in which zeros are skipped, in bytes of the file.
const PAGE: usize = 4096;

/// Takes the pieces of a file in order.
pub(super) struct ContentsDigest {
    hasher: blake3::Hasher,
    /// The offset in the file of what comes next.
    position: u64,
    /// The begun page.
    page: Vec<u8>,
    bytes: u64,
}

impl ContentsDigest {
    pub(super) fn new() -> Self {
        Self { hasher: blake3::Hasher::new(), position: 0, page: Vec::with_capacity(PAGE), bytes: 0 }
    }

    /// Takes the next piece, which is at this offset.
    ///
    /// # Errors
    /// `Bug` when it is not the next one.
    pub(super) fn add(&mut self, offset: u64, piece: Piece<'_>) -> Result<()> {
        if offset != self.position {
            return Err(Error::bug(format!("a piece at {offset} instead of {}", self.position)));
        }
        match piece {
            Piece::Bytes(bytes) => self.add_bytes(bytes),
            Piece::Zeros(length) => self.add_zeros(length),
        }
        Ok(())
    }

    fn add_bytes(&mut self, mut bytes: &[u8]) {
        self.position += bytes.len() as u64;
        while !bytes.is_empty() {
            let (own, rest) = bytes.split_at(bytes.len().min(PAGE - self.page.len()));
            self.page.extend_from_slice(own);
            bytes = rest;
            if self.page.len() == PAGE {
                let end = self.position - bytes.len() as u64;
                self.end_page(end);
            }
        }
    }

    fn add_zeros(&mut self, length: u64) {
        let mut left = length;
        if !self.page.is_empty() {
            let own = left.min((PAGE - self.page.len()) as u64) as usize;
            self.add_bytes(&[0; PAGE][..own]);
            left -= own as u64;
        }
        // Whole pages are not there; the rest begins the next one.
        let rest = left % PAGE as u64;
        self.position += left - rest;
        self.add_bytes(&[0; PAGE][..rest as usize]);
    }

    /// The page that ends at this offset is complete.
    fn end_page(&mut self, end: u64) {
        if self.page.iter().any(|byte| *byte != 0) {
            self.hasher.update(&end.to_le_bytes());
            self.hasher.update(&self.page);
            self.bytes += self.page.len() as u64;
        }
        self.page.clear();
    }

    /// The digest, and the bytes in pages that are not zero; `None` if the file is empty.
    pub(super) fn finish(mut self) -> Option<(Digest, u64)> {
        let is_empty = self.position == 0;
        self.end_page(self.position);
        self.hasher.update(&self.position.to_le_bytes());
        let digest = *self.hasher.finalize().as_bytes().first_chunk()?;
        (!is_empty).then_some((digest, self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The digest of a file in pieces of these lengths; runs of zeros as holes if asked for.
    fn digest(contents: &[u8], lengths: &[usize], holes: bool) -> Option<(Digest, u64)> {
        let mut taken = ContentsDigest::new();
        let (mut at, mut lengths) = (0, lengths.iter().cycle());
        while at < contents.len() {
            let length = lengths.next().copied().unwrap_or(contents.len()).clamp(1, contents.len() - at);
            let piece = &contents[at..at + length];
            let is_zero = piece.iter().all(|byte| *byte == 0);
            let piece = if holes && is_zero { Piece::Zeros(length as u64) } else { Piece::Bytes(piece) };
            taken.add(at as u64, piece).unwrap();
            at += length;
        }
        taken.finish()
    }

    proptest! {
        #[test]
        fn pieces_and_holes_do_not_matter(
            runs in prop::collection::vec((0..3_u8, 1..9000_usize), 0..12),
            lengths in prop::collection::vec(1..9000_usize, 1..8),
        ) {
            let contents: Vec<u8> = runs.iter().flat_map(|(byte, length)| vec![*byte; *length]).collect();
            let whole = digest(&contents, &[usize::MAX], false);
            prop_assert_eq!(digest(&contents, &lengths, false), whole);
            prop_assert_eq!(digest(&contents, &lengths, true), whole);
            prop_assert_eq!(digest(&contents, &[512], true), whole);
            prop_assert_eq!(whole.is_none(), contents.is_empty());
            // Whatever is changed, also if only the length is.
            if whole.is_some() {
                let mut longer = contents.clone();
                longer.push(0);
                prop_assert_ne!(digest(&longer, &lengths, true), whole);
                let moved: Vec<u8> = [vec![0; 4096], contents].concat();
                prop_assert_ne!(digest(&moved, &lengths, true), whole);
            }
        }
    }

    #[test]
    fn a_hole_of_exabytes_costs_nothing() {
        let mut taken = ContentsDigest::new();
        taken.add(0, Piece::Zeros(u64::MAX / 2)).unwrap();
        taken.add(u64::MAX / 2, Piece::Bytes(b"end")).unwrap();
        // The end lies in two pages.
        assert!(taken.finish().is_some_and(|(_, bytes)| bytes <= 2 * 4096));
    }
}
