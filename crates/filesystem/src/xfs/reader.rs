//! Determines which bytes of a filesystem are kept: everything that is neither free nor unwritten.

use platter_image::{DiskRead, Error, Extent, Extents, Result};

use super::claims::Claims;
use super::free_space;
use super::group::{Group, HEADERS};
use super::log::Log;
use super::volume::Volume;

use crate::reader::{Identity, Map, Reader, needs_recovery, unsupported};

/// An XFS filesystem.
pub(crate) struct Xfs<'d> {
    volume: Volume<'d>,
}

impl<'d> Reader<'d> for Xfs<'d> {
    const NAME: &'static str = "xfs";

    fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        Ok(Self { volume: Volume::open(disk, extent)? })
    }

    fn identity(&self) -> Identity {
        let superblock = &self.volume.superblock;
        Identity {
            filesystem: "xfs".to_owned(),
            label: superblock.label.clone(),
            uuid: superblock.uuid.clone(),
            block_size: superblock.block_size,
            length: superblock.length(),
        }
    }

    fn map(&self) -> Result<Map> {
        let volume = &self.volume;
        let superblock = &volume.superblock;
        if let Some(reason) = &superblock.unsupported {
            return Err(unsupported(reason.clone()));
        }
        if superblock.needs_repair {
            return Err(needs_recovery("it is marked as needing repair", "Run xfs_repair on it"));
        }
        Log::check(volume)?.check_passes()?;
        let mut groups = Vec::new();
        let mut free = Extents::new();
        for number in 0..superblock.groups {
            let group = Group::read(volume, number)?;
            free_space::add(volume, &group, &mut free)?;
            groups.push(group);
        }
        check_total(volume, &groups)?;
        let (files, unwritten) = Claims::gather(volume, &groups, &free)?.agreed()?;
        let whole = Extent::new(volume.extent.offset, superblock.length());
        let padding = (1..superblock.groups).map(|number| header_padding(volume, number));
        let unused = Extents::from_unsorted(unwritten.iter().copied().chain(padding).collect());
        let allocated = free.complement(whole).subtract(&unused);
        Ok(Map { allocated, files: files.into_vec(), ..Map::default() })
    }
}

/// The rest of the last block with headers of a group, which no version of XFS writes or reads. That of the first group is
/// kept: Syslinux puts its boot sector there, at offset 2048.
fn header_padding(volume: &Volume<'_>, group: u32) -> Extent {
    let headers = HEADERS * u64::from(volume.superblock.sector_size);
    let start = volume.sector(group, 0);
    Extent::between(start + headers, start + headers.next_multiple_of(volume.block_size()))
}

/// The superblock counts the free blocks, too. Kernels that count lazily write the number at an unmount, and correct it at
/// the next mount, so only an exact counter is compared.
fn check_total(volume: &Volume<'_>, groups: &[Group]) -> Result<()> {
    let superblock = &volume.superblock;
    let listed = |group: &Group| u64::from(group.free_blocks) + group.free_list.len() as u64;
    let total: u64 = groups.iter().map(listed).sum();
    if superblock.has_lazy_counts || total == superblock.free_blocks {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "its groups have {total} free blocks, but its superblock says {}",
        superblock.free_blocks
    )))
}
