//! What capture knows about one part of a disk before reading its data: which bytes are in use, and where
//! files lie.

use crate::{Error, Extent, Extents, Result, SECTOR};

use super::FILE_ALIGNMENT;

/// A part of a disk with one allocation map: a filesystem, or the space between and around filesystems.
///
/// All offsets are offsets on the device; extents are multiples of 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its range. The grid starts at its beginning.
    pub extent: Extent,
    /// The bytes that someone can still read.
    pub allocated: Extents,
    /// The part of `allocated` that is stored as zeros without being read (the body of a clean journal).
    pub zeroed: Extents,
    /// File contents, ascending and without overlap, all inside `allocated`.
    pub files: Vec<FileRun>,
}

impl Region {
    /// A region that is fully allocated and has no known files.
    pub fn whole(extent: Extent) -> Self {
        Self { extent, allocated: [extent].into_iter().collect(), zeroed: Extents::new(), files: Vec::new() }
    }

    /// Checks the invariants of the fields, because a filesystem reader computed them from untrusted bytes.
    ///
    /// # Errors
    /// `Bug`, naming the first broken invariant.
    pub fn check(&self) -> Result<()> {
        let name = format!("region at offset {}", self.extent.offset);
        let aligned = |extent: &Extent| (extent.offset | extent.length).is_multiple_of(SECTOR);
        let inside =
            |extent: &Extent| extent.offset >= self.extent.offset && extent.end() <= self.extent.end();
        let sets = self.allocated.iter().chain(&self.zeroed);
        if !aligned(&self.extent) || !sets.clone().all(|extent| aligned(extent) && inside(extent)) {
            return Err(Error::bug(format!("{name}: an extent is unaligned or outside the region")));
        }
        if !self.zeroed.subtract(&self.allocated).is_empty() {
            return Err(Error::bug(format!("{name}: zeroed bytes are not allocated")));
        }
        let mut end = self.extent.offset;
        let mut allocated = self.allocated.iter().peekable();
        for run in self.files.iter().map(FileRun::extent) {
            if run.offset < end || run.length == 0 {
                return Err(Error::bug(format!(
                    "{name}: file runs are out of order at offset {}",
                    run.offset
                )));
            }
            end = run.end();
            while allocated.next_if(|extent| extent.end() <= run.offset).is_some() {}
            if allocated.peek().is_none_or(|extent| extent.offset > run.offset || extent.end() < end) {
                return Err(Error::bug(format!(
                    "{name}: the file run at offset {} is not allocated",
                    run.offset
                )));
            }
        }
        Ok(())
    }
}

/// A run of a file's contents on the device, in 16 bytes: there may be millions of runs.
///
/// Chunking needs the file offset only modulo [`FILE_ALIGNMENT`], so only that part is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileRun {
    /// Device sector in the upper 56 bits, so that runs sort by it; file sector modulo 128 in the lower 8.
    start: u64,
    sectors: u64,
}

impl FileRun {
    /// The run of `length` bytes at `device_offset` that contains the file's bytes from `file_offset`.
    ///
    /// All three are multiples of 512.
    pub fn new(device_offset: u64, length: u64, file_offset: u64) -> Self {
        debug_assert!((device_offset | length | file_offset).is_multiple_of(SECTOR));
        let phase = file_offset % FILE_ALIGNMENT / SECTOR;
        Self { start: (device_offset / SECTOR) << 8 | phase, sectors: length / SECTOR }
    }

    /// Its range on the device.
    pub fn extent(&self) -> Extent {
        Extent::new((self.start >> 8) * SECTOR, self.sectors.saturating_mul(SECTOR))
    }

    /// The file offset of its first byte, modulo [`FILE_ALIGNMENT`].
    pub fn phase(&self) -> u64 {
        (self.start & 0xff) * SECTOR
    }
}
