//! Memory that starts where direct I/O wants it: at a multiple of [`AlignedBuffer::ALIGNMENT`].
//!
//! Owns nothing but its bytes. It never grows or moves them: an aligned slice of a slightly larger vector that is
//! never reallocated, which needs no unsafe code.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Bytes of a fixed number, zero at first, at an address that is a multiple of [`AlignedBuffer::ALIGNMENT`].
pub struct AlignedBuffer {
    storage: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// What the address of the first byte is a multiple of.
    pub const ALIGNMENT: usize = 4096;

    /// A buffer of `length` zeros.
    pub fn zeroed(length: usize) -> Self {
        let storage = vec![0; length + Self::ALIGNMENT - 1];
        let address = storage.as_ptr().addr();
        Self { start: address.next_multiple_of(Self::ALIGNMENT) - address, storage, length }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.length]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.length]
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
            let mut buffer = AlignedBuffer::zeroed(length);
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
