//! The cutter: every allocated byte is in exactly one block, blocks follow files, and memory is bounded by
//! the batch.

use platter_image::chunking::{
    BATCH_SPAN_MAX, BLOCK_LENGTH_MAX, Cutter, FILE_ALIGNMENT, FileRun, GRID, Region,
};
use platter_image::{Extent, Extents};
use proptest::prelude::*;

fn arbitrary_region() -> impl Strategy<Value = Region> {
    let items = prop::collection::vec((0..40u64, 1..400u64, 0..4u8, 0..200u64), 0..120);
    (items, 0..64u64).prop_map(|(items, origin)| {
        let origin = origin * 512;
        let (mut position, mut allocated, mut zeroed, mut files) =
            (origin, Extents::new(), Extents::new(), Vec::new());
        for (gap, sectors, kind, file_sector) in items {
            // Some runs of zeros are longer than a batch may span.
            let times = if kind == 0 && sectors % 5 == 0 { 64 } else { 1 };
            let extent = Extent::new(position + gap * 512, sectors * 512 * times);
            position = extent.end();
            allocated.push(extent);
            match kind {
                0 => zeroed.push(extent),
                1 | 2 => files.push(FileRun::new(extent.offset, extent.length, file_sector * 512)),
                _ => {}
            }
        }
        Region { extent: Extent::between(origin, position.next_multiple_of(4096)), allocated, zeroed, files }
    })
}

proptest! {
    #[test]
    fn every_byte_is_in_one_block(region in arbitrary_region()) {
        region.check().unwrap();
        let (mut data, mut zeroed, mut last_start) = (Vec::new(), Vec::new(), 0);
        for batch in Cutter::new(&region, FILE_ALIGNMENT) {
            prop_assert!(batch.span().length <= BATCH_SPAN_MAX + GRID + FILE_ALIGNMENT);
            zeroed.extend(batch.zeroed.iter().copied());
            for cut in &batch.cuts {
                let pieces = batch.pieces_of(cut);
                prop_assert!(cut.extent.length <= BLOCK_LENGTH_MAX);
                prop_assert!(!pieces.is_empty());
                for piece in pieces {
                    prop_assert_eq!(cut.extent.intersect(piece), Some(*piece));
                    data.push(*piece);
                }
                prop_assert!(pieces[0].offset >= last_start);
                last_start = pieces[0].offset;
            }
        }
        let total: u64 = data.iter().chain(&zeroed).map(|extent| extent.length).sum();
        prop_assert_eq!(total, region.allocated.total());
        let data: Extents = data.into_iter().collect();
        prop_assert_eq!(data, region.allocated.subtract(&region.zeroed));
        let zeroed: Extents = zeroed.into_iter().collect();
        prop_assert_eq!(zeroed, region.zeroed);
    }
}

/// Zeros are not cut, and a run of any length costs one batch.
#[test]
fn long_zeros_are_one_batch() {
    let extent = Extent::new(0, 15 << 40);
    let data = [Extent::new(0, 22_000 / 512 * 512), Extent::new(7 << 40, 65536)];
    let zeroed = data.into_iter().collect::<Extents>().complement(extent);
    let region =
        Region { extent, allocated: [extent].into_iter().collect(), zeroed: zeroed.clone(), files: vec![] };
    let batches: Vec<_> = Cutter::new(&region, FILE_ALIGNMENT).collect();
    assert!(batches.len() <= 6, "{} batches", batches.len());
    let found: Extents = batches.iter().flat_map(|batch| batch.zeroed.iter().copied()).collect();
    assert_eq!(found, zeroed);
    let pieces: Extents = batches.iter().flat_map(|batch| batch.pieces.iter().copied()).collect();
    assert_eq!(pieces, data.into_iter().collect());
}

/// A file is cut the same way at any place on the disk.
#[test]
fn cuts_follow_the_file() {
    let length = 1 << 20;
    let cuts = |region: &Region| -> Vec<u64> {
        Cutter::new(region, FILE_ALIGNMENT)
            .flat_map(|batch| batch.cuts.iter().map(|cut| cut.extent.length).collect::<Vec<_>>())
            .collect()
    };
    let whole = |offset: u64| Region {
        extent: Extent::new(0, 1 << 22),
        allocated: [Extent::new(offset, length)].into_iter().collect(),
        zeroed: Extents::new(),
        files: vec![FileRun::new(offset, length, 0)],
    };
    assert_eq!(cuts(&whole(0)), cuts(&whole(12 * 512)));
    assert_eq!(cuts(&whole(4096)), vec![FILE_ALIGNMENT; 16]);
    let mut late = whole(4096);
    late.files = vec![FileRun::new(4096, length, 4096)];
    assert_eq!(cuts(&late)[0], FILE_ALIGNMENT - 4096);
}
