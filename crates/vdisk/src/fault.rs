//! A layer that injects failures, for tests of the layers above.

use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use platter_image::{Error, Extent, Result};

use crate::block_device::{Allocation, BlockDevice};

/// A disk whose reads, writes and flushes fail with `Io` in chosen ranges or at chosen calls.
#[derive(Debug)]
pub struct Fault<D> {
    below: D,
    ranges: Mutex<Vec<Extent>>,
    /// Every how many calls one fails; 0: none.
    every: AtomicU64,
    calls: AtomicU64,
}

impl<D: BlockDevice> Fault<D> {
    /// A disk that fails nothing yet.
    pub fn new(below: D) -> Self {
        Self { below, ranges: Mutex::default(), every: AtomicU64::new(0), calls: AtomicU64::new(0) }
    }

    /// Fails requests that touch one of these ranges from now on.
    pub fn fail_in(&self, ranges: Vec<Extent>) {
        *self.ranges.lock() = ranges;
    }

    /// Fails every `count`-th call from now on; 0 fails none.
    pub fn fail_every(&self, count: u64) {
        self.calls.store(0, Ordering::Relaxed);
        self.every.store(count, Ordering::Relaxed);
    }

    fn check(&self, range: Extent) -> Result<()> {
        let (call, every) =
            (self.calls.fetch_add(1, Ordering::Relaxed) + 1, self.every.load(Ordering::Relaxed));
        let ranges = self.ranges.lock();
        let touches = ranges.iter().any(|bad| bad.intersect(&range).is_some());
        if touches || (every > 0 && call.is_multiple_of(every)) {
            let what = format!("call {call}: {} bytes at offset {}", range.length, range.offset);
            return Err(Error::io(what, io::Error::other("injected failure")));
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Fault<D> {
    fn length(&self) -> u64 {
        self.below.length()
    }

    fn is_writable(&self) -> bool {
        self.below.is_writable()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.check(Extent::new(offset, buffer.len() as u64))?;
        self.below.read(buffer, offset)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check(Extent::new(offset, bytes.len() as u64))?;
        self.below.write(bytes, offset)
    }

    fn write_zeroes(&self, range: Extent) -> Result<()> {
        self.check(range)?;
        self.below.write_zeroes(range)
    }

    fn flush(&self) -> Result<()> {
        self.check(Extent::new(0, 0))?;
        self.below.flush()
    }

    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()> {
        self.below.extents(range, visit)
    }
}
