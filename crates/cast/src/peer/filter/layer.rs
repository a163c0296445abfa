//! One Bloom filter: it has twelve bits per block of its capacity, and each block sets seven of them.
//!
//! Owns the positions of bits. A full layer falsely claims 0.33 % (Bloom 1970), three of them 1 %. Must never be made
//! larger than its checked size.

use std::ops::Range;

use crate::random::mix;

/// Bits per block of a layer's capacity.
pub(super) const BITS_PER_BLOCK: u64 = 12;
/// Number of bits that a block sets.
const PROBES: u32 = 7;
/// Maximum number of layers of a filter.
pub const LAYERS_MAX: usize = 3;
/// Maximum length of a filter in bytes: enough for 11 million blocks, or over 300 GB.
pub const FILTER_BYTES_MAX: u64 = 16 << 20;
/// Maximum share of set bits, in 256ths. A full layer of an honest owner has 44 % of its bits set; one with more claims
/// everything.
const SET_SHARE_MAX: u64 = 141;

/// The capacity of a layer, and the number of blocks in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSize {
    /// Capacity in blocks; at least one.
    pub capacity: u32,
    /// Number of blocks in it, at most the capacity.
    pub blocks: u32,
}

impl LayerSize {
    /// Returns the length of its bits in bytes: a multiple of eight.
    pub(super) fn bytes(&self) -> u64 {
        (u64::from(self.capacity) * BITS_PER_BLOCK).div_ceil(64) * 8
    }

    pub(super) fn is_possible(&self) -> bool {
        self.capacity > 0 && self.blocks <= self.capacity && self.bytes() <= FILTER_BYTES_MAX
    }
}

/// A layer with its bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layer {
    pub(super) size: LayerSize,
    words: Vec<u64>,
}

impl Layer {
    /// Makes an empty layer. The caller has checked the capacity against [`FILTER_BYTES_MAX`].
    pub(super) fn new(capacity: u32) -> Self {
        let size = LayerSize { capacity, blocks: 0 };
        Self { size, words: vec![0; size.bytes() as usize / 8] }
    }

    /// Makes a layer from bytes. Their number must match its size exactly.
    pub(super) fn from_bytes(size: LayerSize, bytes: &[u8]) -> Option<Self> {
        if !size.is_possible() || bytes.len() as u64 != size.bytes() {
            return None;
        }
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let set: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        // By chance, a tiny layer may have a few more bits set.
        let believable = set * 256 <= words.len() as u64 * 64 * SET_SHARE_MAX + 64 * 256;
        believable.then_some(Self { size, words })
    }

    /// Appends a range of its bits in the form in which they are sent. Both ends of the byte range are multiples of eight.
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

/// Returns the bit positions of a key: double hashing (Kirsch and Mitzenmacher 2006), scaled to the layer's size.
fn places(key: u32, words: usize) -> impl Iterator<Item = usize> {
    let hash = mix(u64::from(key) ^ 0x9e37_79b9_7f4a_7c15);
    let (start, step) = (hash as u32, (hash >> 32) as u32 | 1);
    let bits = words as u64 * 64;
    (0..PROBES).map(move |probe| {
        let point = start.wrapping_add(probe.wrapping_mul(step));
        ((u64::from(point) * bits) >> 32) as usize
    })
}
