//! Recipes, pages and frames: encoded data decodes to the original, damage is refused, and the formats are
//! frozen.

#![expect(clippy::unwrap_used, reason = "a test may")]

use parking_lot::Mutex;
use std::collections::HashMap;

use platter_image::frame::{
    Compressor, FrameBuilder, FrameDecoder, FrameHeader, Verify, make_whole, peek_packed, to_packed,
};
use platter_image::page::{Child, Contents, Entry, State, decode, encode_leaf};
use platter_image::recipe::{CutPolicy, PageSource, Recipe, RecipeBuilder, Root};
use platter_image::{BlockId, Domain, Error, ErrorKind, Extent, Kind, Result, Score};
use proptest::prelude::*;

#[derive(Default)]
struct Pages(Mutex<HashMap<BlockId, Vec<u8>>>);

impl PageSource for Pages {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.0.lock().get(id).cloned().ok_or_else(|| Error::missing(id.to_string()))
    }
}

fn build(length: u64, entries: &[Entry]) -> (Score, Pages) {
    let pages = Pages::default();
    let sink = |id, bytes: &[u8]| {
        assert_eq!(BlockId::of(Kind::Page, bytes), id);
        pages.0.lock().insert(id, bytes.to_vec());
        Ok(())
    };
    let mut builder =
        RecipeBuilder::new(length, 512, CutPolicy::FILE_ALIGNED_64K_GRID_32K, Domain::SHARED, sink);
    for entry in entries {
        builder.push(*entry).unwrap();
    }
    let (score, _) = builder.finish().unwrap();
    (score, pages)
}

fn block(number: u64) -> BlockId {
    BlockId::of(Kind::Data, &number.to_le_bytes())
}

fn data(offset: u64, length: u64, number: u64) -> Entry {
    Entry { extent: Extent::new(offset, length), state: State::Data { block: block(number), offset: 0 } }
}

fn sector_map(entries: impl Iterator<Item = Entry>, length: u64) -> Vec<Option<(Option<BlockId>, u32)>> {
    let mut map = vec![None; (length / 512) as usize];
    for entry in entries {
        for (i, sector) in (entry.extent.offset / 512..entry.extent.end() / 512).enumerate() {
            map[sector as usize] = match entry.state {
                State::Free => None,
                State::Zero => Some((None, 0)),
                State::Data { block, offset } => Some((Some(block), offset + i as u32 * 512)),
            };
        }
    }
    map
}

/// Entries of a small disk, dense enough to split leaves.
fn arbitrary_entries(sectors: u64) -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec((0..6u64, 1..40u64, 0..3u8, 0..50u64, 0..64u32), 0..2000).prop_map(move |items| {
        let mut entries = Vec::new();
        let mut position = 0;
        for (gap, length, state, number, offset) in items {
            let start = position + gap;
            if start + length > sectors {
                break;
            }
            position = start + length;
            let state = match state {
                0 => State::Zero,
                _ => State::Data { block: block(number), offset: offset * 512 },
            };
            entries.push(Entry { extent: Extent::new(start * 512, length * 512), state });
        }
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Entries are read back, whole or in part, and equal disks have equal scores however their entries were
    /// split.
    #[test]
    fn entries_are_read_back(entries in arbitrary_entries(60_000), from in 0..60_000u64, length in 0..60_000u64) {
        let disk = 60_000 * 512;
        let (score, pages) = build(disk, &entries);
        let recipe = Recipe::open(score, &pages).unwrap();
        let expected = sector_map(entries.iter().copied(), disk);
        let whole = recipe.entries(Extent::new(0, disk)).map(Result::unwrap);
        prop_assert_eq!(&sector_map(whole, disk), &expected);
        let range = Extent::new(from * 512, length * 512);
        let part = recipe.entries(range).map(Result::unwrap);
        let inside: Vec<_> = expected.iter().enumerate()
            .map(|(sector, state)| if (from..from + length).contains(&(sector as u64)) { *state } else { None }).collect();
        prop_assert_eq!(&sector_map(part, disk), &inside);

        // A part is a disk of its own, and so is a part of a part.
        let end = (from + length).min(60_000);
        let of_part = Recipe::open(score, &pages).unwrap().of_part(range);
        prop_assert_eq!((of_part.root().disk_length, of_part.score()), ((end - from) * 512, score));
        let shown = of_part.entries(Extent::new(0, disk)).map(Result::unwrap);
        prop_assert_eq!(&sector_map(shown, disk)[..(end - from) as usize], &expected[from as usize..end as usize]);
        let half = (end - from) / 2;
        let second = of_part.of_part(Extent::new(half * 512, disk));
        let shown = second.entries(Extent::new(0, disk)).map(Result::unwrap);
        prop_assert_eq!(&sector_map(shown, disk)[..(end - from - half) as usize], &expected[(from + half) as usize..end as usize]);

        let sectors: Vec<Entry> = entries.iter().flat_map(|entry| {
            (0..entry.extent.length / 512).filter_map(|i| entry.clip(Extent::new(entry.extent.offset + i * 512, 512)))
        }).collect();
        prop_assert_eq!(build(disk, &sectors).0, score);
    }

    /// A damaged page is refused or decodes as another canonical page; it never panics or reaches out of
    /// range.
    #[test]
    fn damaged_pages_are_refused_or_canonical(entries in arbitrary_entries(2000), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let range = Extent::new(0, 1 << 24);
        let mut bytes = encode_leaf(range, &entries);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let child = Child { start: 0, span_log2: 24, id: block(0) };
        if let Ok((level, Contents::Leaf(found))) = decode(&child, &bytes) {
            prop_assert_eq!(level, 0);
            prop_assert!(found.iter().all(|entry| entry.extent.end() <= range.end()));
            prop_assert_eq!(encode_leaf(range, &found), bytes);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let child = Child { start: 0, span_log2: 24, id: block(0) };
        let _ = decode(&child, &bytes);
        let _ = Root::decode(Score(block(0)), &bytes);
        let _ = FrameHeader::parse(&bytes);
    }
}

/// Sparse disks of terabytes: several levels, and the number of pages follows the data.
#[test]
fn sparse_disks_of_terabytes_have_few_pages() {
    let disk = 1 << 44;
    let entries: Vec<Entry> =
        (0..2000).map(|i| data(i * (1 << 33) + (i % 7) * (1 << 25), 65536, i)).collect();
    let (score, pages) = build(disk, &entries);
    let recipe = Recipe::open(score, &pages).unwrap();
    let read: Vec<Entry> = recipe.entries(Extent::new(0, disk)).map(Result::unwrap).collect();
    assert_eq!(read, entries);
    let mut visited = 0;
    recipe
        .visit_pages(Extent::new(0, disk), &mut |_| {
            visited += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(visited, pages.0.lock().len());
    assert!(visited < 3 * 2000, "{visited} pages");
}

/// A disk of 15 TiB of zeros with a few blocks of data has few pages and few entries.
#[test]
fn zeros_cost_few_pages() {
    let (disk, places) = (15_u64 << 40, [0, 5 << 30, (3 << 40) + 12345 * 512, (15 << 40) - 65536]);
    let mut entries = Vec::new();
    let mut end = 0;
    for (number, place) in (0..).zip(places) {
        entries.push(Entry { extent: Extent::between(end, place), state: State::Zero });
        entries.push(data(place, 65536, number));
        end = place + 65536;
    }
    entries.retain(|entry| entry.extent.length > 0);
    let (score, pages) = build(disk, &entries);
    assert!(pages.0.lock().len() < 200, "{} pages", pages.0.lock().len());
    let recipe = Recipe::open(score, &pages).unwrap();
    let read: Vec<Entry> = recipe.entries(Extent::new(0, disk)).map(Result::unwrap).collect();
    assert!(read.len() < 400, "{} entries", read.len());
    let joined = read.into_iter().fold(Vec::<Entry>::new(), |mut all, entry| {
        match all.last().and_then(|last| last.join(&entry)) {
            Some(joined) => *all.last_mut().unwrap() = joined,
            None => all.push(entry),
        }
        all
    });
    assert_eq!(joined, entries);

    // The same disk, pushed in other pieces.
    let pieces = entries.iter().flat_map(|entry| {
        let half = (entry.extent.length / 512).div_ceil(3) * 512;
        let first = Extent::new(entry.extent.offset, half);
        [entry.clip(first), entry.clip(Extent::between(first.end(), u64::MAX))]
    });
    let pieces: Vec<Entry> = pieces.flatten().collect();
    assert_eq!(build(disk, &pieces).0, score);
    let nothing = [Entry { extent: Extent::new(0, 1 << 45), state: State::Zero }];
    let (score, pages) = build(1 << 45, &nothing);
    assert_eq!(pages.0.lock().len(), 2, "the root and one page without items");
    let recipe = Recipe::open(score, &pages).unwrap();
    assert_eq!(recipe.entries(nothing[0].extent).map(Result::unwrap).collect::<Vec<_>>(), nothing);
}

/// Zeros have only one encoding.
#[test]
fn other_encodings_of_zeros_are_refused() {
    let page = |level: u8, span_log2: u8, count: u8, body: &[u8]| {
        let mut bytes = b"PLpg\x01".to_vec();
        bytes.extend_from_slice(&[level, span_log2, 0]);
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&[count, 0, 0, 0]);
        bytes.extend_from_slice(body);
        decode(&Child { start: 0, span_log2, id: block(0) }, &bytes).map(|(level, _)| level)
    };
    for (level, span_log2) in [(0, 20), (0, 24), (0, 31), (1, 32), (1, 39), (2, 40), (4, 62)] {
        assert_eq!(page(level, span_log2, 0, &[]).unwrap(), level);
    }
    for (level, span_log2) in [(0, 32), (1, 31), (1, 40), (2, 39), (6, 63)] {
        assert_eq!(page(level, span_log2, 0, &[]).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    assert!(page(0, 24, 0, &[0]).is_err(), "data follows");
    // 32,768 sectors of zeros as one item.
    assert!(page(0, 24, 1, &[0x81, 0x80, 0x08]).is_err(), "an item that fills the page");
}

/// `visit_pages` visits all pages needed to read a range, and hardly more.
#[test]
fn visit_pages_covers_a_range() {
    let entries: Vec<Entry> = (0..20_000).map(|i| data(i * 65536, 65536, i)).collect();
    let (score, pages) = build(20_000 * 65536, &entries);
    let recipe = Recipe::open(score, &pages).unwrap();
    for range in [Extent::new(0, 512), Extent::new(1 << 28, 1 << 26), Extent::new((1 << 30) - 512, 1024)] {
        let needed = Pages::default();
        recipe
            .visit_pages(range, &mut |id| {
                needed.0.lock().insert(*id, pages.page(id)?);
                Ok(())
            })
            .unwrap();
        let part = Recipe::open(score, &needed).unwrap();
        let read: Vec<Entry> = part.entries(range).map(Result::unwrap).collect();
        assert_eq!(read, recipe.entries(range).map(Result::unwrap).collect::<Vec<_>>());
        let count = needed.0.lock().len() as u64;
        assert!(count <= 4 + range.length.div_ceil(1 << 24), "{count} pages for {range:?}");
    }
}

/// Two versions that differ in one place share all pages except one path.
#[test]
fn versions_share_pages() {
    let mut entries: Vec<Entry> = (0..100_000).map(|i| data(i * 65536, 65536, i)).collect();
    let (_, first) = build(1 << 40, &entries);
    entries[50_000] = data(50_000 * 65536, 65536, 1 << 40);
    let (_, second) = build(1 << 40, &entries);
    let first = first.0.into_inner();
    let new = second.0.into_inner().into_keys().filter(|id| !first.contains_key(id)).count();
    assert!(new <= 4, "{new} of {} pages are new", first.len());
}

#[test]
fn an_empty_disk_has_no_top_page() {
    let (score, pages) = build(1 << 30, &[]);
    let recipe = Recipe::open(score, &pages).unwrap();
    assert_eq!(recipe.root().top, None);
    assert_eq!(recipe.entries(Extent::new(0, 1 << 30)).count(), 0);
}

/// Golden vector: this disk's score is frozen with the format.
#[test]
fn recipe_is_frozen() {
    let mut entries: Vec<Entry> = (0..5000).map(|i| data(4096 + i * 8192, 4096, i)).collect();
    entries.push(Entry { extent: Extent::new(1 << 30, 1 << 26), state: State::Zero });
    let (score, _) = build(8 << 30, &entries);
    assert_eq!(score.to_string(), include_str!("../golden/recipe-score.hex").trim());
}

fn frame() -> FrameBuilder {
    let mut builder = FrameBuilder::new(Kind::Data, Domain::SHARED, 128 << 10);
    for number in 0..5_u32 {
        let contents: Vec<u8> =
            (0..(number + 1) * 1024).flat_map(|i| (i / 7 + number + 1).to_le_bytes()).collect();
        builder.push(BlockId::of(Kind::Data, &contents), &contents);
    }
    builder
}

#[test]
fn frame_round_trip_and_damage() {
    let frame = frame().encode(&mut Compressor::new(3).unwrap()).unwrap();
    let mut decoder = FrameDecoder::new().unwrap();
    let (header, raw) = decoder.decode(&frame.stored, Verify::Hashes).unwrap();
    assert_eq!(header.blocks, frame.blocks);
    assert_eq!(raw.len(), frame.raw_length as usize);
    let raw = raw.to_vec();
    let start = (header.blocks[0].length + header.blocks[1].length) as usize;
    let wanted = header.blocks[2];
    let alone = decoder.decode_block(&frame.stored, Kind::Data, 2, &wanted.id).unwrap();
    assert_eq!(alone, &raw[start..start + wanted.length as usize]);
    assert_eq!(
        decoder.decode_block(&frame.stored, Kind::Page, 2, &wanted.id).unwrap_err().kind(),
        ErrorKind::Corrupt
    );

    for at in 0..frame.stored.len() {
        let mut damaged = frame.stored.clone();
        damaged[at] ^= 1 << (at % 8);
        let error = decoder.decode(&damaged, Verify::Checksum).expect_err(&format!("byte {at}"));
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(decoder.decode(&frame.stored[..at], Verify::Checksum).is_err());
    }
}

/// A frame with valid checksums whose contents do not match its ids: only hashing detects it.
#[test]
fn only_hashing_detects_forged_contents() {
    let mut builder = FrameBuilder::new(Kind::Data, Domain::SHARED, 128 << 10);
    builder.push(block(1), &[7; 4096]);
    let frame = builder.encode(&mut Compressor::new(3).unwrap()).unwrap();
    let mut decoder = FrameDecoder::new().unwrap();
    assert!(decoder.decode(&frame.stored, Verify::Checksum).is_ok());
    assert_eq!(decoder.decode(&frame.stored, Verify::Hashes).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Golden vector: a frame stored in the first version must always be readable.
#[test]
fn frame_is_frozen() {
    let golden = include_bytes!("../golden/frame-v1.bin");
    let mut decoder = FrameDecoder::new().unwrap();
    let (header, raw) = decoder.decode(golden, Verify::Hashes).unwrap();
    let expected = frame();
    let fresh = expected.encode(&mut Compressor::new(3).unwrap()).unwrap();
    assert_eq!(header.blocks, fresh.blocks);
    assert_eq!(raw.len(), fresh.raw_length as usize);
}

/// Golden vector: the same frame as stored in a pack. It is restored both with its ids and without them.
#[test]
fn packed_frame_is_frozen() {
    let (golden, packed) =
        (&include_bytes!("../golden/frame-v1.bin")[..], &include_bytes!("../golden/frame-packed-v1.bin")[..]);
    let (header, payload) = to_packed(golden).unwrap();
    assert_eq!([&header[..], payload].concat(), packed);
    let (blocks, length) = peek_packed(packed).unwrap();
    assert_eq!(length, packed.len());
    let mut whole = [&vec![0; 32 * blocks][..], packed].concat();
    assert_eq!(make_whole(&mut whole, blocks).unwrap(), golden.len());
    FrameDecoder::new().unwrap().name_blocks(&mut whole).unwrap();
    assert!(whole == golden);
}

/// Rewrites the golden frames; run by hand when the format version changes.
#[test]
#[ignore = "writes a golden file"]
fn write_golden_frame() {
    if std::env::var_os("PLATTER_WRITE_GOLDEN").is_none() {
        return;
    }
    let frame = frame().encode(&mut Compressor::new(3).unwrap()).unwrap();
    let (header, payload) = to_packed(&frame.stored).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(format!("{}/golden/{name}", env!("CARGO_MANIFEST_DIR")), bytes).unwrap();
    };
    write("frame-v1.bin", &frame.stored);
    write("frame-packed-v1.bin", &[&header[..], payload].concat());
}
