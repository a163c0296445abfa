//! Processes received chunks: first the recipe, verified from the score down, then the blocks that it names.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use platter_cast::SessionDescription;
use platter_disk::install::{Delta, FreeSpace, Local, LostWrite};
use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::plan::Places;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{
    BlockId, DiskRead, DiskWrite, Error, ErrorKind, Extent, Extents, IoContext, Kind, Result,
};
use platter_net::{ChunkSink, ChunkVerdict, SinkOutcome, SinkStage, SinkTimes};

use super::pages::Pages;
use super::pipeline::Piece;
use super::table::{Search, TableChunks};
use super::writer::{Writer, make_zeros};
use crate::cast_keys::use_keys_of;
use crate::chunk_contents::{ChunkContents, Prefix, is_contents, prefix};
use crate::install::delta_report;
use crate::{Compared, DeltaReport};

/// Most bytes of a chunk's pages, as a multiple of the chunk's bytes: recipes hardly compress, so a larger claim is
/// rejected.
const PAGES_EXPANSION_MAX: u64 = 16;
/// Additional bytes allowed for each chunk.
const PAGES_LENGTH_FREE: u64 = 4 << 20;

/// The target of a receiver.
pub(super) trait ReceivedDisk: DiskRead + DiskWrite {
    /// This many more bytes were written.
    fn advance(&self, bytes: u64);

    /// What this machine already has of a later segment, if that is wanted.
    ///
    /// # Errors
    /// Those of reading the recipe, and of opening other disks.
    fn delta(&self, _recipe: &SegmentRecipe<'_>, _range: Extent) -> Result<Option<Delta>> {
        Ok(None)
    }

    /// Called when everything was written and, if requested, compared. Makes all of the disk durable.
    fn finish(&self, compared: Option<Compared>) -> Result<()>;
}

/// The recipe of a segment; the rest of the disk's recipe is missing.
pub(super) type SegmentRecipe<'a> = Recipe<&'a (dyn PageSource + Sync)>;

/// An opened target, and what this machine already has of the first segment.
pub(super) type Opened = (Arc<dyn ReceivedDisk>, Option<Delta>);

/// Opens the target once the recipe shows the disk's length.
pub(super) trait OpenTarget: Send {
    /// Opens it for a disk with the root of this recipe, of which the range is complete.
    fn open(&mut self, recipe: &SegmentRecipe<'_>, range: Extent) -> Result<Opened>;
}

impl<F: FnMut(&SegmentRecipe<'_>, Extent) -> Result<Opened> + Send> OpenTarget for F {
    fn open(&mut self, recipe: &SegmentRecipe<'_>, range: Extent) -> Result<Opened> {
        self(recipe, range)
    }
}

/// Receives a disk to a target, one segment at a time.
pub(super) struct DiskSink<O> {
    opener: O,
    /// The number of the only partition to write.
    number: Option<u32>,
    /// The range of the disk to write, once it is known.
    window: Option<Extent>,
    /// The chunks with the partition table, until the range is known.
    table: TableChunks,
    free: FreeSpace,
    /// Whether written data is read back and compared, segment by segment.
    read_back: bool,
    /// The compared bytes of earlier segments.
    compared: Compared,
    decoder: FrameDecoder,
    /// How long decoding and writing have taken.
    times: Arc<SinkTimes>,
    /// The session's description, and which of its chunks were accepted.
    description: Option<SessionDescription>,
    taken: Vec<bool>,
    /// Whether its sender cannot be used, so that nothing of it counts any more.
    is_unusable: bool,
    /// Opened when the first recipe is verified.
    target: Option<Arc<dyn ReceivedDisk>>,
    /// The current segment; equal to their number after the last one.
    segment: usize,
    /// Its chunks of the recipe and of data.
    chunks: [Range<u32>; 2],
    pages: Pages,
    /// What its chunks of data carry.
    contents: ChunkContents,
    /// What was kept and copied.
    pub(super) delta: Option<DeltaReport>,
    /// The data to write, once the segment's recipe is verified.
    part: Option<SegmentTarget>,
    /// Bytes written in earlier segments.
    bytes_written: u64,
    /// Whether all chunks of the segment's recipe, or later of its data, are fetched again from the sender alone,
    /// because something was missing in them.
    asked_again: bool,
    /// The chunks of the segment's data that were not requested, because they seem to carry nothing needed.
    skipped: Vec<u32>,
}

/// What happened when the recipe of a segment was complete.
enum Begun {
    /// Its data is wanted.
    Ready,
    /// The partition table is wanted first, in these chunks.
    First(Vec<Range<u32>>),
    /// The segment has nothing of the partition.
    Elsewhere,
    /// There is no such partition.
    Failed(Error),
    /// What the sender sent is not the recipe that it announced, or exceeds a limit.
    Wrong(Error),
}

impl From<Error> for Begun {
    fn from(error: Error) -> Self {
        Self::Wrong(error)
    }
}

/// The data to write to a segment of the disk.
struct SegmentTarget {
    writer: Writer,
    free: Extents,
}

impl<O: OpenTarget> DiskSink<O> {
    pub(super) fn new(opener: O, number: Option<u32>, free: FreeSpace, read_back: bool) -> Result<Self> {
        Ok(Self {
            opener,
            number,
            window: None,
            table: TableChunks::default(),
            free,
            read_back,
            compared: Compared::default(),
            decoder: FrameDecoder::new()?,
            times: Arc::default(),
            description: None,
            taken: Vec::new(),
            is_unusable: false,
            target: None,
            segment: 0,
            chunks: [0..0, 0..0],
            pages: Pages::default(),
            contents: ChunkContents::default(),
            delta: None,
            part: None,
            bytes_written: 0,
            asked_again: false,
            skipped: Vec::new(),
        })
    }

    fn take_page_frames(&mut self, bytes: &[u8]) -> Result<()> {
        // Each chunk is checked separately, and accepted completely or not at all, because another one may be forged.
        let limit = bytes.len() as u64 * PAGES_EXPANSION_MAX + PAGES_LENGTH_FREE;
        let (mut pages, mut length) = (Vec::new(), 0);
        for stored in Frames(bytes) {
            let (header, raw) = self.decoder.decode(stored?, Verify::Hashes)?;
            if header.kind != Kind::Page {
                return Err(Error::corrupt(format!("a frame of {:?} instead of pages", header.kind)));
            }
            let mut start = 0;
            for block in &header.blocks {
                let end = start + block.length as usize;
                length += u64::from(block.length);
                if length > limit {
                    return Err(Error::corrupt(format!(
                        "pages of more than {limit} bytes in a chunk: invalid recipe"
                    )));
                }
                pages.push((block.id, raw[start..end].to_vec()));
                start = end;
            }
        }
        self.pages.add(pages)
    }

    /// Decodes and writes a chunk of data that was kept until its place was known.
    fn take_data_frames(&mut self, bytes: &[u8]) -> Result<()> {
        for stored in Frames(bytes) {
            let started = Instant::now();
            let (header, contents) = self.decoder.decode(stored?, Verify::Hashes)?;
            let piece = Piece { raw: contents.to_vec(), headers: vec![header] };
            self.times.add(SinkStage::Decoding, started.elapsed());
            if piece.headers.iter().any(|header| header.kind != Kind::Data) {
                return Err(Error::corrupt("a frame of another kind instead of data"));
            }
            self.write_piece(&piece)?;
        }
        Ok(())
    }

    /// Writes verified frames of a chunk of data.
    ///
    /// # Errors
    /// `Corrupt` when a frame is not of the recipe; errors of the target.
    pub(super) fn write_piece(&mut self, piece: &Piece) -> Result<()> {
        let (Some(part), Some(target)) = (&mut self.part, &self.target) else {
            return Err(Error::bug("a chunk of data before the recipe"));
        };
        // The sender would not send such a frame: it is forged. A chunk with blocks of a partition may have others.
        let is_foreign = |header: &FrameHeader| !header.blocks.iter().any(|it| part.writer.names(&it.id));
        if self.number.is_none() && piece.headers.iter().any(is_foreign) {
            return Err(Error::corrupt("a frame without a block of the recipe"));
        }
        let before = part.writer.bytes;
        part.writer.write(&piece.headers, &piece.raw).map_err(fatal)?;
        target.advance(part.writer.bytes - before);
        Ok(())
    }

    /// The chunks of data that may be decoded in any order now.
    pub(super) fn data_chunks(&self) -> Range<u32> {
        if self.part.is_some() { self.chunks[1].clone() } else { 0..0 }
    }

    /// Accepts a chunk of data of which all pieces were written.
    ///
    /// # Errors
    /// Those of [`ChunkSink::chunk`].
    pub(super) fn chunk_written(&mut self, index: u32) -> Result<ChunkVerdict> {
        if !self.data_chunks().contains(&index) {
            return Err(Error::bug(format!("chunk {index} is not of segment {}", self.segment)));
        }
        self.with_description(|sink, description| {
            sink.taken[index as usize] = true;
            sink.after(description)
        })
    }

    fn with_description(
        &mut self,
        act: impl FnOnce(&mut Self, &SessionDescription) -> Result<ChunkVerdict>,
    ) -> Result<ChunkVerdict> {
        if self.is_unusable {
            return Ok(ChunkVerdict::Unusable("it was left".into()));
        }
        let Some(description) = self.description.take() else {
            return Err(Error::bug("a chunk before its session"));
        };
        let verdict = act(self, &description);
        self.description = Some(description);
        verdict
    }

    /// The segment's recipe is complete: determines all places, and opens the target before the first write.
    ///
    /// # Errors
    /// Those of the target.
    fn begin_part(&mut self, description: &SessionDescription) -> Result<Begun> {
        let pages = std::mem::take(&mut self.pages);
        let (window, range, places) = match self.read_recipe(description, &pages) {
            Ok(read) => read,
            Err(begun) => {
                if matches!(begun, Begun::First(_)) {
                    self.pages = pages;
                }
                return Ok(begun);
            }
        };
        let recipe = Recipe::open(description.score, &pages as &(dyn PageSource + Sync))?;
        let table = self.table.take();
        self.begin_range(&recipe.of_part(window), range, places)?;
        table.iter().try_for_each(|chunk| self.take_data_frames(chunk))?;
        Ok(Begun::Ready)
    }

    /// Reads what a recipe says about the current segment: the range of the disk to write, the segment's range of that, and its places.
    ///
    /// # Errors
    /// What happened instead.
    fn read_recipe(
        &mut self,
        description: &SessionDescription,
        pages: &Pages,
    ) -> Result<(Extent, Extent, Places), Begun> {
        let recipe = Recipe::open(description.score, pages as &(dyn PageSource + Sync))?;
        let disk_length = recipe.root().disk_length;
        let (length, segments) = (description.segment_length, description.segments.len() as u64);
        // Otherwise the segments would not cover the disk.
        if disk_length.div_ceil(length).max(1) != segments {
            return Err(Begun::Wrong(Error::corrupt(format!(
                "its {segments} segments of {length} bytes do not match a disk of {disk_length}"
            ))));
        }
        let segment = self.range_of_segment(description);
        let segment = Extent::between(segment.offset, segment.end().min(disk_length));
        let window = match (self.window, self.number) {
            (Some(window), _) => window,
            (None, None) => Extent::new(0, disk_length),
            (None, Some(number)) => match self.table.find(number, &recipe, segment, &mut self.decoder)? {
                Search::Found(window) => window,
                Search::Refused(error) => return Err(Begun::Failed(error)),
                Search::Lacks(blocks) => return Err(Begun::First(self.chunks_of(&blocks)?)),
            },
        };
        self.window = Some(window);
        let range = match (segment.intersect(&window), self.number) {
            (Some(range), _) => Extent::new(range.offset - window.offset, range.length),
            (None, None) => segment,
            (None, Some(_)) => return Err(Begun::Elsewhere),
        };
        let places = Places::of(&recipe.of_part(window), range)?;
        Ok((window, range, places))
    }

    /// Determines what to write to a range of the disk or partition, and opens the target before the first write.
    fn begin_range(&mut self, recipe: &SegmentRecipe<'_>, range: Extent, places: Places) -> Result<()> {
        let length = recipe.root().disk_length;
        let free = match self.free {
            FreeSpace::Skip => Extents::new(),
            FreeSpace::Zero => {
                let used: Vec<Extent> = recipe
                    .entries(range)
                    .map(|entry| entry.map(|entry| entry.extent))
                    .collect::<Result<_>>()?;
                Extents::from_unsorted(used).complement(range)
            }
        };
        let delta = if let Some(target) = &self.target {
            target.delta(recipe, range).map_err(fatal)?
        } else {
            let (target, found) = self.opener.open(recipe, range).map_err(fatal)?;
            if DiskWrite::length(&*target) < length {
                return Err(fatal(Error::refused(format!(
                    "the target has {} bytes, but the disk has {length}",
                    DiskWrite::length(&*target)
                ))));
            }
            self.target = Some(target);
            found
        };
        self.asked_again = false;
        let Some(target) = self.target.clone() else {
            return Err(Error::bug("a target that was not opened"));
        };
        let writer = Writer::new(places, self.read_back, Arc::clone(&target), Arc::clone(&self.times))?;
        let mut part = SegmentTarget { writer, free };
        if let Some(delta) = &delta {
            let local = Local::new(delta, &*target);
            part.writer.take_delta(&*target, &local).map_err(fatal)?;
            part.free = part.free.subtract(delta.held());
            let report = delta_report(delta);
            let known = self.delta.get_or_insert_default();
            known.kept_bytes += report.kept_bytes;
            known.kept_zero_bytes += report.kept_zero_bytes;
            known.copied_bytes += report.copied_bytes;
        }
        if delta.is_some() || self.number.is_some() {
            self.choose_chunks(&part);
        }
        self.part = Some(part);
        Ok(())
    }

    /// The range of the current segment.
    fn range_of_segment(&self, description: &SessionDescription) -> Extent {
        let length = description.segment_length;
        Extent::new((self.segment as u64).saturating_mul(length), length)
    }

    /// Requests the chunks of data that may carry some blocks.
    fn chunks_of(&mut self, blocks: &HashSet<BlockId>) -> Result<Vec<Range<u32>>> {
        let wanted: HashSet<Prefix> = blocks.iter().map(prefix).collect();
        let data = self.chunks[1].clone();
        let chosen = self.contents.needed(data.len() as u32, |block| wanted.contains(&block));
        let chunks = data.zip(chosen).filter(|(_, is_needed)| *is_needed).map(|(index, _)| index);
        Ok(self.table.request(chunks)?.into_iter().map(|index| index..index + 1).collect())
    }

    /// Counts the chunks of data that carry nothing needed as taken.
    fn choose_chunks(&mut self, part: &SegmentTarget) {
        let needed: HashSet<Prefix> = part.writer.needed().map(|id| prefix(&id)).collect();
        let data = self.chunks[1].clone();
        let chosen = self.contents.needed(data.len() as u32, |block| needed.contains(&block));
        for index in data.zip(chosen).filter(|(_, is_needed)| !is_needed).map(|(index, _)| index) {
            if !std::mem::replace(&mut self.taken[index as usize], true) {
                self.skipped.push(index);
            }
        }
    }

    /// The chunks of data that are still needed.
    fn open_chunks(&self) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for index in self.chunks[1].clone().filter(|index| !self.taken[*index as usize]) {
            match ranges.last_mut() {
                Some(range) if range.end == index => range.end += 1,
                _ => ranges.push(index..index + 1),
            }
        }
        ranges
    }

    fn end_part(&mut self, part: &mut SegmentTarget) -> Result<()> {
        if let Some(target) = &self.target {
            part.writer.write_rest(&**target).map_err(fatal)?;
            part.free.iter().try_for_each(|extent| make_zeros(&**target, extent))?;
            if self.read_back {
                target.flush().context(|| "making the target durable".to_owned())?;
            }
            if let Some(compared) = part.writer.compare(&**target, &part.free).map_err(fatal)? {
                self.compared.data_bytes += compared.data_bytes;
                self.compared.zero_bytes += compared.zero_bytes;
            }
        }
        self.bytes_written += part.writer.bytes;
        Ok(())
    }

    /// Starts a segment.
    fn enter(&mut self, segment: usize, description: &SessionDescription) {
        self.segment = segment;
        self.chunks = [description.recipe_chunks(segment), description.data_chunks(segment)];
        self.asked_again = false;
        self.skipped.clear();
        self.contents = ChunkContents::default();
        self.table = TableChunks::default();
    }

    fn are_taken(&self, chunks: &Range<u32>) -> bool {
        self.taken[chunks.start as usize..chunks.end as usize].iter().all(|taken| *taken)
    }

    fn take(&mut self, index: u32, bytes: &[u8], description: &SessionDescription) -> Result<ChunkVerdict> {
        let [recipe, data] = &self.chunks;
        if data.contains(&index) {
            match &self.part {
                Some(_) => self.take_data_frames(bytes)?,
                None => self.table.add(index, bytes, &mut self.decoder)?,
            }
        } else if recipe.contains(&index) {
            let taken = match is_contents(bytes) {
                true => self.contents.add(bytes),
                false => self.take_page_frames(bytes),
            };
            match taken {
                // Nothing of it is proven before it is complete.
                Err(error) if error.kind() == ErrorKind::Refused => return Ok(self.leave(&error)),
                taken => taken?,
            }
        } else {
            return Err(Error::bug(format!("chunk {index} is not of segment {}", self.segment)));
        }
        self.taken[index as usize] = true;
        self.after(description)
    }

    /// Determines the next step after an accepted chunk: after a segment's recipe its data is wanted, then the next
    /// segment's recipe. If pages or blocks are missing although all chunks have arrived, some chunks were forged from
    /// valid frames: those chunks are fetched again, from the sender alone.
    fn after(&mut self, description: &SessionDescription) -> Result<ChunkVerdict> {
        let [recipe, data] = self.chunks.clone();
        if self.part.is_none() {
            if !self.are_taken(&recipe) || self.table.is_waiting() {
                return Ok(ChunkVerdict::Accepted);
            }
            match self.begin_part(description)? {
                Begun::Ready => {}
                Begun::First(chunks) => return Ok(ChunkVerdict::AcceptedWant(chunks)),
                Begun::Elsewhere => return Ok(self.go_on(description)),
                Begun::Failed(error) => return Err(error),
                Begun::Wrong(error) if error.kind() == ErrorKind::Missing && !self.asked_again => {
                    self.contents = ChunkContents::default();
                    return Ok(self.fetch_again(recipe));
                }
                Begun::Wrong(error) => return Ok(self.leave(&error)),
            }
            let open = self.open_chunks();
            if !open.is_empty() {
                return Ok(ChunkVerdict::AcceptedWant(open));
            }
        }
        if !self.are_taken(&data) {
            return Ok(ChunkVerdict::Accepted);
        }
        if let Some(mut part) = self.part.take_if(|part| part.writer.is_complete()) {
            self.end_part(&mut part)?;
            return Ok(self.go_on(description));
        }
        if !self.skipped.is_empty() {
            // What was said about the contents of chunks is wrong: now everything is needed.
            for index in std::mem::take(&mut self.skipped) {
                self.taken[index as usize] = false;
            }
            return Ok(ChunkVerdict::AcceptedWant(self.open_chunks()));
        }
        match self.lacking().filter(|_| self.asked_again || data.is_empty()) {
            Some(error) => Ok(self.leave(&error)),
            None => Ok(self.fetch_again(data)),
        }
    }

    /// Gives up a sender: it cannot be the one that it claims to be, or its store is damaged. What was written stays.
    fn leave(&mut self, reason: &Error) -> ChunkVerdict {
        self.is_unusable = true;
        ChunkVerdict::Unusable(reason.with_causes())
    }

    /// The blocks of the current segment that did not come.
    fn lacking(&self) -> Option<Error> {
        let (places, first) = self.part.as_ref()?.writer.missing()?;
        Some(Error::missing(format!(
            "it sent all it has, and {places} places of the disk, the first at {}, have no block: its store is damaged",
            first.offset
        )))
    }

    /// Enters the next segment with something to write.
    fn go_on(&mut self, description: &SessionDescription) -> ChunkVerdict {
        loop {
            self.enter(self.segment + 1, description);
            let is_needed = self.window.is_none_or(|window| {
                self.number.is_none() || self.range_of_segment(description).intersect(&window).is_some()
            });
            if is_needed || self.segment >= description.segments.len() {
                break;
            }
        }
        let next = self.chunks[0].clone();
        match next.is_empty() {
            true => ChunkVerdict::Accepted,
            false => ChunkVerdict::AcceptedWant(vec![next]),
        }
    }

    fn fetch_again(&mut self, chunks: Range<u32>) -> ChunkVerdict {
        self.asked_again = true;
        self.taken[chunks.start as usize..chunks.end as usize].fill(false);
        ChunkVerdict::Contradicts(vec![chunks])
    }
}

/// Decoded bytes that are collected before they are written.
pub(super) const RAW_TOGETHER: usize = 6 << 20;

/// Marks an error as one of this machine, not of the chunk: receiving the chunk again would not help.
fn fatal(error: Error) -> Error {
    if is_of_chunk(&error) {
        return Error::bug("the target could not store verified bytes").with_source(error);
    }
    error
}

/// Whether the bytes of a chunk are wrong, and not those that were read back from the target.
pub(super) fn is_of_chunk(error: &Error) -> bool {
    error.kind() == ErrorKind::Corrupt && !LostWrite::is_cause_of(error)
}

impl<O: OpenTarget> ChunkSink for DiskSink<O> {
    fn times(&self) -> Arc<SinkTimes> {
        Arc::clone(&self.times)
    }

    fn session(&mut self, description: &SessionDescription) -> Result<Vec<Range<u32>>> {
        use_keys_of(description)?;
        if description.segments.iter().any(|segment| segment.recipe_chunks == 0) {
            return Err(Error::corrupt("a segment without a recipe"));
        }
        let known = self.description.as_ref();
        if self.target.is_some() && known.is_some_and(|known| known.score != description.score) {
            return Err(Error::refused(format!(
                "the sender came back with another disk, {}; this target is half written with one of another score: start anew",
                description.score
            )));
        }
        if std::mem::take(&mut self.is_unusable) || known != Some(description) {
            let same_segments = known.is_some_and(|known| known.segment_length == description.segment_length);
            if !same_segments {
                (self.segment, self.part, self.bytes_written) = (0, None, 0);
            }
            self.taken = vec![false; description.chunk_lengths.len()];
            self.pages = Pages::default();
            self.window = self.window.filter(|_| self.target.is_some());
            self.description = Some(description.clone());
            self.enter(self.segment, description);
        }
        let [recipe, data] = self.chunks.clone();
        let wanted = if self.part.is_some() { data } else { recipe };
        let wanted = wanted.filter(|index| !self.taken[*index as usize]);
        Ok(wanted.chain(self.table.waiting()).map(|index| index..index + 1).collect())
    }

    fn chunk(&mut self, index: u32, bytes: &[u8]) -> Result<ChunkVerdict> {
        match self.with_description(|sink, description| sink.take(index, bytes, description)) {
            Ok(verdict) => Ok(verdict),
            Err(error) if is_of_chunk(&error) => Ok(ChunkVerdict::Bad(error.to_string())),
            Err(error) => Err(error),
        }
    }

    fn finish(&mut self) -> Result<SinkOutcome> {
        if let Some(error) = self.lacking() {
            return Err(error.within("receiving from the sender"));
        }
        let (Some(target), Some(description)) = (&self.target, &self.description) else {
            return Err(Error::bug("finished before the recipe was complete"));
        };
        if self.segment < description.segments.len() {
            return Err(Error::bug(format!("finished in segment {}", self.segment)));
        }
        target.finish(self.read_back.then_some(self.compared))?;
        Ok(SinkOutcome { score: description.score, bytes_written: self.bytes_written })
    }
}

/// The frames of a chunk, one after another; invalid bytes end it with an error.
pub(crate) struct Frames<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = Result<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        Some(FrameHeader::peek_lengths(bytes).and_then(|(_, length)| {
            let (frame, rest) = bytes.split_at_checked(length).ok_or_else(|| {
                Error::corrupt(format!("a frame of {length} bytes in the last {} of a chunk", bytes.len()))
            })?;
            self.0 = rest;
            Ok(frame)
        }))
    }
}
