//! Decodes and verifies received chunks on all processors, while one thread writes what is verified.
//!
//! ```text
//! network ─▶ chunks ─▶ decoders ─▶ pieces ─▶ writer ─▶ buffers ─▶ target
//! ```
//!
//! Owns the threads and the queues between them. Every queue has a limit, so a slow target stops the decoders, and the chunks
//! that wait occupy the receiver's buffers, which its sender sees. Must never pass on a byte that was not verified.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as Queue, Sender as QueueEnd, bounded};
use parking_lot::{Condvar, Mutex};
use platter_cast::SessionDescription;
use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::{Error, IoContext, Kind, Result};
use platter_net::{ChunkSink, ChunkVerdict, ReceivedChunk, SinkOutcome, SinkStage, SinkTimes};

use super::sink::{DiskSink, Frames, OpenTarget, RAW_TOGETHER, is_of_chunk};

/// Most threads that decode.
const DECODERS_MAX: usize = 8;
/// Most pieces that wait for the writer, in addition to one in each decoder.
const PIECES_MAX: usize = 4;
/// Most decoded bytes of a piece are [`RAW_TOGETHER`] and a frame; buffers that are much larger are not kept.
const KEPT_LENGTH_MAX: usize = RAW_TOGETHER + (4 << 20);

/// Verified frames of a chunk.
pub(super) struct Piece {
    pub(super) headers: Vec<FrameHeader>,
    /// The contents of their blocks, one after another.
    pub(super) raw: Vec<u8>,
}

/// What the writer gets from a decoder, in this order for each chunk.
enum Work {
    Piece(u32, Piece),
    /// The end of a chunk. Without a result, it was not decoded: it is not of the data.
    End(OpenChunk, Option<Result<()>>),
}

/// A chunk that was received and not answered. If it is dropped, even by a thread that panics, it is first answered with an error and
/// then no longer counted.
struct OpenChunk {
    chunk: ReceivedChunk,
    count: OpenCount,
}

struct OpenCount(Arc<Shared>);

impl Drop for OpenCount {
    fn drop(&mut self) {
        let mut open = self.0.open.lock();
        *open = open.saturating_sub(1);
        self.0.answered.notify_all();
    }
}

#[derive(Default)]
struct Shared {
    /// The chunks that may be decoded before the sink sees them.
    data: Mutex<Range<u32>>,
    /// Number of chunks that were received and not answered.
    open: Mutex<usize>,
    answered: Condvar,
}

/// A sink with several threads.
pub(super) struct Pipeline<O> {
    sink: Arc<Mutex<DiskSink<O>>>,
    shared: Arc<Shared>,
    /// `None` once it ends.
    chunks: Option<QueueEnd<OpenChunk>>,
    threads: Vec<JoinHandle<()>>,
}

impl<O: OpenTarget + 'static> Pipeline<O> {
    /// Starts the threads.
    ///
    /// # Errors
    /// `Io` when the system has no more threads.
    pub(super) fn start(sink: DiskSink<O>) -> Result<Self> {
        let decoders = thread::available_parallelism().map_or(1, usize::from).min(DECODERS_MAX);
        let times = sink.times();
        let (sink, shared) = (Arc::new(Mutex::new(sink)), Arc::<Shared>::default());
        let (chunks, waiting) = bounded(decoders);
        let (work, works) = bounded(PIECES_MAX);
        let (spare, spares) = bounded(PIECES_MAX + decoders);
        let mut pipeline = Self { sink, shared, chunks: Some(chunks), threads: Vec::new() };
        for number in 0..decoders {
            let decoder = FrameDecoder::new()?;
            let shared = Arc::clone(&pipeline.shared);
            let (times, share) = (Arc::clone(&times), decoders as u32);
            let (chunks, work, spares) = (waiting.clone(), work.clone(), spares.clone());
            let decoder = Decoder { decoder, shared, chunks, work, spares, times, share };
            pipeline.spawn(format!("decode-{number}"), move || decoder.run())?;
        }
        let (sink, shared) = (Arc::clone(&pipeline.sink), Arc::clone(&pipeline.shared));
        pipeline.spawn("write".into(), move || write(&sink, &shared, &works, &spare))?;
        Ok(pipeline)
    }

    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = thread::Builder::new().name(name).spawn(run);
        self.threads.push(thread.context(|| "starting a thread to receive".to_owned())?);
        Ok(())
    }

    /// Calls `act` with the sink, when no chunk is being processed.
    pub(super) fn with_sink<T>(&self, act: impl FnOnce(&mut DiskSink<O>) -> T) -> T {
        let mut open = self.shared.open.lock();
        self.shared.answered.wait_while(&mut open, |open| *open > 0);
        drop(open);
        let mut sink = self.sink.lock();
        let result = act(&mut sink);
        *self.shared.data.lock() = sink.data_chunks();
        result
    }
}

/// Ends the threads: each ends when its queue does.
impl<O> Drop for Pipeline<O> {
    fn drop(&mut self) {
        self.chunks = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl<O: OpenTarget + 'static> ChunkSink for Pipeline<O> {
    fn times(&self) -> Arc<SinkTimes> {
        self.sink.lock().times()
    }

    fn session(&mut self, description: &SessionDescription) -> Result<Vec<Range<u32>>> {
        self.with_sink(|sink| sink.session(description))
    }

    fn receive(&mut self, chunk: ReceivedChunk) {
        *self.shared.open.lock() += 1;
        let open = OpenChunk { chunk, count: OpenCount(Arc::clone(&self.shared)) };
        if let Some(chunks) = &self.chunks {
            // A chunk that cannot be sent is dropped.
            let _ = chunks.send(open);
        }
    }

    fn chunk(&mut self, index: u32, bytes: &[u8]) -> Result<ChunkVerdict> {
        self.with_sink(|sink| sink.chunk(index, bytes))
    }

    fn finish(&mut self) -> Result<SinkOutcome> {
        self.with_sink(DiskSink::finish)
    }
}

/// A thread that decodes.
struct Decoder {
    decoder: FrameDecoder,
    shared: Arc<Shared>,
    chunks: Queue<OpenChunk>,
    work: QueueEnd<Work>,
    /// Buffers for reuse, because new ones would cause page faults.
    spares: Queue<Vec<u8>>,
    times: Arc<SinkTimes>,
    /// Number of threads that share the work.
    share: u32,
}

impl Decoder {
    fn run(mut self) {
        while let Ok(open) = self.chunks.recv() {
            let chunk = &open.chunk;
            let is_data = self.shared.data.lock().contains(&chunk.index());
            let decoded = is_data.then(|| self.decode(chunk.index(), chunk.bytes()));
            if self.work.send(Work::End(open, decoded)).is_err() {
                return;
            }
        }
    }

    /// Decodes a chunk, and passes on what is verified, a few frames at a time: the expansion limit applies to frames, not to
    /// chunks.
    fn decode(&mut self, index: u32, bytes: &[u8]) -> Result<()> {
        let mut piece = self.new_piece();
        let mut passing = Duration::ZERO;
        let started = Instant::now();
        for stored in Frames(bytes) {
            let (header, contents) = self.decoder.decode(stored?, Verify::Hashes)?;
            if header.kind != Kind::Data {
                return Err(Error::corrupt(format!("a frame of {:?} instead of data", header.kind)));
            }
            piece.raw.extend_from_slice(contents);
            piece.headers.push(header);
            if piece.raw.len() >= RAW_TOGETHER {
                let next = self.new_piece();
                let before = Instant::now();
                self.pass(index, std::mem::replace(&mut piece, next))?;
                passing += before.elapsed();
            }
        }
        self.times.add(SinkStage::Decoding, started.elapsed().saturating_sub(passing) / self.share);
        self.pass(index, piece)
    }

    fn pass(&self, index: u32, piece: Piece) -> Result<()> {
        let sent = self.work.send(Work::Piece(index, piece));
        sent.map_err(|_| Error::bug("the thread that writes has ended"))
    }

    fn new_piece(&self) -> Piece {
        let mut raw = self.spares.try_recv().unwrap_or_default();
        raw.clear();
        Piece { headers: Vec::new(), raw }
    }
}

/// Writes what was decoded, and answers the chunks.
fn write<O: OpenTarget>(
    sink: &Mutex<DiskSink<O>>,
    shared: &Shared,
    works: &Queue<Work>,
    spares: &QueueEnd<Vec<u8>>,
) {
    // Errors of chunks of which pieces are still to come; at most one for each decoder.
    let mut failed: HashMap<u32, Error> = HashMap::new();
    while let Ok(work) = works.recv() {
        let mut sink = sink.lock();
        match work {
            Work::Piece(index, piece) => {
                if !failed.contains_key(&index)
                    && let Err(error) = sink.write_piece(&piece)
                {
                    failed.insert(index, error);
                }
                if piece.raw.capacity() <= KEPT_LENGTH_MAX {
                    let _ = spares.try_send(piece.raw);
                }
            }
            Work::End(OpenChunk { chunk, count }, decoded) => {
                let verdict = match (failed.remove(&chunk.index()), decoded) {
                    (Some(error), _) | (None, Some(Err(error))) => Err(error),
                    (None, Some(Ok(()))) => sink.chunk_written(chunk.index()),
                    (None, None) => sink.chunk(chunk.index(), chunk.bytes()),
                };
                *shared.data.lock() = sink.data_chunks();
                drop(sink);
                chunk.answer(match verdict {
                    Err(error) if is_of_chunk(&error) => Ok(ChunkVerdict::Bad(error.to_string())),
                    verdict => verdict,
                });
                drop(count);
            }
        }
    }
}
