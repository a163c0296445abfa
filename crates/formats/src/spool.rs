//! Where a stream is unpacked to, because a disk must be readable at any place.

use std::io;

/// A file of zeros that is filled in any order.
pub trait Spool {
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// Errors of the file, such as no space.
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Fills `buffer` with the bytes at `offset`, which were written before; others may be zeros or an error.
    ///
    /// # Errors
    /// Errors of the file.
    fn read_exact_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}
