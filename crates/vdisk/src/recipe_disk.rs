//! A version as a read-only disk.
//!
//! It uses the recipe to turn offsets into blocks and gets the blocks from the cache; free space reads as
//! zeros (design: recipes). It also decides what to fetch in advance: the frames of a long read, on
//! several threads, and the frames ahead of a sequential reader. It must return only bytes from the cache,
//! which verifies them.

use parking_lot::Mutex;
use std::sync::Arc;

use platter_image::page::{Entry, State};
use platter_image::recipe::check_piece;
use platter_image::{BlockId, Domain, Error, Extent, Result, Score, lease};

use crate::block_device::{Allocation, BlockDevice};
use crate::cache::{Block, BlockCache, Pattern, Shared};
use crate::source::Source;
use crate::streams::{Access, Progress, Streams};
use crate::tree::Tree;

/// Reads of at least this many bytes are fetched by several threads.
const PARALLEL_READ: u64 = 256 << 10;
/// The most frames of one range handed to threads.
const FRAMES_MAX: usize = 64;

/// Every block ends at a multiple of this many bytes, except at the end of a file or region.
const GRID: u64 = 32 << 10;
/// The most blocks announced to a source in one call.
const HINT_BLOCKS_MAX: usize = 4096;

/// A read-only disk described by a recipe. Disks that share a cache share their common blocks.
pub struct RecipeDisk {
    tree: Arc<Tree>,
    cache: Arc<BlockCache>,
    streams: Mutex<Streams>,
}

impl RecipeDisk {
    /// Opens the disk with that score. Reads no blocks.
    ///
    /// # Errors
    /// `Missing` when the source does not have the recipe; `Corrupt`; `Io` or `Transient` when the source
    /// still fails after retries ([`crate::TRIES_MAX`], [`crate::RETRY_TIME_MAX`]).
    pub fn open(score: Score, source: Arc<dyn Source>, cache: Arc<BlockCache>) -> Result<Self> {
        let tree = Arc::new(Tree::open(score, source)?);
        Ok(Self { tree, cache, streams: Mutex::default() })
    }

    /// Returns the identity domain of its blocks.
    pub fn domain(&self) -> Domain {
        self.tree.domain()
    }

    fn check(&self, range: Extent) -> Result<()> {
        let length = self.tree.length();
        if range.length > length || range.offset > length - range.length {
            return Err(Error::refused(format!(
                "{} bytes at offset {} reach past the end of the disk at {length}",
                range.length, range.offset
            )));
        }
        Ok(())
    }

    fn note(&self, range: Extent) -> Access {
        let mut streams = self.streams.lock();
        streams.note(range, self.cache.shared().ahead_bytes_max(), &|| self.tree.source().hint_length())
    }

    /// Fills `buffer` with the bytes at `offset`; threads help with long reads.
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
                        error.within(format!(
                            "reading {} bytes at offset {}",
                            bytes.len(),
                            entry.extent.offset
                        ))
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

    /// Lets threads fetch what lies ahead of a reader.
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
        // Read in parts: what threads fetch for a part must still be in the cache when the read gets there.
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

/// Zeroes the free space before `entry`, then returns the part of the buffer that belongs to the entry.
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

/// Why frames are fetched in advance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A read is in progress. It fetches the first frame itself, and any frame that no thread has begun by
    /// the time it gets there.
    Now,
    /// A sequential reader will probably get there.
    Ahead,
}

/// Tells a far source in one call which blocks of `range` are not in memory, before they are requested one by
/// one.
fn tell(shared: &Shared, tree: &Tree, range: Extent) {
    if tree.source().hint_length() == 0 {
        return;
    }
    let mut ids = Vec::new();
    let _ = tree.walk(shared.pages(), range, &mut |entry| Ok(note_absent(shared, &entry, &mut ids)));
    tree.source().will_need(&ids);
}

/// Tells a far source which blocks ahead of a sequential reader are not in memory. With `within_file`, it
/// stops where a file seems to end. Returns the end of the announced range, and whether a file seems to end
/// there.
fn tell_far(shared: &Shared, tree: &Tree, range: Extent, within_file: bool) -> (u64, bool) {
    let (mut ids, mut end, mut is_file_end) = (Vec::new(), range.offset, false);
    let _ = tree.walk(shared.pages(), range, &mut |entry| {
        // A gap of free space, or a block that is too short for the middle of a file.
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

/// Adds the entry's block to `ids` if it is not in memory. Returns `false` once `ids` is full.
fn note_absent(shared: &Shared, entry: &Entry, ids: &mut Vec<BlockId>) -> bool {
    if let State::Data { block, .. } = entry.state
        && ids.last() != Some(&block)
        && !shared.contains(&block)
    {
        ids.push(block);
    }
    ids.len() < HINT_BLOCKS_MAX
}

/// Whether the entry ends inside a block's grid, so a file probably ends here: files are cut at multiples of
/// 64 KiB, other data at multiples of 32 KiB.
fn is_short(entry: &Entry) -> bool {
    match entry.state {
        State::Data { offset, .. } => !(u64::from(offset) + entry.extent.length).is_multiple_of(GRID),
        State::Zero | State::Free => false,
    }
}

/// Hands the frames of `range` that are not in memory to the threads. Errors are ignored; a later read
/// reports them.
fn hand_out(shared: &Shared, tree: &Arc<Tree>, range: Extent, progress: &Arc<Progress>, purpose: Purpose) {
    let mut frames = Vec::new();
    let visit = &mut |entry: Entry| {
        let State::Data { block, .. } = entry.state else { return Ok(true) };
        if shared.contains(&block) || purpose == Purpose::Ahead && !tree.source().is_near(&block) {
            return Ok(true);
        }
        let lease = lease(&**tree.source(), &block)?;
        if frames.contains(&lease.place.frame) {
            return Ok(true);
        }
        frames.push(lease.place.frame);
        if purpose == Purpose::Now && frames.len() == 1 {
            return Ok(true);
        }
        let (tree, progress, end) = (tree.clone(), progress.clone(), entry.extent.end());
        let taken = shared.push(Box::new(move |shared| {
            if !progress.has_passed(end) && !shared.contains(&block) {
                shared.prefetch(tree.source(), &block, &lease, purpose == Purpose::Ahead);
            }
        }));
        Ok(taken && frames.len() < FRAMES_MAX)
    };
    let _ = match purpose {
        Purpose::Now => tree.walk(shared.pages(), range, visit),
        Purpose::Ahead => tree.walk_near(shared.pages(), range, visit),
    };
}
