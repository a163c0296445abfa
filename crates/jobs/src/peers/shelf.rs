//! The last verified frames, in memory: what came before somebody asked for it, and what was fetched for a peer.
//!
//! Owns the bound on them: the oldest goes first. What is wanted longer is kept elsewhere.

use std::collections::{HashMap, VecDeque};

use platter_image::{BlockId, Kind};

use super::machine::VerifiedFrame;

/// Bytes that a frame takes beside its own, and each of its blocks.
const FRAME_OVERHEAD: u64 = 256;
const BLOCK_OVERHEAD: u64 = 128;

/// The frames.
pub(super) struct Shelf {
    bytes_max: u64,
    bytes: u64,
    frames: VecDeque<VerifiedFrame>,
    /// The number of the first of `frames`, and of each block's.
    first: u64,
    places: HashMap<(Kind, BlockId), u64>,
}

impl Shelf {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, bytes: 0, frames: VecDeque::new(), first: 0, places: HashMap::new() }
    }

    pub(super) fn find(&self, kind: Kind, id: &BlockId) -> Option<&VerifiedFrame> {
        let number = *self.places.get(&(kind, *id))?;
        self.frames.get((number - self.first) as usize)
    }

    /// Puts a frame there. False when all of its blocks were there already.
    pub(super) fn insert(&mut self, frame: &VerifiedFrame) -> bool {
        let kind = frame.header.kind;
        if frame.ids().all(|id| self.places.contains_key(&(kind, *id))) {
            return false;
        }
        let number = self.first + self.frames.len() as u64;
        self.places.extend(frame.ids().map(|id| ((kind, *id), number)));
        self.bytes += weight(frame);
        self.frames.push_back(frame.clone());
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.frames.pop_front()
        {
            self.bytes -= weight(&oldest);
            let key = |id: &BlockId| (oldest.header.kind, *id);
            for id in oldest.ids() {
                // A later frame may hold it too.
                if self.places.get(&key(id)) == Some(&self.first) {
                    self.places.remove(&key(id));
                }
            }
            self.first += 1;
        }
        true
    }
}

fn weight(frame: &VerifiedFrame) -> u64 {
    frame.stored.len() as u64 + FRAME_OVERHEAD + BLOCK_OVERHEAD * frame.header.blocks.len() as u64
}

#[cfg(test)]
mod tests {
    use platter_image::Domain;
    use platter_image::frame::{Compressor, FrameBuilder, FrameHeader};

    use super::*;

    fn frame(numbers: &[u8]) -> VerifiedFrame {
        let mut builder = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 16);
        numbers.iter().for_each(|n| builder.push(BlockId::of(Kind::Data, &[*n; 512]), &[*n; 512]));
        let stored = builder.encode(&mut Compressor::new(1).unwrap()).unwrap().stored;
        VerifiedFrame { header: FrameHeader::parse(&stored).unwrap(), stored: stored.into() }
    }

    #[test]
    fn the_oldest_goes_first_and_a_block_stays_with_its_last_frame() {
        let id = |n: u8| BlockId::of(Kind::Data, &[n; 512]);
        let one = weight(&frame(&[1, 2]));
        let mut shelf = Shelf::new(one * 3 - 1);
        assert!(shelf.insert(&frame(&[1, 2])));
        assert!(!shelf.insert(&frame(&[2, 1])), "nothing new");
        assert!(shelf.insert(&frame(&[2, 3])));
        assert!(shelf.insert(&frame(&[4, 5])));
        assert!(shelf.find(Kind::Data, &id(1)).is_none());
        assert_eq!(shelf.find(Kind::Data, &id(2)).unwrap().header.blocks[1].id, id(3));
        assert!(shelf.find(Kind::Page, &id(2)).is_none());
        for n in 6..200 {
            shelf.insert(&frame(&[n, n + 1]));
            assert!(shelf.bytes < one * 3 && shelf.places.len() <= 2 * shelf.frames.len());
        }
        assert_eq!(shelf.frames.len(), 2);
    }
}
