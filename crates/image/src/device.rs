//! Devices as the rest of Platter sees them: something read or written by offset.

use std::io;

/// The unit of extents, blocks and recipes, in bytes, whatever the sector size of a device.
pub const SECTOR: u64 = 512;

/// A device that can be read from many threads at once.
pub trait DiskRead: Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> u64;

    /// Its logical sector size in bytes: 512 or 4096.
    fn sector_size(&self) -> u32 {
        512
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// What the device says; `UnexpectedEof` if the range does not lie inside it.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

/// A device that can be written from many threads at once.
pub trait DiskWrite: Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> u64;

    /// What offset, length and address of a write should be a multiple of, to go straight to the device. Writes that
    /// are not are still done right.
    fn alignment(&self) -> usize {
        512
    }

    /// Writes all of `buffer` at `offset`.
    ///
    /// # Errors
    /// What the device says; `WriteZero` if the range does not lie inside it.
    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;

    /// Makes `length` bytes at `offset` read as zeros, by whatever means is cheapest.
    ///
    /// # Errors
    /// What the device says.
    fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Returns when all that was written is durable.
    ///
    /// # Errors
    /// What the device says; what was written before is then in doubt.
    fn flush(&self) -> io::Result<()>;
}

/// A disk in memory: for tests and for what is small.
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
