//! Verified frames in memory, as they came, under addresses of our own.
//!
//! Owns the bound on them. Frames that were read go before frames that nobody has read yet, the longest unused first: a frame
//! that was fetched ahead is as good as wanted. Of frames that went, the last ones are remembered by one of their
//! blocks, for a reader that was told an address and comes late. Pure.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use platter_image::frame::FrameHeader;
use platter_image::{BlockPlace, FrameAddress};

use super::queue::Key;

/// Bytes that a frame takes beside its own, and each of its blocks.
const FRAME_OVERHEAD: u64 = 256;
const BLOCK_OVERHEAD: u64 = 128;
/// Frames remembered after they went.
const GONE_MAX: usize = 1 << 14;

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
    gone: HashMap<u64, (Key, u32)>,
    gone_order: VecDeque<u64>,
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
            gone: HashMap::new(),
            gone_order: VecDeque::new(),
            clock: 0,
        }
    }

    /// Puts a frame there that was decoded and hashed, and gives where its blocks stand now.
    pub(super) fn insert(&mut self, header: &FrameHeader, stored: Arc<[u8]>) -> Vec<(Key, BlockPlace)> {
        let number = self.tick();
        let keys: Vec<Key> =
            header.blocks.iter().map(|block| Key { kind: header.kind, id: block.id }).collect();
        let weight = stored.len() as u64 + FRAME_OVERHEAD + BLOCK_OVERHEAD * keys.len() as u64;
        let frame = FrameAddress { pack: 0, offset: number, length: stored.len() as u32 };
        let slots = (0..).zip(&keys);
        let placed: Vec<_> = slots.map(|(slot, key)| (*key, BlockPlace { frame, slot })).collect();
        self.places.extend(placed.iter().map(|(key, place)| (*key, (number, place.slot))));
        self.unread.insert(number, number);
        self.bytes += weight;
        self.unread_bytes += weight;
        self.frames.insert(number, Held { stored, keys, weight, tick: number, was_read: false });
        while self.bytes > self.bytes_max && self.frames.len() > 1 {
            self.drop_one();
        }
        placed
    }

    /// Where a block stands, if its frame is here.
    pub(super) fn find(&self, key: Key) -> Option<BlockPlace> {
        let (number, slot) = *self.places.get(&key)?;
        let length = self.frames.get(&number)?.stored.len() as u32;
        Some(BlockPlace { frame: FrameAddress { pack: 0, offset: number, length }, slot })
    }

    /// The frame at an address, to be read.
    pub(super) fn read(&mut self, address: FrameAddress) -> Option<Arc<[u8]>> {
        let tick = self.tick();
        let held = self.frames.get_mut(&address.offset)?;
        let order = if held.was_read { &mut self.read } else { &mut self.unread };
        order.remove(&held.tick);
        if !held.was_read {
            self.unread_bytes -= held.weight;
        }
        (held.was_read, held.tick) = (true, tick);
        self.read.insert(tick, address.offset);
        Some(held.stored.clone())
    }

    /// A block of a frame that was here, with its place in the frame.
    pub(super) fn gone(&self, address: FrameAddress) -> Option<(Key, u32)> {
        self.gone.get(&address.offset).copied()
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
        if let Some(first) = held.keys.first() {
            self.gone.insert(number, (*first, 0));
            self.gone_order.push_back(number);
        }
        if self.gone_order.len() > GONE_MAX
            && let Some(oldest) = self.gone_order.pop_front()
        {
            self.gone.remove(&oldest);
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

    fn put(shelf: &mut Shelf, n: u8) -> ([Key; 2], FrameAddress) {
        let (header, stored, keys) = frame(n);
        let placed = shelf.insert(&header, stored);
        (keys, placed[0].1.frame)
    }

    #[test]
    fn what_was_read_goes_first_and_what_went_is_remembered() {
        let (_, stored, _) = frame(0);
        let weight = stored.len() as u64 + 600;
        let mut shelf = Shelf::new(weight * 3);
        let frames: Vec<_> = (0..3).map(|n| put(&mut shelf, n)).collect();
        assert!(shelf.read(frames[1].1).is_some());
        put(&mut shelf, 3);
        assert_eq!(shelf.find(frames[1].0[0]), None);
        assert_eq!(shelf.read(frames[1].1), None);
        assert_eq!(shelf.gone(frames[1].1), Some((frames[1].0[0], 0)));
        assert_eq!(shelf.find(frames[0].0[1]).unwrap().slot, 1);
        put(&mut shelf, 4);
        assert_eq!(shelf.find(frames[0].0[0]), None, "then the oldest that nobody read");
        assert!(shelf.find(frames[2].0[0]).is_some());
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let mut shelf = Shelf::new(10_000);
        for round in 0..4 {
            for n in 0..120 {
                let (_, address) = put(&mut shelf, n);
                if (n + round) % 3 == 0 {
                    shelf.read(address);
                }
                assert!(shelf.bytes <= 10_000);
                let unread: u64 =
                    shelf.frames.values().filter(|held| !held.was_read).map(|held| held.weight).sum();
                assert_eq!(shelf.unread_bytes(), unread);
                assert_eq!(shelf.read.len() + shelf.unread.len(), shelf.frames.len());
                assert!(shelf.places.len() <= 2 * shelf.frames.len());
            }
        }
        assert_eq!(shelf.gone.len(), shelf.gone_order.len());
    }

    #[test]
    fn a_block_of_two_frames_stays_with_the_later_one() {
        let mut shelf = Shelf::new(1 << 20);
        let (keys, first) = put(&mut shelf, 1);
        shelf.read(first);
        let (_, second) = put(&mut shelf, 1);
        shelf.bytes_max = 0;
        put(&mut shelf, 2);
        assert_ne!(first, second);
        assert_eq!(shelf.find(keys[0]), None);
        assert!(shelf.gone(first).is_some() && shelf.gone(second).is_some());
    }
}
