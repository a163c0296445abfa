//! A filesystem on a disk: finds its superblock, and reads fragments by number.

use platter_image::{DiskRead, Error, ErrorKind, Extent, IoContext, Result};

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
        let mut reason = None;
        let mut bytes = [0; SUPERBLOCK_LENGTH];
        for place in PLACES {
            if extent.length < place + SUPERBLOCK_LENGTH as u64 {
                continue;
            }
            disk.read_exact_at(&mut bytes, extent.offset + place)
                .context(|| format!("reading a superblock at offset {}", extent.offset + place))?;
            match (Superblock::parse(&bytes, place), &found) {
                (Ok(_), Some((first, _))) => {
                    return Err(Error::corrupt(format!(
                        "there are superblocks at offsets {first} and {place}"
                    )));
                }
                (Ok(superblock), None) => found = Some((place, superblock)),
                (Err(error), _) if error.kind() == ErrorKind::Corrupt => reason = reason.or(Some(error)),
                (Err(error), _) => return Err(error),
            }
        }
        let Some((_, superblock)) = found else {
            return Err(reason.unwrap_or_else(|| Error::corrupt("there is no superblock")));
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
