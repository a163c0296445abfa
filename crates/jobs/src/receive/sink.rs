//! What a receiver does with chunks: first the recipe, verified from the score down, then the blocks it asks for.

use std::collections::HashMap;
use std::ops::Range;

use platter_cast::SessionDescription;
use platter_disk::install::FreeSpace;
use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::plan::Places;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, DiskWrite, Error, Extent, Extents, IoContext, Kind, Result, Score};
use platter_net::{ChunkSink, ChunkVerdict, SinkOutcome};

use super::writer::{Writer, make_zeros};

/// Pages may take so many times the bytes of the chunks that carry them: a recipe hardly compresses, and a sender who
/// says otherwise is not believed.
const PAGES_EXPANSION_MAX: u64 = 16;
/// And so many bytes more.
const PAGES_LENGTH_FREE: u64 = 4 << 20;

/// Opens the target when the disk's length is known, from the recipe.
pub(super) trait OpenTarget: Send {
    /// Opens it for a disk of that length and sector size.
    fn open(&mut self, root: &platter_image::recipe::Root) -> Result<Box<dyn DiskWrite>>;
}

impl<F: FnMut(&platter_image::recipe::Root) -> Result<Box<dyn DiskWrite>> + Send> OpenTarget for F {
    fn open(&mut self, root: &platter_image::recipe::Root) -> Result<Box<dyn DiskWrite>> {
        self(root)
    }
}

/// A disk on its way to a target.
pub(super) struct DiskSink<O> {
    opener: O,
    free: FreeSpace,
    decoder: FrameDecoder,
    /// Decoded blocks that wait to be written together; kept, for making it anew for each chunk costs page faults.
    raw: Vec<u8>,
    /// The session's table, and which of its chunks were taken.
    description: Option<SessionDescription>,
    taken: Vec<bool>,
    pages: Pages,
    disk: Option<Disk>,
    /// Set when all chunks were asked for once more, because some blocks did not come.
    asked_again: bool,
}

/// What is known once the recipe is verified.
struct Disk {
    score: Score,
    target: Box<dyn DiskWrite>,
    writer: Writer,
    free: Extents,
}

/// Pages as they come; only those that the score leads to are ever used.
#[derive(Default)]
struct Pages {
    bytes: HashMap<BlockId, Vec<u8>>,
    length: u64,
}

impl PageSource for Pages {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.bytes
            .get(id)
            .cloned()
            .ok_or_else(|| Error::missing(format!("page {id} did not come with the recipe")))
    }
}

impl<O: OpenTarget> DiskSink<O> {
    pub(super) fn new(opener: O, free: FreeSpace) -> Result<Self> {
        Ok(Self {
            opener,
            free,
            decoder: FrameDecoder::new()?,
            raw: Vec::new(),
            description: None,
            taken: Vec::new(),
            pages: Pages::default(),
            disk: None,
            asked_again: false,
        })
    }

    fn take_page_frames(&mut self, bytes: &[u8], limit: u64) -> Result<()> {
        for stored in Frames(bytes) {
            let (header, raw) = self.decoder.decode(stored?, Verify::Hashes)?;
            if header.kind != Kind::Page {
                return Err(Error::corrupt(format!("a frame of {:?} where pages must be", header.kind)));
            }
            let mut start = 0;
            for block in &header.blocks {
                let end = start + block.length as usize;
                self.pages.length += u64::from(block.length);
                if self.pages.length > limit {
                    return Err(Error::corrupt(format!(
                        "pages of more than {limit} bytes: this recipe cannot be right"
                    )));
                }
                self.pages.bytes.insert(block.id, raw[start..end].to_vec());
                start = end;
            }
        }
        Ok(())
    }

    fn take_data_frames(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(disk) = &mut self.disk else {
            return Err(Error::bug("a chunk of data before the recipe"));
        };
        let mut headers: Vec<FrameHeader> = Vec::new();
        self.raw.clear();
        for stored in Frames(bytes) {
            let (header, contents) = self.decoder.decode(stored?, Verify::Hashes)?;
            if header.kind != Kind::Data {
                return Err(Error::corrupt(format!("a frame of {:?} where data must be", header.kind)));
            }
            self.raw.extend_from_slice(contents);
            headers.push(header);
            // A few frames at a time: what a chunk may expand to has a limit in frames, not in chunks.
            if self.raw.len() >= RAW_TOGETHER {
                disk.writer.write(&*disk.target, &headers, &self.raw).map_err(fatal)?;
                headers.clear();
                self.raw.clear();
            }
        }
        disk.writer.write(&*disk.target, &headers, &self.raw).map_err(fatal)
    }

    /// The recipe is whole: opens the target and finds every place.
    fn begin_disk(&mut self, score: Score) -> Result<()> {
        let pages = std::mem::take(&mut self.pages);
        let recipe = Recipe::open(score, &pages)?;
        let whole = Extent::new(0, recipe.root().disk_length);
        let places = Places::of(&recipe, whole)?;
        let free = match self.free {
            FreeSpace::Skip => Extents::new(),
            FreeSpace::Zero => {
                let used: Vec<Extent> = recipe
                    .entries(whole)
                    .map(|entry| entry.map(|entry| entry.extent))
                    .collect::<Result<_>>()?;
                Extents::from_unsorted(used).complement(whole)
            }
        };
        let target = self.opener.open(recipe.root()).map_err(fatal)?;
        if target.length() < whole.end() {
            return Err(fatal(Error::refused(format!(
                "the target has {} bytes, the disk {}",
                target.length(),
                whole.end()
            ))));
        }
        self.disk = Some(Disk { score, target, writer: Writer::new(places)?, free });
        Ok(())
    }

    fn take(&mut self, index: u32, bytes: &[u8]) -> Result<Vec<Range<u32>>> {
        let Some(description) = self.description.clone() else {
            return Err(Error::bug("a chunk before its session"));
        };
        let recipe_chunks = description.recipe_chunks;
        if index >= recipe_chunks {
            self.take_data_frames(bytes)?;
            self.taken[index as usize] = true;
            return Ok(self.ask_again(&description));
        }
        let carried: u64 =
            description.chunk_lengths[..recipe_chunks as usize].iter().map(|length| u64::from(*length)).sum();
        self.take_page_frames(bytes, carried * PAGES_EXPANSION_MAX + PAGES_LENGTH_FREE)?;
        self.taken[index as usize] = true;
        if self.disk.is_some() || !self.taken[..recipe_chunks as usize].iter().all(|taken| *taken) {
            return Ok(Vec::new());
        }
        self.begin_disk(description.score)?;
        let all = description.all_chunks();
        Ok(one_range(recipe_chunks..all.end))
    }

    /// When all chunks have come and blocks have not, all are wanted once more: the table was another sender's.
    fn ask_again(&mut self, description: &SessionDescription) -> Vec<Range<u32>> {
        let complete = self.disk.as_ref().is_some_and(|disk| disk.writer.is_complete());
        let data = description.recipe_chunks as usize..self.taken.len();
        if complete || self.asked_again || !self.taken[data.clone()].iter().all(|taken| *taken) {
            return Vec::new();
        }
        self.asked_again = true;
        self.taken[data.clone()].fill(false);
        one_range(data.start as u32..data.end as u32)
    }
}

/// Decoded bytes that are gathered before they are written.
const RAW_TOGETHER: usize = 6 << 20;

/// Marks an error as one of this machine, not of the chunk: receiving again would not help.
fn fatal(error: Error) -> Error {
    if error.kind() == platter_image::ErrorKind::Corrupt {
        return Error::bug("the target could not take verified bytes").with_source(error);
    }
    error
}

impl<O: OpenTarget> ChunkSink for DiskSink<O> {
    fn session(&mut self, description: &SessionDescription) -> Result<Vec<Range<u32>>> {
        let same = self.description.as_ref() == Some(description);
        let other_disk = self.description.as_ref().is_some_and(|known| known.score != description.score);
        if other_disk && self.disk.is_some() {
            return Err(Error::refused(format!(
                "the sender came back with another disk, {}; this target is half written with one of another score: start anew",
                description.score
            )));
        }
        if !same {
            self.taken = vec![false; description.chunk_lengths.len()];
            self.pages = Pages::default();
            self.asked_again = false;
            self.description = Some(description.clone());
        }
        let begin = if self.disk.is_some() { description.recipe_chunks } else { 0 };
        let end = if self.disk.is_some() { description.all_chunks().end } else { description.recipe_chunks };
        Ok((begin..end).filter(|index| !self.taken[*index as usize]).map(|index| index..index + 1).collect())
    }

    fn chunk(&mut self, index: u32, bytes: &[u8]) -> Result<ChunkVerdict> {
        match self.take(index, bytes) {
            Ok(more) if more.is_empty() => Ok(ChunkVerdict::Accepted),
            Ok(more) => Ok(ChunkVerdict::AcceptedWant(more)),
            Err(error) if error.kind() == platter_image::ErrorKind::Corrupt => {
                Ok(ChunkVerdict::Bad(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    fn finish(&mut self) -> Result<SinkOutcome> {
        let Some(disk) = &mut self.disk else {
            return Err(Error::bug("finished before the recipe was whole"));
        };
        if let Some((places, first)) = disk.writer.missing() {
            return Err(Error::missing(format!(
                "the sender sent all it has, and {places} places of the disk, the first at {}, have no block: its store is damaged",
                first.offset
            )));
        }
        disk.writer.write_zeros(&*disk.target)?;
        disk.free.iter().try_for_each(|extent| make_zeros(&*disk.target, extent))?;
        disk.target.flush().context(|| "making the target durable".to_owned())?;
        Ok(SinkOutcome { score: disk.score, bytes_written: disk.writer.bytes })
    }
}

/// A list of that range alone, or of nothing.
fn one_range(range: Range<u32>) -> Vec<Range<u32>> {
    Some(range).filter(|range| !range.is_empty()).into_iter().collect()
}

/// The frames of a chunk, one after another; what is no frame ends it with an error.
struct Frames<'a>(&'a [u8]);

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
