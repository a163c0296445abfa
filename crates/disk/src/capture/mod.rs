//! Capture: turns a disk and its survey into frames in a store and a recipe (design: identity, frames).
//!
//! It is a bounded pipeline of threads. Each arrow is a channel with a named limit, so memory does not grow
//! with the disk:
//!
//! ```text
//! read ─batches▶ hash ×n ─▶ look up ─▶ assemble ─full frames▶ compress ×n ─▶ append
//!  cuts, reads    trims,     known or    in disk order:                       in the order in which
//!  in disk order  names      new         frames, recipe                       frames were filled
//! ```
//!
//! A near store is queried by the hashing threads; a far one by separate threads, for many batches at once.
//!
//! Nothing is durable or visible to others until the caller publishes the score.

mod assemble;
mod base;
mod compress;
mod hash;
mod look_up;
mod read;

use parking_lot::Mutex;
use std::thread;

use crossbeam_channel::bounded;
use platter_image::chunking::Region;
use platter_image::recipe::CutPolicy;
use platter_image::{BlockId, DiskRead, Domain, Error, FrameStore, IoContext, PinSet, Result, Score};

use assemble::Assembler;
pub use base::{Base, EntriesOf};
pub(crate) use hash::{is_zero, trimmed_length};

/// Batches that wait between two stages, per hashing thread.
const BATCHES_WAITING: usize = 1;
/// Frames that wait between two stages, per compressing thread.
const FRAMES_WAITING: usize = 8;

/// The options of a capture.
#[derive(Clone, Copy, Debug)]
pub struct CaptureOptions {
    /// Number of hashing threads, and also of compressing threads.
    pub threads: usize,
    /// zstd level.
    pub level: i32,
    /// How to cut.
    pub cut_policy: CutPolicy,
    /// Approximate bytes of blocks in a frame before compression.
    pub frame_length: usize,
    /// Identity domain of the blocks.
    pub domain: Domain,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self {
            threads: thread::available_parallelism().map_or(2, usize::from),
            level: 3,
            cut_policy: CutPolicy::FILE_ALIGNED_64K_GRID_32K,
            frame_length: platter_image::frame::RAW_LENGTH_DEFAULT,
            domain: Domain::SHARED,
        }
    }
}

/// The result of a capture. All lengths are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Allocated bytes of the disk.
    pub allocated: u64,
    /// Zeros in it.
    pub zero: u64,
    /// Data in it, counted at each place where a block is used.
    pub data: u64,
    /// Blocks that the store did not have.
    pub new_blocks: u64,
    /// Data in such blocks, counted only at the block's first place; at most `data`.
    pub new_raw: u64,
    /// Stored bytes of new frames, including pages of the recipe.
    pub new_stored: u64,
    /// Frames added.
    pub new_frames: u64,
}

/// A finished capture; its blocks are not collected while it exists.
#[derive(Debug)]
pub struct Captured {
    /// The disk's score.
    pub score: Score,
    /// Its counts.
    pub counts: CaptureCounts,
    /// Pins every block that the recipe names.
    pub pins: PinSet,
}

/// Captures the disk into `store`. Regions must ascend and not overlap; space outside of them is free.
///
/// With `base`, only the changes to that version are read. `progress` is called with the number of allocated
/// bytes done so far.
///
/// # Errors
/// `Io` when the disk cannot be read (naming the offset) or the store not written; errors of the store;
/// `Missing` when it lacks a block of the base.
pub fn capture<S: FrameStore>(
    disk: &dyn DiskRead,
    regions: &[Region],
    base: Option<&Base<'_>>,
    store: &S,
    options: CaptureOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Captured> {
    for region in regions {
        region.check()?;
    }
    let file_alignment = options
        .cut_policy
        .file_alignment()
        .ok_or_else(|| Error::bug(format!("unknown cut policy {}", options.cut_policy.0)))?;
    let threads = options.threads.max(1);
    let (batch_out, batch_in) = bounded(BATCHES_WAITING * threads);
    let (buffer_out, buffer_in) = bounded(BATCHES_WAITING * threads * 2);
    let (hashed_out, hashed_in) = bounded(BATCHES_WAITING * threads);
    let (looked_up_out, looked_up_in) = bounded(BATCHES_WAITING * threads);
    let is_far = look_up::is_far(store);
    let (full_out, full_in) = bounded(FRAMES_WAITING * threads);
    let (encoded_out, encoded_in) = bounded(FRAMES_WAITING * threads);
    let in_flight = Mutex::new(std::collections::HashSet::<BlockId>::new());

    thread::scope(|scope| {
        // Without a thread, the return drops the channels, and the threads that were started end.
        let read = move || read::read_batches(disk, regions, base, file_alignment, &batch_out, &buffer_in);
        let reader = start(scope, read)?;
        let mut workers = Vec::new();
        for _ in 0..threads {
            let near = (!is_far).then_some(store);
            let hashed_out = if is_far { hashed_out.clone() } else { looked_up_out.clone() };
            let batch_in = batch_in.clone();
            let hash = move || hash::hash_batches(near, options.domain, &batch_in, &hashed_out);
            workers.push(start(scope, hash)?);
            let (full_in, encoded_out) = (full_in.clone(), encoded_out.clone());
            workers
                .push(start(scope, move || compress::encode_frames(options.level, &full_in, &encoded_out))?);
        }
        for _ in 0..if is_far { store.lookups_under_way() } else { 0 } {
            let (hashed_in, looked_up_out) = (hashed_in.clone(), looked_up_out.clone());
            let look_up = move || look_up::look_up_batches(store, &hashed_in, &looked_up_out);
            workers.push(start(scope, look_up)?);
        }
        drop((batch_in, hashed_out, hashed_in, looked_up_out, full_in, encoded_out));
        let appender = start(scope, || compress::append_frames(store, &in_flight, encoded_in))?;

        let mut assembler = Assembler::new(disk, store, options, full_out, &in_flight);
        let assembled =
            assembler.take_all(looked_up_in, &buffer_out, progress).and_then(|()| assembler.finish());
        drop(buffer_out);

        // The stage that failed first has the reason; the others only ended because it did.
        let appended = join(appender);
        let workers: Vec<Result<()>> = workers.into_iter().map(join).collect();
        let read = join(reader);
        workers.into_iter().collect::<Result<()>>()?;
        read?;
        let (appended_counts, appended_pins) = appended?;
        let (score, mut counts, mut pins) = assembled?;
        pins.merge(appended_pins);
        counts.new_stored = appended_counts.stored;
        counts.new_frames = appended_counts.frames;
        counts.allocated = regions.iter().map(|region| region.allocated.total()).sum();
        Ok(Captured { score, counts, pins })
    })
}

/// Starts a thread.
///
/// # Errors
/// `Io` when the system allows no further one.
pub(crate) fn start<'scope, 'env, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, 'env>,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, T>> {
    thread::Builder::new().spawn_scoped(scope, run).context(|| "starting a thread".into())
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(Error::bug("a thread of the capture panicked")))
}

/// The error of a stage whose next stage has ended; that stage reports the reason.
fn next_stage_gone() -> Error {
    Error::bug("a later stage of the capture ended early")
}
