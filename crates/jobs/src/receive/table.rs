//! Finds the partition that is to be received, from the few chunks that carry the partition table, before the target is
//! opened.
//!
//! Owns these chunks until the partition is known; then they are processed like all others. The table is read through the
//! verified recipe, so every byte of it is proven by the score.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

use parking_lot::Mutex;
use platter_disk::partition::PartitionTable;
use platter_image::frame::{FrameDecoder, Verify};
use platter_image::page::State;
use platter_image::{BlockId, DiskRead, Error, Extent, Kind, Result};

use super::sink::{Frames, SegmentRecipe};

/// Most chunks that are requested for a partition table.
const CHUNKS_MAX: usize = 64;

/// The chunks that were requested to read the partition table, with their bytes once they have arrived.
#[derive(Default)]
pub(super) struct TableChunks(BTreeMap<u32, Option<Vec<u8>>>);

/// The result of reading the table.
pub(super) enum Search {
    /// The range of the partition.
    Found(Extent),
    /// There is no such partition, or it cannot be received.
    Refused(Error),
    /// These blocks must arrive first.
    Lacks(HashSet<BlockId>),
}

impl TableChunks {
    /// Whether a requested chunk has not arrived yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.0.values().any(Option::is_none)
    }

    /// The requested chunks that have not arrived yet.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().filter(|(_, bytes)| bytes.is_none()).map(|(index, _)| *index)
    }

    /// Requests chunks. Returns those that were not requested before.
    ///
    /// # Errors
    /// `Missing` if that is none; `Refused` if they are too many.
    pub(super) fn request(&mut self, chunks: impl Iterator<Item = u32>) -> Result<Vec<u32>> {
        let new: Vec<u32> = chunks.filter(|index| !self.0.contains_key(index)).collect();
        if new.is_empty() {
            return Err(Error::missing(
                "the sender's chunks do not have the partition table that it announced: run the command again",
            ));
        }
        if self.0.len() + new.len() > CHUNKS_MAX {
            return Err(Error::refused(format!(
                "the partition table is spread over more than {CHUNKS_MAX} chunks: receive the whole disk"
            )));
        }
        self.0.extend(new.iter().map(|index| (*index, None)));
        Ok(new)
    }

    /// Adds a requested chunk.
    ///
    /// # Errors
    /// `Corrupt` if its frames are invalid.
    pub(super) fn add(&mut self, index: u32, bytes: &[u8], decoder: &mut FrameDecoder) -> Result<()> {
        for_each_block(bytes, decoder, &mut |_, _| {})?;
        let Some(slot) = self.0.get_mut(&index) else {
            return Err(Error::bug(format!("chunk {index} was not requested yet")));
        };
        *slot = Some(bytes.to_vec());
        Ok(())
    }

    /// Ends the search: returns the chunks that have arrived.
    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0).into_values().flatten().collect()
    }

    /// Searches the partition with that number on a disk of which this recipe knows the segment.
    ///
    /// # Errors
    /// Those of reading the recipe.
    pub(super) fn find(
        &self,
        number: u32,
        recipe: &SegmentRecipe<'_>,
        segment: Extent,
        decoder: &mut FrameDecoder,
    ) -> Result<Search> {
        let mut disk = ArrivedDisk { recipe, segment, blocks: HashMap::new(), lacking: Mutex::default() };
        loop {
            let table = PartitionTable::read(&disk);
            let lacking = std::mem::take(&mut *disk.lacking.lock());
            if lacking.is_empty() {
                let found = table?.range_of(number, disk.length());
                return Ok(found.map_or_else(Search::Refused, Search::Found));
            }
            // Only blocks that are needed are kept in memory.
            let before = disk.blocks.len();
            for chunk in self.0.values().flatten() {
                for_each_block(chunk, decoder, &mut |id, bytes| {
                    if lacking.contains(&id) {
                        disk.blocks.insert(id, bytes.to_vec());
                    }
                })?;
            }
            if disk.blocks.len() == before {
                return Ok(Search::Lacks(lacking));
            }
        }
    }
}

/// Calls `act` with every verified block of a chunk of data.
fn for_each_block(
    chunk: &[u8],
    decoder: &mut FrameDecoder,
    act: &mut dyn FnMut(BlockId, &[u8]),
) -> Result<()> {
    for stored in Frames(chunk) {
        let (header, contents) = decoder.decode(stored?, Verify::Hashes)?;
        if header.kind != Kind::Data {
            return Err(Error::corrupt(format!("a frame of {:?} instead of data", header.kind)));
        }
        let mut rest = contents;
        for block in &header.blocks {
            let Some((bytes, after)) = rest.split_at_checked(block.length as usize) else { break };
            act(block.id, bytes);
            rest = after;
        }
    }
    Ok(())
}

/// A disk of which few blocks have arrived. What lies outside of the segment reads as zeros: a backup table there is then
/// missing, which only raises doubts.
struct ArrivedDisk<'a> {
    recipe: &'a SegmentRecipe<'a>,
    segment: Extent,
    blocks: HashMap<BlockId, Vec<u8>>,
    /// Blocks that were read and have not arrived.
    lacking: Mutex<HashSet<BlockId>>,
}

impl DiskRead for ArrivedDisk<'_> {
    fn length(&self) -> u64 {
        self.recipe.root().disk_length
    }

    fn sector_size(&self) -> u32 {
        self.recipe.root().sector_size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        buffer.fill(0);
        let wanted = Extent::new(offset, buffer.len() as u64);
        let Some(known) = wanted.intersect(&self.segment) else { return Ok(()) };
        let mut is_complete = true;
        for entry in self.recipe.entries(known) {
            let entry = entry.map_err(io::Error::other)?;
            let State::Data { block, offset: from } = entry.state else { continue };
            let to = (entry.extent.offset - offset) as usize;
            let length = entry.extent.length as usize;
            let Some(bytes) = self.blocks.get(&block) else {
                self.lacking.lock().insert(block);
                is_complete = false;
                continue;
            };
            let bytes = bytes.get(from as usize..from as usize + length);
            let to = buffer.get_mut(to..to + length);
            let (Some(bytes), Some(to)) = (bytes, to) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            to.copy_from_slice(bytes);
        }
        if is_complete { Ok(()) } else { Err(io::Error::other("blocks have not arrived yet")) }
    }
}
