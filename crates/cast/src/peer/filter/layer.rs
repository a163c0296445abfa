//! One Bloom filter: twelve bits for each block it has room for, seven of them set by each.
//!
//! Owns the places of bits. Full, it says yes by chance to 0.33 % (Bloom 1970); three of them to 1 %. Must never be made
//! larger than its sizes were checked to be.

use std::ops::Range;

use crate::random::mix;

/// Bits for each block that a layer has room for.
pub(super) const BITS_PER_BLOCK: u64 = 12;
/// Bits that a block sets.
const PROBES: u32 = 7;
/// Most layers of a filter.
pub const LAYERS_MAX: usize = 3;
/// Most bytes of a filter: 11 million blocks, over 300 GB of them.
pub const FILTER_BYTES_MAX: u64 = 16 << 20;
/// A full layer of an honest owner has 44 % of its bits set; more than this share in 256 is a claim to hold everything.
const SET_SHARE_MAX: u64 = 141;

/// For how many blocks a layer is, and how many are in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSize {
    /// Blocks it has room for; at least one.
    pub capacity: u32,
    /// Blocks in it, at most the capacity.
    pub blocks: u32,
}

impl LayerSize {
    /// Bytes of its bits: a multiple of eight.
    pub(super) fn bytes(&self) -> u64 {
        (u64::from(self.capacity) * BITS_PER_BLOCK).div_ceil(64) * 8
    }

    pub(super) fn is_possible(&self) -> bool {
        self.capacity > 0 && self.blocks <= self.capacity && self.bytes() <= FILTER_BYTES_MAX
    }
}

/// A layer and its bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layer {
    pub(super) size: LayerSize,
    words: Vec<u64>,
}

impl Layer {
    /// An empty layer for so many blocks, as many as [`FILTER_BYTES_MAX`] allows.
    pub(super) fn new(capacity: u32) -> Self {
        let size = LayerSize { capacity, blocks: 0 };
        Self { size, words: vec![0; size.bytes() as usize / 8] }
    }

    /// A layer from bytes, exactly as many as its size says.
    pub(super) fn from_bytes(size: LayerSize, bytes: &[u8]) -> Option<Self> {
        if !size.is_possible() || bytes.len() as u64 != size.bytes() {
            return None;
        }
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let set: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        // A few bits of a tiny layer may be set by chance.
        let believable = set * 256 <= words.len() as u64 * 64 * SET_SHARE_MAX + 64 * 256;
        believable.then_some(Self { size, words })
    }

    /// Appends its bits as they travel, from one byte to another, both multiples of eight.
    pub(super) fn put_bytes(&self, range: Range<u64>, to: &mut Vec<u8>) {
        let words = self.words.get(range.start as usize / 8..range.end as usize / 8);
        words.unwrap_or_default().iter().for_each(|word| to.extend_from_slice(&word.to_le_bytes()));
    }

    pub(super) fn is_full(&self) -> bool {
        self.size.blocks >= self.size.capacity
    }

    /// Adds a key.
    pub(super) fn insert(&mut self, key: u32) {
        for place in places(key, self.words.len()) {
            self.words[place / 64] |= 1 << (place % 64);
        }
        self.size.blocks += 1;
    }

    pub(super) fn contains(&self, key: u32) -> bool {
        places(key, self.words.len()).all(|place| self.words[place / 64] & (1 << (place % 64)) != 0)
    }
}

/// The bits of a key: double hashing (Kirsch and Mitzenmacher 2006), spread over the layer by multiplying.
fn places(key: u32, words: usize) -> impl Iterator<Item = usize> {
    let hash = mix(u64::from(key) ^ 0x9e37_79b9_7f4a_7c15);
    let (start, step) = (hash as u32, (hash >> 32) as u32 | 1);
    let bits = words as u64 * 64;
    (0..PROBES).map(move |probe| {
        let point = start.wrapping_add(probe.wrapping_mul(step));
        ((u64::from(point) * bits) >> 32) as usize
    })
}
