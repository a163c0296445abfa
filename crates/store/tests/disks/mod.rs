//! Small disks that consist of numbered blocks, for tests that need versions but no sources.

use std::collections::BTreeMap;

use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::page::{Entry, State};
use platter_image::recipe::{CutPolicy, RecipeBuilder};
use platter_image::{BlockId, Domain, Extent, FrameStore, Kind, Score};
use platter_store::Session;

/// The contents of a block: 512 to 1,536 equal bytes.
pub(crate) fn contents(number: u8) -> Vec<u8> {
    vec![number.max(1); 512 * (1 + usize::from(number % 3))]
}

/// The bytes of a disk's blocks and pages, by their ids.
pub(crate) type Parts = BTreeMap<BlockId, u64>;

/// Adds a disk that consists of the blocks `numbers`. Returns its score, its length, and its parts.
pub(crate) fn add_disk(session: &Session, numbers: &[u8]) -> (Score, u64, Parts) {
    let mut compressor = Compressor::new(3).unwrap();
    let mut parts = Parts::new();
    let mut append = |kind, id, bytes: &[u8]| {
        parts.insert(id, bytes.len() as u64);
        if session.lookup_and_pin(&id).unwrap().is_none() {
            let mut frame = FrameBuilder::new(kind, Domain::SHARED, 1 << 10);
            frame.push(id, bytes);
            session.append(&frame.encode(&mut compressor).unwrap()).unwrap();
        }
    };
    let length = numbers.iter().map(|number| contents(*number).len() as u64).sum();
    let pages: Vec<(BlockId, Vec<u8>)> = Vec::new();
    let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
    let mut recipe = RecipeBuilder::new(length, 512, policy, Domain::SHARED, pages);
    let mut offset = 0;
    for number in numbers {
        let bytes = contents(*number);
        let id = BlockId::of(Kind::Data, &bytes);
        append(Kind::Data, id, &bytes);
        let extent = Extent::new(offset, bytes.len() as u64);
        recipe.push(Entry { extent, state: State::Data { block: id, offset: 0 } }).unwrap();
        offset = extent.end();
    }
    let (score, pages) = recipe.finish().unwrap();
    for (id, bytes) in pages {
        append(Kind::Page, id, &bytes);
    }
    (score, length, parts)
}
