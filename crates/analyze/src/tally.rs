//! Counts which images have which pieces of data, in bounded memory.
//!
//! A piece is known by its digest. If there are more pieces than the limit allows, only those whose digests end with a number
//! of zero bits are counted, for all images alike, and each limit that is reached doubles the factor. Digests are hashes, so
//! this is a random sample of the distinct pieces: a share of all pieces that is computed from n of them has a standard error
//! of about the square root of p (1 - p) / n, which is 0.05 % for a million.

use std::collections::HashMap;

/// The first bytes of a hash of a piece. 128 bits: among 2^40 pieces, two are confused with a probability of 2^-49.
pub type Digest = [u8; 16];

/// Bytes of memory for each distinct piece of a [`Tally`]: its digest and number in a hash table that is at worst 7/16 full,
/// its size, the image that had it last, and what it takes in the store.
const PIECE_BYTES: u64 = 76;
/// Bytes of memory for each piece of each image.
const REFERENCE_BYTES: u64 = 4;
/// More zero bits than this are never asked for.
const BITS_MAX: u32 = 48;

/// Which digests are counted: those that end with at least this many zero bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample(u32);

impl Sample {
    /// Whether pieces with this digest are counted.
    pub fn has(self, digest: &Digest) -> bool {
        let last = u64::from_be_bytes(*digest.last_chunk().unwrap_or(&[0; 8]));
        self.0 == 0 || last.trailing_zeros() >= self.0
    }

    /// By how much counts are to be multiplied.
    pub fn factor(self) -> u64 {
        1 << self.0
    }

    /// The next smaller sample, which is a part of this one; `None` if there is no smaller one.
    #[must_use]
    pub fn half(self) -> Option<Self> {
        (self.0 < BITS_MAX).then_some(Self(self.0 + 1))
    }
}

/// What became of a piece that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// No image had it before.
    New,
    /// An image has it already.
    Known,
    /// It is not in the sample.
    NotCounted,
}

/// The distinct pieces of some images, and which image has which.
#[derive(Debug)]
pub struct Tally {
    sample: Sample,
    bytes_max: u64,
    numbers: HashMap<Digest, u32>,
    /// The size of each piece, by its number.
    sizes: Vec<u64>,
    /// For each image the numbers of its pieces, ascending, each once.
    images: Vec<Vec<u32>>,
    /// The image that had each piece last, by number.
    last: Vec<u32>,
    /// The length of all lists of `images`.
    references: usize,
}

impl Tally {
    /// Counts nothing yet, of that many images. Takes about `bytes_max` bytes of memory.
    pub fn new(images: usize, bytes_max: u64) -> Self {
        Self {
            sample: Sample::default(),
            bytes_max,
            numbers: HashMap::new(),
            sizes: Vec::new(),
            images: vec![Vec::new(); images],
            last: Vec::new(),
            references: 0,
        }
    }

    /// Which digests are counted.
    pub fn sample(&self) -> Sample {
        self.sample
    }

    /// Sets the pieces of an image, which had none.
    ///
    /// `sample` says which pieces were collected; the tally counts no others from now on.
    pub fn set(&mut self, image: usize, sample: Sample, pieces: impl IntoIterator<Item = (Digest, u64)>) {
        while self.sample < sample && self.thin() {}
        for (digest, size) in pieces {
            self.add(image, digest, size);
        }
        self.finish(image);
    }

    /// Adds a piece to an image, which may have it already. An image is added completely, and [finished](Tally::finish), before the
    /// next one. If two images give different sizes for one piece, because one uses only a part of it, the larger one counts.
    pub fn add(&mut self, image: usize, digest: Digest, size: u64) -> Added {
        if !self.sample.has(&digest) {
            return Added::NotCounted;
        }
        let next = self.sizes.len() as u32;
        let number = *self.numbers.entry(digest).or_insert(next);
        if number == next {
            self.sizes.push(size);
            self.last.push(u32::MAX);
        }
        if let (Some(known), Some(last), Some(own)) = (
            self.sizes.get_mut(number as usize),
            self.last.get_mut(number as usize),
            self.images.get_mut(image),
        ) {
            *known = size.max(*known);
            if std::mem::replace(last, image as u32) != image as u32 {
                own.push(number);
                self.references += 1;
            }
        }
        while self.memory_bytes() > self.bytes_max && self.thin() {}
        if number == next { Added::New } else { Added::Known }
    }

    fn memory_bytes(&self) -> u64 {
        self.sizes.len() as u64 * PIECE_BYTES + self.references as u64 * REFERENCE_BYTES
    }

    /// The image has no more pieces.
    pub fn finish(&mut self, image: usize) {
        if let Some(pieces) = self.images.get_mut(image) {
            pieces.sort_unstable();
        }
    }

    /// Drops about half of the pieces. Returns whether that was possible.
    fn thin(&mut self) -> bool {
        let Some(sample) = self.sample.half() else { return false };
        self.sample = sample;
        self.numbers.retain(|digest, _| sample.has(digest));
        self.numbers.shrink_to_fit();
        let mut renumbered = vec![None; self.sizes.len()];
        let mut sizes = Vec::with_capacity(self.numbers.len());
        let mut last = Vec::with_capacity(self.numbers.len());
        for number in self.numbers.values_mut() {
            let old = *number as usize;
            *number = sizes.len() as u32;
            sizes.push(self.sizes.get(old).copied().unwrap_or(0));
            last.push(self.last.get(old).copied().unwrap_or(u32::MAX));
            if let Some(renumbered) = renumbered.get_mut(old) {
                *renumbered = Some(*number);
            }
        }
        (self.sizes, self.last) = (sizes, last);
        for pieces in &mut self.images {
            let kept = pieces.iter().filter_map(|old| renumbered.get(*old as usize).copied().flatten());
            *pieces = kept.collect();
            pieces.sort_unstable();
        }
        self.references = self.images.iter().map(Vec::len).sum();
        true
    }

    /// The sizes of all pieces, by number.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// The numbers of the pieces of each image, ascending.
    pub fn images(&self) -> &[Vec<u32>] {
        &self.images
    }

    /// How many images have each piece, by number.
    pub fn owners(&self) -> Vec<u32> {
        let mut owners = vec![0; self.sizes.len()];
        for number in self.images.iter().flatten() {
            if let Some(owners) = owners.get_mut(*number as usize) {
                *owners += 1;
            }
        }
        owners
    }

    /// The number of a piece, if an image has it and it is counted.
    pub fn number(&self, digest: &Digest) -> Option<u32> {
        self.numbers.get(digest).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// A digest whose last byte decides about samples.
    fn digest(number: u8) -> Digest {
        let mut digest = [number; 16];
        digest[..8].fill(7);
        digest
    }

    /// The digests of an image, from a tally.
    fn digests_of(tally: &Tally, image: usize) -> BTreeSet<Digest> {
        let by_number: BTreeMap<u32, Digest> =
            tally.numbers.iter().map(|(digest, number)| (*number, *digest)).collect();
        tally.images()[image].iter().map(|number| by_number[number]).collect()
    }

    proptest! {
        /// Whatever the limit, the tally has exactly the sampled pieces of each image, with their sizes, and stays below the
        /// limit as long as a sample is possible.
        #[test]
        fn a_tally_has_the_sampled_pieces(
            images in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..6),
            pieces_max in 2..60_u64,
        ) {
            let bytes_max = pieces_max * (PIECE_BYTES + 6 * REFERENCE_BYTES);
            let mut tally = Tally::new(images.len(), bytes_max);
            for (image, pieces) in images.iter().enumerate() {
                let distinct: BTreeSet<u8> = pieces.iter().copied().collect();
                let sized = distinct.into_iter().map(|number| (digest(number), 1 + u64::from(number)));
                tally.set(image, Sample::default(), sized);
            }
            let sample = tally.sample();
            prop_assert!(tally.sizes.len() as u64 * PIECE_BYTES <= bytes_max || tally.numbers.contains_key(&digest(0)));
            for (image, pieces) in images.iter().enumerate() {
                let wanted: BTreeSet<Digest> =
                    pieces.iter().map(|number| digest(*number)).filter(|digest| sample.has(digest)).collect();
                prop_assert_eq!(digests_of(&tally, image), wanted);
                prop_assert!(tally.images()[image].is_sorted());
            }
            for (digest, number) in &tally.numbers {
                prop_assert_eq!(tally.sizes()[*number as usize], 1 + u64::from(digest[15]));
            }
        }
    }

    #[test]
    fn a_piece_is_new_once() {
        let mut tally = Tally::new(2, 1 << 20);
        let mut added = |image, number| tally.add(image, digest(number), 1);
        assert_eq!([added(0, 1), added(0, 2), added(0, 1)], [Added::New, Added::New, Added::Known]);
        assert_eq!([added(1, 3), added(1, 2), added(1, 2)], [Added::New, Added::Known, Added::Known]);
        assert_eq!(tally.images(), [vec![0, 1], vec![2, 1]]);
        tally.finish(1);
        assert_eq!(tally.images()[1], [1, 2]);
        assert_eq!(tally.owners(), [1, 2, 1]);
    }

    #[test]
    fn a_sample_is_a_part_of_the_one_before() {
        let mut sample = Sample::default();
        assert!((0..=255).all(|number| sample.has(&digest(number))));
        for count in [128, 64, 32, 16, 8, 4, 2, 1] {
            let half = sample.half().unwrap();
            let has = |sample: Sample| (0..=255_u8).filter(move |number| sample.has(&digest(*number)));
            assert_eq!(has(half).count(), count);
            assert!(has(half).all(|number| sample.has(&digest(number))));
            assert_eq!(half.factor(), 2 * sample.factor());
            sample = half;
        }
    }

    #[test]
    fn the_larger_size_counts() {
        let mut tally = Tally::new(2, 1 << 20);
        tally.set(0, Sample::default(), [(digest(1), 512), (digest(2), 4096)]);
        tally.set(1, Sample::default(), [(digest(1), 1024), (digest(2), 512)]);
        let size = |number| tally.sizes()[tally.number(&digest(number)).unwrap() as usize];
        assert_eq!((size(1), size(2)), (1024, 4096));
    }
}
