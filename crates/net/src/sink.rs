//! The consumer of a receiver's chunks: what it must do, and how it answers.
//!
//! Must never lose a chunk: one that is dropped without an answer is answered with an
//! error.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use platter_cast::{SessionDescription, SinkStage};
use platter_image::{Error, Result, Score};

/// A sink's verdict on a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkVerdict {
    /// Verified and accepted.
    Accepted,
    /// Verified and accepted; the recipe shows that these content chunks are wanted, too.
    AcceptedWant(Vec<Range<u32>>),
    /// Not valid: it is fetched from the sender by unicast. If that fails several times, the receiver fails.
    Bad(String),
    /// Verified and accepted, but it proves that some of these content chunks, accepted earlier, did not come
    /// from the sender. They are fetched from the sender by unicast and passed to the sink again.
    Contradicts(Vec<Range<u32>>),
    /// Valid, but the sender cannot be used, and why: it is not the one that it claims to be, or its store is damaged. It is left, and
    /// another one is looked for. Whatever the sink has not proven no longer counts.
    Unusable(String),
}

/// The result of a receiver, for the sender's screen and log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkOutcome {
    /// The verified score.
    pub score: Score,
    /// Bytes written to the target.
    pub bytes_written: u64,
}

/// How long the stages of a sink have worked, in sum. Shared between their threads and the network's.
#[derive(Debug, Default)]
pub struct SinkTimes {
    decoding_ns: AtomicU64,
    disk_ns: AtomicU64,
}

impl SinkTimes {
    /// Adds the time that a stage has worked. If several threads share a stage, each adds its part of the time.
    pub fn add(&self, stage: SinkStage, time: Duration) {
        let sum = match stage {
            SinkStage::Decoding => &self.decoding_ns,
            SinkStage::Disk => &self.disk_ns,
        };
        sum.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns the sums of decoding and disk, in nanoseconds.
    pub(crate) fn sums(&self) -> [u64; 2] {
        [&self.decoding_ns, &self.disk_ns].map(|sum| sum.load(Ordering::Relaxed))
    }
}

/// The consumer of a receiver's chunks. It is called on its own thread, so the network never waits for it; at most as many
/// chunks as the receiver has buffers are passed to it and not answered.
pub trait ChunkSink: Send {
    /// The times of its stages, if it measures them.
    fn times(&self) -> Arc<SinkTimes> {
        Arc::default()
    }

    /// A session begins, or begins again because the sender came back with another table. All earlier chunks are answered first. Returns the content
    /// chunks that are wanted; more may follow with [`ChunkVerdict::AcceptedWant`].
    ///
    /// # Errors
    /// `Corrupt`: the sender is left, and another one looked for. Any other error ends receiving; the sender is told.
    fn session(&mut self, description: &SessionDescription) -> Result<Vec<Range<u32>>>;

    /// A wanted chunk has arrived; chunks come in any order. The sink answers it when it has processed it, now or later, from any
    /// thread. A sink that does not override this processes each at once.
    fn receive(&mut self, chunk: ReceivedChunk) {
        let verdict = self.chunk(chunk.index(), chunk.bytes());
        chunk.answer(verdict);
    }

    /// Processes a wanted chunk. Nothing in it is verified yet.
    ///
    /// # Errors
    /// Any error (such as a full disk) ends receiving; the sender is told. An invalid chunk is not an error
    /// but [`ChunkVerdict::Bad`].
    fn chunk(&mut self, index: u32, bytes: &[u8]) -> Result<ChunkVerdict>;

    /// All wanted chunks were accepted: makes everything durable and returns what was verified.
    ///
    /// # Errors
    /// Those of [`ChunkSink::chunk`].
    fn finish(&mut self) -> Result<SinkOutcome>;
}

type Answer = Box<dyn FnOnce(Vec<u8>, Result<ChunkVerdict>) + Send>;

/// A chunk for the sink, to be answered once.
pub struct ReceivedChunk {
    index: u32,
    bytes: Vec<u8>,
    /// `None` once it is answered.
    answer: Option<Answer>,
}

impl ReceivedChunk {
    /// Makes a chunk. `answer` gets its bytes back, with the verdict.
    pub fn new(
        index: u32,
        bytes: Vec<u8>,
        answer: impl FnOnce(Vec<u8>, Result<ChunkVerdict>) + Send + 'static,
    ) -> Self {
        Self { index, bytes, answer: Some(Box::new(answer)) }
    }

    /// Its content chunk number.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its bytes, unverified.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Ends its processing.
    pub fn answer(mut self, verdict: Result<ChunkVerdict>) {
        self.send(verdict);
    }

    fn send(&mut self, verdict: Result<ChunkVerdict>) {
        if let Some(answer) = self.answer.take() {
            answer(std::mem::take(&mut self.bytes), verdict);
        }
    }
}

impl Drop for ReceivedChunk {
    fn drop(&mut self) {
        let index = self.index;
        self.send(Err(Error::bug(format!("chunk {index} was dropped while it was processed"))));
    }
}
