//! Divides a disk into segments for a cast, by address, so that what a receiver has to remember of one segment does not
//! grow with the disk (design: order).

use platter_image::page::{LEAF_SPAN_LOG2, State};
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{Extent, Result};

/// Default for the most bytes of data in a segment: 64 GiB, for which a receiver remembers about 90 bytes per extent.
pub const SEGMENT_DATA_MAX: u64 = 64 << 30;

/// Returns the length of the segments, and the segments: as long as possible with at most about `data_max` bytes of
/// data each.
///
/// # Errors
/// `Missing` or `Corrupt`, with the page's id.
pub(super) fn segments<P: PageSource>(recipe: &Recipe<P>, data_max: u64) -> Result<(u64, Vec<Extent>)> {
    let disk_length = recipe.root().disk_length;
    let mut length = 1_u64 << data_max.max(1).ilog2().max(u32::from(LEAF_SPAN_LOG2));
    // The bytes of data in each range of this length that has any.
    let mut filled: Vec<(u64, u64)> = Vec::new();
    for entry in recipe.entries(Extent::new(0, disk_length)) {
        let entry = entry?;
        if matches!(entry.state, State::Data { .. }) {
            add(&mut filled, entry.extent.offset / length, entry.extent.length);
        }
    }
    while length < disk_length {
        let mut doubled = Vec::new();
        filled.iter().for_each(|(index, bytes)| add(&mut doubled, index / 2, *bytes));
        if doubled.iter().any(|(_, bytes)| *bytes > data_max) {
            break;
        }
        (length, filled) = (length * 2, doubled);
    }
    let count = disk_length.div_ceil(length).max(1);
    let segment =
        |index: u64| Extent::between(index * length, disk_length.min((index + 1).saturating_mul(length)));
    Ok((length, (0..count).map(segment).collect()))
}

/// Adds bytes to the range with this index, which is the last one or a later one.
fn add(filled: &mut Vec<(u64, u64)>, index: u64, bytes: u64) {
    match filled.last_mut() {
        Some((last, sum)) if *last == index => *sum += bytes,
        _ => filled.push((index, bytes)),
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::collections::HashMap;

    use platter_image::page::Entry;
    use platter_image::recipe::{CutPolicy, RecipeBuilder};
    use platter_image::{BlockId, Domain, Error, Kind};

    use super::*;

    const MIB: u64 = 1 << 20;

    #[derive(Default)]
    struct Pages(Mutex<HashMap<BlockId, Vec<u8>>>);

    impl PageSource for Pages {
        fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
            self.0.lock().get(id).cloned().ok_or_else(|| Error::missing(id.to_string()))
        }
    }

    /// Returns the segments of a disk with 64 KiB of data at each of these offsets.
    fn of(disk_length: u64, offsets: impl Iterator<Item = u64>, data_max: u64) -> (u64, Vec<Extent>) {
        let pages = Pages::default();
        let sink = |id, bytes: &[u8]| {
            pages.0.lock().insert(id, bytes.to_vec());
            Ok(())
        };
        let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
        let mut builder = RecipeBuilder::new(disk_length, 512, policy, Domain::SHARED, sink);
        let state = State::Data { block: BlockId::of(Kind::Data, b"x"), offset: 0 };
        for offset in offsets {
            builder.push(Entry { extent: Extent::new(offset, 65536), state }).unwrap();
        }
        let (score, _) = builder.finish().unwrap();
        segments(&Recipe::open(score, &pages).unwrap(), data_max).unwrap()
    }

    #[test]
    fn a_disk_with_little_data_is_one_segment_however_long() {
        let sparse = || (0..100).map(|index| index << 34);
        let (length, ranges) = of(1 << 42, sparse(), 16 * MIB);
        assert_eq!((length, ranges), (1 << 42, vec![Extent::new(0, 1 << 42)]));
        assert_eq!(of(0, std::iter::empty(), 16 * MIB).1, [Extent::new(0, 0)]);
        assert_eq!(of(5 * MIB, std::iter::empty(), u64::MAX).1, [Extent::new(0, 5 * MIB)]);
    }

    #[test]
    fn segments_cover_the_disk_and_none_has_too_much() {
        let disk_length = 1000 * MIB + 512;
        // Completely filled up to 300 MiB, sparse after that.
        let offsets: Vec<u64> =
            (0..4800).map(|index| index * 65536).chain((300..1000).map(|index| index * MIB)).collect();
        let (length, ranges) = of(disk_length, offsets.iter().copied(), 100 * MIB);
        assert_eq!(length, 64 * MIB);
        let mut end = 0;
        for range in &ranges {
            assert_eq!((range.offset, range.offset % length), (end, 0));
            end = range.end();
            let data = offsets.iter().filter(|offset| (range.offset..end).contains(offset)).count() * 65536;
            assert!(data as u64 <= 100 * MIB, "{data} bytes in {range:?}");
        }
        assert_eq!(end, disk_length);
    }
}
