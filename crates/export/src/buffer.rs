//! Reusable buffers for payloads and replies.
//!
//! Owns the spare buffers of a server. A buffer keeps old bytes after its end, so it need not be zeroed before the next
//! use; it must never expose them.

use parking_lot::Mutex;

use crate::budget::Share;

/// Spare buffers kept.
const SPARE_MAX: usize = 128;
/// Total bytes of spare buffers: enough for a few clients with the maximum in flight.
const SPARE_BYTES_ALL_MAX: usize = 16 << 20;
/// Larger buffers are not kept, because most requests are far smaller than the maximum.
const SPARE_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes in a buffer: the largest payload of any protocol, plus its header.
const BYTES_MAX: usize = (32 << 20) + (64 << 10);

/// Bytes up to an end.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    end: usize,
    /// The budget share of its request, until it is released.
    pub(crate) share: Option<Share>,
}

impl Buffer {
    /// Appends `bytes`.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
    }

    /// Appends `length` bytes of unspecified value and returns them to be filled.
    pub(crate) fn grow(&mut self, length: usize) -> &mut [u8] {
        let start = self.end;
        self.end += length;
        debug_assert!(self.end <= BYTES_MAX, "lengths are checked before");
        if self.bytes.len() < self.end {
            self.bytes.resize(self.end, 0);
        }
        &mut self.bytes[start..self.end]
    }

    /// Clears the buffer.
    pub(crate) fn clear(&mut self) {
        self.end = 0;
    }

    /// The contents.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.end]
    }
}

#[derive(Default)]
struct Spare {
    buffers: Vec<Buffer>,
    bytes: usize,
}

/// The spare buffers of a server.
#[derive(Default)]
pub(crate) struct Buffers(Mutex<Spare>);

impl Buffers {
    /// An empty buffer.
    pub(crate) fn take(&self) -> Buffer {
        let mut spare = self.0.lock();
        let buffer = spare.buffers.pop().unwrap_or_default();
        spare.bytes -= buffer.bytes.len();
        buffer
    }

    /// Returns buffers to the pool.
    pub(crate) fn give(&self, buffers: impl IntoIterator<Item = Buffer>) {
        let mut spare = self.0.lock();
        for mut buffer in buffers {
            buffer.share = None;
            let length = buffer.bytes.len();
            let has_room = spare.buffers.len() < SPARE_MAX && spare.bytes + length <= SPARE_BYTES_ALL_MAX;
            if has_room && length <= SPARE_BYTES_MAX {
                buffer.clear();
                spare.bytes += length;
                spare.buffers.push(buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_buffer_begins_empty() {
        let buffers = Buffers::default();
        let mut buffer = buffers.take();
        buffer.push(b"secret");
        buffers.give([buffer]);
        let mut buffer = buffers.take();
        assert_eq!(buffer.as_slice(), b"");
        buffer.push(b"new");
        assert_eq!(buffer.as_slice(), b"new");
    }

    #[test]
    fn a_large_one_is_not_kept() {
        let buffers = Buffers::default();
        let mut buffer = buffers.take();
        buffer.grow(SPARE_BYTES_MAX + 1);
        buffers.give([buffer]);
        assert!(buffers.take().bytes.is_empty());
    }

    #[test]
    fn many_are_kept_up_to_a_bound() {
        let buffers = Buffers::default();
        let full = |buffers: &Buffers| {
            let mut buffer = buffers.take();
            buffer.grow(SPARE_BYTES_MAX);
            buffer
        };
        let used: Vec<Buffer> = (0..20).map(|_| full(&buffers)).collect();
        buffers.give(used);
        let is_kept = |_: &usize| !buffers.take().bytes.is_empty();
        assert_eq!((0..20).filter(is_kept).count(), SPARE_BYTES_ALL_MAX / SPARE_BYTES_MAX);
        assert_eq!(buffers.0.lock().bytes, 0);
    }
}
