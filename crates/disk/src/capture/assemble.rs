//! The only stage that sees blocks in disk order: decides which are new, fills frames, builds the recipe.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};

use crossbeam_channel::{Receiver, Sender};
use platter_image::chunking::Cut;
use platter_image::frame::FrameBuilder;
use platter_image::page::{Entry, State};
use platter_image::recipe::RecipeBuilder;
use platter_image::{BlockId, DiskRead, Error, Extent, FrameStore, Kind, PinSet, Result, Score};

use super::compress::Full;
use super::hash::{Block, Hashed};
use super::{CaptureCounts, CaptureOptions, next_stage_gone};

/// How many pages are looked up in the store together.
const PAGES_TOGETHER: usize = 16;

/// Ids of blocks that are on their way to the store but cannot be found there yet.
pub(super) type InFlight = Mutex<HashSet<BlockId>>;

pub(super) struct Assembler<'a, S> {
    frames: Frames<'a, S>,
    recipe: RecipeBuilder<Vec<(BlockId, Vec<u8>)>>,
    counts: CaptureCounts,
    done: u64,
}

impl<'a, S: FrameStore> Assembler<'a, S> {
    pub(super) fn new(
        disk: &dyn DiskRead,
        store: &'a S,
        options: CaptureOptions,
        full: Sender<Full>,
        in_flight: &'a InFlight,
    ) -> Self {
        let builder = |kind| FrameBuilder::new(kind, options.domain, options.frame_length);
        Self {
            frames: Frames {
                store,
                in_flight,
                data: builder(Kind::Data),
                pages: builder(Kind::Page),
                pins: PinSet::default(),
                full,
                number: 0,
            },
            recipe: RecipeBuilder::new(
                disk.length(),
                disk.sector_size(),
                options.cut_policy,
                options.domain,
                Vec::new(),
            ),
            counts: CaptureCounts::default(),
            done: 0,
        }
    }

    /// Takes all batches, sorts them, and returns their buffers.
    pub(super) fn take_all(
        &mut self,
        hashed: Receiver<Hashed>,
        used: &Sender<Vec<u8>>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut early = BTreeMap::new();
        let mut next = 0;
        for batch in hashed {
            early.insert(batch.loaded.number, batch);
            while let Some(mut batch) = early.remove(&next) {
                self.take(&mut batch)?;
                // If this buffer does not get back to the reader, the reader allocates a new one.
                let _ = used.try_send(std::mem::take(&mut batch.loaded.buffer));
                next += 1;
            }
            progress(self.done);
        }
        Ok(())
    }

    fn take(&mut self, batch: &mut Hashed) -> Result<()> {
        let blocks = std::mem::take(&mut batch.blocks);
        let mut entries: Vec<Entry> = Vec::with_capacity(batch.loaded.batch.pieces.len());
        for (cut, block) in batch.loaded.batch.cuts.iter().zip(blocks) {
            let mut is_new = false;
            let named = match block {
                Block::Zero => None,
                Block::Named { id, place, known } => {
                    let contents = batch.contents(place);
                    match known {
                        Some(pin) => self.frames.pins.insert(pin),
                        None if self.frames.add(Kind::Data, id, contents)? => {
                            self.counts.new_blocks += 1;
                            is_new = true;
                        }
                        None => {}
                    }
                    Some((id, contents.len() as u64))
                }
            };
            let first = entries.len();
            for piece in batch.loaded.batch.pieces_of(cut) {
                entries.extend(entries_of(cut, *piece, named).into_iter().flatten());
            }
            if is_new {
                self.counts.new_raw += data_bytes(&entries[first..]);
            }
        }
        for entry in std::mem::take(&mut batch.loaded.kept) {
            self.frames.pin(&entry)?;
            entries.push(entry);
        }
        let zeroed = batch.loaded.batch.zeroed.iter();
        entries.extend(zeroed.map(|extent| Entry { extent: *extent, state: State::Zero }));
        entries.sort_unstable_by_key(|entry| entry.extent.offset);
        for entry in entries {
            self.done += entry.extent.length;
            match entry.state {
                State::Zero => self.counts.zero += entry.extent.length,
                _ => self.counts.data += entry.extent.length,
            }
            self.recipe.push(entry)?;
        }
        let pages = self.recipe.sink_mut();
        if pages.len() >= PAGES_TOGETHER { self.frames.add_pages(pages) } else { Ok(()) }
    }

    /// Finishes the recipe and sends the last frames.
    pub(super) fn finish(mut self) -> Result<(Score, CaptureCounts, PinSet)> {
        let (score, mut pages) = self.recipe.finish()?;
        self.frames.add_pages(&mut pages)?;
        for frame in [self.frames.data.take(), self.frames.pages.take()] {
            self.frames.send(frame)?;
        }
        Ok((score, self.counts, self.frames.pins))
    }
}

/// The bytes of data in these entries.
fn data_bytes(entries: &[Entry]) -> u64 {
    entries.iter().filter(|entry| entry.state != State::Zero).map(|entry| entry.extent.length).sum()
}

/// The entries for a piece of a cut: data, then zeros. `named` is the cut's block and its length, if it has
/// one.
fn entries_of(cut: &Cut, piece: Extent, named: Option<(BlockId, u64)>) -> [Option<Entry>; 2] {
    let Some((block, length)) = named else {
        return [Some(Entry { extent: piece, state: State::Zero }), None];
    };
    let data_end = cut.extent.offset + length;
    let data = Extent::between(piece.offset, piece.end().min(data_end));
    let zero = Extent::between(piece.offset.max(data_end), piece.end());
    let offset = (piece.offset - cut.extent.offset) as u32;
    [
        (data.length > 0).then_some(Entry { extent: data, state: State::Data { block, offset } }),
        (zero.length > 0).then_some(Entry { extent: zero, state: State::Zero }),
    ]
}

/// The frames being filled with new blocks.
struct Frames<'a, S> {
    store: &'a S,
    in_flight: &'a InFlight,
    data: FrameBuilder,
    pages: FrameBuilder,
    pins: PinSet,
    full: Sender<Full>,
    number: u64,
}

impl<S: FrameStore> Frames<'_, S> {
    /// Adds a block unless it is stored or on its way; returns whether it was new.
    fn add(&mut self, kind: Kind, id: BlockId, contents: &[u8]) -> Result<bool> {
        // The order matters: the appender removes an id only once the store can find the block.
        if !self.in_flight.lock().insert(id) {
            return Ok(false);
        }
        if let Some(pin) = self.store.lookup_and_pin(&id)? {
            self.in_flight.lock().remove(&id);
            self.pins.insert(pin);
            return Ok(false);
        }
        let builder = if kind == Kind::Page { &mut self.pages } else { &mut self.data };
        let full = builder.is_full_for(contents.len()).then(|| builder.take());
        builder.push(id, contents);
        full.map_or(Ok(()), |frame| self.send(frame))?;
        Ok(true)
    }

    /// Pins the block of an entry that was copied from the base.
    fn pin(&mut self, entry: &Entry) -> Result<()> {
        let State::Data { block, .. } = entry.state else { return Ok(()) };
        let pin = self.store.pin_stored(&block)?;
        self.pins.insert(pin.ok_or_else(|| Error::missing(format!("block {block} of the base version")))?);
        Ok(())
    }

    fn add_pages(&mut self, made: &mut Vec<(BlockId, Vec<u8>)>) -> Result<()> {
        let ids: Vec<BlockId> = made.iter().map(|(id, _)| *id).collect();
        let known = self.store.lookup_and_pin_all(&ids)?;
        for ((id, bytes), known) in made.drain(..).zip(known) {
            match known {
                Some(pin) => self.pins.insert(pin),
                None => drop(self.add(Kind::Page, id, &bytes)?),
            }
        }
        Ok(())
    }

    fn send(&mut self, frame: FrameBuilder) -> Result<()> {
        if frame.is_empty() {
            return Ok(());
        }
        let full = Full { number: self.number, frame };
        self.number += 1;
        self.full.send(full).map_err(|_| next_stage_gone())
    }
}
