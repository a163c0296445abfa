//! Ranges of a disk, merged where they touch.

use std::collections::BTreeMap;

use platter_image::Extent;

/// A set of bytes of a disk, as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// Adds a range.
    pub fn add(&mut self, range: Extent) {
        if range.length == 0 {
            return;
        }
        let (mut start, mut end) = (range.offset, range.end());
        // All ranges that touch it, from its end downwards.
        while let Some((from, to)) = self.0.range(..=end).next_back().map(|(from, to)| (*from, *to)) {
            if to < start {
                break;
            }
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// Whether all of a range is in the set.
    pub fn contains(&self, range: Extent) -> bool {
        range.length == 0
            || self.0.range(..=range.offset).next_back().is_some_and(|(_, to)| *to >= range.end())
    }

    /// The parts of a range that are not in the set, in order.
    pub fn absent(&self, range: Extent) -> Vec<Extent> {
        let (mut parts, mut at) = (Vec::new(), range.offset);
        let first = self.0.range(..=at).next_back().map_or(at, |(from, _)| *from);
        for (from, to) in self.0.range(first..range.end().max(first)) {
            if *from > at {
                parts.push(Extent::between(at, *from));
            }
            at = at.max(*to);
        }
        if at < range.end() {
            parts.push(Extent::between(at, range.end()));
        }
        parts
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.0.iter().map(|(start, end)| Extent::between(*start, *end))
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u64, u64)]) -> RangeSet {
        let mut set = RangeSet::default();
        ranges.iter().for_each(|(offset, length)| set.add(Extent::new(*offset, *length)));
        set
    }

    #[test]
    fn ranges_that_touch_are_merged() {
        let set = set(&[(10, 10), (30, 10), (20, 5), (5, 5), (100, 0)]);
        assert_eq!(set.0.iter().map(|(a, b)| (*a, *b)).collect::<Vec<_>>(), [(5, 25), (30, 40)]);
        let contains = |offset, length| set.contains(Extent::new(offset, length));
        assert!(contains(5, 20) && contains(39, 1) && contains(50, 0));
        assert!(!contains(4, 2) && !contains(24, 2) && !contains(26, 2) && !contains(40, 1));
    }

    #[test]
    fn absent_parts_are_returned_in_order() {
        let set = set(&[(5, 20), (30, 10)]);
        let absent = |offset, length| {
            let parts = set.absent(Extent::new(offset, length));
            parts.iter().map(|part| (part.offset, part.end())).collect::<Vec<_>>()
        };
        assert_eq!(absent(0, 50), [(0, 5), (25, 30), (40, 50)]);
        assert_eq!((absent(6, 3), absent(24, 2), absent(50, 1)), (vec![], vec![(25, 26)], vec![(50, 51)]));
        assert_eq!(absent(50, 0), []);
    }
}
