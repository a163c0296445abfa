//! Determines which fragments are kept: compares everything that inodes claim with the bitmaps.

use platter_image::{DiskRead, Error, Extent, Result};

use super::claims::Claims;
use super::group::Group;
use super::superblock::Counters;
use super::volume::Volume;
use crate::clusters::ClusterSet;
use crate::reader::{Identity, Map, Reader, needs_recovery, unsupported};

/// A UFS filesystem.
pub(crate) struct Ufs<'d> {
    volume: Volume<'d>,
}

impl<'d> Reader<'d> for Ufs<'d> {
    const NAME: &'static str = "ufs";

    fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        Ok(Self { volume: Volume::open(disk, extent)? })
    }

    fn identity(&self) -> Identity {
        let superblock = &self.volume.superblock;
        Identity {
            filesystem: Self::NAME.to_owned(),
            label: superblock.label.clone(),
            uuid: Some(superblock.id.clone()),
            block_size: superblock.block_size as u32,
            length: superblock.length(),
        }
    }

    fn map(&self) -> Result<Map> {
        let volume = &self.volume;
        let superblock = &volume.superblock;
        if let Some(reason) = superblock.unsupported {
            return Err(unsupported(reason));
        }
        if let Some(reason) = superblock.dirty {
            return Err(needs_recovery(reason, "Run fsck_ffs on it"));
        }
        let mut used = ClusterSet::new(superblock.fragments);
        let mut claims = Claims::new(volume);
        claims.metadata()?;
        let mut sum = Counters::default();
        for number in 0..superblock.groups {
            let group = Group::read(volume, number, &mut used)?;
            sum.add(&group.counters);
            let directories = claims.group(number, &group)?;
            if directories != group.counters.directories {
                return Err(Error::corrupt(format!(
                    "group {number} has {directories} directories, but its header says {}",
                    group.counters.directories
                )));
            }
        }
        if sum != superblock.counters {
            return Err(Error::corrupt(format!(
                "its groups have {sum:?}, but its superblock says {:?}",
                superblock.counters
            )));
        }
        if let Some(inode) = claims.named.first_beyond(&claims.in_use) {
            return Err(Error::corrupt(format!("a directory names inode {inode}, which is free")));
        }
        if let Some(fragment) = claims.claimed.first_beyond(&used) {
            return Err(Error::corrupt(format!("fragment {fragment} is in use, but marked as free")));
        }
        let allocated = used.places(&volume.fragments)?;
        let mut files = claims.files;
        files.sort();
        Ok(Map { allocated, files: files.into_vec(), ..Map::default() })
    }
}
