//! Which blocks are in use, according to bitmaps and group metadata.

use platter_image::{Error, Extents, Result};

use super::checksums;
use super::groups::{self, Group};
use super::volume::Volume;
use crate::file_runs::ascending;

/// So many pieces of marked space are read from any filesystem; they take 64 MiB of memory.
const RUNS_MIN: usize = 1 << 22;
/// More are read only from bitmaps with this many bytes for each of them, so that they take no more memory than the bitmaps. Few bytes
/// of a hostile bitmap can name many more.
const BITMAP_BYTES_PER_RUN: u64 = 16;
/// A filesystem with more pieces is not checked: they would take more than 256 MiB of memory.
const RUNS_MAX: usize = 1 << 24;

/// The blocks of a filesystem that are in use: those that are marked, and metadata.
pub(super) struct Allocation {
    /// Blocks marked in the bitmaps.
    pub(super) marked: Extents,
    /// Blocks without a bitmap: groups whose bitmap was never written, and the space before the first group.
    pub(super) blank: Extents,
    /// The metadata of groups: copies, bitmaps, inode tables; in whole clusters.
    pub(super) metadata: Extents,
}

/// Reads all bitmaps.
///
/// # Errors
/// `Corrupt` if a checksum or a count is wrong; errors of reading the disk.
pub(super) fn read(volume: &Volume<'_>, groups: &[Group]) -> Result<Allocation> {
    let superblock = &volume.superblock;
    let metadata = metadata(volume, groups);
    let mut marked = Extents::new();
    let mut bitmap = vec![0; superblock.block_size as usize];
    let mut blank = vec![volume.place(0, superblock.first_data_block)];
    let mut bitmap_bytes = 0;
    for (number, group) in (0..).zip(groups) {
        if group.is_blank {
            let (start, end) = superblock.group_blocks(number);
            blank.push(volume.place(start, end - start));
            continue;
        }
        volume.read(group.block_bitmap, &mut bitmap)?;
        check(volume, number, group, &bitmap)?;
        let (start, end) = superblock.group_blocks(number);
        let clusters = (end - start).div_ceil(superblock.cluster_blocks);
        let mut in_use = 0;
        for_each_run(&bitmap, clusters, |first, count| {
            if in_use == 0 {
                bitmap_bytes += bitmap.len() as u64;
            }
            in_use += count;
            let first = start + first * superblock.cluster_blocks;
            let last = (first + count * superblock.cluster_blocks).min(end);
            marked.push(volume.place(first, last - first));
        });
        if clusters - in_use != u64::from(group.free) {
            return Err(Error::corrupt(format!(
                "group {number} has {} free clusters according to its bitmap, but {} according to its descriptor",
                clusters - in_use,
                group.free
            )));
        }
        let runs_max = runs_max(bitmap_bytes);
        if marked.as_slice().len() > runs_max {
            return Err(Error::corrupt(format!(
                "up to group {number}, its used space is in more than {runs_max} pieces, too many to check"
            )));
        }
    }
    Ok(Allocation { marked, blank: Extents::from_unsorted(blank), metadata })
}

/// How many pieces may be in this many bytes of bitmaps.
fn runs_max(bitmap_bytes: u64) -> usize {
    ((bitmap_bytes / BITMAP_BYTES_PER_RUN) as usize).clamp(RUNS_MIN, RUNS_MAX)
}

impl Allocation {
    /// All blocks in use.
    pub(super) fn into_used(self) -> Extents {
        let mut used = Extents::new();
        for extent in ascending(self.marked.iter().copied(), self.metadata.iter().copied()) {
            used.push(extent);
        }
        used
    }
}

fn check(volume: &Volume<'_>, number: u64, group: &Group, bitmap: &[u8]) -> Result<()> {
    let superblock = &volume.superblock;
    let bits = (superblock.blocks_per_group / superblock.cluster_blocks) as usize;
    if !checksums::is_bitmap_correct(superblock, &bitmap[..bits / 8], group.bitmap_checksum) {
        return Err(Error::corrupt(format!("the block bitmap of group {number} has a wrong checksum")));
    }
    Ok(())
}

/// The metadata of all groups, wherever it is, and everything before the first group.
fn metadata(volume: &Volume<'_>, groups: &[Group]) -> Extents {
    let superblock = &volume.superblock;
    let whole_clusters = |block: u64, count: u64| {
        let first = superblock.first_data_block;
        let unit = superblock.cluster_blocks;
        let start = first + (block - first) / unit * unit;
        let end = (first + (block + count - first).next_multiple_of(unit)).min(superblock.blocks);
        volume.place(start, end - start)
    };
    let mut extents = vec![volume.place(0, superblock.first_data_block)];
    for (number, group) in (0..).zip(groups) {
        let (start, end) = superblock.group_blocks(number);
        extents.push(whole_clusters(start, groups::copies(superblock, number).min(end - start)));
        extents.push(whole_clusters(group.block_bitmap, 1));
        extents.push(whole_clusters(group.inode_bitmap, 1));
        extents.push(whole_clusters(group.inode_table, superblock.inode_table_blocks()));
    }
    Extents::from_unsorted(extents)
}

/// Calls `run` with the first bit and the length of every run of ones among the first `bits` of a bitmap.
fn for_each_run(bitmap: &[u8], bits: u64, mut run: impl FnMut(u64, u64)) {
    let mut open: Option<u64> = None;
    let words = bitmap
        .chunks_exact(8)
        .map(|bytes| bytes.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte)));
    for (word, base) in words.zip((0..bits).step_by(64)) {
        let mut bit = 0;
        while bit < 64 {
            let rest = word >> bit;
            let same = if open.is_some() { rest.trailing_ones() } else { rest.trailing_zeros() };
            bit += same.min(64 - bit);
            if bit == 64 {
                break;
            }
            match open.take() {
                Some(first) if base + u64::from(bit) <= bits => run(first, base + u64::from(bit) - first),
                Some(first) => run(first, bits - first),
                None if base + u64::from(bit) < bits => open = Some(base + u64::from(bit)),
                None => return,
            }
        }
    }
    if let Some(first) = open.filter(|first| *first < bits) {
        run(first, bits - first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn large_filesystems_may_have_more_pieces() {
        let groups = |tib: u64| tib << 13;
        assert_eq!(runs_max(groups(1) * 4096), RUNS_MIN);
        assert_eq!(runs_max(groups(4) * 4096), 1 << 23);
        assert_eq!(runs_max(groups(16) * 4096), RUNS_MAX);
    }

    proptest! {
        #[test]
        fn runs_cover_exactly_the_ones(bitmap in prop::collection::vec(prop_oneof![Just(0_u8), Just(255), any::<u8>()], 64), bits in 0..=512_u64) {
            let mut seen = vec![false; bits as usize];
            let mut end = 0;
            for_each_run(&bitmap, bits, |first, count| {
                assert!(count > 0 && (first > end || end == 0), "runs are apart and ascend");
                end = first + count;
                seen[first as usize..end as usize].fill(true);
            });
            for (bit, seen) in seen.iter().enumerate() {
                prop_assert_eq!(*seen, bitmap[bit / 8] >> (bit % 8) & 1 == 1, "bit {}", bit);
            }
        }
    }
}
