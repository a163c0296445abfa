//! A disk to be captured: a block device or a regular file, opened read-only.

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

/// A block device or a regular file for reading, usable by many threads.
///
/// If a file's length is not a multiple of 512, zeros follow it up to the next multiple.
pub struct Source {
    file: File,
    path: PathBuf,
    kind: NodeKind,
    sector_size: u32,
    /// The block device opened again for direct reads, once they were wanted; `None` inside if that is not
    /// possible.
    direct: OnceLock<Option<File>>,
    /// Length of the file in bytes; the device's length is this rounded up to a whole sector.
    stored_length: u64,
    /// Reads the bytes of the disk if those of the file are encrypted.
    decryption: Option<Box<dyn DiskRead>>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({})", self.path.display())
    }
}

impl Source {
    /// Opens a disk for reading. `sector_size` (512 or 4096, default 512) is the sector size for which a
    /// file's contents were written. A block device has its own; any other value is refused.
    ///
    /// # Errors
    /// `Io` if it cannot be opened; `Refused` if it is neither a block device nor a regular file, or the
    /// sector size is wrong.
    pub fn open(path: &Path, sector_size: Option<u32>) -> Result<Self> {
        Self::open_with(path, sector_size, OFlags::empty())
    }

    /// Like [`Source::open`], but exclusively: while it is open, no one else can mount the block device or
    /// open it exclusively.
    ///
    /// # Errors
    /// Those of [`Source::open`]; `Refused` if the device is already open exclusively.
    pub fn open_alone(path: &Path, sector_size: Option<u32>) -> Result<Self> {
        let metadata = std::fs::metadata(path).context(|| format!("examining {}", path.display()))?;
        let is_block = NodeKind::of(&metadata, path)? == NodeKind::Block;
        // The flag is meaningless for regular files.
        Self::open_with(path, sector_size, if is_block { OFlags::EXCL } else { OFlags::empty() })
    }

    /// Like [`Source::open`], for a regular file whose bytes are encrypted: `decryption` reads those of the disk. Holes
    /// of the file must be zeros of the disk.
    ///
    /// # Errors
    /// Those of [`Source::open`].
    pub fn open_encrypted(
        path: &Path,
        sector_size: Option<u32>,
        decryption: Box<dyn DiskRead>,
    ) -> Result<Self> {
        Ok(Self { decryption: Some(decryption), ..Self::open(path, sector_size)? })
    }

    fn open_with(path: &Path, sector_size: Option<u32>, flags: OFlags) -> Result<Self> {
        // Check the kind before opening: opening a pipe or a tape drive has side effects.
        let metadata = std::fs::metadata(path).context(|| format!("examining {}", path.display()))?;
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
        let metadata = file.metadata().context(|| format!("examining {}", path.display()))?;
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
                    "a sector size of {said} bytes was given, but {} has sectors of {} bytes",
                    path.display(),
                    own.map_or("512 or 4096".to_owned(), |own| own.to_string())
                )));
            }
        };
        // Only advice: a filesystem that ignores it still reads correctly.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
        let (path, direct, decryption) = (path.to_owned(), OnceLock::new(), None);
        Ok(Self { file, path, kind, sector_size, direct, stored_length, decryption })
    }

    /// The path at which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The block device, opened for direct reads; `None` if that is not possible.
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

    /// The length of the file without the zeros that follow it.
    pub fn stored_length(&self) -> u64 {
        self.stored_length
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.kind == NodeKind::Block
    }

    /// Where a sparse file has data; everything else reads as zeros. `None` if all of it must count as data:
    /// for a block device, a file that is being changed, or a filesystem with unreliable answers
    /// (design: proof).
    ///
    /// # Errors
    /// When the file cannot be examined or read.
    pub fn data_extents(&self) -> Result<Option<Extents>> {
        if self.kind == NodeKind::Block {
            return Ok(None);
        }
        holes::data_extents(&self.file, self.stored_length)
            .context(|| format!("finding the holes of {}", self.path.display()))
    }

    /// Announces to the system that `extent` will be read soon.
    pub fn will_read(&self, extent: Extent) {
        // Only advice, as above.
        let length = std::num::NonZeroU64::new(extent.length);
        let _ = rustix::fs::fadvise(&self.file, extent.offset, length, rustix::fs::Advice::WillNeed);
    }

    /// Tells the system that `extent` will not be read again, so that capturing a disk does not evict
    /// everything else from the page cache.
    pub fn was_read(&self, extent: Extent) {
        // Only advice, as above.
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
        match &self.decryption {
            Some(decryption) => decryption.read_exact_at(stored, offset),
            None => self.file.read_exact_at(stored, offset),
        }
    }
}

impl SectorRead for Source {
    fn read_sector(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let is_whole = offset.saturating_add(buffer.len() as u64) <= self.stored_length;
        match self.around_the_cache() {
            // A direct read of a whole stored sector cannot be short.
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
    fn a_file_is_padded_with_zeros_to_a_whole_sector() {
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
    fn other_kinds_of_files_are_refused() {
        for path in ["/dev/null", "/dev"] {
            assert_eq!(Source::open(Path::new(path), None).unwrap_err().kind(), ErrorKind::Refused);
        }
    }
}
