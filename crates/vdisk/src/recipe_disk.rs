//! A version as a disk that can be read.
//!
//! Turns offsets into blocks by the recipe, and asks the cache for them; free space reads as zeros (design: recipes). Decides
//! what is fetched before it is asked for: the frames of a long read, by several threads, and those ahead of a sequential
//! reader. It must never give out bytes that did not come from the cache, which verifies them.

use parking_lot::Mutex;
use std::sync::Arc;

use platter_image::page::{Entry, State};
use platter_image::recipe::check_piece;
use platter_image::{BlockId, Error, Extent, Result, Score, locate};

use crate::block_device::{Allocation, BlockDevice};
use crate::cache::{Block, BlockCache, Pattern, Shared};
use crate::source::Source;
use crate::streams::{Access, Progress, Streams};
use crate::tree::Tree;

/// A read this long is fetched by several threads, in bytes.
const PARALLEL_READ: u64 = 256 << 10;
/// Most frames of one range that are handed to threads.
const FRAMES_MAX: usize = 64;

/// Blocks within a region end at multiples of that.
const GRID: u64 = 32 << 10;
/// Most blocks that a source is told of at once.
const HINT_BLOCKS_MAX: usize = 4096;

/// A disk, read-only, as a recipe says it is. Disks that share a cache share what they have in common.
pub struct RecipeDisk {
    tree: Arc<Tree>,
    cache: Arc<BlockCache>,
    streams: Mutex<Streams>,
}

impl RecipeDisk {
    /// Opens the disk of that score. No block is read.
    ///
    /// # Errors
    /// `Missing` when the source has no such recipe, `Corrupt`; `Io`, `Transient` when the source failed each time it
    /// was tried ([`crate::TRIES_MAX`], [`crate::RETRY_TIME_MAX`]).
    pub fn open(score: Score, source: Arc<dyn Source>, cache: Arc<BlockCache>) -> Result<Self> {
        let tree = Arc::new(Tree::open(score, source)?);
        Ok(Self { tree, cache, streams: Mutex::default() })
    }

    fn check(&self, range: Extent) -> Result<()> {
        let length = self.tree.length();
        if range.length > length || range.offset > length - range.length {
            return Err(Error::refused(format!(
                "{} bytes at {}: the disk ends at {length}",
                range.length, range.offset
            )));
        }
        Ok(())
    }

    fn note(&self, range: Extent) -> Access {
        let mut streams = self.streams.lock();
        streams.note(range, self.cache.shared().ahead_bytes_max(), &|| self.tree.source().hint_length())
    }

    /// Fills `buffer` from `offset`, with the help of threads if that is long.
    fn fill(&self, buffer: &mut [u8], offset: u64, pattern: Pattern) -> Result<()> {
        let shared = self.cache.shared();
        let range = Extent::new(offset, buffer.len() as u64);
        let own = (range.length >= PARALLEL_READ && shared.ahead_bytes_max() > 0).then(Arc::default);
        if let Some(progress) = &own {
            tell(shared, &self.tree, range);
            hand_out(shared, &self.tree, range, progress, Purpose::Now);
        }
        let mut is_told = own.is_some();
        let (mut rest, mut position) = (buffer, offset);
        let result = self.tree.walk(shared.pages(), range, &mut |entry| {
            let bytes = advance(&mut rest, &mut position, &entry);
            if let Some(progress) = &own {
                progress.set(position);
            }
            match entry.state {
                State::Data { block, offset } => {
                    let is_last = entry.extent.end() == range.end();
                    let on_miss = || {
                        if !std::mem::replace(&mut is_told, true) && !is_last {
                            tell(shared, &self.tree, Extent::between(entry.extent.offset, range.end()));
                        }
                    };
                    let found = shared.block(self.tree.source(), &block, pattern, on_miss);
                    found.and_then(|found| copy(&found, &block, offset, bytes)).map_err(|error| {
                        error.within(format!("reading {} bytes at {}", bytes.len(), entry.extent.offset))
                    })?;
                }
                State::Zero | State::Free => bytes.fill(0),
            }
            Ok(true)
        });
        rest.fill(0);
        if let Some(progress) = own {
            progress.end();
        }
        result.map(|_| ())
    }

    /// Lets threads fetch what is ahead of a reader.
    fn read_ahead(&self, access: &mut Access) {
        let whole = Extent::new(0, self.tree.length());
        if let Some((range, progress)) = access.ahead.take()
            && let Some(range) = range.intersect(&whole)
        {
            let tree = self.tree.clone();
            self.cache.shared().push(Box::new(move |shared| {
                if !progress.has_passed(range.end()) {
                    hand_out(shared, &tree, range, &progress, Purpose::Ahead);
                }
            }));
        }
        if let Some(far) = access.far.take() {
            let (tree, end) = (self.tree.clone(), far.end.min(whole.end()));
            self.cache.shared().push(Box::new(move |shared| {
                let tell = |range| tell_far(shared, &tree, range, far.within_file);
                far.progress.tell_up_to(end, tell);
            }));
        }
    }
}

impl BlockDevice for RecipeDisk {
    fn length(&self) -> u64 {
        self.tree.length()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let range = Extent::new(offset, buffer.len() as u64);
        self.check(range)?;
        if buffer.is_empty() {
            return Ok(());
        }
        let mut access = self.note(range);
        self.read_ahead(&mut access);
        let pattern = if access.sequential { Pattern::Sequential } else { Pattern::Random };
        // What threads fetch for a long read must still be in memory when the read comes there.
        let part = self.cache.shared().ahead_bytes_max().max(PARALLEL_READ);
        let parts = buffer.chunks_mut(part as usize).zip((offset..).step_by(part as usize));
        for (buffer, offset) in parts {
            self.fill(buffer, offset, pattern)?;
        }
        Ok(())
    }

    fn is_near(&self, range: Extent) -> Option<bool> {
        let shared = self.cache.shared();
        let near = self.tree.walk_near(shared.pages(), range, &mut |entry| match entry.state {
            State::Data { block, .. } => Ok(shared.contains(&block)),
            State::Zero | State::Free => Ok(true),
        });
        near.ok()
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.check(range)?;
        let mut data: Option<Extent> = None;
        let mut told = range.offset;
        let mut tell = |told: &mut u64, data: Extent| {
            let zero = Extent::between(*told, data.offset);
            *told = data.end();
            (zero.length == 0 || visit(zero, Allocation::Zero))
                && (data.length == 0 || visit(data, Allocation::Data))
        };
        let whole = self.tree.walk(self.cache.shared().pages(), range, &mut |entry| {
            if !matches!(entry.state, State::Data { .. }) {
                return Ok(true);
            }
            match &mut data {
                Some(run) if run.end() == entry.extent.offset => run.length += entry.extent.length,
                _ => {
                    if let Some(run) = data.replace(entry.extent) {
                        return Ok(tell(&mut told, run));
                    }
                }
            }
            Ok(true)
        })?;
        if whole && data.is_none_or(|run| tell(&mut told, run)) {
            tell(&mut told, Extent::new(range.end(), 0));
        }
        Ok(())
    }
}

/// Fills with zeros what lies before the entry, which is free, and cuts off the bytes for the entry.
fn advance<'a>(rest: &mut &'a mut [u8], position: &mut u64, entry: &Entry) -> &'a mut [u8] {
    let free = (entry.extent.offset - *position) as usize;
    let (zeros, after) = std::mem::take(rest).split_at_mut(free);
    zeros.fill(0);
    let (bytes, after) = after.split_at_mut(entry.extent.length as usize);
    *rest = after;
    *position = entry.extent.end();
    bytes
}

fn copy(block: &Block, id: &BlockId, offset: u32, bytes: &mut [u8]) -> Result<()> {
    let (contents, offset) = (block.contents(), offset as usize);
    check_piece(id, offset as u64, bytes.len() as u64, contents.len() as u64)?;
    bytes.copy_from_slice(&contents[offset..offset + bytes.len()]);
    Ok(())
}

/// Why frames are fetched before they are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A read is about to ask: it fetches the first frame itself, and what no thread has begun when it comes there.
    Now,
    /// A sequential reader is likely to come there.
    Ahead,
}

/// Tells a source that is far away which blocks of `range` are not in memory, all together, before they are asked for one by
/// one.
fn tell(shared: &Shared, tree: &Tree, range: Extent) {
    if tree.source().hint_length() == 0 {
        return;
    }
    let mut ids = Vec::new();
    let _ = tree.walk(shared.pages(), range, &mut |entry| Ok(note_absent(shared, &entry, &mut ids)));
    tree.source().will_need(&ids);
}

/// The same of what a sequential reader is believed to come to; up to where a file seems to end, if it is to stay within one.
/// Gives how far that was, and whether a file ends there.
fn tell_far(shared: &Shared, tree: &Tree, range: Extent, within_file: bool) -> (u64, bool) {
    let (mut ids, mut end, mut is_file_end) = (Vec::new(), range.offset, false);
    let _ = tree.walk(shared.pages(), range, &mut |entry| {
        // Free space, or a block that is shorter than those within a file.
        is_file_end = within_file && entry.extent.offset > end;
        if is_file_end {
            return Ok(false);
        }
        end = entry.extent.end();
        is_file_end = within_file && is_short(&entry) && end < range.end();
        Ok(note_absent(shared, &entry, &mut ids) && !is_file_end)
    });
    tree.source().will_need(&ids);
    (end, is_file_end)
}

/// Adds the block of an entry, if it has one that is not in memory; false when there are enough.
fn note_absent(shared: &Shared, entry: &Entry, ids: &mut Vec<BlockId>) -> bool {
    if let State::Data { block, .. } = entry.state
        && ids.last() != Some(&block)
        && !shared.contains(&block)
    {
        ids.push(block);
    }
    ids.len() < HINT_BLOCKS_MAX
}

/// Whether a block ends where it would not if its file went on: files are cut at multiples of 64 KiB, what belongs to none at
/// those of 32 KiB.
fn is_short(entry: &Entry) -> bool {
    match entry.state {
        State::Data { offset, .. } => !(u64::from(offset) + entry.extent.length).is_multiple_of(GRID),
        State::Zero | State::Free => false,
    }
}

/// Hands the frames of `range` that are not in memory to the threads. What fails here is told to whoever reads there.
fn hand_out(shared: &Shared, tree: &Arc<Tree>, range: Extent, progress: &Arc<Progress>, purpose: Purpose) {
    let mut frames = Vec::new();
    let visit = &mut |entry: Entry| {
        let State::Data { block, .. } = entry.state else { return Ok(true) };
        if shared.contains(&block) || purpose == Purpose::Ahead && !tree.source().is_near(&block) {
            return Ok(true);
        }
        let place = locate(&**tree.source(), &block)?;
        if frames.contains(&place.frame) {
            return Ok(true);
        }
        frames.push(place.frame);
        if purpose == Purpose::Now && frames.len() == 1 {
            return Ok(true);
        }
        let (tree, progress, end) = (tree.clone(), progress.clone(), entry.extent.end());
        let taken = shared.push(Box::new(move |shared| {
            if !progress.has_passed(end) && !shared.contains(&block) {
                shared.prefetch(tree.source(), &block, place, purpose == Purpose::Ahead);
            }
        }));
        Ok(taken && frames.len() < FRAMES_MAX)
    };
    let _ = match purpose {
        Purpose::Now => tree.walk(shared.pages(), range, visit),
        Purpose::Ahead => tree.walk_near(shared.pages(), range, visit),
    };
}
