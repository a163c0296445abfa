//! An extent of a disk that is searched for marks of owners: its first bytes, and other bytes on request.

use std::borrow::Cow;

use platter_image::{DiskRead, Extent, IoContext, Result};

use crate::fields::has;

/// How many bytes are read at the start: most marks are there, and the log of XFS may begin anywhere in this
/// range.
const HEAD_LENGTH: u64 = 264 << 10;

/// An extent of a disk.
pub(crate) struct ProbedExtent<'a> {
    disk: &'a dyn DiskRead,
    extent: Extent,
    head: Vec<u8>,
}

impl<'a> ProbedExtent<'a> {
    /// Reads the first bytes of `extent`, which must lie on the disk.
    pub(crate) fn read(disk: &'a dyn DiskRead, extent: Extent) -> Result<Self> {
        let mut place = Self { disk, extent, head: Vec::new() };
        place.head = place.read_at(0, extent.length.min(HEAD_LENGTH))?;
        Ok(place)
    }

    pub(crate) fn length(&self) -> u64 {
        self.extent.length
    }

    pub(crate) fn disk_length(&self) -> u64 {
        self.disk.length()
    }

    /// The first bytes.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// `length` bytes at `offset`; fewer if the extent ends first.
    pub(crate) fn bytes(&self, offset: u64, length: usize) -> Result<Cow<'_, [u8]>> {
        let length = (length as u64).min(self.extent.length.saturating_sub(offset));
        let end = offset.saturating_add(length);
        match self.head.get(offset as usize..end as usize) {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => self.read_at(offset, length).map(Cow::Owned),
        }
    }

    /// Whether one of the magics is at `offset`.
    pub(crate) fn has_one_of(&self, offset: u64, magics: &[&[u8]]) -> Result<bool> {
        let longest = magics.iter().map(|magic| magic.len()).max().unwrap_or(0);
        let bytes = self.bytes(offset, longest)?;
        Ok(magics.iter().any(|magic| has(&bytes, 0, magic)))
    }

    fn read_at(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize];
        if length > 0 {
            let at = self.extent.offset + offset;
            self.disk
                .read_exact_at(&mut bytes, at)
                .context(|| format!("looking for a filesystem at offset {at}"))?;
        }
        Ok(bytes)
    }
}
