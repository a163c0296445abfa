//! A stand-in for the erasure code, with the feature `short-symbols` only: a repair symbol names its chunk, and restoring copies what is
//! missing.
//!
//! It restores a chunk from any `k` symbols, as the code does, but without its tables of 128 KiB a receiver and its time for each chunk, which
//! ten thousand simulated receivers cannot afford. Owns all chunks that were encoded in this process. Must never be a part of a
//! program that is shipped.

#[expect(clippy::disallowed_types, reason = "simulations have one thread, and the crate no other lock")]
use std::sync::Mutex;
use std::sync::PoisonError;

use platter_image::{Error, Result};

use crate::coding::REPAIR_SYMBOLS;
use crate::session::SYMBOL_BYTES;

#[expect(clippy::disallowed_types, reason = "see above")]
static CHUNKS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Stands in for [`coding::Encoder`](crate::coding::Encoder).
#[derive(Default)]
pub(crate) struct Encoder {}

impl Encoder {
    /// Returns all repair symbols of a chunk: each has the chunk's number in this process.
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as the encoder that it stands in for")]
    pub(crate) fn repair_symbols(&mut self, chunk: &[u8]) -> Result<Vec<u8>> {
        let mut chunks = CHUNKS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = chunks.iter().position(|known| known == chunk).unwrap_or(chunks.len());
        if number == chunks.len() {
            chunks.push(chunk.to_vec());
        }
        let mut symbol = [0; SYMBOL_BYTES];
        symbol[..8].copy_from_slice(&(number as u64).to_le_bytes());
        Ok(symbol.repeat(REPAIR_SYMBOLS))
    }
}

/// Stands in for [`coding::Decoder`](crate::coding::Decoder).
#[derive(Default)]
pub(crate) struct Decoder {}

impl Decoder {
    /// Fills in the missing symbols of `chunk`, which has `count` symbols. Wrong symbols yield wrong bytes.
    ///
    /// # Errors
    /// `Bug` when a repair symbol names no chunk.
    #[expect(clippy::unused_self, reason = "as the decoder that it stands in for")]
    pub(crate) fn restore(
        &mut self,
        chunk: &mut [u8],
        count: usize,
        has: impl Fn(usize) -> bool,
        _: &[u16],
        repair: &[u8],
    ) -> Result<()> {
        let chunks = CHUNKS.lock().unwrap_or_else(PoisonError::into_inner);
        let number = repair.first_chunk().map_or(u64::MAX, |number| u64::from_le_bytes(*number));
        let whole = chunks.get(usize::try_from(number).unwrap_or(usize::MAX));
        let whole = whole.ok_or_else(|| Error::bug("a repair symbol of an unknown chunk"))?;
        for index in (0..count).filter(|index| !has(*index)) {
            let known = whole.iter().skip(index * SYMBOL_BYTES).take(SYMBOL_BYTES);
            chunk[index * SYMBOL_BYTES..][..SYMBOL_BYTES]
                .iter_mut()
                .zip(known)
                .for_each(|(to, from)| *to = *from);
        }
        Ok(())
    }
}
