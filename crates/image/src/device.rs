//! Traits for devices: anything that is read or written by offset.

use std::io;

/// The unit of extents, blocks and recipes in bytes, independent of a device's sector size.
pub const SECTOR: u64 = 512;

/// A device that many threads can read at the same time.
pub trait DiskRead: Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> u64;

    /// Its logical sector size in bytes: 512 or 4096.
    fn sector_size(&self) -> u32 {
        512
    }

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// Errors of the device; `UnexpectedEof` if the range does not lie inside it.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

/// A device that many threads can write at the same time.
pub trait DiskWrite: Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> u64;

    /// Writes whose offset, length and buffer address are multiples of this many bytes go to the device
    /// directly. Other writes are correct, too.
    fn alignment(&self) -> usize {
        512
    }

    /// Writes all of `buffer` at `offset`.
    ///
    /// # Errors
    /// Errors of the device; `WriteZero` if the range does not lie inside it.
    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;

    /// Makes `length` bytes at `offset` read as zeros, in the cheapest way that the device offers.
    ///
    /// # Errors
    /// Errors of the device.
    fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Returns once everything written is durable.
    ///
    /// # Errors
    /// Errors of the device; earlier writes are then uncertain.
    fn flush(&self) -> io::Result<()>;
}

/// A disk in memory, for tests and small data.
impl DiskRead for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl<D: DiskRead + ?Sized> DiskRead for &D {
    fn length(&self) -> u64 {
        (**self).length()
    }

    fn sector_size(&self) -> u32 {
        (**self).sector_size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buffer, offset)
    }
}
