//! A bounded cache of chunk contents. The driver fills it, and repair symbols are computed from it on demand.
//!
//! The directory's chunks are always in it. Must never hold more than [`SHELF_CHUNKS`] content chunks.

use std::collections::HashMap;
use std::sync::Arc;

use platter_image::{Error, Result};

#[cfg(not(feature = "short-symbols"))]
use crate::coding::Encoder;
use crate::session::{CHUNK_BYTES_MAX, ChunkTable, SYMBOL_BYTES, SYMBOLS_MAX};
#[cfg(feature = "short-symbols")]
use crate::stand_in::Encoder;

/// Number of content chunks that are kept: 64 of 1.4 MB with 0.36 MB of repair symbols each, 115 MB in total. That is more than
/// twice what is needed at a time (active, repair window, read ahead), so requested chunks are still there when their turn comes.
pub(crate) const SHELF_CHUNKS: usize = 64;
/// Maximum number of chunks that are requested from the driver and not yet supplied.
const ASKED_MAX: usize = 8;

struct Contents {
    bytes: Arc<[u8]>,
    repair: Option<Vec<u8>>,
    used: u64,
}

/// The cache of chunk contents.
pub(crate) struct Shelf {
    chunks: HashMap<u32, Contents>,
    asked: Vec<u32>,
    clock: u64,
    encoder: Encoder,
    directory_chunks: u32,
}

impl Shelf {
    /// Makes a shelf with the directory.
    pub(crate) fn new(directory: &[u8]) -> Self {
        let chunks: HashMap<u32, Contents> = directory
            .chunks(CHUNK_BYTES_MAX)
            .zip(0..)
            .map(|(bytes, chunk)| (chunk, Contents { bytes: bytes.into(), repair: None, used: u64::MAX }))
            .collect();
        let directory_chunks = chunks.len() as u32;
        Self { chunks, asked: Vec::new(), clock: 0, encoder: Encoder::default(), directory_chunks }
    }

    /// Returns the first of `wanted` that is neither here nor requested, and counts it as requested. All numbers are wire
    /// numbers.
    pub(crate) fn ask(&mut self, wanted: impl Iterator<Item = u32>) -> Option<u32> {
        if self.asked.len() >= ASKED_MAX {
            return None;
        }
        let chunk = wanted
            .into_iter()
            .find(|chunk| !self.chunks.contains_key(chunk) && !self.asked.contains(chunk))?;
        self.asked.push(chunk);
        Some(chunk)
    }

    /// Adds a chunk from the driver.
    ///
    /// # Errors
    /// `Bug` when its length differs from the description.
    pub(crate) fn supply(&mut self, chunk: u32, bytes: Arc<[u8]>, table: &ChunkTable) -> Result<()> {
        if table.length(chunk).map(|length| length as usize) != Some(bytes.len()) {
            let expected = table.length(chunk);
            return Err(Error::bug(format!(
                "chunk {chunk} has {} bytes, but the description says {expected:?}",
                bytes.len()
            )));
        }
        self.asked.retain(|asked| *asked != chunk);
        while self.chunks.len() >= SHELF_CHUNKS + self.directory_chunks as usize {
            let oldest =
                self.chunks.iter().min_by_key(|(_, contents)| contents.used).map(|(chunk, _)| *chunk);
            let Some(oldest) = oldest else { break };
            self.chunks.remove(&oldest);
        }
        self.clock += 1;
        self.chunks.insert(chunk, Contents { bytes, repair: None, used: self.clock });
        Ok(())
    }

    /// Returns a chunk's contents, if they are here.
    pub(crate) fn bytes(&mut self, chunk: u32) -> Option<Arc<[u8]>> {
        self.clock += 1;
        let clock = self.clock;
        let contents = self.chunks.get_mut(&chunk)?;
        contents.used = contents.used.max(clock);
        Some(Arc::clone(&contents.bytes))
    }

    /// Returns whether a chunk's contents are here.
    pub(crate) fn has(&self, chunk: u32) -> bool {
        self.chunks.contains_key(&chunk)
    }

    /// Returns a symbol of a chunk, source or repair (from [`SYMBOLS_MAX`]). The last source symbol may be short. `None` if the
    /// contents are not here.
    pub(crate) fn symbol(&mut self, chunk: u32, symbol: u16) -> Option<&[u8]> {
        self.clock += 1;
        let contents = self.chunks.get_mut(&chunk)?;
        contents.used = contents.used.max(self.clock);
        let index = usize::from(symbol);
        if index < SYMBOLS_MAX {
            return contents.bytes.chunks(SYMBOL_BYTES).nth(index);
        }
        if contents.repair.is_none() {
            contents.repair = self.encoder.repair_symbols(&contents.bytes).ok();
        }
        contents.repair.as_ref()?.chunks_exact(SYMBOL_BYTES).nth(index - SYMBOLS_MAX)
    }
}
