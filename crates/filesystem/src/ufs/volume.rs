//! A filesystem on a disk: finds its superblock, and reads fragments by number.

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

use super::superblock::{PLACES, SUPERBLOCK_LENGTH, Superblock};
use crate::clusters::Clusters;
use crate::reader::check_fits;

/// A UFS filesystem that begins at the start of an extent and fits into it.
pub(super) struct Volume<'d> {
    pub(super) superblock: Superblock,
    pub(super) fragments: Clusters<'d>,
}

impl<'d> Volume<'d> {
    /// # Errors
    /// `Corrupt` if there is not exactly one superblock, or the filesystem does not fit; errors of reading the disk.
    pub(super) fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let mut found: Option<(u64, Superblock)> = None;
        let mut bytes = [0; SUPERBLOCK_LENGTH];
        for place in PLACES {
            if extent.length < place + SUPERBLOCK_LENGTH as u64 {
                continue;
            }
            disk.read_exact_at(&mut bytes, extent.offset + place)
                .context(|| format!("reading a superblock at offset {}", extent.offset + place))?;
            let Some(superblock) = Superblock::parse(&bytes, place)? else { continue };
            if let Some((first, _)) = &found {
                return Err(Error::corrupt(format!("there are superblocks at offsets {first} and {place}")));
            }
            found = Some((place, superblock));
        }
        let Some((_, superblock)) = found else {
            return Err(Error::corrupt("there is no superblock"));
        };
        check_fits(superblock.length(), extent)?;
        let size = (superblock.fragment_size, superblock.fragments);
        let fragments = Clusters::new(disk, extent, extent.offset, size, 0)?;
        Ok(Self { superblock, fragments })
    }

    /// Fills `buffer` from the start of a fragment.
    ///
    /// # Errors
    /// `Corrupt` if the fragments do not exist; errors of reading the disk.
    pub(super) fn read(&self, fragment: u64, buffer: &mut [u8]) -> Result<()> {
        self.fragments.read(fragment, 0, buffer)
    }
}
