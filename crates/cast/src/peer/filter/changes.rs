//! Blocks added to a filter since a version: their keys, sorted, with Rice-coded gaps.
//!
//! Owns the code. With n keys a gap is about 2^32 / n, so a key takes log2(2^32 / n) + 1.5 bits: 3.4 bytes with 100
//! keys, 2.8 with 5,000. Must never return more keys than announced and allowed.

use platter_image::{Error, Result};

/// Maximum number of keys in one message.
pub const CHANGES_MAX: usize = 8192;

/// Blocks that were added to a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterChanges {
    /// The generation of the filter.
    pub generation: u32,
    /// The number of additions before these.
    pub from: u32,
    /// Capacity of a layer to be opened first, in blocks; 0 for none.
    pub opens: u32,
    /// Keys, ascending. At most [`CHANGES_MAX`].
    pub keys: Vec<u32>,
}

/// Returns the number of bits of a gap below its unary part, for `count` keys.
fn low_bits(count: usize) -> u32 {
    (u64::from(u32::MAX) / count.max(1) as u64).checked_ilog2().unwrap_or(0)
}

/// Appends the code of ascending keys.
pub(in crate::peer) fn put_keys(to: &mut Vec<u8>, keys: &[u32]) {
    let low = low_bits(keys.len());
    let mut writer = BitWriter { to, pending: 0, filled: 0 };
    let mut before = 0;
    for key in keys {
        let gap = key.wrapping_sub(before);
        before = *key;
        for _ in 0..gap >> low {
            writer.put(1, 1);
        }
        writer.put(0, 1);
        writer.put(gap & ((1 << low) - 1), low);
    }
    writer.finish();
}

/// Parses `count` keys, which must use all of `bytes`.
///
/// # Errors
/// `Corrupt`: too many keys, truncated, above the largest key, or trailing bytes.
pub(in crate::peer) fn parse_keys(count: usize, bytes: &[u8]) -> Result<Vec<u32>> {
    if count > CHANGES_MAX {
        return Err(Error::corrupt(format!(
            "a filter's changes have {count} keys, but at most {CHANGES_MAX} are allowed"
        )));
    }
    let bad = || Error::corrupt(format!("{} bytes do not contain exactly {count} keys", bytes.len()));
    let low = low_bits(count);
    let mut reader = BitReader { bytes, at: 0 };
    let (mut keys, mut before) = (Vec::with_capacity(count), 0_u32);
    for _ in 0..count {
        let mut high = 0_u32;
        while reader.bit().ok_or_else(bad)? {
            high += 1;
        }
        let mut rest = 0;
        for place in 0..low {
            rest |= u32::from(reader.bit().ok_or_else(bad)?) << place;
        }
        let gap = high.checked_mul(1 << low).and_then(|gap| gap.checked_add(rest)).ok_or_else(bad)?;
        before = before.checked_add(gap).ok_or_else(bad)?;
        keys.push(before);
    }
    if reader.at.div_ceil(8) != bytes.len() {
        return Err(bad());
    }
    Ok(keys)
}

/// Writes bits into bytes, lowest bit first.
struct BitWriter<'a> {
    to: &'a mut Vec<u8>,
    pending: u64,
    filled: u32,
}

impl BitWriter<'_> {
    fn put(&mut self, bits: u32, count: u32) {
        self.pending |= u64::from(bits) << self.filled;
        self.filled += count;
        while self.filled >= 8 {
            self.to.push(self.pending as u8);
            self.pending >>= 8;
            self.filled -= 8;
        }
    }

    fn finish(self) {
        if self.filled > 0 {
            self.to.push(self.pending as u8);
        }
    }
}

struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl BitReader<'_> {
    fn bit(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let bit = byte >> (self.at % 8) & 1 == 1;
        self.at += 1;
        Some(bit)
    }
}
