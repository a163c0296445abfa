//! The index as of one manifest. It never changes, and stays readable while the files are replaced.

use std::sync::Arc;

use platter_image::{BlockId, Result};

use crate::entry::Entry;
use crate::manifest::{CoveredPack, Manifest};
use crate::segment::Segment;

/// Maximum log2 of the pages for each fence in memory.
const FENCE_STEP_LOG2_MAX: u32 = 6;
/// Maximum number of times that filters are halved: with fewer bits they would say yes to most ids.
const FOLDS_MAX: u32 = 2;

/// The index as of one manifest.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) manifest: Manifest,
    /// The bytes of the manifest.
    pub(crate) encoded: Vec<u8>,
    pub(crate) segments: Vec<Arc<Segment>>,
}

impl Snapshot {
    /// Limits the memory of fences and filters to about `memory` bytes. If that is not enough for filters that help, there are none
    /// in memory but one fence for 64 pages.
    pub(crate) fn new(
        manifest: Manifest,
        encoded: Vec<u8>,
        segments: Vec<Arc<Segment>>,
        memory: u64,
    ) -> Self {
        let fits = |step_log2: u32, folds: u32| {
            let all = segments.iter().map(|segment| segment.memory_with(step_log2, folds));
            all.sum::<u64>() <= memory
        };
        // Fences are small beside filters. They become fewer only when the smallest filters do not fit.
        let folds = (0..=FOLDS_MAX).find(|folds| fits(0, *folds)).unwrap_or(FOLDS_MAX);
        let step_log2 =
            (0..=FENCE_STEP_LOG2_MAX).find(|step| fits(*step, folds)).unwrap_or(FENCE_STEP_LOG2_MAX);
        segments.iter().for_each(|segment| segment.limit(step_log2, folds));
        Self { manifest, encoded, segments }
    }

    /// Adds all entries of a block to `found`, those of the earliest packs first. Only entries of covered packs count.
    ///
    /// # Errors
    /// `Corrupt` when the index is damaged; `Io`.
    pub fn find(&self, id: &BlockId, found: &mut Vec<Entry>) -> Result<()> {
        for segment in &self.segments {
            segment.find(id, found)?;
        }
        if !found.is_empty() {
            found.retain(|entry| self.manifest.pack(entry.pack).is_some());
            found.sort_unstable();
        }
        Ok(())
    }

    /// Returns all entries of one pack, in the order of the pack. Reads the whole index.
    ///
    /// # Errors
    /// `Corrupt` when the index is damaged; `Io`.
    pub fn entries_of(&self, pack: u32) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for segment in &self.segments {
            let mut all = segment.in_order();
            while let Some(entry) = all.take()? {
                if entry.pack == pack {
                    entries.push(entry);
                }
            }
        }
        entries.sort_unstable_by_key(|entry| (entry.offset, entry.slot));
        Ok(entries)
    }

    /// Returns the covered packs, by ascending numbers.
    pub fn packs(&self) -> &[CoveredPack] {
        &self.manifest.packs
    }

    /// Returns the number of entries of covered packs.
    pub fn len(&self) -> u64 {
        self.manifest.covered()
    }

    /// Returns whether no pack is covered.
    pub fn is_empty(&self) -> bool {
        self.manifest.packs.is_empty()
    }

    /// Returns the number of segments.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Returns the length of all segments in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.head.file_length()).sum()
    }

    /// Returns the memory in use for fences, filters and the list of packs, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let segments: usize = self.segments.iter().map(|segment| segment.memory_bytes()).sum();
        segments + self.encoded.capacity() + self.manifest.packs.capacity() * size_of::<CoveredPack>()
    }
}
