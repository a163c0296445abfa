//! Install: writes a recipe's disk from frames to a device, in disk order (design: recipes, verify).
//!
//! ```text
//! walk recipe ─segments▶ (fill, write) ×n
//!                         each frame decoded and verified once, then shared on a shelf
//! ```
//!
//! Each worker handles one segment at a time and waits for its own write. There are a few more workers than
//! processors, so that some decode while others wait for the device. Memory is one buffer per worker plus the
//! shelf, whatever the disk.
//!
//! Only what the recipe says is written, and only bytes of blocks with the right hash. Read-back runs the
//! same pipeline with a comparison instead of the write. The edges of a disk are written last
//! ([`EdgesLast`]), so that a target looks finished only when it is.

mod claims;
mod delta;
mod described;
mod edges_last;
mod elsewhere;
mod frames;
mod held;
mod local;
mod lost_write;
mod pieces;
mod segment;
mod state;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, bounded};
use platter_image::recipe::{OnLost, PageSource, Recipe};
use platter_image::{DiskRead, DiskWrite, Error, FrameSource, IoContext, Result};

pub use delta::{Delta, is_alike};
pub use edges_last::{EDGE_LENGTH, EdgesLast, Finished};
pub use frames::FrameShelf;
pub use local::Local;
pub use lost_write::LostWrite;
use segment::{Filled, Segment, walk};
pub use state::{Phase, TargetState};

use crate::AlignedBuffer;
use crate::capture::start;

/// Bytes of the disk that are filled and written together.
const SEGMENT_LENGTH: u64 = 2 << 20;
/// Segments that wait for a worker, as entries of a few KiB each. Workers take them in bursts.
const SEGMENTS_WAITING: usize = 64;
/// Workers in addition to one per processor: so many writes are in progress while every processor decodes.
const WRITES_UNDER_WAY: usize = 8;
/// Zeros of at most this many bytes are written; longer runs are requested from the device.
const ZEROS_WRITTEN_MAX: u64 = 64 << 10;
/// The most such runs of zeros that are collected for one worker.
const ZEROS_TOGETHER: usize = 4096;

/// What to do with free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSpace {
    /// Leave it; it keeps the target's old contents.
    Skip,
    /// Make it zeros.
    Zero,
}

/// The options of an install.
#[derive(Clone, Copy, Debug)]
pub struct InstallOptions {
    /// What to do with free space.
    pub free: FreeSpace,
    /// Number of decoding threads.
    pub threads: usize,
}

impl Default for InstallOptions {
    fn default() -> Self {
        Self { free: FreeSpace::Skip, threads: thread::available_parallelism().map_or(2, usize::from) }
    }
}

/// What was written or compared, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstallCounts {
    /// Data of the disk.
    pub data: u64,
    /// Zeros of the disk, and free space that was zeroed.
    pub zero: u64,
    /// Frames decoded; a frame counts several times if its blocks are far apart on the disk.
    pub frames_decoded: u64,
    /// Stored bytes of these.
    pub frame_bytes: u64,
}

/// Writes the recipe's disk to `target` and waits until it is durable.
///
/// `progress` is called with the number of bytes done since its last call.
///
/// # Errors
/// `Missing` or `Corrupt` when the store is damaged (nothing wrong was written); `Io` when the target fails;
/// `Refused` when the target is too short.
pub fn install<P: PageSource + Sync>(
    recipe: &Recipe<P>,
    source: &(impl FrameSource + ?Sized),
    target: &dyn DiskWrite,
    options: InstallOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<InstallCounts> {
    install_rest(recipe, source, target, options, progress, None)
}

/// Writes the recipe's disk to `target` as [`install`] does, except for what it already holds, and takes blocks
/// from the disks of this machine first.
///
/// # Errors
/// Those of [`install`].
pub fn install_delta<P: PageSource + Sync>(
    recipe: &Recipe<P>,
    source: &(impl FrameSource + ?Sized),
    target: &dyn DiskWrite,
    options: InstallOptions,
    progress: &(dyn Fn(u64) + Sync),
    local: &Local<'_>,
) -> Result<InstallCounts> {
    install_rest(recipe, source, target, options, progress, Some(local))
}

fn install_rest<P: PageSource + Sync>(
    recipe: &Recipe<P>,
    source: &(impl FrameSource + ?Sized),
    target: &dyn DiskWrite,
    options: InstallOptions,
    progress: &(dyn Fn(u64) + Sync),
    local: Option<&Local<'_>>,
) -> Result<InstallCounts> {
    if recipe.root().disk_length > target.length() {
        return Err(Error::refused(format!(
            "the disk has {} bytes, but the target only {}",
            recipe.root().disk_length,
            target.length()
        )));
    }
    let write: Act<'_> = &|filled| write_segment(target, filled);
    let counts = run(recipe, source, options, progress, (None, local), write)?;
    target.flush().context(|| "making the target durable".to_owned())?;
    Ok(counts)
}

/// Installs a damaged disk to a target that reads as zeros: `on_lost` is called with each range that cannot
/// be read, which stays zeros.
///
/// # Errors
/// Those of [`install`], except for unreadable ranges.
pub fn install_readable<P: PageSource + Sync>(
    recipe: &Recipe<P>,
    source: &(impl FrameSource + ?Sized),
    target: &dyn DiskWrite,
    options: InstallOptions,
    progress: &(dyn Fn(u64) + Sync),
    on_lost: &OnLost<'_>,
) -> Result<InstallCounts> {
    let write: Act<'_> = &|filled| write_segment(target, filled);
    let counts = run(recipe, source, options, progress, (Some(on_lost), None), write)?;
    target.flush().context(|| "making the target durable".to_owned())?;
    Ok(counts)
}

/// Compares a device with the recipe's disk, with the same pipeline as an install.
///
/// # Errors
/// `Corrupt` with the offset of the first difference found; `Io` when the device cannot be read.
pub fn compare<P: PageSource + Sync>(
    recipe: &Recipe<P>,
    source: &(impl FrameSource + ?Sized),
    device: &dyn DiskRead,
    options: InstallOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<InstallCounts> {
    run(recipe, source, options, progress, (None, None), &|filled| compare_segment(device, filled))
}

/// Compares as [`compare`] does, except for what was found to be right by its hash.
///
/// # Errors
/// Those of [`compare`].
pub fn compare_rest<P: PageSource + Sync>(
    recipe: &Recipe<P>,
    source: &(impl FrameSource + ?Sized),
    device: &dyn DiskRead,
    options: InstallOptions,
    progress: &(dyn Fn(u64) + Sync),
    local: &Local<'_>,
) -> Result<InstallCounts> {
    run(recipe, source, options, progress, (None, Some(local)), &|filled| compare_segment(device, filled))
}

type Act<'a> = &'a (dyn Fn(&Filled) -> Result<()> + Sync);

fn run<P: PageSource + Sync>(
    recipe: &Recipe<P>,
    source: &(impl FrameSource + ?Sized),
    options: InstallOptions,
    progress: &(dyn Fn(u64) + Sync),
    (on_lost, local): (Option<&OnLost<'_>>, Option<&Local<'_>>),
    act: Act<'_>,
) -> Result<InstallCounts> {
    let shelf = FrameShelf::new(source);
    let (segment_out, segment_in) = bounded::<Segment>(SEGMENTS_WAITING);
    let (data, zero) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = |filled: &Filled| {
        data.fetch_add(filled.data_length(), Ordering::Relaxed);
        zero.fetch_add(filled.zero_length(), Ordering::Relaxed);
        progress(filled.data_length() + filled.zero_length());
    };
    thread::scope(|scope| {
        let walker = start(scope, move || walk(recipe, source, options.free, on_lost, local, &segment_out))?;
        let mut workers = Vec::new();
        for number in 0..options.threads.max(1) + WRITES_UNDER_WAY {
            let (segment_in, shelf, done) = (segment_in.clone(), &shelf, &done);
            match start(scope, move || work((shelf, local), &segment_in, on_lost, act, done)) {
                Ok(worker) => workers.push(worker),
                Err(error) if number == 0 => return Err(error),
                // Those that could be had suffice.
                Err(_) => break,
            }
        }
        drop(segment_in);
        // A worker that failed has the reason; the walker only ended because of it.
        let results: Vec<Result<()>> = workers.into_iter().chain([walker]).map(join).collect();
        results.into_iter().collect::<Result<()>>()
    })?;
    Ok(InstallCounts {
        data: data.into_inner(),
        zero: zero.into_inner(),
        frames_decoded: shelf.decoded(),
        frame_bytes: shelf.stored_bytes(),
    })
}

fn join(thread: thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|_| Err(Error::bug("a thread of the install panicked")))
}

fn work<F: FrameSource + ?Sized>(
    (shelf, local): (&FrameShelf<'_, F>, Option<&Local<'_>>),
    segments: &Receiver<Segment>,
    on_lost: Option<&OnLost<'_>>,
    act: Act<'_>,
    done: &dyn Fn(&Filled),
) -> Result<()> {
    let mut reader = shelf.reader(local)?;
    let mut buffer = segment_buffer()?;
    for segment in segments {
        let filled = segment.fill(buffer, &mut reader, on_lost)?;
        act(&filled)?;
        done(&filled);
        buffer = filled.into_buffer();
    }
    Ok(())
}

fn segment_buffer() -> Result<AlignedBuffer> {
    AlignedBuffer::zeroed(SEGMENT_LENGTH as usize).context(|| "allocating memory for a segment".to_owned())
}

fn write_segment(target: &dyn DiskWrite, filled: &Filled) -> Result<()> {
    for (extent, bytes) in filled.data() {
        target.write_all_at(bytes, extent.offset).context(|| {
            format!("writing {} bytes at offset {} of the target", extent.length, extent.offset)
        })?;
    }
    for extent in filled.zeros() {
        target.write_zeroes(extent.offset, extent.length).context(|| {
            format!("zeroing {} bytes at offset {} of the target", extent.length, extent.offset)
        })?;
    }
    Ok(())
}

fn compare_segment(device: &dyn DiskRead, filled: &Filled) -> Result<()> {
    let mut found = segment_buffer()?;
    let read = |buffer: &mut [u8], offset: u64| {
        let length = buffer.len();
        device
            .read_exact_at(buffer, offset)
            .context(|| format!("reading back {length} bytes at offset {offset}"))
    };
    for (extent, bytes) in filled.data() {
        let found = &mut found[..bytes.len()];
        read(found, extent.offset)?;
        if let Some(at) = found.iter().zip(bytes).position(|(found, wanted)| found != wanted) {
            return Err(differs(extent.offset + at as u64));
        }
    }
    for extent in filled.zeros() {
        let mut offset = extent.offset;
        while offset < extent.end() {
            let length = (extent.end() - offset).min(SEGMENT_LENGTH) as usize;
            read(&mut found[..length], offset)?;
            if let Some(at) = found[..length].iter().position(|byte| *byte != 0) {
                return Err(differs(offset + at as u64));
            }
            offset += length as u64;
        }
    }
    Ok(())
}

fn differs(offset: u64) -> Error {
    LostWrite::error(format!("reading back: byte {offset} of the target differs from what was written"))
}
