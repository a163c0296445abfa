//! Assembles symbols into chunks, in any order and with duplicates.
//!
//! Owns the buffers: a symbol is copied once, directly to its place. Must never hold more than the agreed number of
//! chunks. Buffers circulate between this module and the driver.

use std::time::Duration;

#[cfg(not(feature = "short-symbols"))]
use crate::coding::Decoder;
use crate::coding::REPAIR_SYMBOLS;
use crate::session::{CHUNK_BYTES_MAX, SYMBOL_BYTES, SYMBOLS_MAX, symbols_of};
#[cfg(feature = "short-symbols")]
use crate::stand_in::Decoder;

/// A chunk that is being assembled.
pub(crate) struct Slot {
    pub(crate) chunk: u32,
    length: u32,
    bytes: Vec<u8>,
    count: usize,
    sources: usize,
    has: [u64; SYMBOLS_MAX / 64],
    repair_has: [u64; REPAIR_SYMBOLS / 64],
    repair_indices: Vec<u16>,
    repair: Vec<u8>,
    /// Time of the last new symbol.
    pub(crate) symbol_at: Duration,
    /// When to check whether symbols must be requested.
    pub(crate) check_at: Duration,
    /// Time of the last request.
    pub(crate) asked_at: Duration,
    /// Number of requests without an answer.
    pub(crate) attempts: u32,
    /// The end (packet number) of the last plan entry that was processed.
    pub(crate) heeded_end: u64,
    /// Repair symbols that the sender has sent, according to its plans.
    pub(crate) repair_sent: u16,
}

/// The result of adding a symbol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It is new, and more are needed.
    New,
    /// It was already there, or is impossible.
    Redundant,
    /// It was the last one needed.
    Complete,
}

impl Slot {
    /// Returns the number of symbols that are still needed.
    pub(crate) fn lacks(&self) -> usize {
        self.count - self.sources - self.repair_indices.len()
    }

    /// Returns at most `ranges_max` ranges of missing source symbols, as (first, count).
    pub(crate) fn missing(&self, ranges_max: usize) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for index in (0..self.count).filter(|index| !has_bit(&self.has, *index)) {
            if let Some((first, count)) = ranges.last_mut()
                && usize::from(*first + *count) == index
            {
                *count += 1;
            } else if ranges.len() == ranges_max {
                break;
            } else {
                ranges.push((index as u16, 1));
            }
        }
        ranges
    }

    fn place(&mut self, symbol: u16, bytes: &[u8; SYMBOL_BYTES]) -> Placed {
        let index = usize::from(symbol);
        if index < self.count {
            if has_bit(&self.has, index) {
                return Placed::Redundant;
            }
            set_bit(&mut self.has, index);
            self.bytes[index * SYMBOL_BYTES..][..SYMBOL_BYTES].copy_from_slice(bytes);
            self.sources += 1;
        } else {
            let Some(repair) = index.checked_sub(SYMBOLS_MAX).filter(|repair| *repair < REPAIR_SYMBOLS)
            else {
                return Placed::Redundant;
            };
            if has_bit(&self.repair_has, repair) {
                return Placed::Redundant;
            }
            set_bit(&mut self.repair_has, repair);
            self.repair_indices.push(repair as u16);
            self.repair.extend_from_slice(bytes);
        }
        if self.lacks() == 0 { Placed::Complete } else { Placed::New }
    }
}

fn has_bit(words: &[u64], index: usize) -> bool {
    words[index / 64] & (1 << (index % 64)) != 0
}

fn set_bit(words: &mut [u64], index: usize) {
    words[index / 64] |= 1 << (index % 64);
}

/// All chunks that are being assembled.
pub(crate) struct Assembly {
    slots: Vec<Slot>,
    /// Buffers of chunks and of repair symbols for reuse.
    spare: Vec<Vec<u8>>,
    spare_repair: Vec<Vec<u8>>,
    spare_max: usize,
    decoder: Decoder,
}

impl Assembly {
    /// Makes an empty assembly that keeps at most `chunks_max` buffers for reuse.
    pub(crate) fn new(chunks_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            spare: Vec::new(),
            spare_repair: Vec::new(),
            spare_max: chunks_max,
            decoder: Decoder::default(),
        }
    }

    /// Returns the number of chunks being assembled.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns all slots.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Returns all slots for changing their times.
    pub(crate) fn slots_mut(&mut self) -> &mut [Slot] {
        &mut self.slots
    }

    /// Opens a slot for a chunk of `length` bytes. Returns its number, which is valid until a slot is closed.
    pub(crate) fn open(&mut self, chunk: u32, length: u32, now: Duration, check_at: Duration) -> usize {
        let count = symbols_of(length);
        let mut bytes = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES_MAX));
        bytes.resize(count * SYMBOL_BYTES, 0);
        self.slots.push(Slot {
            chunk,
            length,
            bytes,
            count,
            sources: 0,
            has: [0; SYMBOLS_MAX / 64],
            repair_has: [0; REPAIR_SYMBOLS / 64],
            repair_indices: Vec::new(),
            repair: self.spare_repair.pop().unwrap_or_default(),
            symbol_at: now,
            check_at,
            asked_at: Duration::ZERO,
            attempts: 0,
            heeded_end: 0,
            repair_sent: 0,
        });
        self.slots.len() - 1
    }

    /// Adds a symbol to a slot.
    pub(crate) fn place(
        &mut self,
        slot: usize,
        now: Duration,
        symbol: u16,
        bytes: &[u8; SYMBOL_BYTES],
    ) -> Placed {
        let placed = self.slots[slot].place(symbol, bytes);
        if placed != Placed::Redundant {
            self.slots[slot].symbol_at = now;
        }
        placed
    }

    /// Closes a complete slot. Returns the chunk's bytes (`None` if decoding failed, which is a bug), the chunk of the last slot
    /// if that moves to this number, and how many symbols were restored from repair symbols.
    pub(crate) fn close(&mut self, slot: usize) -> (Option<Vec<u8>>, Option<u32>, u64) {
        let mut closed = self.slots.swap_remove(slot);
        let moved = self.slots.get(slot).map(|moved| moved.chunk);
        let repaired = closed.count - closed.sources;
        let mut restored = true;
        if repaired > 0 {
            let has = closed.has;
            let result = self.decoder.restore(
                &mut closed.bytes,
                closed.count,
                |index| has_bit(&has, index),
                &closed.repair_indices,
                &closed.repair,
            );
            restored = result.is_ok();
        }
        closed.repair.clear();
        if self.spare_repair.len() < self.spare_max {
            self.spare_repair.push(closed.repair);
        }
        closed.bytes.truncate(closed.length as usize);
        if restored {
            return (Some(closed.bytes), moved, repaired as u64);
        }
        self.recycle(closed.bytes);
        (None, moved, 0)
    }

    /// Takes a buffer back for reuse.
    pub(crate) fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < self.spare_max && bytes.capacity() >= CHUNK_BYTES_MAX {
            self.spare.push(bytes);
        }
    }

    /// Drops all slots.
    pub(crate) fn clear(&mut self) {
        while let Some(slot) = self.slots.pop() {
            self.recycle(slot.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_may_arrive_in_any_order_and_duplicates_are_redundant() {
        let mut assembly = Assembly::new(2);
        let slot = assembly.open(7, 3 * SYMBOL_BYTES as u32 - 5, Duration::ZERO, Duration::ZERO);
        let symbol = |value| [value; SYMBOL_BYTES];
        assert_eq!(assembly.place(slot, Duration::ZERO, 2, &symbol(2)), Placed::New);
        assert_eq!(assembly.place(slot, Duration::ZERO, 2, &symbol(9)), Placed::Redundant);
        for impossible in [3, 1023, 1024 + 256, u16::MAX] {
            assert_eq!(assembly.place(slot, Duration::ZERO, impossible, &symbol(9)), Placed::Redundant);
        }
        assert_eq!(assembly.slots()[slot].missing(9), [(0, 2)]);
        assert_eq!(assembly.place(slot, Duration::ZERO, 0, &symbol(0)), Placed::New);
        assert_eq!(assembly.place(slot, Duration::ZERO, 1, &symbol(1)), Placed::Complete);
        let (bytes, moved, repaired) = assembly.close(slot);
        let expected = [symbol(0), symbol(1), symbol(2)].concat();
        assert_eq!((bytes.unwrap(), moved, repaired), (expected[..expected.len() - 5].to_vec(), None, 0));
    }
}
