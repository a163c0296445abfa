//! Install: from a recipe and frames to a device, in disk order (DESIGN D3, D7).
//!
//! A bounded pipeline of threads; each arrow is a channel with a named limit, so memory does not grow with the disk:
//!
//! ```text
//! walk recipe ─segments▶ fill ×n ─filled▶ write ×2
//!                        frames decoded once and verified,
//!                        in a cache that all share
//! ```
//!
//! Only what the recipe says is written, and only bytes whose block had the right hash. Read-back runs the same
//! pipeline with a comparison where the write is.

mod frames;
mod segment;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{DiskRead, DiskWrite, Error, FrameSource, IoContext, Result};

pub use frames::FrameCache;
use segment::{Filled, Segment, walk};

use crate::AlignedBuffer;

/// Bytes of the disk that are filled and written together.
const SEGMENT_LENGTH: u64 = 4 << 20;
/// Segments between two stages.
const SEGMENTS_WAITING: usize = 2;
/// Threads that write, so that the device always has something to do.
const WRITERS: usize = 2;
/// Zeros up to this are written, more are asked of the device, in bytes.
const ZEROS_WRITTEN_MAX: u64 = 64 << 10;

/// What to do with space that nobody can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSpace {
    /// Leave it: it keeps what the target held.
    Skip,
    /// Make it zeros.
    Zero,
}

/// How to install.
#[derive(Clone, Copy, Debug)]
pub struct InstallOptions {
    /// What to do with free space.
    pub free: FreeSpace,
    /// Threads that decode.
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
    /// Zeros of the disk, and free space made zeros.
    pub zero: u64,
    /// Frames decoded, some of them more than once if they stand far apart on the disk.
    pub frames_decoded: u64,
}

/// Writes the disk of that recipe to `target` and waits until it is durable.
///
/// `progress` is told how many bytes were done more.
///
/// # Errors
/// `Missing` or `Corrupt` when the store is damaged (nothing wrong was written), `Io` when the target fails.
pub fn install<P: PageSource + Sync>(
    recipe: &Recipe<P>,
    source: &(impl FrameSource + ?Sized),
    target: &dyn DiskWrite,
    options: InstallOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<InstallCounts> {
    if recipe.root().disk_length > target.length() {
        return Err(Error::refused(format!(
            "the disk has {} bytes, the target only {}",
            recipe.root().disk_length,
            target.length()
        )));
    }
    let counts = run(recipe, source, options, progress, &|filled| write_segment(target, filled))?;
    target.flush().context(|| "making the target durable".to_owned())?;
    Ok(counts)
}

/// Compares a device with the disk of that recipe, in the same way in which it was installed.
///
/// # Errors
/// `Corrupt`, with the offset of the first difference found; `Io` when the device cannot be read.
pub fn compare<P: PageSource + Sync>(
    recipe: &Recipe<P>,
    source: &(impl FrameSource + ?Sized),
    device: &dyn DiskRead,
    options: InstallOptions,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<InstallCounts> {
    run(recipe, source, options, progress, &|filled| compare_segment(device, filled))
}

type Act<'a> = &'a (dyn Fn(&Filled) -> Result<()> + Sync);

fn run<P: PageSource + Sync>(
    recipe: &Recipe<P>,
    source: &(impl FrameSource + ?Sized),
    options: InstallOptions,
    progress: &(dyn Fn(u64) + Sync),
    act: Act<'_>,
) -> Result<InstallCounts> {
    let cache = FrameCache::new(source);
    let (segment_out, segment_in) = bounded::<Segment>(SEGMENTS_WAITING);
    let (filled_out, filled_in) = bounded::<Filled>(SEGMENTS_WAITING);
    let buffers = Mutex::new(Vec::new());
    let (data, zero) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let walker = scope.spawn(move || walk(recipe, options.free, &segment_out));
        let fillers: Vec<_> = (0..options.threads.max(1))
            .map(|_| {
                let (segment_in, filled_out) = (segment_in.clone(), filled_out.clone());
                let (cache, buffers) = (&cache, &buffers);
                scope.spawn(move || fill(cache, buffers, &segment_in, &filled_out))
            })
            .collect();
        drop((segment_in, filled_out));
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                let filled_in = filled_in.clone();
                let (buffers, data, zero) = (&buffers, &data, &zero);
                scope.spawn(move || {
                    for filled in filled_in {
                        act(&filled)?;
                        data.fetch_add(filled.data_length(), Ordering::Relaxed);
                        zero.fetch_add(filled.zero_length(), Ordering::Relaxed);
                        progress(filled.data_length() + filled.zero_length());
                        give_back(buffers, filled);
                    }
                    Ok(())
                })
            })
            .collect();
        drop(filled_in);
        // The stage that failed first has the reason; the others only ended.
        let results: Vec<Result<()>> = writers.into_iter().chain(fillers).chain([walker]).map(join).collect();
        results.into_iter().collect::<Result<()>>()
    })?;
    Ok(InstallCounts { data: data.into_inner(), zero: zero.into_inner(), frames_decoded: cache.decoded() })
}

fn join(thread: thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|_| Err(Error::bug("a thread of the install panicked")))
}

fn fill<F: FrameSource + ?Sized>(
    cache: &FrameCache<'_, F>,
    buffers: &Mutex<Vec<AlignedBuffer>>,
    segments: &Receiver<Segment>,
    filled: &Sender<Filled>,
) -> Result<()> {
    let mut worker = cache.worker()?;
    for segment in segments {
        let buffer = lock(buffers).pop().unwrap_or_else(|| AlignedBuffer::zeroed(SEGMENT_LENGTH as usize));
        if filled.send(segment.fill(buffer, &mut worker)?).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn give_back(buffers: &Mutex<Vec<AlignedBuffer>>, filled: Filled) {
    lock(buffers).push(filled.into_buffer());
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn write_segment(target: &dyn DiskWrite, filled: &Filled) -> Result<()> {
    for (extent, bytes) in filled.data() {
        target
            .write_all_at(bytes, extent.offset)
            .context(|| format!("writing {} bytes at {} of the target", extent.length, extent.offset))?;
    }
    for extent in filled.zeros() {
        target.write_zeroes(extent.offset, extent.length).context(|| {
            format!("making zeros of {} bytes at {} of the target", extent.length, extent.offset)
        })?;
    }
    Ok(())
}

fn compare_segment(device: &dyn DiskRead, filled: &Filled) -> Result<()> {
    let mut found = AlignedBuffer::zeroed(SEGMENT_LENGTH as usize);
    let read = |buffer: &mut [u8], offset: u64| {
        let length = buffer.len();
        device.read_exact_at(buffer, offset).context(|| format!("reading {length} bytes at {offset} back"))
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
    Error::corrupt(format!(
        "reading back: byte {offset} of the target is not what was installed; the device is failing"
    ))
}
