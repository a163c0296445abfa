//! Reads the recipe of an image: the blocks that it uses, and which parts of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, Error, Extent, Result, SECTOR, Score};
use platter_vdisk::Source;

use crate::pieces::Pieces;
use crate::tally::{Digest, Sample};

/// Progress is reported after so many bytes of the disk.
const STEP: u64 = 64 << 20;

/// What an image consists of.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Which blocks were collected.
    pub(crate) sample: Sample,
    /// The bytes that the image uses of each block.
    pub(crate) blocks: HashMap<Digest, u64>,
    /// The pages of the recipe.
    pub(crate) pages: HashSet<Digest>,
    /// Bytes of the disk.
    pub(crate) disk_bytes: u64,
    /// Bytes of it in blocks, counted at each place.
    pub(crate) data_bytes: u64,
    /// Bytes of it that are in use and zero.
    pub(crate) zero_bytes: u64,
    /// Bytes of it whose pages cannot be read.
    pub(crate) unreadable_bytes: u64,
    /// The first reason why something cannot be read.
    pub(crate) damage: Option<String>,
}

/// The first bytes of an id.
pub(crate) fn digest_of(id: &BlockId) -> Digest {
    *id.0.first_chunk().unwrap_or(&[0; 16])
}

/// Remembers which pages were read.
struct Recorded {
    source: Arc<dyn Source>,
    pages: Mutex<HashSet<Digest>>,
}

impl PageSource for Recorded {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.pages.lock().insert(digest_of(id));
        self.source.page(id)
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        self.source.will_need_pages(ids);
    }
}

/// Reads a recipe, or the part of it for a range of the disk. Collects blocks in about `bytes_max` bytes of memory. `advance` is
/// called with the bytes of the disk that are done.
///
/// # Errors
/// `Missing` or `Corrupt` when its root cannot be read; errors that are no damage, such as a missing key.
pub(crate) fn read_contents(
    score: Score,
    range: Option<Extent>,
    source: Arc<dyn Source>,
    bytes_max: u64,
    advance: &dyn Fn(u64),
) -> Result<Contents> {
    let recorded = Recorded { source, pages: Mutex::default() };
    let recipe = Recipe::open(score, &recorded)?;
    let recipe = match range {
        Some(range) => recipe.of_part(range),
        None => recipe,
    };
    let disk_bytes = recipe.root().disk_length;
    let unreadable_bytes = AtomicU64::new(0);
    let damage = Mutex::new(None);
    let on_lost = |lost: Extent, error: &Error| {
        unreadable_bytes.fetch_add(lost.length, Ordering::Relaxed);
        damage.lock().get_or_insert_with(|| error.with_causes());
    };
    let (mut data_bytes, mut zero_bytes, mut done) = (0, 0, 0);
    let mut used: Pieces<u128> = Pieces::new(bytes_max);
    for entry in recipe.readable_entries(Extent::new(0, disk_bytes), &on_lost) {
        let entry = entry?;
        match entry.state {
            State::Free => {}
            State::Zero => zero_bytes += entry.extent.length,
            State::Data { block, offset } => {
                data_bytes += entry.extent.length;
                let sectors = sectors(u64::from(offset), entry.extent.length);
                used.update(digest_of(&block), |known| *known |= sectors);
            }
        }
        if entry.extent.end().saturating_sub(done) >= STEP {
            advance(entry.extent.end() - done);
            done = entry.extent.end();
        }
    }
    advance(disk_bytes.saturating_sub(done));
    let sample = used.sample();
    let size = |sectors: u128| u64::from(sectors.count_ones()) * SECTOR;
    Ok(Contents {
        sample,
        blocks: used.into_found().into_iter().map(|(digest, sectors)| (digest, size(sectors))).collect(),
        pages: recorded.pages.into_inner(),
        disk_bytes,
        data_bytes,
        zero_bytes,
        unreadable_bytes: unreadable_bytes.into_inner(),
        damage: damage.into_inner(),
    })
}

/// A part of a block as a bit for each of its 128 sectors. A longer part than a block can have is cut off.
fn sectors(offset: u64, length: u64) -> u128 {
    let below = |sector: u64| if sector >= 128 { u128::MAX } else { (1 << sector) - 1 };
    let (start, end) = (offset / SECTOR, offset.saturating_add(length) / SECTOR);
    below(end) & !below(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_blocks() {
        assert_eq!(sectors(0, 65536), u128::MAX);
        assert_eq!(sectors(0, 512), 1);
        assert_eq!(sectors(512, 1024), 0b110);
        assert_eq!(sectors(65024, 512), 1 << 127);
        assert_eq!(sectors(65024, u64::MAX), 1 << 127);
        assert_eq!(sectors(1 << 20, 512), 0);
    }
}
