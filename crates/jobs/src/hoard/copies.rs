//! Distinguishes copies of a disk from boots, with the recipe of the version.
//!
//! A copy may skip the holes of the disk, so its reads can lie in many separate ranges, like those of a boot. But a range of a
//! copy ends only where data ends, or at the position of one of its threads. So only ranges that end in the middle of data
//! count ([`platter_vdisk::has_places_of_a_boot`]).

use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{Extent, Result, Score};
use platter_vdisk::{RangeSet, has_places_of_a_boot};

/// Reads of more than this many eighths of the data are a copy of the disk, in whatever order.
const EIGHTHS_MAX: u64 = 6;

/// Whether reads of these ranges of a version are a copy, and not a boot. `allocated_bytes` is what the version holds.
///
/// # Errors
/// `Missing` or `Corrupt` when a page cannot be had.
pub(super) fn is_copy(
    score: Score,
    ranges: &[Extent],
    allocated_bytes: u64,
    pages: impl PageSource,
) -> Result<bool> {
    let recipe = Recipe::open(score, pages)?;
    let mut places = RangeSet::default();
    ranges.iter().for_each(|range| places.add(*range));
    let (mut data_bytes, mut cut_places) = (0, 0);
    for place in places.iter() {
        for entry in recipe.entries(place) {
            let entry = entry?;
            data_bytes += if is_data(&entry.state) { entry.extent.length } else { 0 };
        }
        let next = Extent::between(place.end(), (place.end() + 512).min(recipe.root().disk_length));
        if let Some(entry) = recipe.entries(next).next() {
            cut_places += u64::from(is_data(&entry?.state));
        }
    }
    Ok(data_bytes > allocated_bytes / 8 * EIGHTHS_MAX || !has_places_of_a_boot(cut_places, data_bytes))
}

fn is_data(state: &State) -> bool {
    matches!(state, State::Data { .. })
}

#[cfg(test)]
mod tests {
    use platter_store::{Store, StorePlace};

    use super::*;
    use crate::tests::capture_bytes;

    const KIB: u64 = 1 << 10;
    const DISK: u64 = 16 << 20;

    /// A disk with 32 KiB of data in every 64 KiB.
    #[test]
    fn a_copy_that_leaves_out_holes_is_one_wherever_it_stops() {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path());
        Store::init(&place).unwrap();
        let byte = |at: u64| if at % (64 * KIB) < 32 * KIB { (at / 977 % 251 + 1) as u8 } else { 0 };
        capture_bytes(&place, "a", &(0..DISK).map(byte).collect::<Vec<u8>>());
        let store = Store::open_reader(&place).unwrap();
        let record = store.resolve("a").unwrap().version.unwrap().record;
        let is_copy =
            |ranges: &[Extent]| is_copy(record.score, ranges, record.allocated_bytes, &store).unwrap();
        let pieces = |length: u64| (0..DISK / (64 * KIB)).map(move |n| Extent::new(n * 64 * KIB, length));
        let all: Vec<Extent> = pieces(32 * KIB).collect();
        for part in 1..=8 {
            assert!(is_copy(&all[..all.len() * part / 8]), "{part}/8 of the data");
            assert!(is_copy(&[Extent::new(0, DISK / 8 * part as u64)]), "{part}/8 of the disk");
        }
        let three: Vec<Extent> =
            [0, 5, 11].iter().flat_map(|part| all[part * 16..][..20].iter().copied()).collect();
        assert!(is_copy(&three), "several threads");
        // A boot stops in the middle of files.
        let scattered: Vec<Extent> = pieces(16 * KIB).step_by(3).collect();
        assert!(!is_copy(&scattered));
        assert!(is_copy(&scattered[..20]), "of too few");
        let random: Vec<Extent> = pieces(28 * KIB).collect();
        let is_copy_of = |bytes| super::is_copy(record.score, &random, bytes, &store).unwrap();
        assert!(is_copy_of(DISK / 2) && !is_copy_of(DISK), "of nearly everything");
    }
}
