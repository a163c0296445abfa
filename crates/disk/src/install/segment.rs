//! Segments: a few MiB of the disk, first as entries of the recipe, then as bytes to write.

use crossbeam_channel::Sender;
use platter_image::page::{Entry, State};
use platter_image::recipe::{OnLost, PageSource, Recipe};
use platter_image::{BlockId, Extent, FrameSource, Result};

use super::described::described;
use super::frames::BlockReader;
use super::local::Local;
use super::{FreeSpace, SEGMENT_LENGTH, ZEROS_TOGETHER, ZEROS_WRITTEN_MAX};
use crate::AlignedBuffer;

/// The entries of one aligned part of the disk.
pub(super) struct Segment {
    start: u64,
    entries: Vec<Entry>,
    /// Runs of zeros, anywhere on the disk, that are long enough to ask the device for.
    zeros: Vec<Extent>,
}

/// A segment with its bytes.
pub(super) struct Filled {
    start: u64,
    buffer: AlignedBuffer,
    /// Which parts of the buffer to write, in ascending order.
    runs: Vec<Extent>,
    /// Bytes in the runs that are zeros in the recipe.
    written_zeros: u64,
    zeros: Vec<Extent>,
}

/// Walks the recipe and sends its segments in disk order, without what is held. The blocks of each segment are
/// announced to the source before it is sent, so announcements are as far ahead as segments may wait.
pub(super) fn walk<P: PageSource>(
    recipe: &Recipe<P>,
    source: &(impl FrameSource + ?Sized),
    free: FreeSpace,
    on_lost: Option<&OnLost<'_>>,
    local: Option<&Local<'_>>,
    segments: &Sender<Segment>,
) -> Result<()> {
    let whole = Extent::new(0, recipe.root().disk_length);
    let will_need = |ids: &[BlockId]| source.will_need(ids);
    let mut walk = Walk {
        segments,
        will_need: (source.hint_length() > 0).then_some(&will_need),
        local,
        current: Segment::begin(0),
        zeros: Vec::new(),
        gone: false,
    };
    for entry in described(recipe, whole, free, on_lost) {
        let entry = entry?;
        match local {
            Some(local) => local.rest_of(entry.extent).for_each(|rest| walk.add_part(entry, rest)),
            None => walk.add(entry),
        }
        if walk.gone {
            return Ok(());
        }
    }
    walk.close(0);
    walk.close_zeros();
    Ok(())
}

/// Announces blocks to a source.
type Tell<'a> = &'a dyn Fn(&[BlockId]);

struct Walk<'a> {
    segments: &'a Sender<Segment>,
    /// Set if the source wants announcements.
    will_need: Option<Tell<'a>>,
    local: Option<&'a Local<'a>>,
    current: Segment,
    /// Zeros to ask the device for, collected: a filesystem finishes all writes in progress before it makes a
    /// hole in a file.
    zeros: Vec<Extent>,
    /// No one takes segments any more; the stage that stopped has the error.
    gone: bool,
}

impl Walk<'_> {
    fn add_part(&mut self, entry: Entry, part: Extent) {
        entry.clip(part).into_iter().for_each(|entry| self.add(entry));
    }

    fn add(&mut self, entry: Entry) {
        if entry.extent.length == 0 {
            return;
        }
        if entry.state == State::Zero && entry.extent.length > ZEROS_WRITTEN_MAX {
            match self.zeros.last_mut() {
                Some(last) if last.end() == entry.extent.offset => last.length += entry.extent.length,
                _ => self.zeros.push(entry.extent),
            }
            if self.zeros.len() == ZEROS_TOGETHER {
                self.close_zeros();
            }
            return;
        }
        let mut rest = Some(entry);
        while let Some(entry) = rest {
            let start = entry.extent.offset / SEGMENT_LENGTH * SEGMENT_LENGTH;
            if start != self.current.start {
                self.close(start);
            }
            let segment = Extent::new(start, SEGMENT_LENGTH);
            self.current.entries.extend(entry.clip(segment));
            rest = entry.clip(Extent::between(segment.end(), u64::MAX));
        }
    }

    /// Sends the current segment, and begins the one that contains `next`.
    fn close(&mut self, next: u64) {
        let start = next / SEGMENT_LENGTH * SEGMENT_LENGTH;
        let done = std::mem::replace(&mut self.current, Segment::begin(start));
        if !done.entries.is_empty() {
            if let Some(will_need) = self.will_need {
                let mut blocks = done.blocks();
                blocks.retain(|id| self.local.is_none_or(|local| !local.has(id)));
                will_need(&blocks);
            }
            self.gone |= self.segments.send(done).is_err();
        }
    }

    /// Sends the collected zeros.
    fn close_zeros(&mut self) {
        let zeros = std::mem::take(&mut self.zeros);
        if !zeros.is_empty() {
            self.gone |= self.segments.send(Segment { zeros, ..Segment::begin(0) }).is_err();
        }
    }
}

impl Segment {
    fn begin(start: u64) -> Self {
        Self { start, entries: Vec::new(), zeros: Vec::new() }
    }

    /// The blocks that it needs, in disk order.
    fn blocks(&self) -> Vec<BlockId> {
        let blocks = self.entries.iter().filter_map(|entry| match entry.state {
            State::Data { block, .. } => Some(block),
            State::Zero | State::Free => None,
        });
        let mut blocks: Vec<BlockId> = blocks.collect();
        blocks.dedup();
        blocks
    }

    /// Fills `buffer` with the verified bytes of all entries. With `on_lost`, unreadable entries become zeros
    /// and are reported to it.
    pub(super) fn fill<F: FrameSource + ?Sized>(
        self,
        mut buffer: AlignedBuffer,
        reader: &mut BlockReader<'_, '_, F>,
        on_lost: Option<&OnLost<'_>>,
    ) -> Result<Filled> {
        let mut runs: Vec<Extent> = Vec::new();
        let mut written_zeros = 0;
        for entry in &self.entries {
            let at = (entry.extent.offset - self.start) as usize;
            let bytes = &mut buffer[at..at + entry.extent.length as usize];
            match entry.state {
                State::Data { block, offset } => {
                    if let Err(error) = reader.read(&block, offset as usize, bytes) {
                        let Some(on_lost) = on_lost.filter(|_| error.is_data_loss()) else {
                            return Err(error);
                        };
                        on_lost(entry.extent, &error);
                        bytes.fill(0);
                        written_zeros += entry.extent.length;
                    }
                }
                State::Zero | State::Free => {
                    bytes.fill(0);
                    written_zeros += entry.extent.length;
                }
            }
            match runs.last_mut() {
                Some(run) if run.end() == entry.extent.offset => run.length += entry.extent.length,
                _ => runs.push(entry.extent),
            }
        }
        reader.leave();
        Ok(Filled { start: self.start, buffer, runs, written_zeros, zeros: self.zeros })
    }
}

impl Filled {
    /// Ranges of the disk to write, with their bytes.
    pub(super) fn data(&self) -> impl Iterator<Item = (Extent, &[u8])> {
        self.runs.iter().map(|run| {
            let at = (run.offset - self.start) as usize;
            (*run, &self.buffer[at..at + run.length as usize])
        })
    }

    /// Ranges to zero in addition.
    pub(super) fn zeros(&self) -> &[Extent] {
        &self.zeros
    }

    pub(super) fn data_length(&self) -> u64 {
        self.runs.iter().map(|run| run.length).sum::<u64>() - self.written_zeros
    }

    pub(super) fn zero_length(&self) -> u64 {
        self.zeros.iter().map(|extent| extent.length).sum::<u64>() + self.written_zeros
    }

    pub(super) fn into_buffer(self) -> AlignedBuffer {
        self.buffer
    }
}
