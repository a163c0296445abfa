//! Verified frames in memory, as they came, under addresses of our own.
//!
//! Owns the bound on them. Frames that were read go before frames that nobody has read yet, the longest unused first: a frame
//! that was fetched ahead is as good as wanted. Who took a frame keeps it, whether it goes here or not. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use platter_image::frame::FrameHeader;
use platter_image::{BlockPlace, FoundBlock, FrameAddress};

use super::queue::Key;

/// Bytes that a frame takes beside its own, and each of its blocks.
const FRAME_OVERHEAD: u64 = 256;
const BLOCK_OVERHEAD: u64 = 128;

/// A block that came, in its frame.
#[derive(Clone, Debug)]
pub(super) struct Shelved {
    /// The frame's, which no other frame of the source has.
    pub(super) number: u64,
    pub(super) slot: u32,
    pub(super) stored: Arc<[u8]>,
}

impl Shelved {
    /// As readers have it.
    pub(super) fn lease(self) -> FoundBlock {
        let frame = FrameAddress { pack: 0, offset: self.number, length: self.stored.len() as u32 };
        FoundBlock::in_memory(BlockPlace { frame, slot: self.slot }, self.stored)
    }
}

/// A frame.
struct Held {
    stored: Arc<[u8]>,
    keys: Vec<Key>,
    weight: u64,
    /// Position in the order of its kind.
    tick: u64,
    was_read: bool,
}

/// The frames.
pub(super) struct Shelf {
    bytes_max: u64,
    bytes: u64,
    unread_bytes: u64,
    /// By number, which is the offset of their address.
    frames: HashMap<u64, Held>,
    places: HashMap<Key, (u64, u32)>,
    read: BTreeMap<u64, u64>,
    unread: BTreeMap<u64, u64>,
    clock: u64,
}

impl Shelf {
    /// Room for that many bytes, overhead included.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            unread_bytes: 0,
            frames: HashMap::new(),
            places: HashMap::new(),
            read: BTreeMap::new(),
            unread: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Puts a frame there that was decoded and hashed, and gives its blocks.
    pub(super) fn insert(&mut self, header: &FrameHeader, stored: Arc<[u8]>) -> Vec<(Key, Shelved)> {
        let number = self.tick();
        let keys: Vec<Key> =
            header.blocks.iter().map(|block| Key { kind: header.kind, id: block.id }).collect();
        let weight = stored.len() as u64 + FRAME_OVERHEAD + BLOCK_OVERHEAD * keys.len() as u64;
        let slots = (0..).zip(&keys);
        let block = |(slot, key): (u32, &Key)| (*key, Shelved { number, slot, stored: stored.clone() });
        let placed: Vec<_> = slots.map(block).collect();
        self.places.extend(placed.iter().map(|(key, found)| (*key, (number, found.slot))));
        self.unread.insert(number, number);
        self.bytes += weight;
        self.unread_bytes += weight;
        self.frames.insert(number, Held { stored, keys, weight, tick: number, was_read: false });
        while self.bytes > self.bytes_max && self.frames.len() > 1 {
            self.drop_one();
        }
        placed
    }

    /// Whether a block is here.
    pub(super) fn holds(&self, key: Key) -> bool {
        self.places.contains_key(&key)
    }

    /// A block for a reader, if it is here.
    pub(super) fn take(&mut self, key: Key) -> Option<Shelved> {
        let (number, slot) = *self.places.get(&key)?;
        self.note_read(number);
        Some(Shelved { number, slot, stored: self.frames.get(&number)?.stored.clone() })
    }

    /// Somebody reads that frame.
    pub(super) fn note_read(&mut self, number: u64) {
        let tick = self.tick();
        let Some(held) = self.frames.get_mut(&number) else { return };
        let order = if held.was_read { &mut self.read } else { &mut self.unread };
        order.remove(&held.tick);
        if !held.was_read {
            self.unread_bytes -= held.weight;
        }
        (held.was_read, held.tick) = (true, tick);
        self.read.insert(tick, number);
    }

    /// Bytes of frames that nobody has read.
    pub(super) fn unread_bytes(&self) -> u64 {
        self.unread_bytes
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn drop_one(&mut self) {
        let Some((_, number)) = self.read.pop_first().or_else(|| self.unread.pop_first()) else { return };
        let Some(held) = self.frames.remove(&number) else { return };
        self.bytes -= held.weight;
        if !held.was_read {
            self.unread_bytes -= held.weight;
        }
        for key in &held.keys {
            // A later frame may hold it too.
            if self.places.get(key).is_some_and(|(found, _)| *found == number) {
                self.places.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use platter_image::frame::{Compressor, FrameBuilder};
    use platter_image::{BlockId, Domain, Kind};

    use super::*;

    /// A frame of two blocks of 512 bytes.
    fn frame(n: u8) -> (FrameHeader, Arc<[u8]>, [Key; 2]) {
        let mut builder = FrameBuilder::new(Kind::Data, Domain::SHARED, 4096);
        let ids = [2 * n + 1, 2 * n + 2].map(|byte| {
            let contents = [byte; 512];
            let id = BlockId::of(Kind::Data, &contents);
            builder.push(id, &contents);
            Key { kind: Kind::Data, id }
        });
        let encoded = builder.encode(&mut Compressor::new(1).unwrap()).unwrap();
        (FrameHeader::parse(&encoded.stored).unwrap(), encoded.stored.into(), ids)
    }

    fn put(shelf: &mut Shelf, n: u8) -> [Key; 2] {
        let (header, stored, keys) = frame(n);
        shelf.insert(&header, stored);
        keys
    }

    #[test]
    fn what_was_read_goes_first_and_who_took_it_keeps_it() {
        let (_, stored, _) = frame(0);
        let weight = stored.len() as u64 + 600;
        let mut shelf = Shelf::new(weight * 3);
        let frames: Vec<_> = (0..3).map(|n| put(&mut shelf, n)).collect();
        let taken = shelf.take(frames[1][0]).unwrap();
        put(&mut shelf, 3);
        assert!(!shelf.holds(frames[1][0]) && shelf.take(frames[1][0]).is_none());
        let mut read = Vec::new();
        taken.lease().frame.read(&mut read).unwrap();
        assert_eq!(read[..], frame(1).1[..]);
        put(&mut shelf, 4);
        assert!(!shelf.holds(frames[0][0]), "then the oldest that nobody read");
        assert_eq!(shelf.take(frames[2][1]).unwrap().slot, 1);
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let mut shelf = Shelf::new(10_000);
        for round in 0..4 {
            for n in 0..120 {
                let keys = put(&mut shelf, n);
                if (n + round) % 3 == 0 {
                    shelf.take(keys[0]);
                }
                assert!(shelf.bytes <= 10_000);
                let unread: u64 =
                    shelf.frames.values().filter(|held| !held.was_read).map(|held| held.weight).sum();
                assert_eq!(shelf.unread_bytes(), unread);
                assert_eq!(shelf.read.len() + shelf.unread.len(), shelf.frames.len());
                assert!(shelf.places.len() <= 2 * shelf.frames.len());
            }
        }
    }

    #[test]
    fn a_block_of_two_frames_stays_with_the_later_one() {
        let mut shelf = Shelf::new(1 << 20);
        let keys = put(&mut shelf, 1);
        let first = shelf.take(keys[0]).unwrap().number;
        put(&mut shelf, 1);
        assert_ne!(shelf.take(keys[0]).unwrap().number, first);
        shelf.bytes_max = 0;
        put(&mut shelf, 2);
        assert!(!shelf.holds(keys[0]) && shelf.places.len() == 2);
    }
}
