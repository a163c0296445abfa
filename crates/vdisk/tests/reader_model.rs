//! Reads from any number of threads and through any cache return what the disk holds.

#![expect(clippy::unwrap_used, reason = "a test may")]

mod reader_memory;

use std::sync::Arc;
use std::thread;

use platter_image::Extent;
use platter_vdisk::{Allocation, BlockCache, BlockDevice, CacheOptions};
use proptest::prelude::*;
use reader_memory::{Image, MemorySource, Piece, SECTOR, check, open, options};

/// Few seeds and lengths, so that disks share blocks with each other and within themselves.
fn arbitrary_piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        1 => (1..200u64).prop_map(Piece::Free),
        1 => (1..200u64).prop_map(Piece::Zero),
        6 => (0..40u64, prop::sample::select(vec![1u64, 3, 8, 64, 128])).prop_map(|(seed, sectors)| Piece::block(seed, sectors)),
        2 => (0..40u64, prop::sample::select(vec![8u64, 64, 128]), any::<u64>(), any::<u64>()).prop_map(|(seed, sectors, skip, take)| {
            let skip = skip % sectors;
            Piece::Data { seed, sectors, skip, take: 1 + take % (sectors - skip) }
        }),
    ]
}

fn arbitrary_disk() -> impl Strategy<Value = Vec<Piece>> {
    prop::collection::vec(arbitrary_piece(), 1..150)
}

/// Runs of reads: start, length of each read, number of consecutive reads.
fn arbitrary_runs() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, u8)>> {
    let length = prop_oneof![1..5000usize, Just(4096), Just(65536), 100_000..2_000_000usize];
    prop::collection::vec((any::<prop::sample::Index>(), length, 1..12u8), 1..12)
}

fn run_reads(disk: &dyn BlockDevice, image: &Image, runs: &[(prop::sample::Index, usize, u8)]) {
    let whole = image.model.len();
    for (start, length, count) in runs {
        let mut offset = start.index(whole);
        for _ in 0..*count {
            let mut buffer = vec![0xa5; (*length).min(whole - offset)];
            disk.read(&mut buffer, offset as u64).unwrap();
            assert!(buffer == image.model[offset..][..buffer.len()], "{} bytes at {offset}", buffer.len());
            offset += buffer.len();
        }
    }
}

/// For each sector, whether the pieces define it as data.
fn data_sectors(image: &Image) -> Vec<bool> {
    let sectors = image.pieces.iter().flat_map(|piece| match *piece {
        Piece::Free(sectors) | Piece::Zero(sectors) => vec![false; sectors as usize],
        Piece::Data { take, .. } => vec![true; take as usize],
    });
    sectors.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn reads_are_right(
        disks in prop::collection::vec(arbitrary_disk(), 1..4),
        cache_kib in prop::sample::select(vec![0u64, 64, 200, 1000, 16_384]),
        page_bytes_max in prop::sample::select(vec![0u64, 10_000, 1 << 20]),
        threads in 0..3usize,
        ahead_bytes_max in prop::sample::select(vec![0u64, 1 << 20]),
        runs in prop::collection::vec(arbitrary_runs(), 3),
    ) {
        let source = Arc::new(MemorySource::default());
        let images: Vec<Image> = disks.iter().map(|pieces| source.image(pieces)).collect();
        let block_bytes_max = cache_kib << 10;
        let cache = BlockCache::new(CacheOptions { block_bytes_max, page_bytes_max, ahead_bytes_max, threads }).unwrap();
        let opened: Vec<_> = images.iter().map(|image| open(image, &source, &cache)).collect();
        thread::scope(|scope| {
            for (number, runs) in runs.iter().enumerate() {
                let at = number % images.len();
                let (disk, image) = (&opened[at], &images[at]);
                scope.spawn(move || run_reads(disk, image, runs));
            }
        });
        let counters = cache.counters();
        prop_assert!(counters.bytes_held <= block_bytes_max + 64, "{counters:?}");
        prop_assert!(counters.page_bytes_held <= page_bytes_max + 64, "{counters:?}");
    }

    #[test]
    fn extents_are_merged_and_read_no_frames(pieces in arbitrary_disk(), from in any::<prop::sample::Index>(), length in any::<prop::sample::Index>()) {
        let source = Arc::new(MemorySource::default());
        let image = source.image(&pieces);
        let cache = BlockCache::new(CacheOptions::default()).unwrap();
        let disk = open(&image, &source, &cache);
        let sectors = data_sectors(&image);
        let from = from.index(sectors.len());
        let count = length.index(sectors.len() - from + 1);
        let range = Extent::new(from as u64 * SECTOR, count as u64 * SECTOR);
        let mut runs: Vec<(Extent, Allocation)> = Vec::new();
        disk.extents(range, &mut |extent, allocation| { runs.push((extent, allocation)); true }).unwrap();
        let mut position = range.offset;
        for (extent, allocation) in &runs {
            prop_assert!(extent.offset == position && extent.length > 0);
            let told = &sectors[(extent.offset / SECTOR) as usize..(extent.end() / SECTOR) as usize];
            prop_assert!(told.iter().all(|is_data| *is_data == (*allocation == Allocation::Data)));
            position = extent.end();
        }
        prop_assert_eq!(position, range.end());
        prop_assert!(runs.windows(2).all(|pair| pair[0].1 != pair[1].1), "not merged: {:?}", runs);
        let mut first = Vec::new();
        disk.extents(range, &mut |extent, allocation| { first.push((extent, allocation)); false }).unwrap();
        prop_assert_eq!(first.as_slice(), &runs[..runs.len().min(1)]);
        prop_assert_eq!(source.frame_reads(), 0);
    }
}

/// A disk with several levels of pages, most of it free.
#[test]
fn sparse_disks_with_several_page_levels_read_correctly() {
    let source = Arc::new(MemorySource::default());
    let part = reader_memory::plain(&source, 0, 3);
    let id = platter_image::BlockId::of(platter_image::Kind::Data, &part.model[..65536]);
    let entries: Vec<_> = (0..500u64)
        .map(|i| platter_image::page::Entry {
            extent: Extent::new((i << 33) + (i % 7) * (1 << 25), 65536),
            state: platter_image::page::State::Data { block: id, offset: 0 },
        })
        .collect();
    let score = source.recipe(1 << 43, &entries);
    let cache = BlockCache::new(CacheOptions::default()).unwrap();
    let disk = platter_vdisk::RecipeDisk::open(score, source.clone(), cache.clone()).unwrap();
    let mut buffer = vec![1; 3 * 65536];
    for entry in &entries {
        disk.read(&mut buffer, entry.extent.offset.saturating_sub(65536)).unwrap();
        let at = entry.extent.offset.min(65536) as usize;
        assert!(buffer[at..at + 65536] == part.model[..65536]);
        assert!(buffer[..at].iter().chain(&buffer[at + 65536..]).all(|byte| *byte == 0));
    }
    assert_eq!(cache.counters().frames_decoded, 1);
}

#[test]
fn requests_past_the_end_are_refused() {
    let source = Arc::new(MemorySource::default());
    let image = source.image(&[Piece::block(1, 8), Piece::Free(8)]);
    let cache = BlockCache::new(options(1 << 20, 0)).unwrap();
    let disk = open(&image, &source, &cache);
    check(&disk, &image, 0, 8192);
    disk.read(&mut [], 8192).unwrap();
    for (offset, length) in [(8192, 1), (0, 8193), (u64::MAX, 2), (1 << 40, 0)] {
        assert!(disk.read(&mut vec![0; length], offset).is_err(), "{length} at {offset}");
    }
    assert!(disk.extents(Extent::new(1, 8192), &mut |_, _| true).is_err());
    assert!(!disk.is_writable() && disk.write(&[1], 0).is_err());
}
