//! The erasure code: `reed-solomon-simd`, high rate, always 256 repair symbols (design: code).
//!
//! Owns the parameters that golden vectors fix: the library's repair symbols depend on how many are requested and on the
//! rate, so both are set only here. Must never be called with other numbers.

use platter_image::{Error, Result};
use reed_solomon_simd::engine::DefaultEngine;
use reed_solomon_simd::rate::{HighRateDecoder, HighRateEncoder, RateDecoder, RateEncoder};

use crate::session::{SYMBOL_BYTES, SYMBOLS_MAX};

/// Number of repair symbols of every chunk, however small.
pub(crate) const REPAIR_SYMBOLS: usize = 256;
/// The id of this code in announcements.
pub(crate) const CODE_ID: u16 = 1;

/// Encodes repair symbols. Keeps its tables and working memory.
#[derive(Default)]
pub(crate) struct Encoder {
    inner: Option<HighRateEncoder<DefaultEngine>>,
}

impl Encoder {
    /// Returns all [`REPAIR_SYMBOLS`] repair symbols of a chunk, one after another. The chunk's last source symbol is padded
    /// with zeros.
    ///
    /// # Errors
    /// `Bug` when the chunk is empty or longer than [`SYMBOLS_MAX`] symbols.
    pub(crate) fn repair_symbols(&mut self, chunk: &[u8]) -> Result<Vec<u8>> {
        let count = chunk.len().div_ceil(SYMBOL_BYTES);
        if count > SYMBOLS_MAX {
            return Err(Error::bug(format!(
                "a chunk of {} bytes is too long for the erasure code",
                chunk.len()
            )));
        }
        let encoder = match &mut self.inner {
            Some(encoder) => {
                encoder.reset(count, REPAIR_SYMBOLS, SYMBOL_BYTES).map_err(coding_error)?;
                encoder
            }
            none => none.insert(
                HighRateEncoder::new(count, REPAIR_SYMBOLS, SYMBOL_BYTES, DefaultEngine::new(), None)
                    .map_err(coding_error)?,
            ),
        };
        for symbol in chunk.chunks(SYMBOL_BYTES) {
            if symbol.len() == SYMBOL_BYTES {
                encoder.add_original_shard(symbol).map_err(coding_error)?;
            } else {
                let mut padded = [0; SYMBOL_BYTES];
                padded[..symbol.len()].copy_from_slice(symbol);
                encoder.add_original_shard(padded).map_err(coding_error)?;
            }
        }
        let encoded = encoder.encode().map_err(coding_error)?;
        let mut repair = Vec::with_capacity(REPAIR_SYMBOLS * SYMBOL_BYTES);
        encoded.recovery_iter().for_each(|symbol| repair.extend_from_slice(symbol));
        Ok(repair)
    }
}

/// Restores missing source symbols. Keeps its tables and working memory.
#[derive(Default)]
pub(crate) struct Decoder {
    inner: Option<HighRateDecoder<DefaultEngine>>,
}

impl Decoder {
    /// Fills in the missing symbols of `chunk`, which has `count` symbols; `has` tells which are present. `repair` has one repair
    /// symbol for each index in `repair_indices`. Source and repair symbols together must be `count`.
    ///
    /// # Errors
    /// `Bug` when there are too few symbols. Wrong symbols yield wrong bytes without an error: callers must verify chunks.
    pub(crate) fn restore(
        &mut self,
        chunk: &mut [u8],
        count: usize,
        has: impl Fn(usize) -> bool,
        repair_indices: &[u16],
        repair: &[u8],
    ) -> Result<()> {
        let decoder = match &mut self.inner {
            Some(decoder) => {
                decoder.reset(count, REPAIR_SYMBOLS, SYMBOL_BYTES).map_err(coding_error)?;
                decoder
            }
            none => none.insert(
                HighRateDecoder::new(count, REPAIR_SYMBOLS, SYMBOL_BYTES, DefaultEngine::new(), None)
                    .map_err(coding_error)?,
            ),
        };
        for (index, symbol) in
            chunk.chunks_exact(SYMBOL_BYTES).enumerate().take(count).filter(|(index, _)| has(*index))
        {
            decoder.add_original_shard(index, symbol).map_err(coding_error)?;
        }
        for (index, symbol) in repair_indices.iter().zip(repair.chunks_exact(SYMBOL_BYTES)) {
            decoder.add_recovery_shard(usize::from(*index), symbol).map_err(coding_error)?;
        }
        let decoded = decoder.decode().map_err(coding_error)?;
        for (index, symbol) in decoded.restored_original_iter() {
            chunk[index * SYMBOL_BYTES..][..SYMBOL_BYTES].copy_from_slice(symbol);
        }
        Ok(())
    }
}

fn coding_error(error: reed_solomon_simd::Error) -> Error {
    Error::bug("the erasure code refused its input").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn chunk(bytes: usize) -> Vec<u8> {
        let mut random = Random::new(bytes as u64);
        (0..bytes).map(|_| random.next() as u8).collect()
    }

    /// These repair symbols are golden vectors: they must not change within a protocol version. One encoder makes all of them,
    /// so that stale state in its working memory would be noticed too.
    #[test]
    fn repair_symbols_are_frozen() {
        let golden: Vec<&str> = include_str!("../golden/repair-symbols.txt").lines().collect();
        let mut encoder = Encoder::default();
        let lengths = [
            1,
            SYMBOL_BYTES,
            SYMBOL_BYTES + 1,
            64 * SYMBOL_BYTES,
            745 * SYMBOL_BYTES - 128,
            1024 * SYMBOL_BYTES,
        ];
        let actual: Vec<String> = lengths
            .into_iter()
            .map(|length| {
                let repair = encoder.repair_symbols(&chunk(length)).unwrap();
                assert_eq!(repair.len(), REPAIR_SYMBOLS * SYMBOL_BYTES);
                format!("{length} {}", blake3::hash(&repair))
            })
            .collect();
        assert_eq!(actual, golden);
    }

    #[test]
    fn any_sufficient_set_of_symbols_restores_a_chunk() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        for (length, lost) in
            [(1, vec![0]), (5000, vec![3]), (300 * SYMBOL_BYTES, (20..276).collect::<Vec<usize>>())]
        {
            let original = chunk(length);
            let repair = encoder.repair_symbols(&original).unwrap();
            let count = length.div_ceil(SYMBOL_BYTES);
            let mut damaged = original.clone();
            damaged.resize(count * SYMBOL_BYTES, 0);
            lost.iter().for_each(|index| damaged[index * SYMBOL_BYTES..][..SYMBOL_BYTES].fill(0xee));
            let first = REPAIR_SYMBOLS - lost.len();
            let indices: Vec<u16> = (first as u16..REPAIR_SYMBOLS as u16).collect();
            let has = |index: usize| !lost.contains(&index);
            decoder.restore(&mut damaged, count, has, &indices, &repair[first * SYMBOL_BYTES..]).unwrap();
            assert!(damaged[..length] == original[..]);
        }
    }
}
