//! A layer above a disk that passes its reads to a detector of boots.
//!
//! Stands directly above a version, below any overlay. A read takes a lock of its own disk while a list of ranges is
//! searched, and once more when it brought something new. Once nothing is to be watched, a read checks one flag.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use platter_image::{Extent, Result};

use super::detector::{Boot, BootDetector};
use crate::block_device::{Allocation, BlockDevice};

/// A disk whose boots are detected.
pub struct BootWatch {
    below: Arc<dyn BlockDevice>,
    is_on: AtomicBool,
    reads_under_way: AtomicUsize,
    pauses: AtomicUsize,
    began: Instant,
    detector: Mutex<BootDetector>,
}

/// While this exists, new reads do not count as part of a boot.
pub struct WatchPause(Arc<BootWatch>);

impl BootWatch {
    /// Watches the reads of `below`.
    pub fn new(below: Arc<dyn BlockDevice>) -> Self {
        let detector = Mutex::new(BootDetector::new(below.length()));
        let (reads_under_way, pauses) = Default::default();
        let is_on = AtomicBool::new(true);
        Self { below, is_on, reads_under_way, pauses, began: Instant::now(), detector }
    }

    /// Returns a boot that has ended; see [`BootDetector::poll`].
    pub fn poll(&self) -> Option<Boot> {
        if !self.is_on() {
            return None;
        }
        let is_busy = self.reads_under_way.load(Ordering::Relaxed) > 0;
        self.detector.lock().poll(self.now_ms(), is_busy)
    }

    /// Whether the observed reads may be, or become, a boot.
    pub fn is_observing(&self) -> bool {
        self.is_on() && self.detector.lock().is_observing()
    }

    /// Ends watching permanently, and frees the memory.
    pub fn stop(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        *self.detector.lock() = BootDetector::new(self.below.length());
    }

    /// Whether reads are watched.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Ignores reads that begin before the result is dropped, because this process reads the disk itself.
    pub fn pause(self: &Arc<Self>) -> WatchPause {
        self.pauses.fetch_add(1, Ordering::Relaxed);
        WatchPause(self.clone())
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}

impl Drop for WatchPause {
    fn drop(&mut self) {
        self.0.pauses.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BlockDevice for BootWatch {
    fn length(&self) -> u64 {
        self.below.length()
    }

    fn is_writable(&self) -> bool {
        self.below.is_writable()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        if !self.is_on() {
            return self.below.read(buffer, offset);
        }
        if self.pauses.load(Ordering::Relaxed) > 0 {
            return self.below.read(buffer, offset);
        }
        self.reads_under_way.fetch_add(1, Ordering::Relaxed);
        let range = Extent::new(offset, buffer.len() as u64);
        let is_active = self.detector.lock().note_read(range, self.now_ms());
        let read = self.below.read(buffer, offset);
        if is_active {
            self.detector.lock().note_answer(self.now_ms());
        }
        self.reads_under_way.fetch_sub(1, Ordering::Relaxed);
        read
    }

    fn is_near(&self, range: Extent) -> Option<bool> {
        self.below.is_near(range)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.below.write(bytes, offset)
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.below.write_zeroes(range)
    }

    fn flush(&self) -> Result<()> {
        self.below.flush()
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.below.extents(range, visit)
    }
}
