//! Gets the verified block for an id: from memory, or from a frame that is read once for all concurrent
//! requests.
//!
//! Only hashed and verified bytes leave this file (design: verify).

use std::sync::Arc;

use platter_image::frame::{DecoderPool, RAW_LENGTH_MAX};
use platter_image::{BlockId, Error, ErrorKind, FrameAddress, Kind, Lease, Result, judged, lease};

use super::blocks::{Ahead, Block, Blocks, Pattern};
use super::counters::{CacheCounters, Counts};
use super::flight::{Flights, FrameKey, Lead, Role};
use super::pages::PageCache;
use super::queue::{Job, Queue};
use crate::source::{Source, retried};

/// The state shared by the cache's users and its threads.
pub(crate) struct Shared {
    blocks: Blocks,
    pages: PageCache,
    flights: Flights,
    pub(super) queue: Queue,
    decoders: DecoderPool,
    counts: Counts,
    ahead_bytes_max: u64,
}

/// The verified blocks of a decoded frame, and the result for the wanted block.
struct Fetched {
    blocks: Vec<(BlockId, Arc<Block>)>,
    wanted: Result<Arc<Block>>,
}

impl Shared {
    pub(super) fn new(block_bytes_max: u64, page_bytes_max: u64, ahead_bytes_max: u64) -> Result<Self> {
        Ok(Self {
            blocks: Blocks::new(block_bytes_max)?,
            pages: PageCache::new(page_bytes_max)?,
            flights: Flights::default(),
            queue: Queue::default(),
            decoders: DecoderPool::default(),
            counts: Counts::default(),
            ahead_bytes_max,
        })
    }

    /// The most bytes to read ahead of one reader; 0 without threads.
    pub(crate) fn ahead_bytes_max(&self) -> u64 {
        self.ahead_bytes_max
    }

    /// The decoded pages.
    pub(crate) fn pages(&self) -> &PageCache {
        &self.pages
    }

    /// Whether the block is in memory.
    pub(crate) fn contains(&self, id: &BlockId) -> bool {
        self.blocks.contains(id)
    }

    /// Queues a job for a thread; `false` when the queue is full.
    pub(crate) fn push(&self, job: Job) -> bool {
        self.queue.push(job)
    }

    /// The block with that id. On a miss, the whole frame is decoded if the reader is sequential or the
    /// source stores frames in reading order; otherwise only up to the block. `on_miss` is called before the
    /// source is asked.
    ///
    /// # Errors
    /// `Missing` or `Corrupt`, naming block and frame; `Io` or `Transient` when the source still fails after
    /// retries.
    pub(crate) fn block(
        &self,
        source: &Arc<dyn Source>,
        id: &BlockId,
        pattern: Pattern,
        on_miss: impl FnOnce(),
    ) -> Result<Arc<Block>> {
        if let Some(block) = self.find(source, id, pattern) {
            self.counts.hits.add(1);
            return Ok(block);
        }
        self.counts.misses.add(1);
        on_miss();
        let first = retried(|| lease(&**source, id))?;
        match self.read_block(source, id, &first, pattern) {
            // The frame turned out to be damaged, and the source has another one that holds the block by now.
            Err(error) if error.kind() == ErrorKind::Transient => {
                let again = retried(|| lease(&**source, id))?;
                if again.place == first.place {
                    return Err(error);
                }
                self.read_block(source, id, &again, pattern)
            }
            read => read,
        }
    }

    /// Reads the frame of a block, or waits for the thread that already reads it.
    fn read_block(
        &self,
        source: &Arc<dyn Source>,
        id: &BlockId,
        lease: &Lease,
        pattern: Pattern,
    ) -> Result<Arc<Block>> {
        let frame = lease.place.frame;
        let within = |error: Error| {
            error.within(format!(
                "block {id} in the frame at offset {} of pack number {}",
                frame.offset, frame.pack
            ))
        };
        loop {
            match self.flights.join(FrameKey::new(source, frame)) {
                // Another thread may have fetched it since the first check.
                Role::Lead(lead) => match self.find(source, id, pattern) {
                    Some(block) => return Ok(block),
                    None => {
                        let is_in_order = self.read_on(source, frame);
                        let last = match pattern {
                            Pattern::Random if !is_in_order => lease.place.slot as usize,
                            _ => usize::MAX,
                        };
                        return self.fetch(lead, source, id, lease, last, None).map_err(within);
                    }
                },
                Role::Follow(flight) => {
                    self.counts.waits.add(1);
                    let block =
                        flight.wait(id).map_err(within)?.inspect(|block| self.note_use(source, block));
                    if let Some(block) = block.or_else(|| self.find(source, id, pattern)) {
                        return Ok(block);
                    }
                }
            }
        }
    }

    /// Reads the whole frame of a block into memory, unless the block is there or another thread reads the
    /// frame. Errors are ignored; a later read reports them.
    pub(crate) fn prefetch(&self, source: &Arc<dyn Source>, id: &BlockId, lease: &Lease, ahead: bool) {
        let frame = lease.place.frame;
        let Role::Lead(lead) = self.flights.join(FrameKey::new(source, frame)) else { return };
        if !self.contains(id) {
            let mark = ahead.then(|| Arc::new(Ahead::new(FrameKey::new(source, frame))));
            self.counts.ahead_frames.add(u64::from(ahead));
            // On failure, the next reader of the block tries again and reports the error.
            let _ = self.fetch(lead, source, id, lease, usize::MAX, mark.as_ref());
        }
    }

    fn find(&self, source: &Arc<dyn Source>, id: &BlockId, pattern: Pattern) -> Option<Arc<Block>> {
        self.blocks.find(id, pattern).inspect(|block| self.note_use(source, block))
    }

    /// Counts the first use of a frame that was read ahead, and reads further ahead behind it.
    fn note_use(&self, source: &Arc<dyn Source>, block: &Block) {
        if let Some(key) = block.first_use() {
            self.counts.ahead_frames_used.add(1);
            if let Some(frame) = key.frame_of(source) {
                self.read_on(source, frame);
            }
        }
    }

    /// If the source stores frames in reading order, lets threads read the next ones. Returns whether it
    /// does.
    fn read_on(&self, source: &Arc<dyn Source>, frame: FrameAddress) -> bool {
        let Some(next) = source.read_on(frame) else { return false };
        let most = (self.ahead_bytes_max / RAW_LENGTH_MAX as u64) as usize;
        for id in next.into_iter().take(most).filter(|id| !self.contains(id)) {
            let source = source.clone();
            self.push(Box::new(move |shared| {
                if let Ok(lease) = lease(&*source, &id) {
                    shared.prefetch(&source, &id, &lease, true);
                }
            }));
        }
        true
    }

    fn fetch(
        &self,
        lead: Lead<'_>,
        source: &Arc<dyn Source>,
        id: &BlockId,
        lease: &Lease,
        last: usize,
        ahead: Option<&Arc<Ahead>>,
    ) -> Result<Arc<Block>> {
        match self.decode(source, id, lease, last, ahead) {
            Ok(fetched) => {
                lead.decoded(fetched.blocks);
                fetched.wanted
            }
            Err(error) => {
                lead.failed(&error);
                Err(error)
            }
        }
    }

    /// Reads a frame, decodes it up to its block `last`, and keeps the verified blocks. An error means that
    /// no block of the frame is available; a single bad block does not affect the others.
    ///
    /// The blocks before the wanted one are verified and kept as well. With 8 KiB blocks this makes a miss
    /// 1/8 slower, but a neighbour, the most likely next block, needs no second decoding.
    fn decode(
        &self,
        source: &Arc<dyn Source>,
        id: &BlockId,
        lease: &Lease,
        last: usize,
        ahead: Option<&Arc<Ahead>>,
    ) -> Result<Fetched> {
        let mut stored = Vec::new();
        let frame = lease.place.frame;
        retried(|| match source.read_leased(lease, &mut stored) {
            // Only another lease can help.
            Err(error) if error.kind() == ErrorKind::Transient && !lease.is_in_place() => Ok(Err(error)),
            read => read.map(Ok),
        })??;
        self.decoders.with(|decoder| {
            let decoded = judged(&**source, frame, decoder.decode_start(&stored, Kind::Data, last))?;
            self.counts.frames_decoded.add(1);
            self.counts.bytes_decoded.add(decoded.decoded_length() as u64);
            let mut blocks = Vec::new();
            let mut wanted = Err(Error::corrupt(format!(
                "the frame has no such block up to its slot {}",
                lease.place.slot
            )));
            for unverified in decoded.iter() {
                let found = unverified.id();
                if found != *id && self.contains(&found) {
                    continue;
                }
                let verified = judged(&**source, frame, unverified.verify());
                let verified = verified.map(|contents| Arc::new(Block::new(contents, ahead.cloned())));
                if let Ok(block) = &verified {
                    self.blocks.insert(found, block.clone());
                    blocks.push((found, block.clone()));
                }
                if found == *id {
                    wanted = verified;
                }
            }
            Ok(Fetched { blocks, wanted })
        })
    }

    pub(super) fn counters(&self) -> CacheCounters {
        let counts = &self.counts;
        CacheCounters {
            hits: counts.hits.get(),
            misses: counts.misses.get(),
            waits: counts.waits.get(),
            frames_decoded: counts.frames_decoded.get(),
            bytes_decoded: counts.bytes_decoded.get(),
            pages_decoded: self.pages.decoded(),
            evictions: self.blocks.evictions(),
            ahead_frames: counts.ahead_frames.get(),
            ahead_frames_used: counts.ahead_frames_used.get(),
            bytes_held: self.blocks.bytes_held(),
            page_bytes_held: self.pages.bytes_held(),
        }
    }
}
