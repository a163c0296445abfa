//! A file for readers that must only read.

use std::io;

use platter_vfs::VfsFile;

/// A file with these bytes. Panics if it is written.
#[derive(Debug)]
pub struct ReadOnly(pub Vec<u8>);

impl VfsFile for ReadOnly {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).map_or(self.0.len(), |offset| offset.min(self.0.len()));
        let length = buffer.len().min(self.0.len() - start);
        buffer[..length].copy_from_slice(&self.0[start..start + length]);
        Ok(length)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        panic!("a reader writes")
    }

    fn set_length(&self, _: u64) -> io::Result<()> {
        panic!("a reader changes the length")
    }

    fn sync(&self) -> io::Result<()> {
        panic!("a reader syncs")
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}
