//! A disk that is captured: a block device or a regular file, opened for reading only.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use platter_image::{DiskRead, Error, Extent, Extents, IoContext, Result, SECTOR};
use rustix::fs::OFlags;

use super::{NodeKind, SectorRead, block_geometry, holes};
use crate::aligned_buffer::AlignedBuffer;

/// A block device or a regular file that is read. Reads may come from many threads.
///
/// A file whose length is not a multiple of 512 is followed by zeros up to the next one: sectors are whole.
#[derive(Debug)]
pub struct Source {
    file: File,
    path: PathBuf,
    kind: NodeKind,
    sector_size: u32,
    /// A block device, opened for direct reads if that was ever wanted and is possible.
    direct: OnceLock<Option<File>>,
    /// Bytes that are in the file; the length of the device is this rounded up to a sector.
    stored_length: u64,
}

impl Source {
    /// Opens a disk for reading. `sector_size` (512 or 4096) is what the bytes of a file were written for; 512 if not
    /// said. A block device knows its own, and being told another is refused.
    ///
    /// # Errors
    /// `Io` if it cannot be opened; `Refused` if it is neither a block device nor a regular file, or the sector size
    /// is wrong.
    pub fn open(path: &Path, sector_size: Option<u32>) -> Result<Self> {
        Self::open_with(path, sector_size, OFlags::empty())
    }

    /// The same, and nobody else may mount a block device, or open it in this way, as long as this is open.
    ///
    /// # Errors
    /// As [`Source::open`]; `Refused` if somebody else has the device so already.
    pub fn open_alone(path: &Path, sector_size: Option<u32>) -> Result<Self> {
        let metadata = std::fs::metadata(path).context(|| format!("looking at {}", path.display()))?;
        let is_block = NodeKind::of(&metadata, path)? == NodeKind::Block;
        // Of regular files, the flag has no meaning.
        Self::open_with(path, sector_size, if is_block { OFlags::EXCL } else { OFlags::empty() })
    }

    fn open_with(path: &Path, sector_size: Option<u32>, flags: OFlags) -> Result<Self> {
        // Told apart before opening: opening a pipe or a tape drive has consequences.
        let metadata = std::fs::metadata(path).context(|| format!("looking at {}", path.display()))?;
        NodeKind::of(&metadata, path)?;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => Error::refused(format!(
                "{} is in use: something mounted it or has it open exclusively",
                path.display()
            ))
            .with_source(error),
            _ => Error::io(format!("opening {} for reading", path.display()), error),
        })?;
        let metadata = file.metadata().context(|| format!("looking at {}", path.display()))?;
        let kind = NodeKind::of(&metadata, path)?;
        let (stored_length, own_sector_size) = match kind {
            NodeKind::Block => {
                let (length, sector) = block_geometry(&file, path)?;
                (length, Some(sector))
            }
            NodeKind::Regular => (metadata.len(), None),
        };
        let sector_size = match (sector_size, own_sector_size) {
            (None, own) => own.unwrap_or(512),
            (Some(said), None) if matches!(said, 512 | 4096) => said,
            (Some(said), Some(own)) if said == own => own,
            (Some(said), own) => {
                return Err(Error::refused(format!(
                    "sectors of {said} bytes: {} has {} bytes",
                    path.display(),
                    own.map_or("512 or 4096".to_owned(), |own| own.to_string())
                )));
            }
        };
        // Advice only: a file system that does not take it reads as well as it can.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
        Ok(Self { file, path: path.to_owned(), kind, sector_size, direct: OnceLock::new(), stored_length })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A block device once more, opened for direct reads; `None` where that is not possible.
    fn around_the_cache(&self) -> Option<&File> {
        let open = || {
            let same = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let direct = OFlags::DIRECT.bits().cast_signed();
            OpenOptions::new().read(true).custom_flags(direct).open(same).ok()
        };
        match self.kind {
            NodeKind::Block => self.direct.get_or_init(open).as_ref(),
            NodeKind::Regular => None,
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.kind == NodeKind::Block
    }

    /// Where a sparse file has data; everything else reads as zeros. `None` when all of it must be taken as data: a
    /// block device, a file that is being changed, a filesystem whose answers do not hold (design: proof).
    ///
    /// # Errors
    /// When the file cannot be looked at or read.
    pub fn data_extents(&self) -> Result<Option<Extents>> {
        if self.kind == NodeKind::Block {
            return Ok(None);
        }
        holes::data_extents(&self.file, self.stored_length)
            .context(|| format!("looking for the holes of {}", self.path.display()))
    }

    /// Tells the system that `extent` will be read soon.
    pub fn will_read(&self, extent: Extent) {
        // Advice only, as above.
        let length = std::num::NonZeroU64::new(extent.length);
        let _ = rustix::fs::fadvise(&self.file, extent.offset, length, rustix::fs::Advice::WillNeed);
    }

    /// Tells the system that what was read of `extent` will not be read again, so that capturing a disk does not
    /// push everything else out of memory.
    pub fn was_read(&self, extent: Extent) {
        // Advice only, as above.
        let length = std::num::NonZeroU64::new(extent.length);
        let _ = rustix::fs::fadvise(&self.file, extent.offset, length, rustix::fs::Advice::DontNeed);
    }
}

impl DiskRead for Source {
    fn length(&self) -> u64 {
        self.stored_length.next_multiple_of(SECTOR)
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        if end > self.length() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let stored = self.stored_length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (stored, beyond) = buffer.split_at_mut(stored);
        beyond.fill(0);
        self.file.read_exact_at(stored, offset)
    }
}

impl SectorRead for Source {
    fn read_sector(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let is_whole = offset.saturating_add(buffer.len() as u64) <= self.stored_length;
        match self.around_the_cache() {
            // A read of a sector is short only at the end.
            Some(direct) if is_whole => {
                let mut sector = AlignedBuffer::zeroed(buffer.len())?;
                direct.read_exact_at(&mut sector, offset)?;
                buffer.copy_from_slice(&sector);
                Ok(())
            }
            _ => self.read_exact_at(buffer, offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::ErrorKind;

    #[test]
    fn a_file_is_followed_by_zeros_up_to_a_sector() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        std::fs::write(&path, vec![9; 700]).unwrap();
        let source = Source::open(&path, None).unwrap();
        assert_eq!((source.length(), source.sector_size()), (1024, 512));
        let mut bytes = [1; 524];
        source.read_exact_at(&mut bytes, 500).unwrap();
        assert!(bytes[..200].iter().all(|byte| *byte == 9) && bytes[200..].iter().all(|byte| *byte == 0));
        assert_eq!(source.read_exact_at(&mut bytes, 501).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(Source::open(&path, Some(4096)).unwrap().sector_size(), 4096);
        assert_eq!(Source::open(&path, Some(520)).unwrap_err().kind(), ErrorKind::Refused);
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        for path in ["/dev/null", "/dev"] {
            assert_eq!(Source::open(Path::new(path), None).unwrap_err().kind(), ErrorKind::Refused);
        }
    }
}
