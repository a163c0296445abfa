//! A blocked Bloom filter (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007): which ids a segment may
//! have. Each id sets bits in one group of 64 bytes, so a question touches one cache line.
//!
//! The number of groups is a power of two. So a filter can be folded: the groups of its second half are added to those of the
//! first, which halves the memory at the cost of more false positives. There are no false negatives.
//!
//! Ids are hashes, so their bytes serve as hash values. Whoever chooses ids can cause false positives, which cost time only.

use platter_image::BlockId;

/// Length of a group in bytes.
pub(super) const GROUP_LENGTH: u64 = 64;
/// Bits per id that a new filter has at least; at most twice as many.
const BITS_PER_ID: u64 = 8;
/// Number of bits that an id sets.
const PROBES: u32 = 4;
/// log2 of the bits in a group.
const GROUP_BITS_LOG2: u32 = 9;
/// Maximum log2 of the number of groups: filters of 4 GiB.
pub(super) const GROUPS_LOG2_MAX: u32 = 26;

type Group = [u64; 8];

/// A filter in memory.
#[derive(Debug)]
pub(super) struct Filter {
    groups: Vec<Group>,
}

/// Returns the log2 of the number of groups for that many ids.
pub(super) fn groups_log2_for(ids: u64) -> u32 {
    let groups = (ids.saturating_mul(BITS_PER_ID) >> GROUP_BITS_LOG2).max(1);
    groups.checked_next_power_of_two().map_or(GROUPS_LOG2_MAX, u64::ilog2).min(GROUPS_LOG2_MAX)
}

/// Returns the length in bytes of a filter with 2^`groups_log2` groups.
pub(super) fn length_of(groups_log2: u32) -> u64 {
    GROUP_LENGTH << groups_log2.min(GROUPS_LOG2_MAX)
}

impl Filter {
    pub(super) fn new(groups_log2: u32) -> Self {
        Self { groups: vec![[0; 8]; 1 << groups_log2.min(GROUPS_LOG2_MAX)] }
    }

    pub(super) fn add(&mut self, id: &BlockId) {
        let (group, bits) = self.place(id);
        let group = &mut self.groups[group];
        bits.for_each(|bit| group[(bit >> 6) as usize] |= 1 << (bit & 63));
    }

    /// Returns false if the id was certainly not added.
    pub(super) fn may_have(&self, id: &BlockId) -> bool {
        let (group, mut bits) = self.place(id);
        let group = &self.groups[group];
        bits.all(|bit| group[(bit >> 6) as usize] & 1 << (bit & 63) != 0)
    }

    /// Halves the filter until it has at most 2^`groups_log2` groups.
    pub(super) fn fold_to(&mut self, groups_log2: u32) {
        while self.groups.len() > 1 << groups_log2 {
            let half = self.groups.len() / 2;
            let (low, high) = self.groups.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                low.iter_mut().zip(high).for_each(|(low, high)| *low |= *high);
            }
            self.groups.truncate(half);
            self.groups.shrink_to_fit();
        }
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.groups.len() * GROUP_LENGTH as usize
    }

    /// Returns groups in the order of the file, `count` of them from `first`.
    pub(super) fn encode(&self, first: usize, count: usize) -> Vec<u8> {
        let groups = self.groups.iter().skip(first).take(count);
        groups.flatten().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Adds groups of a file, the first of which has number `first`. Numbers beyond the filter's groups are folded.
    pub(super) fn add_groups(&mut self, first: usize, bytes: &[u8]) {
        let mask = self.groups.len() - 1;
        for (at, group) in bytes.chunks_exact(GROUP_LENGTH as usize).enumerate() {
            let into = &mut self.groups[(first + at) & mask];
            for (word, bytes) in into.iter_mut().zip(group.chunks_exact(8)) {
                *word |= u64::from_le_bytes(std::array::from_fn(|at| bytes[at]));
            }
        }
    }

    /// Returns the group of an id, and the bits in it.
    fn place(&self, id: &BlockId) -> (usize, impl Iterator<Item = u64> + use<>) {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| id.0[at + byte]));
        let (group, bits) = (number(8), number(16));
        let bit = move |probe| bits >> (GROUP_BITS_LOG2 * probe) & ((1 << GROUP_BITS_LOG2) - 1);
        (group as usize & (self.groups.len() - 1), (0..PROBES).map(bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::Kind;

    fn id(number: u64) -> BlockId {
        BlockId::of(Kind::Data, &number.to_le_bytes())
    }

    /// No false negatives, also after folding and after reading; few false positives.
    #[test]
    fn it_has_what_was_added_and_little_else() {
        const IDS: u64 = 20_000;
        let groups_log2 = groups_log2_for(IDS);
        let mut filter = Filter::new(groups_log2);
        (0..IDS).for_each(|number| filter.add(&id(number)));
        let mut read = Filter::new(groups_log2 - 1);
        let half = filter.groups.len() / 2;
        read.add_groups(0, &filter.encode(0, half));
        read.add_groups(half, &filter.encode(half, half));
        let positives =
            |filter: &Filter| (IDS..2 * IDS).filter(|number| filter.may_have(&id(*number))).count();
        assert!((0..IDS).all(|number| filter.may_have(&id(number))));
        assert!(positives(&filter) < 20_000 * 4 / 100, "{}", positives(&filter));
        filter.fold_to(groups_log2 - 1);
        assert_eq!(filter.groups, read.groups);
        assert!((0..IDS).all(|number| read.may_have(&id(number))));
        assert!(positives(&read) < 20_000 * 25 / 100, "{}", positives(&read));
    }
}
