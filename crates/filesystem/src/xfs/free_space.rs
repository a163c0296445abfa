//! Which blocks are free, according to both trees of free space and the free list of each group.

use platter_image::{Error, Extent, Extents, Result};

use super::group::{Group, Root};
use super::short_tree::{Kind, ShortTree};
use super::volume::Volume;
use crate::fields::be32;

pub(super) const BY_PLACE: Kind =
    Kind { name: "free space", magics: [b"ABTB", b"AB3B"], key_length: 8, record_length: 8 };
pub(super) const BY_LENGTH: Kind =
    Kind { name: "free length", magics: [b"ABTC", b"AB3C"], key_length: 8, record_length: 8 };

/// A filesystem with more free extents is not read: they would take more than 256 MiB of memory.
const FREE_EXTENTS_MAX: usize = 1 << 24;

/// Adds the free space of one group to `free`, in ascending order. All offsets are those of the device.
///
/// # Errors
/// `Corrupt` if trees, list and header of the group contradict each other; errors of reading the disk.
pub(super) fn add(volume: &Volume<'_>, group: &Group, free: &mut Extents) -> Result<()> {
    let number = group.number;
    let limit = FREE_EXTENTS_MAX - free.as_slice().len().min(FREE_EXTENTS_MAX);
    let mut extents = records(volume, group, BY_PLACE, group.by_place, limit)?;
    let mut by_length = records(volume, group, BY_LENGTH, group.by_length, limit)?;
    by_length.sort_unstable();
    if let Some((one, other)) = extents.iter().zip(&by_length).find(|(one, other)| one != other) {
        return Err(Error::corrupt(format!(
            "the two trees of free space of group {number} contradict each other at blocks {} and {}",
            one.0, other.0
        )));
    }
    let total: u64 = extents.iter().map(|(_, count)| u64::from(*count)).sum();
    let longest = extents.iter().map(|(_, count)| *count).max().unwrap_or(0);
    if extents.len() != by_length.len() || total != group.free_blocks.into() || longest != group.longest {
        return Err(Error::corrupt(format!(
            "the trees of free space of group {number} have {} and {} extents, {total} blocks, the longest {longest}; its header \
             says {} blocks, the longest {}",
            extents.len(),
            by_length.len(),
            group.free_blocks,
            group.longest
        )));
    }
    extents.extend(group.free_list.iter().map(|block| (*block, 1)));
    extents.sort_unstable();
    let mut end = 0;
    for (start, count) in extents {
        let place = volume.place_in_group(number, start, count.into());
        let Some(place) = place.filter(|_| start >= end) else {
            return Err(Error::corrupt(format!(
                "{count} free blocks at block {start} of group {number} overlap others or are outside of the group"
            )));
        };
        end = start + count;
        free.push(place);
    }
    Ok(())
}

/// The records of one tree: first block and number of blocks.
fn records(
    volume: &Volume<'_>,
    group: &Group,
    kind: Kind,
    root: Root,
    limit: usize,
) -> Result<Vec<(u32, u32)>> {
    let mut records: Vec<(u32, u32)> = Vec::new();
    let key = |record: (u32, u32)| if kind.name == BY_PLACE.name { record } else { (record.1, record.0) };
    ShortTree::new(volume, group.number, kind).records(root, &mut |bytes| {
        let record = (be32(bytes, 0), be32(bytes, 4));
        if records.last().is_some_and(|last| key(*last) >= key(record)) {
            return Err(Error::corrupt(format!(
                "the {} tree of group {} is not in order at block {}",
                kind.name, group.number, record.0
            )));
        }
        if records.len() >= limit {
            return Err(Error::corrupt(format!(
                "it has more than {FREE_EXTENTS_MAX} free extents, too many to check"
            )));
        }
        records.push(record);
        Ok(())
    })?;
    Ok(records)
}

/// Whether some byte of `extent` is free.
pub(super) fn overlaps(free: &Extents, extent: Extent) -> bool {
    let free = free.as_slice();
    let after = free.partition_point(|one| one.end() <= extent.offset);
    free.get(after).is_some_and(|one| one.offset < extent.end())
}
