//! The block device trait: the interface of a virtual disk to exports, and of each layer to the layer above.

use platter_image::{Error, Extent, Result};

/// What is known about a range without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Allocation {
    /// It may contain anything.
    Data,
    /// It reads as zeros and takes no space.
    Zero,
}

/// A disk used by many threads at once. Offsets and lengths are in bytes; they need no alignment, but must
/// lie inside the disk.
///
/// Overlapping concurrent requests may take effect in any order, and a read may see part of a write that has
/// not returned yet. Once a write has returned, every later read sees it.
pub trait BlockDevice: Send + Sync {
    /// Length in bytes, a multiple of 512.
    fn length(&self) -> u64;

    /// Whether writes are allowed.
    fn is_writable(&self) -> bool {
        false
    }

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// `Corrupt` or `Missing` when the store is damaged there; `Io`, `Transient`. The contents of `buffer`
    /// are then unspecified.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// Whether a read of `range` would be served from memory alone; `None` when unknown. Only a hint, used to
    /// choose the thread that reads.
    fn is_near(&self, range: Extent) -> Option<bool> {
        let _ = range;
        None
    }

    /// Writes `bytes` at `offset`. After the return, the bytes survive the death of this process; they
    /// survive a power cut only after [`BlockDevice::flush`].
    ///
    /// # Errors
    /// `Refused` when the disk is read-only; `Io`.
    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let _ = (bytes, offset);
        Err(read_only())
    }

    /// Makes the range read as zeros and frees its space; also used for discard. As durable as a write.
    ///
    /// # Errors
    /// As for [`BlockDevice::write`].
    fn write_zeroes(&self, range: Extent) -> Result<()> {
        let _ = range;
        Err(read_only())
    }

    /// Returns once everything written before is durable.
    ///
    /// # Errors
    /// `Io`: writes since the last flush may be lost, and a later flush does not change that.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Passes consecutive runs that cover `range` to `visit`, in ascending order without gaps, until it
    /// returns `false`.
    ///
    /// # Errors
    /// As for [`BlockDevice::read`].
    fn extents(&self, range: Extent, visit: &mut dyn FnMut(Extent, Allocation) -> bool) -> Result<()>;
}

fn read_only() -> Error {
    Error::refused("this disk is read-only")
}
