//! The cache's guarantees: equal contents are held once, bounds hold, frames are decoded once, and hot blocks
//! stay.

#![expect(clippy::unwrap_used, reason = "a test may")]

mod reader_memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use platter_image::Extent;
use platter_vdisk::{BlockCache, BlockDevice, CacheOptions};
use reader_memory::{Image, MemorySource, Piece, block_id, check, comes_to, open, options, plain};

#[test]
fn equal_contents_are_held_once() {
    let source = Arc::new(MemorySource::default());
    let first = plain(&source, 0, 20);
    let mut pieces = vec![Piece::Zero(3)];
    pieces.extend((0..20).rev().map(|seed| Piece::block(seed, 128)));
    let second = source.image(&pieces);
    let cache = BlockCache::new(options(64 << 20, 0)).unwrap();
    let disks = [open(&first, &source, &cache), open(&second, &source, &cache)];
    check(&disks[0], &first, 0, first.model.len());
    let before = cache.counters();
    check(&disks[1], &second, 0, second.model.len());
    let after = cache.counters();
    assert_eq!(after.frames_decoded, before.frames_decoded);
    assert_eq!((after.bytes_held, after.misses), (before.bytes_held, before.misses));
    assert!(after.bytes_held >= 20 * 65536 && after.bytes_held < 20 * 66_000, "{after:?}");
}

#[test]
fn is_near_says_what_is_in_memory() {
    let source = Arc::new(MemorySource::default());
    let image = source.image(&[Piece::block(1, 128), Piece::Zero(128), Piece::block(2, 128)]);
    let cache = BlockCache::new(options(64 << 20, 0)).unwrap();
    let disk = open(&image, &source, &cache);
    let (first, zeros, last) =
        (Extent::new(0, 65536), Extent::new(65536, 65536), Extent::new(131_072, 65536));
    assert_eq!([first, zeros, last].map(|range| disk.is_near(range)), [Some(false), Some(true), Some(false)]);
    assert_eq!(disk.is_near(Extent::new(0, 131_072)), Some(false));
    check(&disk, &image, 0, 65536);
    assert_eq!([first, zeros].map(|range| disk.is_near(range)), [Some(true), Some(true)]);
    assert_eq!(disk.is_near(Extent::new(0, 131_072)), Some(true));
}

#[test]
fn the_size_bound_holds() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 300);
    let cache = BlockCache::new(options(2 << 20, 2)).unwrap();
    let disk = open(&image, &source, &cache);
    for offset in (0..image.model.len()).step_by(1 << 20) {
        check(&disk, &image, offset as u64, (1 << 20).min(image.model.len() - offset));
        assert!(cache.counters().bytes_held <= 2 << 20, "{:?}", cache.counters());
    }
    assert!(cache.counters().bytes_held > 1 << 20, "{:?}", cache.counters());
    assert!(cache.counters().evictions >= 260, "{:?}", cache.counters());
}

fn read_through(
    threads: usize,
    request: usize,
    cache: &Arc<BlockCache>,
    source: &Arc<MemorySource>,
    image: &Image,
) {
    let disk = open(image, source, cache);
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let offset = next.fetch_add(request as u64, Ordering::SeqCst);
                    if offset >= image.model.len() as u64 {
                        break;
                    }
                    check(&disk, image, offset, request.min(image.model.len() - offset as usize));
                }
            });
        }
    });
}

/// Reading a disk from end to end decodes each frame once, whatever the request size. A small cache suffices
/// for one reader. With several readers, one may be delayed so long that a small cache evicts the frames it
/// still needs.
#[test]
fn sequential_reads_decode_each_frame_once() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 600);
    let frames = source.frames.lock().len() as u64;
    for (threads, cache_mib) in [(1, 16), (1, 256), (4, 256)] {
        for request in [4096, 65536, 1 << 20] {
            let cache = BlockCache::new(options(cache_mib << 20, 2)).unwrap();
            read_through(threads, request, &cache, &source, &image);
            let counters = cache.counters();
            let what = format!("{threads} threads, {request} bytes, {cache_mib} MiB: {counters:?}");
            assert!(counters.frames_decoded >= frames, "{what}");
            assert!(counters.frames_decoded <= frames + frames / 20, "{what}");
            assert!(counters.ahead_frames - counters.ahead_frames_used <= frames / 20, "{what}");
        }
    }
}

#[test]
fn blocks_ahead_of_a_reader_are_fetched_and_then_used() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 100);
    let cache = BlockCache::new(options(64 << 20, 1)).unwrap();
    let disk = open(&image, &source, &cache);
    for i in 0..4 {
        check(&disk, &image, i * 65536, 65536);
    }
    assert!(comes_to(|| cache.counters().bytes_held >= 6 * 65536));
    let misses = cache.counters().misses;
    check(&disk, &image, 4 * 65536, 65536);
    check(&disk, &image, 5 * 65536, 65536);
    assert_eq!(cache.counters().misses, misses, "{:?}", cache.counters());
    assert!(cache.counters().ahead_frames_used > 0);
}

/// After enough sequential reads, a far source is told about the blocks ahead; a near source gets no
/// announcements.
#[test]
fn a_far_source_is_told_about_the_blocks_ahead() {
    for hint_length in [0, 8 << 20] {
        let source = Arc::new(MemorySource::default());
        source.hint_length.store(hint_length, Ordering::SeqCst);
        let image = plain(&source, 0, 300);
        let cache = BlockCache::new(options(64 << 20, 2)).unwrap();
        let disk = open(&image, &source, &cache);
        let mut buffer = vec![0; 65536];
        disk.read(&mut buffer, 0).unwrap();
        let told = || source.hinted.lock().len();
        assert_eq!(told(), 0);
        for read in 1..100 {
            disk.read(&mut buffer, read * 65536).unwrap();
        }
        match hint_length {
            0 => assert_eq!(told(), 0),
            _ => assert!(comes_to(|| told() > 90), "{}", told()),
        }
        // Read-ahead threads do not fetch from a far source on their own.
        assert_eq!(hint_length == 0, cache.counters().ahead_frames > 0, "{:?}", cache.counters());
    }
}

/// A file is read in order up to its end: nothing beyond it is announced.
#[test]
fn announcements_stop_at_the_end_of_the_file() {
    let source = Arc::new(MemorySource::default());
    source.hint_length.store(64 << 20, Ordering::SeqCst);
    let mut pieces: Vec<Piece> = (0..39).map(|seed| Piece::block(seed, 128)).collect();
    pieces.push(Piece::block(39, 40));
    pieces.extend((40..200).map(|seed| Piece::block(seed, 128)));
    let image = source.image(&pieces);
    let cache = BlockCache::new(options(64 << 20, 1)).unwrap();
    let disk = open(&image, &source, &cache);
    for read in 0..30 {
        check(&disk, &image, read * 65536, 65536);
    }
    let is_told = |seed, sectors| source.hinted.lock().contains(&block_id(seed, sectors));
    assert!(comes_to(|| is_told(39, 40)), "the end of the file");
    for read in 30..39 {
        check(&disk, &image, read * 65536, 65536);
    }
    thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!((40..200).find(|seed| is_told(*seed, 128)), None);
}

/// The blocks of one read are announced together, not one after the other.
#[test]
fn a_far_source_is_told_about_all_blocks_of_a_read() {
    let source = Arc::new(MemorySource::default());
    source.hint_length.store(8 << 20, Ordering::SeqCst);
    let image = plain(&source, 0, 100);
    let cache = BlockCache::new(options(64 << 20, 2)).unwrap();
    let disk = open(&image, &source, &cache);
    check(&disk, &image, 70 * 65536, 4096);
    assert!(source.hinted.lock().is_empty(), "a read of one block needs no announcement");
    check(&disk, &image, 10 * 65536 + 512, 3 * 65536);
    let wanted: Vec<_> = (10..14).map(|seed| block_id(seed, 128)).collect();
    let hinted = || source.hinted.lock().len();
    assert!(wanted.iter().all(|id| source.hinted.lock().contains(id)) && hinted() == 4);
    source.hinted.lock().clear();
    check(&disk, &image, 10 * 65536 + 512, 3 * 65536);
    assert_eq!(hinted(), 0, "blocks in memory are not announced");
}

#[test]
fn random_reads_decode_only_up_to_their_block() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 200);
    let cache = BlockCache::new(options(64 << 20, 2)).unwrap();
    let disk = open(&image, &source, &cache);
    // Reads the first of the two blocks of each frame, with the frames in random order.
    for i in 0..50_u64 {
        check(&disk, &image, (i * 37 % 100) * 131_072 + 5000, 4096);
    }
    let counters = cache.counters();
    assert_eq!((counters.frames_decoded, counters.bytes_decoded), (50, 50 * 65536), "{counters:?}");
    assert_eq!(counters.ahead_frames, 0);
}

/// As with a hoard: the position on the disk predicts nothing, but frames are stored in reading order.
#[test]
fn frames_stored_in_reading_order_are_decoded_whole_and_ahead() {
    let source = Arc::new(MemorySource::default());
    *source.in_order.lock() = Some(3);
    // The blocks are far from each other on the disk.
    let pieces: Vec<Piece> =
        (0..100).flat_map(|seed| [Piece::block(seed, 128), Piece::Free(40_960)]).collect();
    let image = source.image(&pieces);
    let cache = BlockCache::new(options(64 << 20, 1)).unwrap();
    let disk = open(&image, &source, &cache);
    for block in 0..100 {
        check(&disk, &image, block * (65536 + (20 << 20)), 4096);
        // Three frames ahead of the current one.
        let frames = (block / 2 + 4).min(50);
        assert!(comes_to(|| cache.counters().frames_decoded == frames), "{block}: {:?}", cache.counters());
    }
    let counters = cache.counters();
    // On a busy machine the reader may catch up and wait for the frame that is being decoded.
    assert_eq!((counters.misses - counters.waits, counters.bytes_decoded), (1, 100 * 65536), "{counters:?}");
    assert_eq!((counters.ahead_frames, counters.ahead_frames_used), (49, 49));
}

/// Read-ahead in storage order is limited by the cache's size, and does not happen without threads.
#[test]
fn read_ahead_in_storage_order_is_bounded() {
    let source = Arc::new(MemorySource::default());
    *source.in_order.lock() = Some(40);
    let image = plain(&source, 0, 100);
    for (bytes, threads, frames) in [(32 << 20, 1, 3), (8 << 20, 1, 1), (64 << 20, 0, 1)] {
        let cache = BlockCache::new(options(bytes, threads)).unwrap();
        let disk = open(&image, &source, &cache);
        check(&disk, &image, 0, 4096);
        assert!(comes_to(|| cache.counters().frames_decoded == frames), "{:?}", cache.counters());
        thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(cache.counters().frames_decoded, frames);
    }
}

/// However many threads miss on one frame, it is read once.
#[test]
fn concurrent_misses_on_a_frame_read_it_once() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 4);
    for cache_bytes in [16 << 20, 0] {
        let cache = BlockCache::new(options(cache_bytes, 0)).unwrap();
        let disk = open(&image, &source, &cache);
        source.reads.lock().clear();
        source.stuck.store(0, Ordering::SeqCst);
        source.hold(Some(1));
        thread::scope(|scope| {
            for i in 0..6_u64 {
                let (disk, image) = (&disk, &image);
                scope.spawn(move || check(disk, image, 3 * 65536 + i * 8192, 512));
            }
            let all_wait = comes_to(|| cache.counters().waits == 5);
            source.hold(None);
            assert!(all_wait, "{:?}", cache.counters());
        });
        assert_eq!(source.reads.lock().get(&1), Some(&1));
        assert_eq!(cache.counters().frames_decoded, 1);
    }
}

#[test]
fn pages_are_decoded_once_and_shared() {
    let source = Arc::new(MemorySource::default());
    let blocks = 64;
    let mut pieces: Vec<Piece> = (0..4000)
        .map(|i| Piece::Data { seed: i % blocks, sectors: 128, skip: i % 90, take: 8 + i % 30 })
        .collect();
    let first = source.image(&pieces);
    *pieces.last_mut().unwrap() = Piece::block(blocks, 8);
    let second = source.image(&pieces);
    let cache = BlockCache::new(options(64 << 20, 0)).unwrap();
    let disk = open(&first, &source, &cache);
    disk.extents(Extent::new(0, disk.length()), &mut |_, _| true).unwrap();
    let pages = cache.counters().pages_decoded;
    assert!(pages >= 4, "{pages}");
    for i in 0..2000_u64 {
        check(&disk, &first, i * 7919 * 512 % (disk.length() - 4096), 4096);
    }
    assert_eq!(cache.counters().pages_decoded, pages);
    let other = open(&second, &source, &cache);
    other.extents(Extent::new(0, other.length()), &mut |_, _| true).unwrap();
    assert!(cache.counters().pages_decoded <= pages + 3, "a clone differs in one path of pages only");
}

/// As when booting from the hoard, which must not need the network: read-ahead threads fetch no pages from a
/// far source.
#[test]
fn read_ahead_stops_at_a_far_page() {
    let source = Arc::new(MemorySource::default());
    let piece = |i: u64| Piece::Data { seed: i % 64, sectors: 128, skip: i % 90, take: 8 + i % 30 };
    let image = source.image(&(0..4000).map(piece).collect::<Vec<_>>());
    *source.far.lock() = source.pages.lock().keys().copied().collect();
    let caches = [0, 2].map(|threads| BlockCache::new(options(64 << 20, threads)).unwrap());
    let disks = caches.each_ref().map(|cache| open(&image, &source, cache));
    let pages = || caches.each_ref().map(|cache| cache.counters().pages_decoded);
    let read = 32 << 10;
    for number in 0..disks[0].length() / read {
        disks.iter().for_each(|disk| check(disk, &image, number * read, read as usize));
        let [reader, with_threads] = pages();
        assert_eq!(reader, with_threads, "read {number}");
    }
    assert!(pages()[0] > 3 && caches[1].counters().ahead_frames > 0, "{:?}", pages());
}

/// Blocks that are read randomly again and again stay in memory while a disk larger than the cache is read
/// from end to end.
#[test]
fn a_scan_does_not_evict_hot_blocks() {
    let source = Arc::new(MemorySource::default());
    let hot = plain(&source, 1 << 32, 40);
    let large = plain(&source, 0, 1000);
    let cache = BlockCache::new(options(16 << 20, 1)).unwrap();
    let hot_disk = open(&hot, &source, &cache);
    for round in 0..4 {
        for i in 0..40_u64 {
            check(&hot_disk, &hot, (i * 17 + round) % 40 * 65536 + round * 4096, 512);
        }
    }
    read_through(1, 4096, &cache, &source, &large);
    let before = cache.counters();
    for i in 0..40_u64 {
        check(&hot_disk, &hot, (i * 17) % 40 * 65536, 512);
    }
    let misses = cache.counters().misses - before.misses;
    assert!(misses <= 4, "{misses} of 40 hot blocks were evicted");
}

/// When a reader stops being sequential, few frames were read ahead in vain.
#[test]
fn reading_ahead_stops_when_access_turns_random() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 1000);
    let cache = BlockCache::new(CacheOptions::default()).unwrap();
    let disk = open(&image, &source, &cache);
    for i in 0..10_u64 {
        check(&disk, &image, i * 16384, 16384);
    }
    for i in 0..400_u64 {
        check(&disk, &image, 65536 * (200 + i * 307 % 800), 512);
    }
    assert!(cache.counters().ahead_frames <= 5, "{:?}", cache.counters());
}

#[test]
fn threads_end_with_the_last_disk() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 100);
    let cache = BlockCache::new(options(64 << 20, 3)).unwrap();
    let disk = open(&image, &source, &cache);
    drop(cache);
    // A thread is fetching a frame ahead when the disk is dropped: dropping the disk waits for it.
    source.hold(Some(2));
    for i in 0..4 {
        check(&disk, &image, i * 65536, 65536);
    }
    let is_stuck = comes_to(|| source.stuck.load(Ordering::SeqCst) == 1);
    thread::scope(|scope| {
        let dropped = scope.spawn(|| drop(disk));
        thread::sleep(std::time::Duration::from_millis(50));
        let waits = !dropped.is_finished();
        source.hold(None);
        assert!(is_stuck && waits);
    });
    assert_eq!(Arc::strong_count(&source), 1, "no thread or job may be left");
}
