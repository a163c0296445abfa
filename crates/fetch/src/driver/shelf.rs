//! Verified frames in memory: frames that arrived ahead of their readers, and frames that peers may request before the
//! cache has them.
//!
//! Owns their memory limits. Frames that were read have a smaller limit of their own, because their readers return only
//! to blocks nearby. They are dropped before unread ones, the longest unused first, because a frame that was fetched
//! ahead is probably wanted. Its reader may have ended, so this holds for [`UNREAD_TIME_MAX`] only. Pure: time is an
//! argument.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::frame::{Key, VerifiedFrame};

/// Overhead in bytes of a frame, and of each of its blocks.
const FRAME_OVERHEAD: u64 = 256;
const BLOCK_OVERHEAD: u64 = 128;
/// A frame that is unread for this long counts as read: its reader may have ended.
const UNREAD_TIME_MAX: Duration = Duration::from_secs(60);

/// Limits in bytes, overhead included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShelfLimits {
    /// Of all frames.
    pub(crate) bytes_max: u64,
    /// Of frames that were read.
    pub(crate) read_bytes_max: u64,
    /// Without peers: of unread frames, and of what is in flight ahead of need.
    pub(crate) ahead_bytes_max: u64,
}

impl ShelfLimits {
    /// Without a cache: what is fetched ahead waits here for its reader. The sum of what may be ahead, the longest request, and
    /// frames that were read: as much as the longest request, because a reader returns to a frame within it.
    pub(crate) const ALONE: Self =
        Self { bytes_max: 44 << 20, read_bytes_max: 12 << 20, ahead_bytes_max: 20 << 20 };
    /// With a cache, where readers find frames: all count as read. As much as a sequential reader announces among peers,
    /// because the cache may not accept frames.
    pub(crate) const BESIDE_CACHE: Self =
        Self { bytes_max: 16 << 20, read_bytes_max: 16 << 20, ahead_bytes_max: 16 << 20 };
}

/// A frame.
struct Held {
    frame: Arc<VerifiedFrame>,
    weight: u64,
    /// Position in the order of its kind.
    tick: u64,
    since: Duration,
    was_read: bool,
}

/// The frames.
pub(super) struct Shelf {
    limits: ShelfLimits,
    bytes: u64,
    unread_bytes: u64,
    frames: HashMap<u64, Held>,
    places: HashMap<Key, u64>,
    /// Frames by their ticks.
    read: BTreeMap<u64, u64>,
    unread: BTreeMap<u64, u64>,
    clock: u64,
}

impl Shelf {
    pub(super) fn new(limits: ShelfLimits) -> Self {
        Self {
            limits,
            bytes: 0,
            unread_bytes: 0,
            frames: HashMap::new(),
            places: HashMap::new(),
            read: BTreeMap::new(),
            unread: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Adds a frame. `is_read`: its reader has it or finds it elsewhere. Returns false when all of its blocks were
    /// there already.
    pub(super) fn insert(&mut self, now: Duration, frame: &Arc<VerifiedFrame>, is_read: bool) -> bool {
        if frame.keys().all(|key| self.places.contains_key(&key)) {
            if is_read {
                frame.keys().for_each(|key| drop(self.read(key)));
            }
            return false;
        }
        let number = self.tick();
        let weight = weight(frame);
        self.places.extend(frame.keys().map(|key| (key, number)));
        self.bytes += weight;
        if is_read {
            self.read.insert(number, number);
        } else {
            self.unread.insert(number, number);
            self.unread_bytes += weight;
        }
        let held = Held { frame: frame.clone(), weight, tick: number, since: now, was_read: is_read };
        self.frames.insert(number, held);
        while self.is_too_large() {
            self.drop_one();
        }
        true
    }

    /// Returns the frame with a block, without counting this as a read.
    pub(super) fn find(&self, key: Key) -> Option<&Arc<VerifiedFrame>> {
        Some(&self.frames.get(self.places.get(&key)?)?.frame)
    }

    /// Returns the frame with a block, for a reader.
    pub(super) fn read(&mut self, key: Key) -> Option<Arc<VerifiedFrame>> {
        let number = *self.places.get(&key)?;
        self.note_read(number);
        Some(self.frames.get(&number)?.frame.clone())
    }

    /// Bytes of unread frames.
    pub(super) fn unread_bytes(&self) -> u64 {
        self.unread_bytes
    }

    /// Bytes of all frames.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Marks frames as read whose readers did not come. Returns when to do so again.
    pub(super) fn expire(&mut self, now: Duration) -> Option<Duration> {
        while let Some(number) = self.unread.first_key_value().map(|(_, number)| *number) {
            let until = self.frames.get(&number)?.since + UNREAD_TIME_MAX;
            if now < until {
                return Some(until);
            }
            self.note_read(number);
        }
        None
    }

    fn note_read(&mut self, number: u64) {
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

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Whether a frame is to be dropped. The last one stays, however large it is.
    fn is_too_large(&self) -> bool {
        let has_old_reads =
            self.bytes - self.unread_bytes > self.limits.read_bytes_max && self.read.len() > 1;
        has_old_reads || (self.bytes > self.limits.bytes_max && self.frames.len() > 1)
    }

    fn drop_one(&mut self) {
        let Some((_, number)) = self.read.pop_first().or_else(|| self.unread.pop_first()) else { return };
        let Some(held) = self.frames.remove(&number) else { return };
        self.bytes -= held.weight;
        if !held.was_read {
            self.unread_bytes -= held.weight;
        }
        for key in held.frame.keys() {
            // A later frame may contain the block as well.
            if self.places.get(&key) == Some(&number) {
                self.places.remove(&key);
            }
        }
    }
}

fn weight(frame: &VerifiedFrame) -> u64 {
    frame.stored.len() as u64 + FRAME_OVERHEAD + BLOCK_OVERHEAD * frame.header.blocks.len() as u64
}

#[cfg(test)]
mod tests {
    use platter_image::frame::{Compressor, FrameBuilder, FrameHeader};
    use platter_image::{BlockId, Domain, Kind};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(n: u8) -> Key {
        Key { kind: Kind::Data, id: BlockId::of(Kind::Data, &[n; 512]) }
    }

    fn frame(numbers: &[u8]) -> Arc<VerifiedFrame> {
        let mut builder = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 16);
        numbers.iter().for_each(|n| builder.push(key(*n).id, &[*n; 512]));
        let stored = builder.encode(&mut Compressor::new(1).unwrap()).unwrap().stored;
        VerifiedFrame::new(FrameHeader::parse(&stored).unwrap(), stored.into())
    }

    fn shelf(bytes_max: u64) -> Shelf {
        Shelf::new(ShelfLimits { bytes_max, read_bytes_max: bytes_max, ahead_bytes_max: bytes_max })
    }

    /// A frame of one block that weighs about 1 MiB.
    fn large_frame(n: u8) -> Arc<VerifiedFrame> {
        VerifiedFrame::new(frame(&[n]).header.clone(), vec![0; 1 << 20].into())
    }

    #[test]
    fn frames_that_were_read_have_a_limit_of_their_own() {
        let limits = ShelfLimits { bytes_max: 1 << 30, ..ShelfLimits::ALONE };
        let mut shelf = Shelf::new(limits);
        for n in 1..=60 {
            shelf.insert(SECOND, &large_frame(n), n % 3 > 0);
            assert!(shelf.bytes - shelf.unread_bytes <= limits.read_bytes_max, "{} bytes", shelf.bytes);
        }
        assert_eq!(shelf.unread.len(), 20, "frames that readers will ask for stay");
        for n in (3..=60).step_by(3) {
            assert!(shelf.read(key(n)).is_some());
        }
        shelf.insert(SECOND, &large_frame(61), true);
        assert!(shelf.bytes <= limits.read_bytes_max && shelf.unread_bytes() == 0);
        assert!(shelf.find(key(60)).is_some() && shelf.find(key(3)).is_none(), "the last ones stay");
    }

    #[test]
    fn read_frames_are_dropped_first_and_then_the_oldest() {
        let mut shelf = shelf(weight(&frame(&[1, 2])) * 3);
        for n in [1, 3, 5] {
            assert!(shelf.insert(SECOND, &frame(&[n, n + 1]), false));
        }
        assert!(shelf.read(key(4)).is_some());
        shelf.insert(SECOND, &frame(&[7, 8]), false);
        assert!(shelf.find(key(3)).is_none() && shelf.find(key(1)).is_some());
        shelf.insert(SECOND, &frame(&[9, 10]), false);
        assert!(shelf.find(key(1)).is_none(), "then the oldest unread one");
        assert!(shelf.find(key(5)).is_some());
    }

    #[test]
    fn an_unread_frame_counts_as_read_after_a_while() {
        let mut shelf = shelf(1 << 20);
        shelf.insert(SECOND, &frame(&[1]), false);
        shelf.insert(2 * SECOND, &frame(&[2]), false);
        let due = shelf.expire(3 * SECOND).unwrap();
        assert_eq!(due, SECOND + UNREAD_TIME_MAX);
        assert_eq!(shelf.expire(due), Some(2 * SECOND + UNREAD_TIME_MAX));
        assert_eq!(shelf.unread_bytes(), weight(&frame(&[2])));
        assert_eq!((shelf.expire(due + SECOND), shelf.unread_bytes()), (None, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut shelf = shelf(10_000);
        for round in 0..4 {
            for n in 0..120 {
                shelf.insert(SECOND, &frame(&[2 * n + 1, 2 * n]), n % 7 == 0);
                if (n + round) % 3 == 0 {
                    shelf.read(key(2 * n));
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
    fn a_block_in_two_frames_belongs_to_the_later_one() {
        let mut shelf = shelf(weight(&frame(&[1, 2])) * 2);
        shelf.insert(SECOND, &frame(&[1, 2]), true);
        assert!(!shelf.insert(SECOND, &frame(&[2, 1]), true), "nothing new");
        shelf.insert(SECOND, &frame(&[2, 3]), true);
        shelf.insert(SECOND, &frame(&[4, 5]), true);
        assert!(shelf.find(key(1)).is_none());
        assert_eq!(shelf.find(key(2)).unwrap().header.blocks[1].id, key(3).id);
    }
}
