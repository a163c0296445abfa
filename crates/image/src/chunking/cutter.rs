//! Cuts regions into blocks, one batch at a time, before any data is read.
//!
//! A batch ends on the grid, so no grid block lies in two batches. A file block may reach past the end of its
//! batch; the next batch then skips that part. Memory is bounded by the batch, not the disk. A long run of
//! zeros is one batch of any length without anything to read.

use super::{FileRun, GRID, Region};
use crate::{Extent, Extents};

/// Approximate number of allocated bytes in a batch.
pub const BATCH_LENGTH: u64 = 2 << 20;
/// The most bytes between a batch's first and last byte, so that one buffer can hold it.
pub const BATCH_SPAN_MAX: u64 = 4 << 20;

/// A block to be made: the parts of the device that it contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Byte `i` of the block is byte `extent.offset + i` of the device, or zero where none of its pieces
    /// covers that byte.
    pub extent: Extent,
    /// Indices of its pieces in the batch's `pieces`: first, and one past the last.
    pub pieces: (u32, u32),
}

/// The blocks of one stretch of the device.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The blocks, in ascending order of their first piece.
    pub cuts: Vec<Cut>,
    /// The parts of the device that the blocks contain.
    pub pieces: Vec<Extent>,
    /// Extents stored as zeros without being read.
    pub zeroed: Vec<Extent>,
}

impl Batch {
    /// The smallest extent that contains all pieces.
    pub fn span(&self) -> Extent {
        let start = self.pieces.iter().map(|piece| piece.offset).min().unwrap_or(0);
        let end = self.pieces.iter().map(Extent::end).max().unwrap_or(0);
        Extent::between(start, end)
    }

    /// The pieces of a cut, ascending.
    pub fn pieces_of(&self, cut: &Cut) -> &[Extent] {
        &self.pieces[cut.pieces.0 as usize..cut.pieces.1 as usize]
    }
}

/// The batches of one region, in disk order.
#[derive(Debug)]
pub struct Cutter<'a> {
    region: &'a Region,
    /// Files are cut at multiples of this many bytes of their own offsets.
    file_alignment: u64,
    /// Everything below this offset has been cut.
    position: u64,
    /// Index of the first allocated extent that ends above `position`.
    allocated: usize,
    /// Index of the first file run that is not completely cut.
    run: usize,
    /// Bytes of that run already cut.
    run_done: u64,
    /// Index of the first zeroed extent that ends above `position`.
    zeroed: usize,
}

impl<'a> Cutter<'a> {
    /// Cuts that region. Files are cut at multiples of `file_alignment` bytes, which must divide
    /// [`super::FILE_ALIGNMENT`] and be a multiple of 512.
    pub fn new(region: &'a Region, file_alignment: u64) -> Self {
        debug_assert!(super::FILE_ALIGNMENT.is_multiple_of(file_alignment));
        Self {
            region,
            file_alignment,
            position: region.extent.offset,
            allocated: 0,
            run: 0,
            run_done: 0,
            zeroed: 0,
        }
    }

    /// The range of the next batch: grid cells with about [`BATCH_LENGTH`] allocated bytes.
    fn next_window(&mut self) -> Option<Extent> {
        let origin = self.region.extent.offset;
        let extents = self.region.allocated.as_slice();
        let first = extents.get(self.allocated)?.offset.max(self.position);
        let start = origin + (first - origin) / GRID * GRID;
        let limit = start + BATCH_SPAN_MAX;
        let (mut end, mut bytes) = (start, 0);
        for extent in &extents[self.allocated..] {
            let from = extent.offset.max(start);
            if from >= limit || bytes >= BATCH_LENGTH {
                break;
            }
            end = extent.end().min(from + (BATCH_LENGTH - bytes)).min(limit);
            bytes += end - from;
        }
        let end = origin + (end - origin).div_ceil(GRID) * GRID;
        Some(Extent::between(start.max(self.position), end.min(self.region.extent.end())))
    }

    /// Cuts the file contents that start inside `window`.
    fn cut_files(&mut self, window: Extent, batch: &mut Batch) {
        while let Some(run) = self.region.files.get(self.run) {
            let extent = run.extent();
            let start = extent.offset + self.run_done;
            if start >= window.end() {
                break;
            }
            let phase = (run.phase() + self.run_done) % self.file_alignment;
            let length = (self.file_alignment - phase).min(extent.length - self.run_done);
            let piece = Extent::new(start, length);
            let at = batch.pieces.len() as u32;
            batch.pieces.push(piece);
            batch.cuts.push(Cut { extent: piece, pieces: (at, at + 1) });
            self.run_done += length;
            if self.run_done == extent.length {
                (self.run, self.run_done) = (self.run + 1, 0);
            }
        }
    }

    /// Cuts the rest of `window` along the grid.
    fn cut_grid(&self, window: Extent, files: &Extents, zeroed: &Extents, batch: &mut Batch) {
        let origin = self.region.extent.offset;
        let allocated: Extents = self.region.allocated.as_slice()[self.allocated..]
            .iter()
            .map_while(|extent| extent.intersect(&window))
            .collect();
        let rest = allocated.subtract(files).subtract(zeroed);
        for extent in &rest {
            let mut start = extent.offset;
            while start < extent.end() {
                let cell = origin + (start - origin) / GRID * GRID;
                let piece = Extent::between(start, extent.end().min(cell + GRID));
                let at = batch.pieces.len() as u32;
                batch.pieces.push(piece);
                match batch.cuts.last_mut() {
                    Some(cut)
                        if cut.extent.offset == cell && cut.pieces.1 == at && cut.extent.length == GRID =>
                    {
                        cut.pieces.1 = at + 1;
                    }
                    _ => batch.cuts.push(Cut { extent: Extent::new(cell, GRID), pieces: (at, at + 1) }),
                }
                start = piece.end();
            }
        }
    }
}

impl Cutter<'_> {
    /// The run of zeros at the next allocated byte, if it is longer than [`BATCH_SPAN_MAX`]: whole grid cells
    /// that contain no file data.
    fn next_zeros(&mut self) -> Option<Extent> {
        let origin = self.region.extent.offset;
        let extents = self.region.allocated.as_slice();
        self.allocated += extents[self.allocated..].partition_point(|extent| extent.end() <= self.position);
        let allocated = extents.get(self.allocated)?;
        let start = allocated.offset.max(self.position);
        let all_zeroed = self.region.zeroed.as_slice();
        self.zeroed += all_zeroed[self.zeroed..].partition_point(|extent| extent.end() <= start);
        let zeroed = all_zeroed.get(self.zeroed).filter(|extent| extent.offset <= start)?;
        let before = self.run.checked_sub(1).map_or(0, |last| self.region.files[last].extent().end());
        let after = self.region.files.get(self.run).map_or(u64::MAX, |run| run.extent().offset);
        let end = zeroed.end().min(allocated.end()).min(after);
        let end = origin + end.saturating_sub(origin) / GRID * GRID;
        let is_long = end.saturating_sub(start) > BATCH_SPAN_MAX;
        (is_long && before <= start && (start - origin).is_multiple_of(GRID))
            .then(|| Extent::between(start, end))
    }
}

impl Iterator for Cutter<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        if let Some(zeros) = self.next_zeros() {
            self.position = zeros.end();
            return Some(Batch { zeroed: vec![zeros], ..Batch::default() });
        }
        let window = self.next_window()?;
        let mut batch = Batch::default();
        // File blocks may reach into this window from the last batch, and out of it at its end.
        let runs = &self.region.files[self.run..];
        let overlapping = runs.iter().map(FileRun::extent).take_while(|extent| extent.offset < window.end());
        let before = self.run.checked_sub(1).map(|last| self.region.files[last].extent());
        let files: Extents =
            before.into_iter().chain(overlapping).filter_map(|extent| extent.intersect(&window)).collect();
        self.cut_files(window, &mut batch);
        let all_zeroed = self.region.zeroed.as_slice();
        while all_zeroed.get(self.zeroed).is_some_and(|extent| extent.end() <= window.offset) {
            self.zeroed += 1;
        }
        let zeroed: Extents = all_zeroed[self.zeroed..]
            .iter()
            .take_while(|extent| extent.offset < window.end())
            .filter_map(|extent| extent.intersect(&window))
            .collect();
        let zeroed = zeroed.subtract(&files);
        self.cut_grid(window, &files, &zeroed, &mut batch);
        batch.zeroed = zeroed.iter().copied().collect();
        batch.cuts.sort_by_key(|cut| batch.pieces[cut.pieces.0 as usize].offset);
        self.position = window.end();
        Some(batch)
    }
}
