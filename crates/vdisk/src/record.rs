//! A layer that records the requests to the disk below into a trace file ([`crate::Trace`]).
//!
//! A thread writes the recorded requests to the file. A request never waits for the file: if the buffer is
//! full, the request is counted as lost, and the trace states how many were lost. Only requests that reach
//! the disk are recorded: an export that skips a known hole makes no request there.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use platter_image::{Error, Extent, IoContext, Result};
use platter_vfs::VfsFile;

use crate::block_device::{Allocation, BlockDevice};
use crate::trace::{
    BATCH_REQUESTS_MAX, Encoder, RequestKind, TRACE_REQUESTS_MAX, TraceHeader, TracedRequest,
};

/// The most requests that wait to be written.
const WAITING_MAX: usize = BATCH_REQUESTS_MAX;
/// The thread wakes when this many requests wait.
const WAITING_ENOUGH: usize = WAITING_MAX / 4;
/// The longest wait for more requests before writing. A killed process loses at most this much.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// The counts of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Requests in the file.
    pub requests: u64,
    /// Requests that arrived but are not in the file.
    pub lost: u64,
    /// Bytes requested by the recorded reads.
    pub bytes_read: u64,
    /// Bytes requested by the recorded writes.
    pub bytes_written: u64,
}

#[derive(Default)]
struct State {
    waiting: Vec<TracedRequest>,
    /// Requests recorded so far.
    taken: u64,
    /// Requests lost since the last batch.
    lost: u64,
    /// Recording has ended.
    is_closed: bool,
}

struct Shared {
    began: Instant,
    state: Mutex<State>,
    /// Signalled when enough requests wait, or recording has ended.
    work: Condvar,
}

impl Shared {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn note(&self, request: TracedRequest) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        if state.waiting.len() >= WAITING_MAX || state.taken >= TRACE_REQUESTS_MAX {
            state.lost += 1;
            return;
        }
        state.taken += 1;
        state.waiting.push(request);
        if state.waiting.len() == WAITING_ENOUGH {
            self.work.notify_one();
        }
    }

    /// Waits for requests and swaps them for the empty `batch`. Returns the number of requests lost since the
    /// last batch, and whether recording has ended.
    fn take(&self, batch: &mut Vec<TracedRequest>) -> (u64, bool) {
        let idle = |state: &mut State| state.waiting.len() < WAITING_ENOUGH && !state.is_closed;
        let mut state = self.state.lock();
        self.work.wait_while_for(&mut state, idle, WRITE_EVERY);
        std::mem::swap(&mut state.waiting, batch);
        (std::mem::take(&mut state.lost), state.is_closed)
    }

    /// The main loop of the writing thread.
    fn write(&self, mut encoder: Encoder, file: &dyn VfsFile, mut offset: u64) -> Result<RecordCounts> {
        let mut batch = Vec::with_capacity(WAITING_MAX);
        let mut bytes = Vec::new();
        let mut counts = RecordCounts::default();
        let (mut lost, mut is_last) = (0, false);
        while !is_last {
            batch.clear();
            let (lost_now, is_closed) = self.take(&mut batch);
            (lost, is_last) = (lost + lost_now, is_closed);
            counts.add(&batch, lost_now);
            bytes.clear();
            if !batch.is_empty() {
                encoder.batch(&batch, std::mem::take(&mut lost), &mut bytes);
            }
            if is_last {
                encoder.batch(&[], std::mem::take(&mut lost), &mut bytes);
            }
            file.write_all_at(&bytes, offset).context(|| "writing a trace".into())?;
            offset += bytes.len() as u64;
        }
        file.sync().context(|| "writing a trace".into())?;
        Ok(counts)
    }
}

impl RecordCounts {
    fn add(&mut self, batch: &[TracedRequest], lost: u64) {
        self.requests += batch.len() as u64;
        self.lost += lost;
        for request in batch {
            match request.kind {
                RequestKind::Read => self.bytes_read += request.range.length,
                RequestKind::Write => self.bytes_written += request.range.length,
                RequestKind::WriteZeroes | RequestKind::Flush => {}
            }
        }
    }
}

/// A trace being written.
pub struct Recording {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<Result<RecordCounts>>>>,
}

impl Recording {
    /// Starts a trace in an empty file.
    ///
    /// # Errors
    /// `Io` when the file cannot be written or no thread can be started.
    pub fn start(file: Box<dyn VfsFile>, header: &TraceHeader) -> Result<Arc<Self>> {
        let mut bytes = Vec::new();
        let encoder = Encoder::new(header, &mut bytes);
        file.write_all_at(&bytes, 0).context(|| "writing a trace".into())?;
        let state = State { waiting: Vec::with_capacity(WAITING_MAX), ..State::default() };
        let shared =
            Arc::new(Shared { began: Instant::now(), state: Mutex::new(state), work: Condvar::new() });
        let writer = Arc::clone(&shared);
        let run = move || {
            let written = writer.write(encoder, &*file, bytes.len() as u64);
            // After a failure no one writes the waiting requests.
            writer.state.lock().is_closed = true;
            written
        };
        let thread = thread::Builder::new().name("trace-writer".into()).spawn(run);
        let thread = thread.context(|| "starting a thread".into())?;
        Ok(Arc::new(Self { shared, thread: Mutex::new(Some(thread)) }))
    }

    /// Ends the trace and syncs the file. Later requests are neither recorded nor counted.
    ///
    /// # Errors
    /// `Io` when something could not be written: the trace then ends early. `Bug` when called twice.
    pub fn finish(&self) -> Result<RecordCounts> {
        let thread = self.thread.lock().take();
        let thread = thread.ok_or_else(|| Error::bug("a trace was finished twice"))?;
        self.shared.state.lock().is_closed = true;
        self.shared.work.notify_one();
        thread.join().map_err(|_| Error::bug("the thread that writes a trace panicked"))?
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // The result is of interest only to a caller of `finish`.
        let _ = self.finish();
    }
}

/// A disk whose requests are recorded; several disks may share one recording.
pub struct Record {
    below: Arc<dyn BlockDevice>,
    recording: Arc<Recording>,
}

impl Record {
    /// Records the requests to `below`.
    pub fn new(below: Arc<dyn BlockDevice>, recording: Arc<Recording>) -> Self {
        Self { below, recording }
    }

    fn noted(&self, kind: RequestKind, range: Extent, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let shared = &self.recording.shared;
        let start_ns = shared.now_ns();
        let result = act();
        let service_ns = shared.now_ns() - start_ns;
        shared.note(TracedRequest { kind, failed: result.is_err(), range, start_ns, service_ns });
        result
    }
}

impl BlockDevice for Record {
    fn length(&self) -> u64 {
        self.below.length()
    }

    fn is_writable(&self) -> bool {
        self.below.is_writable()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let range = Extent::new(offset, buffer.len() as u64);
        self.noted(RequestKind::Read, range, || self.below.read(buffer, offset))
    }

    fn is_near(&self, range: Extent) -> Option<bool> {
        self.below.is_near(range)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let range = Extent::new(offset, bytes.len() as u64);
        self.noted(RequestKind::Write, range, || self.below.write(bytes, offset))
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.noted(RequestKind::WriteZeroes, range, || self.below.write_zeroes(range))
    }

    fn flush(&self) -> Result<()> {
        self.noted(RequestKind::Flush, Extent::new(0, 0), || self.below.flush())
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.below.extents(range, visit)
    }
}
