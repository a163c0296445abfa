//! Checks that the bitmaps agree with everything else: each claimed block is marked in use and has one owner,
//! the metadata of groups is marked in use, and every inode with a name was examined.
//!
//! Bitmaps that contradict any of this are wrong, so the filesystem is kept in full. Deleted inodes claim
//! nothing and contradict nothing.

use std::ops::ControlFlow;

use platter_image::chunking::FileRun;
use platter_image::{Error, Extent, Extents, Result};

use super::allocation::Allocation;
use super::claims::Claims;
use super::groups::Group;
use super::volume::Volume;
use super::{attributes, checksums, directory, features};
use crate::file_runs::ascending;

/// Directories are read in pieces of at most this many bytes.
const READ_LENGTH: u64 = 1 << 20;
/// Gaps of at most this many bytes between directories are read along with them.
const GAP_READ_THROUGH: u64 = 64 << 10;

/// Makes all checks; sorts the claims. Returns the blocks that are in use only because they share a cluster with others: nothing
/// refers to them, and a system writes all of such a block before it reads any of it.
///
/// # Errors
/// `Corrupt` with the contradiction; errors of reading the disk.
pub(super) fn check(
    volume: &Volume<'_>,
    groups: &[Group],
    allocation: &Allocation,
    claims: &mut Claims,
) -> Result<Extents> {
    check_metadata(volume, allocation)?;
    // Inodes may share a block of attributes.
    let attributes = Extents::from_unsorted(std::mem::take(&mut claims.attributes));
    let rests = check_claims(volume, allocation, claims, &attributes)?;
    check_inode_bitmaps(volume, groups)?;
    check_values(volume, claims, &attributes)?;
    check_names(volume, claims)?;
    Ok(rests)
}

fn check_metadata(volume: &Volume<'_>, allocation: &Allocation) -> Result<()> {
    let free = allocation.metadata.subtract(&allocation.marked).subtract(&allocation.blank);
    match free.as_slice().first() {
        Some(first) => Err(Error::corrupt(format!(
            "block {} is group metadata, but the block bitmaps mark it as free",
            volume.block_at(first.offset)
        ))),
        None => Ok(()),
    }
}

fn check_claims(
    volume: &Volume<'_>,
    allocation: &Allocation,
    claims: &mut Claims,
    attributes: &Extents,
) -> Result<Extents> {
    claims.files.sort();
    let mut others = std::mem::take(&mut claims.others);
    others.extend(claims.unwritten.iter().chain(attributes));
    others.sort_unstable();
    let wrong = |extent: Extent, what: &str| {
        Error::corrupt(format!("block {}{what}", volume.block_at(extent.offset)))
    };
    let (mut marked, mut metadata) = (allocation.marked.as_slice(), allocation.metadata.as_slice());
    let mut end = 0;
    for claim in ascending(claims.files.as_slice().iter().map(FileRun::extent), others.iter().copied()) {
        if claim.offset < end {
            return Err(wrong(claim, " is claimed twice"));
        }
        end = claim.end();
        if !covers(&mut marked, claim) {
            return Err(wrong(
                claim,
                ", or one close after it, is in use, but the block bitmaps mark it as free",
            ));
        }
        skip_before(&mut metadata, claim);
        if metadata.first().is_some_and(|extent| extent.offset < claim.end()) {
            return Err(wrong(claim, " is claimed by an inode, but is group metadata"));
        }
    }
    let reserved = Extents::from_unsorted(std::mem::take(&mut claims.reserved));
    if let Some(first) =
        reserved.subtract(&allocation.marked).subtract(&allocation.metadata).as_slice().first()
    {
        return Err(wrong(*first, " is reserved, but the block bitmaps mark it as free"));
    }
    let claimed = || claims.files.as_slice().iter().map(FileRun::extent).chain(others.iter().copied());
    Ok(rests_of_clusters(volume, claimed).subtract(&allocation.metadata).subtract(&reserved))
}

/// The blocks of clusters with claimed blocks that are not claimed themselves.
fn rests_of_clusters<I: Iterator<Item = Extent>>(volume: &Volume<'_>, claimed: impl Fn() -> I) -> Extents {
    let superblock = &volume.superblock;
    let (start, cluster) =
        (volume.place(0, 0).offset, superblock.cluster_blocks * u64::from(superblock.block_size));
    if superblock.cluster_blocks == 1 {
        return Extents::new();
    }
    let whole = claimed().map(|claim| {
        let first = (claim.offset - start) / cluster * cluster;
        Extent::between(start + first, start + (claim.end() - start).next_multiple_of(cluster))
    });
    Extents::from_unsorted(whole.collect()).subtract(&Extents::from_unsorted(claimed().collect()))
}

/// Skips extents that end before `claim` begins.
fn skip_before(extents: &mut &[Extent], claim: Extent) {
    while extents.first().is_some_and(|extent| extent.end() <= claim.offset) {
        *extents = &extents[1..];
    }
}

/// Whether `claim` lies in one of the extents, which do not touch each other. Claims must come in ascending
/// order.
fn covers(extents: &mut &[Extent], claim: Extent) -> bool {
    skip_before(extents, claim);
    extents.first().is_some_and(|extent| extent.offset <= claim.offset && claim.end() <= extent.end())
}

/// The never-used end of an inode table is not read, so the inode bitmap must agree that it is unused.
fn check_inode_bitmaps(volume: &Volume<'_>, groups: &[Group]) -> Result<()> {
    let per_group = volume.superblock.inodes_per_group;
    let mut bitmap = vec![0; volume.superblock.block_size as usize];
    let has_unused = |group: &Group| group.inodes > 0 && group.inodes < per_group;
    for (number, group) in (0_u32..).zip(groups).filter(|(_, group)| has_unused(group)) {
        volume.read(group.inode_bitmap, &mut bitmap)?;
        let used = &bitmap[..per_group as usize / 8];
        if !checksums::is_bitmap_correct(&volume.superblock, used, group.inode_bitmap_checksum) {
            return Err(Error::corrupt(format!("the inode bitmap of group {number} has a wrong checksum")));
        }
        let is_set = |inode: &u32| bitmap[*inode as usize / 8] >> (inode % 8) & 1 == 1;
        if let Some(inode) = (group.inodes..per_group).find(is_set) {
            return Err(Error::corrupt(format!(
                "inode {} is in use according to its bitmap, but was never used according to its group descriptor",
                number * per_group + inode + 1
            )));
        }
    }
    Ok(())
}

/// Checks that every inode that holds the value of an attribute in one of these blocks is in use. Each block is read once, however many
/// inodes share it.
fn check_values(volume: &Volume<'_>, claims: &Claims, attributes: &Extents) -> Result<()> {
    if !volume.superblock.features.incompat(features::INCOMPAT_EA_INODE) {
        return Ok(());
    }
    let size = volume.superblock.block_size as usize;
    let mut bytes = vec![0; size];
    for at in attributes.iter().flat_map(|extent| (extent.offset..extent.end()).step_by(size)) {
        let block = volume.block_at(at);
        volume.read(block, &mut bytes)?;
        attributes::in_block(&bytes, &mut |_, _, value| match value {
            attributes::Value::Inode(number, _) if !claims.in_use.contains(number) => {
                Err(Error::corrupt(format!("a value is in inode {number}, which is not in use")))
            }
            _ => Ok(()),
        })
        .map_err(|error| Error::corrupt(format!("the attributes in block {block}: {error}")))?;
    }
    Ok(())
}

/// Checks that every name refers to an inode in use.
fn check_names(volume: &Volume<'_>, claims: &mut Claims) -> Result<()> {
    let in_use = &claims.in_use;
    let check = |number: u32| match in_use.contains(number) {
        true => Ok(()),
        false => Err(Error::corrupt(format!("a name refers to inode {number}, which is not in use"))),
    };
    claims.named.iter().try_for_each(|number| check(*number))?;
    let directories = Extents::from_unsorted(std::mem::take(&mut claims.directories));
    let block_size = u64::from(volume.superblock.block_size);
    let (mut window, mut buffer) = (Extent::new(0, 0), Vec::new());
    let mut rest = directories.as_slice();
    while let Some(first) = rest.first() {
        for at in (first.offset..first.end()).step_by(block_size as usize) {
            if at + block_size > window.end() {
                window = next_window(rest, at);
                buffer.resize(window.length as usize, 0);
                volume.read(volume.block_at(at), &mut buffer)?;
            }
            let start = (at - window.offset) as usize;
            for entry in directory::entries(&buffer[start..start + block_size as usize]) {
                let (number, _) = entry?;
                if number != 0 {
                    check(number)?;
                }
            }
        }
        rest = &rest[1..];
    }
    Ok(())
}

/// The range to read next, from `start`, which lies in the first extent.
fn next_window(extents: &[Extent], start: u64) -> Extent {
    let limit = start + READ_LENGTH;
    let end = extents.iter().try_fold(start, |end, extent| {
        if extent.offset.max(start) > end + GAP_READ_THROUGH || extent.offset >= limit {
            return ControlFlow::Break(end);
        }
        ControlFlow::Continue(extent.end().min(limit))
    });
    let (ControlFlow::Break(end) | ControlFlow::Continue(end)) = end;
    Extent::between(start, end)
}
