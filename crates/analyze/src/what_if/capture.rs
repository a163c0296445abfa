//! Cuts along files: captures the images with the capture of `disk`, into a store that keeps only digests and lengths. So the
//! result is that of a store that was made of the same disks with the same options.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use platter_disk::capture::{CaptureOptions, capture};
use platter_disk::{SurveyOptions, survey};
use platter_image::chunking::Region;
use platter_image::frame::EncodedFrame;
use platter_image::recipe::CutPolicy;
use platter_image::{
    BlockId, BlockPlace, Domain, Error, FrameAddress, FrameIndex, FrameSource, FrameStore, Kind, Lease, Pin,
    Result,
};

use super::counter::{Counted, Grown};
use super::disk::ImageDisk;
use super::frames::{BLOCK_OVERHEAD, FRAME_OVERHEAD};
use super::plan::{Compression, Plan};
use crate::recipe::digest_of;
use crate::tally::{Digest, Tally};

/// Bytes of memory for each block, in hash tables that are at worst 7/16 full: of the store, and of the image that is captured.
const BLOCK_BYTES: u64 = 160;
/// Bytes that a frame of a store has beside those that [`EncodedFrame`] has: its row in the list of the pack.
const ROW_BYTES: u64 = 24;

/// Captures all images one after the other.
pub(super) struct Capturer {
    plan: Plan,
    options: CaptureOptions,
    store: LengthStore,
    tally: Tally,
    images: Vec<Grown>,
    image: usize,
}

impl Capturer {
    /// For that many images, in about `bytes_max` bytes of memory.
    pub(super) fn new(plan: Plan, images: usize, domain: Domain, threads: usize, bytes_max: u64) -> Self {
        let level = match plan.compression {
            Compression::Zstd(level) => level,
            // Frames are compressed in any case; the lengths before compression are counted.
            Compression::None => 1,
        };
        let cut_policy = match plan.block_bytes {
            32_768 => CutPolicy::FILE_ALIGNED_32K_GRID_32K,
            _ => CutPolicy::FILE_ALIGNED_64K_GRID_32K,
        };
        Self {
            plan,
            options: CaptureOptions { threads, level, cut_policy, frame_length: plan.frame_bytes, domain },
            store: LengthStore::new(bytes_max / 2 / BLOCK_BYTES),
            tally: Tally::new(images, bytes_max / 2),
            images: vec![Grown::default(); images],
            image: 0,
        }
    }

    /// Captures the next image, as `platter capture` does without options. `advance` gets the bytes in use that are done.
    ///
    /// # Errors
    /// `Refused` when the memory does not suffice; errors that are no damage.
    pub(super) fn add(&mut self, disk: &ImageDisk, advance: &mut dyn FnMut(u64)) -> Result<()> {
        // What a dirty file system has was captured in full before, too.
        let surveyed = survey(disk, None, &SurveyOptions { force: true, ..SurveyOptions::default() })?;
        let regions: Vec<Region> = surveyed.parts.into_iter().map(|part| part.region).collect();
        let mut done = 0;
        let mut progress = |now: u64| {
            advance(now - done);
            done = now;
        };
        let captured = capture(disk, &regions, None, &self.store, self.options, &mut progress)?;
        let image = self.store.take_image();
        let stored = |lengths: &Lengths| match self.plan.compression {
            Compression::None => {
                lengths.raw + lengths.blocks * BLOCK_OVERHEAD + lengths.frames * FRAME_OVERHEAD
            }
            Compression::Zstd(_) => lengths.stored + lengths.frames * ROW_BYTES,
        };
        if let Some(grown) = self.images.get_mut(self.image) {
            *grown = Grown {
                data_bytes: captured.counts.data,
                stored_bytes: stored(&image.data),
                recipe_bytes: Some(stored(&image.pages)),
            };
        }
        self.tally.set(self.image, Default::default(), image.used);
        Ok(())
    }

    /// The image is complete, or could not be read; the next one follows.
    pub(super) fn end_image(&mut self) {
        self.store.take_image();
        self.image += 1;
    }

    pub(super) fn finish(self) -> Counted {
        Counted { tally: self.tally, images: self.images }
    }
}

/// A store that keeps what it was given only by digest and length.
struct LengthStore {
    blocks_max: u64,
    state: Mutex<State>,
    /// Nothing is ever collected, so one pin is enough for all blocks.
    pin: Pin,
}

#[derive(Default)]
struct State {
    /// The length of each block; `None` for pages.
    blocks: HashMap<Digest, Option<u32>>,
    image: Image,
}

/// What one image did.
#[derive(Default)]
struct Image {
    /// Blocks that were looked up.
    seen: HashSet<Digest>,
    /// Its data blocks, with their lengths.
    used: Vec<(Digest, u64)>,
    data: Lengths,
    pages: Lengths,
}

/// Frames that were added.
#[derive(Clone, Copy, Debug, Default)]
struct Lengths {
    frames: u64,
    blocks: u64,
    raw: u64,
    stored: u64,
}

impl LengthStore {
    fn new(blocks_max: u64) -> Self {
        let holder: Arc<dyn Any + Send + Sync> = Arc::new(());
        Self { blocks_max, state: Mutex::default(), pin: Pin::new(holder) }
    }

    /// Ends an image.
    fn take_image(&self) -> Image {
        let mut state = self.state.lock();
        let mut image = std::mem::take(&mut state.image);
        let length = |digest| state.blocks.get(digest).copied().flatten();
        let used = image.seen.iter().filter_map(|digest| Some((*digest, u64::from(length(digest)?))));
        image.used = used.collect();
        image
    }
}

fn keeps_nothing() -> Error {
    Error::bug("a store of lengths has no frames")
}

impl FrameSource for LengthStore {
    fn lease(&self, _id: &BlockId) -> Result<Option<Lease>> {
        Err(keeps_nothing())
    }
}

impl FrameIndex for LengthStore {
    fn locate(&self, _id: &BlockId) -> Result<Option<BlockPlace>> {
        Err(keeps_nothing())
    }

    fn read_frame(&self, _address: FrameAddress, _stored: &mut Vec<u8>) -> Result<()> {
        Err(keeps_nothing())
    }
}

impl FrameStore for LengthStore {
    fn lookup_and_pin(&self, id: &BlockId) -> Result<Option<Pin>> {
        let mut state = self.state.lock();
        state.image.seen.insert(digest_of(id));
        let is_known = state.blocks.contains_key(&digest_of(id));
        if state.blocks.len().max(state.image.seen.len()) as u64 > self.blocks_max {
            return Err(Error::refused(format!(
                "more than {} blocks: the memory does not suffice to cut along files; give more with --memory, or name fewer \
                 images",
                self.blocks_max
            )));
        }
        Ok(is_known.then(|| self.pin.clone()))
    }

    fn append(&self, frame: &EncodedFrame) -> Result<Pin> {
        let mut state = self.state.lock();
        let is_data = frame.kind == Kind::Data;
        for block in &frame.blocks {
            state.blocks.insert(digest_of(&block.id), is_data.then_some(block.length));
        }
        let lengths = if is_data { &mut state.image.data } else { &mut state.image.pages };
        lengths.frames += 1;
        lengths.blocks += frame.blocks.len() as u64;
        lengths.raw += u64::from(frame.raw_length);
        lengths.stored += frame.stored.len() as u64;
        Ok(self.pin.clone())
    }
}
