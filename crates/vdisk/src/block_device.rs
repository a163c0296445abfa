//! A virtual disk as exports see it, and as layers see the layer below.

use platter_image::{Error, Extent, Result};

/// What is known of a range without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Allocation {
    /// It may hold anything.
    Data,
    /// It reads as zeros, and nothing is kept for it.
    Zero,
}

/// A disk that many threads use at once. Offsets and lengths are bytes, of any alignment, inside the disk.
///
/// Requests that overlap and run at the same time may take effect in any order; a read may see part of a write that has
/// not returned. What has returned is seen by every later read.
pub trait BlockDevice: Send + Sync {
    /// Length in bytes, a multiple of 512.
    fn length(&self) -> u64;

    /// Whether it takes writes.
    fn is_writable(&self) -> bool {
        false
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `Corrupt` or `Missing` when the store is damaged there: `buffer` then means nothing. `Io`, `Transient`.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// Whether a read of `range` would find all of it in memory; `None` when that is not known. Only a hint: for those who
    /// choose which thread reads.
    fn is_near(&self, range: Extent) -> Option<bool> {
        let _ = range;
        None
    }

    /// Writes `bytes` at `offset`. When it returns, the bytes survive the death of this process, and a power cut only
    /// after [`BlockDevice::flush`].
    ///
    /// # Errors
    /// `Refused` when the disk is read-only; `Io`.
    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let _ = (bytes, offset);
        Err(read_only())
    }

    /// Makes the range read as zeros and gives its space back, as discard does too. As durable as a write.
    ///
    /// # Errors
    /// As for [`BlockDevice::write`].
    fn write_zeroes(&self, range: Extent) -> Result<()> {
        let _ = range;
        Err(read_only())
    }

    /// Returns when everything written before is on the disk.
    ///
    /// # Errors
    /// `Io`: nothing written since the last flush is certain any more, and no later flush makes it so.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Tells what is known of `range`, in ascending runs without gaps, until `visit` says false.
    ///
    /// # Errors
    /// As for [`BlockDevice::read`].
    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()>;
}

fn read_only() -> Error {
    Error::refused("this disk is read-only")
}
