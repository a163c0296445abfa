//! Searches a disk for blocks at any offset: surveys it and cuts it as a capture would, and hashes its blocks.

use parking_lot::Mutex;
use std::thread;

use platter_image::chunking::{Batch, Cut, Cutter, Region};
use platter_image::recipe::CutPolicy;
use platter_image::{DiskRead, Domain, Extent, Extents, Kind};

use super::delta::Delta;
use super::pieces::Pieces;
use crate::capture::{start, trimmed_length};
use crate::{SurveyOptions, survey};

/// Threads that read and hash.
const THREADS: usize = 4;

impl Delta {
    /// Searches a disk for lacking blocks: the next other disk, or the target. For the target, `emptied` says what will be emptied before the install.
    /// `data` says where a sparse file has data.
    pub(super) fn search(
        &mut self,
        policy: CutPolicy,
        disk: &dyn DiskRead,
        data: Option<&Extents>,
        emptied: Option<&Extents>,
    ) {
        let number = emptied.is_none().then(|| self.blocks.next_disk());
        if self.lacking.is_empty() || self.lacks_more {
            return;
        }
        let Some(alignment) = policy.file_alignment() else { return };
        // A filesystem that needs recovery is cut without regard to its files, and then has few such blocks.
        let options = SurveyOptions { force: true, ..SurveyOptions::default() };
        let Ok(found) = survey(disk, data, &options) else { return };
        let regions: Vec<Region> = found.parts.into_iter().map(|part| part.region).collect();
        let batches = regions.iter().flat_map(|region| Cutter::new(region, alignment));
        // Held blocks are in their places already; only another disk may have them, too.
        let known = match emptied {
            Some(_) => self.held.clone(),
            None => Extents::new(),
        };
        let domain = self.blocks.domain;
        let search = Search { number, domain, emptied, known: &known, delta: Mutex::new(self) };
        let batches = Mutex::new(batches);
        let work = || {
            let mut loaded = Pieces::of(disk);
            loop {
                let batch = batches.lock().next();
                let Some(batch) = batch.filter(|_| !search.is_over()) else { return };
                search.look_at(&batch, &mut loaded);
            }
        };
        thread::scope(|scope| {
            // As many further threads as can be had.
            for _ in (1..THREADS).map_while(|_| start(scope, work).ok()) {}
            work();
        });
    }

    /// Whether the install leaves these bytes of the target alone.
    fn is_kept(&self, place: Extent, emptied: &Extents) -> bool {
        self.stale.clip(place).next().is_none() && emptied.clip(place).next().is_none()
    }
}

struct Search<'a> {
    /// The number of the disk, if it is not the target.
    number: Option<u32>,
    domain: Domain,
    emptied: Option<&'a Extents>,
    known: &'a Extents,
    delta: Mutex<&'a mut Delta>,
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.delta.lock().lacking.is_empty()
    }

    fn look_at(&self, batch: &Batch, loaded: &mut Pieces<'_>) {
        let is_known = |pieces: &[Extent]| {
            let known = pieces.iter().flat_map(|piece| self.known.clip(*piece)).map(|part| part.length);
            known.sum::<u64>() == pieces.iter().map(|piece| piece.length).sum()
        };
        let cuts: Vec<(&Cut, &[Extent])> = batch
            .cuts
            .iter()
            .map(|cut| (cut, batch.pieces_of(cut)))
            .filter(|(_, it)| !is_known(it))
            .collect();
        // Without memory nothing is found, and the blocks are fetched.
        if loaded.load(cuts.iter().flat_map(|(_, pieces)| *pieces).copied()).is_err() {
            return;
        }
        let mut block = Vec::new();
        for (cut, pieces) in cuts {
            if loaded.gather(cut.extent.offset, cut.extent.length, pieces, &mut block) {
                block.truncate(trimmed_length(&block));
                self.compare(cut, pieces, &block);
            }
        }
    }

    fn compare(&self, cut: &Cut, pieces: &[Extent], block: &[u8]) {
        let Ok(id) = self.domain.id_of(Kind::Data, block) else { return };
        let mut delta = self.delta.lock();
        if !delta.lacking.contains(&id) {
            return;
        }
        let place = Extent::new(cut.extent.offset, block.len() as u64);
        let is_whole = pieces.first().is_some_and(|first| first.intersect(&place) == Some(place));
        if is_whole && self.emptied.is_none_or(|emptied| delta.is_kept(place, emptied)) {
            delta.blocks.add_place(id, self.number, place);
        } else if !delta.blocks.keep(id, block) {
            return;
        }
        delta.lacking.remove(&id);
    }
}
