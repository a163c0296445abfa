//! Determines which bytes of a filesystem are kept: combines allocation, claims and journal.

use platter_image::{DiskRead, Extent, Extents, Result};

use super::claims::Claims;
use super::volume::Volume;
use super::{agreement, allocation, groups, journal};
use crate::reader::{Identity, Map, Reader};

/// An ext2, ext3 or ext4 filesystem.
pub(crate) struct Ext<'d> {
    volume: Volume<'d>,
}

impl<'d> Reader<'d> for Ext<'d> {
    const NAME: &'static str = "ext";

    fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        Ok(Self { volume: Volume::open(disk, extent)? })
    }

    fn identity(&self) -> Identity {
        let superblock = &self.volume.superblock;
        Identity {
            filesystem: superblock.features.filesystem().to_owned(),
            label: superblock.label.clone(),
            uuid: superblock.uuid.clone(),
            block_size: superblock.block_size,
            length: superblock.length(),
        }
    }

    fn map(&self) -> Result<Map> {
        let volume = &self.volume;
        volume.superblock.check_recovery()?;
        let groups = groups::read(volume)?;
        groups::check_disjoint(volume, &groups)?;
        let journal = journal::read(volume, &groups)?;
        let allocation = allocation::read(volume, &groups)?;
        let mut claims = Claims::gather(volume, &groups)?;
        let rests = agreement::check(volume, &groups, &allocation, &mut claims)?;

        let mut notes = volume.superblock.notes();
        notes.extend(journal.note);
        // Each block has one owner, so unwritten extents and the journal contain nothing else.
        let mut unread = claims.unwritten;
        unread.extend(&rests);
        let unread = Extents::from_unsorted(unread);
        let used = allocation.into_used();
        let allocated = if unread.is_empty() { used } else { used.subtract(&unread) };
        let zeroed = Extents::from_unsorted(journal.body);
        Ok(Map { allocated, zeroed, files: claims.files.into_vec(), notes, ..Map::default() })
    }
}
