//! Verifies the frames that a compaction copies, and compresses them once more if that is wanted, on all cores.
//!
//! Nothing records the level of a frame. A sample of a pack's frames tells whether it would get smaller. So the next collection
//! goes on where one was interrupted, and leaves packs that are small already.
//!
//! Never reads or writes files in other threads than the caller's, so that a simulated disk sees the same calls in each run.

use std::thread;

use parking_lot::Mutex;
use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder, FrameHeader, RAW_LENGTH_MAX, Verify};
use platter_image::{BlockId, Error, Kind, Result};
use platter_pack::{FrameRow, read_row};
use platter_vfs::VfsFile;
use rustix::process::setpriority_process;

use super::survey::Survey;
use crate::read_back::all_cores;
use crate::store::Store;

/// Frames in memory at once.
pub(super) const BATCH: usize = 64;
/// Frames of a pack that are compressed to find out whether all of them are worth it.
const SAMPLE: usize = 16;
/// They are, if the sample takes at most this share afterwards.
const WORTH_PERCENT: usize = 98;

/// Priority of threads that compress: the lowest.
const NICE: i32 = 19;

/// Copies frames of one store, with some threads.
pub(super) struct Copying<'a> {
    store: &'a Store,
    /// One for each thread. Without, frames stay as they are.
    compressors: Vec<Option<Compressor>>,
}

impl<'a> Copying<'a> {
    /// `level`: a zstd level, or `None` to leave frames as they are.
    pub(super) fn new(store: &'a Store, level: Option<i32>) -> Result<Self> {
        let compressors = (0..all_cores()).map(|_| level.map(Compressor::new).transpose());
        Ok(Self { store, compressors: compressors.collect::<Result<_>>()? })
    }

    /// Reads frames, verifies all blocks in them, and compresses them again where that makes them smaller.
    pub(super) fn read(
        &mut self,
        file: &dyn VfsFile,
        rows: &[(&FrameRow, &[BlockId])],
    ) -> Result<Vec<EncodedFrame>> {
        let mut frames = Vec::with_capacity(rows.len());
        for (row, ids) in rows {
            let mut stored = Vec::new();
            read_row(file, row, ids, &mut stored)?;
            frames.push(EncodedFrame {
                kind: row.kind,
                stored,
                blocks: Vec::new(),
                raw_length: row.raw_length,
            });
        }
        let (store, left) = (self.store, Mutex::new(frames.iter_mut()));
        let work = |compressor: &mut Option<Compressor>| -> Result<()> {
            loop {
                let Some(frame) = left.lock().next() else { return Ok(()) };
                store.0.decoders.with(|decoder| {
                    let (header, raw) = decoder.decode(&frame.stored, Verify::Hashes)?;
                    let again = compressor.as_mut().map(|compressor| compress(&header, raw, compressor));
                    frame.blocks = header.blocks;
                    match again.transpose()?.flatten() {
                        Some(again) if again.stored.len() < frame.stored.len() => *frame = again,
                        _ => {}
                    }
                    Ok(())
                })?;
            }
        };
        thread::scope(|scope| {
            let mut compressors = self.compressors.iter_mut();
            let own = compressors.next();
            // As many further threads as can be had.
            let work_aside = |compressor: &mut Option<Compressor>| {
                if compressor.is_some() {
                    // Readers and captures come first. It works without that, too.
                    let _ = setpriority_process(None, NICE);
                }
                work(compressor)
            };
            let start =
                |compressor| thread::Builder::new().spawn_scoped(scope, move || work_aside(compressor)).ok();
            let others: Vec<_> = compressors.map_while(start).collect();
            own.map_or(Ok(()), work)?;
            let panicked = || Err(Error::bug("a thread of the compaction panicked"));
            others.into_iter().try_for_each(|other| other.join().unwrap_or_else(|_| panicked()))
        })?;
        Ok(frames)
    }

    /// Whether compressing the needed frames of a pack again is worth it. A pack that cannot be read is not.
    pub(super) fn is_worth_it(&mut self, survey: &Survey<'_>, at: usize) -> Result<bool> {
        if self.compressors.iter().all(Option::is_none) {
            return Ok(false);
        }
        let (pack, directory) = (&survey.packs[at], survey.directory(at)?);
        let is_compressed = |kind| matches!(kind, Kind::Data | Kind::Page);
        let needed: Vec<_> = directory
            .iter()
            .filter(|(row, ids)| is_compressed(row.kind) && survey.is_needed(at, ids))
            .collect();
        let sample: Vec<_> = needed.iter().copied().step_by(needed.len().div_ceil(SAMPLE).max(1)).collect();
        let before: usize = sample.iter().map(|(row, _)| row.whole_length()).sum();
        let file = self.store.0.packs.file(pack.ordinal)?;
        let Ok(frames) = self.read(&*file, &sample) else { return Ok(false) };
        let after: usize = frames.iter().map(|frame| frame.stored.len()).sum();
        Ok(after * 100 <= before * WORTH_PERCENT && after < before)
    }
}

/// A frame with the same blocks, compressed again; `None` for frames of records, which are short.
fn compress(header: &FrameHeader, raw: &[u8], compressor: &mut Compressor) -> Result<Option<EncodedFrame>> {
    if !matches!(header.kind, Kind::Data | Kind::Page) {
        return Ok(None);
    }
    let mut builder = FrameBuilder::new(header.kind, header.domain, RAW_LENGTH_MAX);
    let mut rest = raw;
    for block in &header.blocks {
        let (contents, after) = rest.split_at(block.length as usize);
        builder.push(block.id, contents);
        rest = after;
    }
    builder.encode(compressor).map(Some)
}
