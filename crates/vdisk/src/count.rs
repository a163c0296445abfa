//! A layer that counts the requests to the disk below, for tests and diagnosis.

use std::sync::atomic::{AtomicU64, Ordering};

use platter_image::{Extent, Result};

use crate::block_device::{Allocation, BlockDevice};

/// The requests to a disk and their bytes, whether they succeeded or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Reads.
    pub reads: u64,
    /// Bytes requested to be read.
    pub bytes_read: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes requested to be written.
    pub bytes_written: u64,
    /// Requests to zero a range.
    pub zeroes: u64,
    /// Bytes requested to be zeroed.
    pub bytes_zeroed: u64,
    /// Flushes.
    pub flushes: u64,
}

#[derive(Debug, Default)]
struct Requests {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Requests {
    fn add(&self, bytes: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// A disk that counts its requests.
#[derive(Debug)]
pub struct Count<D> {
    below: D,
    reads: Requests,
    writes: Requests,
    zeroes: Requests,
    flushes: Requests,
}

impl<D: BlockDevice> Count<D> {
    /// Counts the requests to `below`.
    pub fn new(below: D) -> Self {
        let [reads, writes, zeroes, flushes] = Default::default();
        Self { below, reads, writes, zeroes, flushes }
    }

    /// The counts so far.
    pub fn counts(&self) -> RequestCounts {
        let (reads, bytes_read) = self.reads.get();
        let (writes, bytes_written) = self.writes.get();
        let (zeroes, bytes_zeroed) = self.zeroes.get();
        let (flushes, _) = self.flushes.get();
        RequestCounts { reads, bytes_read, writes, bytes_written, zeroes, bytes_zeroed, flushes }
    }
}

impl<D: BlockDevice> BlockDevice for Count<D> {
    fn length(&self) -> u64 {
        self.below.length()
    }

    fn is_writable(&self) -> bool {
        self.below.is_writable()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.reads.add(buffer.len() as u64);
        self.below.read(buffer, offset)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.writes.add(bytes.len() as u64);
        self.below.write(bytes, offset)
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.zeroes.add(range.length);
        self.below.write_zeroes(range)
    }

    fn flush(&self) -> Result<()> {
        self.flushes.add(0);
        self.below.flush()
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.below.extents(range, visit)
    }
}
