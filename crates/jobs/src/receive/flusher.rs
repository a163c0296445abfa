//! Writes full buffers to the target on a thread of its own, while the next buffer is filled.
//!
//! Owns the buffers. Writes in the order in which it gets them; after an error it writes nothing more. Must never let a caller
//! take a write for done before [`Flusher::drain`].

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver as Queue, Sender as QueueEnd, bounded};
use parking_lot::Mutex;
use platter_disk::AlignedBuffer;
use platter_image::{DiskWrite, Error, IoContext, Result};
use platter_net::{SinkStage, SinkTimes};

use super::sink::ReceivedDisk;

/// Bytes of a buffer.
pub(super) const WRITE_LENGTH: usize = 4 << 20;
/// Number of buffers: one is filled while the others are written or wait.
const BUFFERS: usize = 3;

struct Write {
    buffer: AlignedBuffer,
    length: usize,
    offset: u64,
}

/// The thread that writes.
pub(super) struct Flusher {
    /// `None` once it ends.
    full: Option<QueueEnd<Write>>,
    /// Buffers that were written.
    empty: Queue<AlignedBuffer>,
    /// Buffers that wait for contents.
    spare: Vec<AlignedBuffer>,
    /// The error of the first write that failed.
    failed: Arc<Mutex<Option<Arc<Error>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    /// Starts a thread that writes to this target.
    ///
    /// # Errors
    /// `Io` when the system has no more memory or threads.
    pub(super) fn start(target: Arc<dyn ReceivedDisk>, times: Arc<SinkTimes>) -> Result<Self> {
        let (emptied, empty) = bounded(BUFFERS);
        let spare = (0..BUFFERS).map(|_| AlignedBuffer::zeroed(WRITE_LENGTH)).collect::<Result<_, _>>();
        let spare = spare.context(|| "allocating write buffers".to_owned())?;
        let (full, writes) = bounded::<Write>(BUFFERS);
        let failed = Arc::<Mutex<Option<Arc<Error>>>>::default();
        let failure = Arc::clone(&failed);
        let run = move || {
            while let Ok(Write { buffer, length, offset }) = writes.recv() {
                if failure.lock().is_none() {
                    let started = Instant::now();
                    let written = write(&*target, &buffer[..length], offset);
                    times.add(SinkStage::Disk, started.elapsed());
                    if let Err(error) = written {
                        *failure.lock() = Some(Arc::new(error));
                    }
                }
                if emptied.send(buffer).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("flush".into()).spawn(run);
        let thread = thread.context(|| "starting a thread to write".to_owned())?;
        Ok(Self { full: Some(full), empty, spare, failed, thread: Some(thread) })
    }

    /// Returns a buffer to fill. Waits until one is free.
    pub(super) fn buffer(&mut self) -> Result<AlignedBuffer> {
        match self.spare.pop() {
            Some(buffer) => Ok(buffer),
            None => self.empty.recv().map_err(|_| ended()),
        }
    }

    /// Has the first `length` bytes of a buffer written at this offset.
    ///
    /// # Errors
    /// The error of an earlier write.
    pub(super) fn write(&self, buffer: AlignedBuffer, length: usize, offset: u64) -> Result<()> {
        let full = self.full.as_ref().ok_or_else(ended)?;
        full.send(Write { buffer, length, offset }).map_err(|_| ended())?;
        self.failure()
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// The error of a write.
    pub(super) fn drain(&mut self) -> Result<()> {
        while self.spare.len() < BUFFERS {
            self.spare.push(self.empty.recv().map_err(|_| ended())?);
        }
        self.failure()
    }

    fn failure(&self) -> Result<()> {
        // Each chunk whose write did not take place is answered with the reason: any of them may be answered first.
        match &*self.failed.lock() {
            Some(error) => {
                Err(Error::new(error.kind(), "an earlier write failed").with_source(Arc::clone(error)))
            }
            None => Ok(()),
        }
    }
}

/// Ends the thread, after the writes that it already got.
impl Drop for Flusher {
    fn drop(&mut self) {
        self.full = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn ended() -> Error {
    Error::bug("the thread that writes to the target has ended")
}

/// Writes bytes to the target.
pub(super) fn write(target: &(impl DiskWrite + ?Sized), bytes: &[u8], offset: u64) -> Result<()> {
    target
        .write_all_at(bytes, offset)
        .context(|| format!("writing {} bytes at {offset} of the target", bytes.len()))
}

#[cfg(test)]
mod tests {
    use platter_image::{DiskRead, ErrorKind};

    use super::*;
    use crate::Compared;

    /// A disk without space.
    struct Full;

    impl DiskRead for Full {
        fn length(&self) -> u64 {
            WRITE_LENGTH as u64
        }

        fn read_exact_at(&self, _buffer: &mut [u8], _offset: u64) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl DiskWrite for Full {
        fn length(&self) -> u64 {
            WRITE_LENGTH as u64
        }

        fn alignment(&self) -> usize {
            512
        }

        fn write_all_at(&self, _buffer: &[u8], _offset: u64) -> std::io::Result<()> {
            Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
        }

        fn write_zeroes(&self, _offset: u64, _length: u64) -> std::io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl ReceivedDisk for Full {
        fn advance(&self, _bytes: u64) {}

        fn finish(&self, _compared: Option<Compared>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_write_after_a_failed_one_has_its_reason() {
        let mut flusher = Flusher::start(Arc::new(Full), Arc::default()).unwrap();
        let buffer = flusher.buffer().unwrap();
        let _ = flusher.write(buffer, 512, 0);
        for _ in 0..3 {
            let error = flusher.drain().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.with_causes().contains("no storage space"), "{}", error.with_causes());
        }
    }
}
