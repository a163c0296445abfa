//! Memory for direct I/O: its address is a multiple of [`AlignedBuffer::ALIGNMENT`], and where it is long the system is
//! asked for huge pages, which take far less work to hand to a device.
//!
//! Owns nothing but its bytes. It never grows or moves them.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};

/// Buffers from that length on ask for huge pages, in bytes.
const HUGE_LENGTH: usize = 2 << 20;

/// Bytes of a fixed number, zero at first, at an address that is a multiple of [`AlignedBuffer::ALIGNMENT`].
pub struct AlignedBuffer {
    map: MmapMut,
    length: usize,
}

impl AlignedBuffer {
    /// What the address of the first byte is a multiple of: the smallest page there is.
    pub const ALIGNMENT: usize = 4096;

    /// A buffer of `length` zeros.
    ///
    /// # Errors
    /// Whatever the system says when it has no memory.
    pub fn zeroed(length: usize) -> io::Result<Self> {
        let map = MmapMut::map_anon(length.max(1))?;
        if length >= HUGE_LENGTH {
            // Faster with, right without: not every system has them.
            let _ = map.advise(Advice::HugePage);
        }
        Ok(Self { map, length })
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[..self.length]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[..self.length]
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_a_page_and_stays_there() {
        for length in [0, 1, 511, 4096, 1 << 20] {
            let mut buffer = AlignedBuffer::zeroed(length).unwrap();
            assert_eq!(buffer.len(), length);
            assert!(buffer.as_ptr().addr().is_multiple_of(AlignedBuffer::ALIGNMENT));
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            let moved = std::thread::spawn(move || buffer).join().unwrap();
            assert!(moved.as_ptr().addr().is_multiple_of(AlignedBuffer::ALIGNMENT));
            assert!(moved.iter().all(|byte| *byte == 7));
        }
    }
}
