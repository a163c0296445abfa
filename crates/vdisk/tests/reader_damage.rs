//! Damaged, lying, failing and slow sources: no wrong bytes are returned, and only readers of the bad data
//! get errors.

#![expect(clippy::unwrap_used, reason = "a test may")]

mod reader_memory;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use platter_image::frame::{Compressor, FrameBuilder};
use platter_image::page::{Entry, State};
use platter_image::{BlockId, Domain, Error, ErrorKind, Extent, Kind};
use platter_vdisk::{BlockCache, BlockDevice, Count, RecipeDisk, TRIES_MAX};
use reader_memory::{MemorySource, check, comes_to, contents, open, options, plain};

fn whole_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Flips bits of a stored frame, one at a time: its blocks become corrupt; all others still read correctly.
#[test]
fn a_flipped_byte_fails_only_the_reads_of_its_frame() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 8);
    let length = source.frames.lock()[1].len();
    let damaged = 2 * 65536..4 * 65536;
    for at in (0..length).step_by(997).chain([length - 1]) {
        source.frames.lock()[1][at] ^= 0x10;
        let cache = BlockCache::new(options(16 << 20, 1)).unwrap();
        let disk = open(&image, &source, &cache);
        for offset in (0..image.model.len()).step_by(4096) {
            let mut buffer = [0; 4096];
            match disk.read(&mut buffer, offset as u64) {
                Ok(()) => {
                    assert!(!damaged.contains(&offset), "byte {at}: {offset} was given out");
                    assert!(buffer == image.model[offset..][..4096]);
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                    assert!(damaged.contains(&offset), "byte {at}: {offset} failed: {}", whole_text(&error));
                }
            }
        }
        assert!(disk.read(&mut vec![0; image.model.len()], 0).is_err());
        source.frames.lock()[1][at] ^= 0x10;
        // Failures are not cached: the repaired frame reads correctly.
        check(&disk, &image, 0, image.model.len());
    }
}

#[test]
fn an_error_names_block_offset_and_frame() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 4);
    source.frames.lock()[1][200] ^= 1;
    let cache = BlockCache::new(options(16 << 20, 0)).unwrap();
    let error = open(&image, &source, &cache).read(&mut [0; 100], 3 * 65536 + 7).unwrap_err();
    let text = whole_text(&error);
    let id = BlockId::of(Kind::Data, &image.model[3 * 65536..]).to_string();
    for part in [&id, "at offset 196615", "frame at offset 1 of pack number 0"] {
        assert!(text.contains(part), "{text} names no {part}");
    }
}

/// A frame with valid checksums in which one block does not match its id: only the hash detects it.
#[test]
fn a_block_that_does_not_match_its_id_does_not_affect_its_neighbours() {
    let source = Arc::new(MemorySource::default());
    let (good, lie, promised) = (contents(1, 64), contents(2, 64), contents(3, 64));
    let mut frame = FrameBuilder::new(Kind::Data, Domain::SHARED, 128 << 10);
    let ids = [&good, &promised, &good].map(|bytes| BlockId::of(Kind::Data, bytes));
    let last = contents(4, 64);
    let last_id = BlockId::of(Kind::Data, &last);
    frame.push(ids[0], &good);
    frame.push(ids[1], &lie);
    frame.push(last_id, &last);
    source.push(&frame.encode(&mut Compressor::new(3).unwrap()).unwrap());
    let entry = |at: u64, block| Entry {
        extent: Extent::new(at * 32768, 32768),
        state: State::Data { block, offset: 0 },
    };
    let score = source.recipe(3 * 32768, &[entry(0, ids[0]), entry(1, ids[1]), entry(2, last_id)]);
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        let cache = BlockCache::new(options(1 << 20, 0)).unwrap();
        let disk = RecipeDisk::open(score, source.clone(), cache.clone()).unwrap();
        for at in order {
            let mut buffer = vec![0; 32768];
            let result = disk.read(&mut buffer, at * 32768);
            match at {
                0 => assert!(result.is_ok() && buffer == good),
                2 => assert!(result.is_ok() && buffer == last),
                _ => {
                    assert_eq!(result.unwrap_err().kind(), ErrorKind::Corrupt);
                    assert!(buffer != lie, "unverified bytes were given out");
                }
            }
        }
    }
}

/// Recipes are checked when they are published, but may come from elsewhere.
#[test]
fn a_recipe_may_not_exceed_a_block_or_name_an_unknown_one() {
    let source = Arc::new(MemorySource::default());
    let image = source.image(&[reader_memory::Piece::block(1, 8)]);
    let id = BlockId::of(Kind::Data, &image.model);
    let data = |offset, length, block, at| Entry {
        extent: Extent::new(offset, length),
        state: State::Data { block, offset: at },
    };
    let strange = BlockId::of(Kind::Data, b"nowhere");
    let score = source
        .recipe(1 << 20, &[data(0, 4096, id, 512), data(8192, 512, id, 8192), data(16384, 512, strange, 0)]);
    let cache = BlockCache::new(options(1 << 20, 0)).unwrap();
    let disk = RecipeDisk::open(score, source.clone(), cache).unwrap();
    let kind = |offset, length| disk.read(&mut vec![0; length], offset).unwrap_err().kind();
    assert_eq!(kind(0, 4096), ErrorKind::Corrupt);
    assert_eq!(kind(8192, 512), ErrorKind::Corrupt);
    assert_eq!(kind(16384, 512), ErrorKind::Missing);
    let mut buffer = [0; 3584];
    disk.read(&mut buffer, 0).unwrap();
    assert!(buffer == image.model[512..]);
    let nowhere =
        RecipeDisk::open(platter_image::Score(strange), source, BlockCache::new(options(0, 0)).unwrap());
    assert_eq!(nowhere.err().unwrap().kind(), ErrorKind::Missing);
}

/// A page that is in memory for one place of one disk is refused in another place.
#[test]
fn a_cached_page_is_refused_in_the_wrong_place() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 4);
    let cache = BlockCache::new(options(16 << 20, 0)).unwrap();
    let good = open(&image, &source, &cache);
    check(&good, &image, 0, 65536);
    let recipe = platter_image::recipe::Recipe::open(image.score, &*source).unwrap();
    let mut root = *recipe.root();
    let (level, mut child) = root.top.unwrap();
    child.start += 1 << child.span_log2;
    root.disk_length = 1 << 30;
    root.top = Some((level, child));
    let score = root.score().unwrap();
    source.pages.lock().insert(score.0, root.encode());
    let hostile = RecipeDisk::open(score, source.clone(), cache).unwrap();
    let error = hostile.read(&mut [0; 512], child.start).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    check(&good, &image, 0, 65536);
}

#[test]
fn a_source_that_fails_sometimes_is_retried() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 4);
    let cache = BlockCache::new(options(16 << 20, 0)).unwrap();
    let tries = u64::from(TRIES_MAX);
    source.failures.store(tries - 1, Ordering::SeqCst);
    let disk = open(&image, &source, &cache);
    source.failures.store(tries - 1, Ordering::SeqCst);
    check(&disk, &image, 0, 4096);
    source.failures.store(tries - 1, Ordering::SeqCst);
    check(&disk, &image, 2 * 65536, 4096);

    let cache = BlockCache::new(options(16 << 20, 0)).unwrap();
    let disk = open(&image, &source, &cache);
    disk.extents(Extent::new(0, 4096), &mut |_, _| true).unwrap();
    source.failures.store(tries, Ordering::SeqCst);
    assert_eq!(disk.read(&mut [0; 512], 0).unwrap_err().kind(), ErrorKind::Io);
    check(&disk, &image, 0, image.model.len());
}

/// While the read of one frame hangs, blocks in memory and other frames are still served.
#[test]
fn a_hanging_read_blocks_only_the_readers_of_its_frame() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 8);
    let cache = BlockCache::new(options(16 << 20, 2)).unwrap();
    let disk = open(&image, &source, &cache);
    check(&disk, &image, 65536, 4096);
    source.hold(Some(1));
    thread::scope(|scope| {
        let stuck = scope.spawn(|| check(&disk, &image, 2 * 65536, 4096));
        let is_stuck = comes_to(|| source.stuck.load(Ordering::SeqCst) == 1);
        let others = scope.spawn(|| {
            check(&disk, &image, 0, 2 * 65536);
            check(&disk, &image, 5 * 65536, 4096);
        });
        let others_went_on = comes_to(|| others.is_finished()) && !stuck.is_finished();
        source.hold(None);
        assert!(is_stuck && others_went_on);
    });
}

#[test]
fn count_layer_works() {
    let source = Arc::new(MemorySource::default());
    let image = plain(&source, 0, 4);
    let cache = BlockCache::new(options(16 << 20, 0)).unwrap();
    let disk = Count::new(open(&image, &source, &cache));
    disk.read(&mut [0; 512], 0).unwrap();
    assert!(disk.write(&[0; 100], 0).is_err());
    disk.write_zeroes(Extent::new(0, 1024)).unwrap_err();
    disk.flush().unwrap();
    let counts = disk.counts();
    assert_eq!((counts.reads, counts.bytes_read, counts.writes, counts.bytes_written), (1, 512, 1, 100));
    assert_eq!((counts.zeroes, counts.bytes_zeroed, counts.flushes), (1, 1024, 1));
}
