//! A set of clusters, one bit each.
//!
//! Bits are in the order of the bitmaps of exFAT and NTFS: the lowest bit of the first byte is the first cluster.

use platter_image::{Error, Extents, Result};

use super::Clusters;

/// A set with more runs of clusters is not converted: it would take too much memory.
const RUNS_MAX: usize = 1 << 22;

/// A set of clusters, by their numbers counted from 0.
#[derive(Debug, Default)]
pub(crate) struct ClusterSet {
    bits: Vec<u8>,
    count: u64,
}

impl ClusterSet {
    /// The empty set, for `count` clusters.
    pub(crate) fn new(count: u64) -> Self {
        Self { bits: vec![0; count.div_ceil(8) as usize], count }
    }

    /// The set that a bitmap contains. Missing bits are clear.
    pub(crate) fn from_bitmap(mut bits: Vec<u8>, count: u64) -> Self {
        bits.resize(count.div_ceil(8) as usize, 0);
        Self { bits, count }
    }

    /// Adds a cluster. Returns whether it is new; `false` for one that does not exist.
    pub(crate) fn insert(&mut self, index: u64) -> bool {
        let is_new = index < self.count && !self.contains(index);
        if is_new {
            self.bits[(index / 8) as usize] |= 1 << (index % 8);
        }
        is_new
    }

    /// Whether the cluster is in the set.
    pub(crate) fn contains(&self, index: u64) -> bool {
        index < self.count && self.bits[(index / 8) as usize] >> (index % 8) & 1 == 1
    }

    /// The first cluster that is in this set and not in the other.
    pub(crate) fn first_beyond(&self, other: &Self) -> Option<u64> {
        let byte = self.bits.iter().zip(&other.bits).position(|(own, theirs)| own & !theirs != 0)?;
        let start = byte as u64 * 8;
        (start..start + 8).find(|index| self.contains(*index) && !other.contains(*index))
    }

    /// Calls `visit` with the start and length of each run of clusters in the set.
    fn for_each_run(&self, mut visit: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
        let mut start = None;
        let mut index = 0;
        while index < self.count {
            let byte = self.bits[(index / 8) as usize];
            // Most bytes are full or empty.
            if index.is_multiple_of(8) && byte == if start.is_some() { 0xff } else { 0 } {
                index += 8;
                continue;
            }
            match (start, self.contains(index)) {
                (None, true) => start = Some(index),
                (Some(first), false) => {
                    visit(first, index - first)?;
                    start = None;
                }
                _ => {}
            }
            index += 1;
        }
        start.map_or(Ok(()), |first| visit(first, self.count - first))
    }

    /// Where the clusters of the set lie on the disk.
    ///
    /// # Errors
    /// `Corrupt` if they are in too many pieces.
    pub(crate) fn places(&self, clusters: &Clusters<'_>) -> Result<Extents> {
        let mut places = Extents::new();
        self.for_each_run(|first, count| {
            places.push(clusters.at(clusters.first() + first, count));
            match places.as_slice().len() < RUNS_MAX {
                true => Ok(()),
                false => Err(Error::corrupt(format!("its used space is in more than {RUNS_MAX} pieces"))),
            }
        })?;
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Runs are those of the single bits, whatever the number of clusters.
        #[test]
        fn runs_agree_with_bits(bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 1..12), less in 0..8_u64) {
            let count = bytes.len() as u64 * 8 - less;
            let set = ClusterSet::from_bitmap(bytes, count);
            let mut bits = vec![false; count as usize];
            let mut end = None;
            set.for_each_run(|first, length| {
                assert!(length > 0 && end.is_none_or(|end| first > end), "runs do not touch");
                end = Some(first + length);
                bits[first as usize..(first + length) as usize].fill(true);
                Ok(())
            }).unwrap();
            for (index, bit) in bits.iter().enumerate() {
                prop_assert_eq!(set.contains(index as u64), *bit);
            }
        }
    }

    #[test]
    fn clusters_are_added_once_and_only_if_they_exist() {
        let (mut set, mut other) = (ClusterSet::new(10), ClusterSet::new(10));
        assert!(set.insert(9) && !set.insert(9) && !set.insert(10) && !set.contains(10));
        assert_eq!(set.first_beyond(&other), Some(9));
        other.insert(9);
        assert_eq!((set.first_beyond(&other), other.first_beyond(&set)), (None, None));
    }
}
