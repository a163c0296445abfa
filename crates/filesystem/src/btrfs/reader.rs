//! Determines which bytes of a filesystem are kept: allocated extents in all their copies, the superblocks, and the first
//! MiB.

use platter_image::{DiskRead, Error, Extent, Extents, Result};

use super::claims::{Files, Trees};
use super::extents::{self, Allocated, covers};
use super::superblock::{LENGTH, PLACES};
use super::volume::Volume;
use super::walk::Walker;
use crate::reader::{Identity, Map, Reader, needs_recovery, unsupported};

/// The numbers of trees.
const EXTENT_TREE: u64 = 2;
const DEVICE_TREE: u64 = 4;
const BLOCK_GROUP_TREE: u64 = 11;

/// Reserved for boot loaders; a chunk lies here only in old filesystems.
const START_KEPT: u64 = 1 << 20;

/// A btrfs filesystem.
pub(crate) struct Btrfs<'d> {
    volume: Volume<'d>,
}

impl<'d> Reader<'d> for Btrfs<'d> {
    const NAME: &'static str = "btrfs";

    fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        Ok(Self { volume: Volume::open(disk, extent)? })
    }

    fn identity(&self) -> Identity {
        let superblock = &self.volume.superblock;
        Identity {
            filesystem: "btrfs".to_owned(),
            label: superblock.label.clone(),
            uuid: superblock.uuid.clone(),
            block_size: superblock.sector_size,
            length: superblock.length,
        }
    }

    fn map(&self) -> Result<Map> {
        let volume = &self.volume;
        let superblock = &volume.superblock;
        if let Some(reason) = &superblock.unsupported {
            return Err(unsupported(reason.clone()));
        }
        if superblock.has_errors {
            return Err(needs_recovery("it is marked as having errors", "Run `btrfs check` on it"));
        }
        if superblock.has_log {
            return Err(unapplied_log());
        }
        let chunks = volume.chunks()?;
        let mut walker = Walker::new(volume, &chunks);
        let mut files = Files::new(volume, &chunks);
        // Again, now by the complete map of chunks; the blocks of this tree must be allocated, too.
        walker.walk("chunk", superblock.chunk_tree, &mut |_, _| Ok(()))?;
        let trees = Trees::read(volume, &mut walker, &mut files)?;
        let groups = match superblock.has_block_group_tree {
            true => Some(trees.get(BLOCK_GROUP_TREE)?),
            false => None,
        };
        let allocated = Allocated::read(volume, &chunks, &mut walker, trees.get(EXTENT_TREE)?, groups)?;
        extents::check_device(&chunks, &mut walker, trees.get(DEVICE_TREE)?, superblock.device)?;
        for (number, root) in trees.all() {
            walker.walk(&format!("number {number}"), root, &mut |key, item| files.add(key, item))?;
            files.end()?;
        }
        check_blocks(&walker, &allocated, superblock.node_size)?;
        files.swap_files.check(volume, &chunks)?;
        let (files, unwritten) = files.agreed(&allocated)?;
        let written = allocated.data.subtract(&unwritten);
        let places = [&written, &allocated.metadata].map(|extents| chunks.places(extents));
        let whole = Extent::new(0, superblock.length);
        let kept =
            PLACES.iter().map(|place| Extent::new(*place, LENGTH as u64)).chain([Extent::new(0, START_KEPT)]);
        let kept = kept.filter_map(|extent| extent.intersect(&whole));
        let all: Extents = places.iter().flatten().copied().chain(kept).collect();
        Ok(Map { allocated: all.shift(volume.extent.offset), files, ..Map::default() })
    }
}

/// The error for a filesystem with a log.
pub(super) fn unapplied_log() -> Error {
    needs_recovery("its log contains changes that were not applied yet", "Mount and unmount it")
}

/// Checks that every tree block that was read is allocated.
fn check_blocks(walker: &Walker<'_, '_>, allocated: &Allocated, node_size: u32) -> Result<()> {
    match walker.seen().find(|address| !covers(&allocated.metadata, *address, node_size.into())) {
        Some(address) => Err(Error::corrupt(format!(
            "the tree block at address {address} is in use, but is free according to the extent tree"
        ))),
        None => Ok(()),
    }
}
