//! Growth of a store: what each version added, in order of publishing. Pure: computes sums from records.

use std::collections::HashMap;

use platter_api::{Growth, GrowthPoint, ImageGrowth};
use platter_records::{ImageName, VersionRecord};

/// Returns the growth by these versions, which are sorted by image and number, in at most `points_max` points.
pub(crate) fn growth_of(records: &[VersionRecord], points_max: usize) -> Growth {
    let ordered = in_order(records);
    let mut growth = Growth {
        versions: records.len() as u64,
        stored_bytes: 0,
        allocated_bytes: 0,
        points: Vec::new(),
        images: by_image(records),
    };
    let at_once = ordered.len().div_ceil(points_max.max(1)).max(1);
    for some in ordered.chunks(at_once) {
        let new_stored_bytes = sum(some, |record| record.new_stored_bytes);
        growth.stored_bytes = growth.stored_bytes.saturating_add(new_stored_bytes);
        let allocated = sum(some, |record| record.allocated_bytes);
        growth.allocated_bytes = growth.allocated_bytes.saturating_add(allocated);
        growth.points.extend(some.last().map(|last| GrowthPoint {
            version: last.name().to_string(),
            time_unix_ms: last.time_unix_ms,
            versions: some.len() as u64,
            new_raw_bytes: sum(some, |record| record.new_raw_bytes),
            new_stored_bytes,
            stored_bytes: growth.stored_bytes,
            allocated_bytes: growth.allocated_bytes,
        }));
    }
    growth
}

/// Sorts by time, but keeps the numbers of an image ascending, because clocks jump.
fn in_order(records: &[VersionRecord]) -> Vec<&VersionRecord> {
    let mut latest: HashMap<&ImageName, i64> = HashMap::new();
    let mut timed: Vec<(i64, &VersionRecord)> = records
        .iter()
        .map(|record| {
            let time = latest.entry(&record.image).or_insert(record.time_unix_ms);
            *time = record.time_unix_ms.max(*time);
            (*time, record)
        })
        .collect();
    timed.sort_by(|(a_time, a), (b_time, b)| (a_time, &a.image, a.number).cmp(&(b_time, &b.image, b.number)));
    timed.into_iter().map(|(_, record)| record).collect()
}

fn by_image(records: &[VersionRecord]) -> Vec<ImageGrowth> {
    records
        .chunk_by(|a, b| a.image == b.image)
        .map(|of_one| {
            let of_one: Vec<&VersionRecord> = of_one.iter().collect();
            ImageGrowth {
                image: of_one[0].image.clone(),
                versions: of_one.len() as u64,
                allocated_bytes: sum(&of_one, |record| record.allocated_bytes),
                new_raw_bytes: sum(&of_one, |record| record.new_raw_bytes),
                new_stored_bytes: sum(&of_one, |record| record.new_stored_bytes),
            }
        })
        .collect()
}

/// Saturates: lengths in records come from clients, and their sum may overflow.
fn sum(records: &[&VersionRecord], of: impl Fn(&VersionRecord) -> u64) -> u64 {
    records.iter().fold(0, |sum, record| sum.saturating_add(of(record)))
}

#[cfg(test)]
mod tests {
    use platter_image::{BlockId, Score};

    use super::*;

    fn record(image: &str, number: u64, time: i64, stored: u64) -> VersionRecord {
        let score = Score(BlockId([1; 32]));
        VersionRecord {
            number,
            new_raw_bytes: 2 * stored,
            new_stored_bytes: stored,
            allocated_bytes: 10 * stored,
            ..VersionRecord::draft(image.parse().unwrap(), score, time)
        }
    }

    #[test]
    fn versions_are_in_order_of_publishing() {
        let records = [record("a", 1, 50, 1), record("a", 2, 20, 2), record("b", 1, 30, 4)];
        let growth = growth_of(&records, 100);
        let points: Vec<_> = growth.points.iter().map(|it| (it.version.as_str(), it.stored_bytes)).collect();
        assert_eq!(
            points,
            [("b@1", 4), ("a@1", 5), ("a@2", 7)],
            "a clock that was set back does not change the order"
        );
        assert_eq!((growth.versions, growth.stored_bytes, growth.allocated_bytes), (3, 7, 70));
        assert_eq!(growth.images.len(), 2);
        assert_eq!((growth.images[0].versions, growth.images[0].new_stored_bytes), (2, 3));
    }

    #[test]
    fn many_versions_become_few_points() {
        let records: Vec<_> = (1..=1001).map(|number| record("a", number, number as i64, 1)).collect();
        let growth = growth_of(&records, 100);
        assert_eq!((growth.points.len(), growth.points[0].versions), (91, 11));
        assert_eq!(growth.points.last().map(|last| (last.stored_bytes, last.versions)), Some((1001, 11)));
        assert_eq!(growth.points.iter().map(|point| point.new_stored_bytes).sum::<u64>(), 1001);
    }

    #[test]
    fn sums_of_nothing_and_of_too_much() {
        assert_eq!(growth_of(&[], 10).points, []);
        let huge = [record("a", 1, 1, u64::MAX / 10), record("a", 2, 2, u64::MAX / 10)];
        assert_eq!(growth_of(&huge, 10).allocated_bytes, u64::MAX);
    }
}
