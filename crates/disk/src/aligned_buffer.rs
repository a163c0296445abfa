//! Memory for direct I/O. Its address is a multiple of [`AlignedBuffer::ALIGNMENT`]; for long buffers the
//! system is asked for huge pages, which are cheaper to pass to a device.
//!
//! A buffer never grows or moves.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};

/// Buffers of at least this many bytes request huge pages.
const HUGE_LENGTH: usize = 2 << 20;

/// A fixed number of bytes, initially zero, at an address that is a multiple of [`AlignedBuffer::ALIGNMENT`].
pub struct AlignedBuffer {
    map: MmapMut,
    length: usize,
}

impl AlignedBuffer {
    /// The address of the first byte is a multiple of this: the smallest page size.
    pub const ALIGNMENT: usize = 4096;

    /// A buffer of `length` zeros.
    ///
    /// # Errors
    /// The system's error when it has no memory.
    pub fn zeroed(length: usize) -> io::Result<Self> {
        let map = MmapMut::map_anon(length.max(1))?;
        if length >= HUGE_LENGTH {
            // Only an optimization: some systems do not support it.
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
    fn a_buffer_is_page_aligned_and_does_not_move() {
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
