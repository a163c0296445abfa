//! A disk that is installed to: a block device or a regular file, opened for writing.
//!
//! Direct I/O is used where it works, so that installing a disk does not push everything else out of memory. What is
//! not aligned then goes through read, change and write of the sectors around it, while no other write runs: a
//! lock tells the two apart, since two such writes side by side would undo each other.

use parking_lot::RwLock;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use platter_image::{DiskRead, DiskWrite, Error, IoContext, Result};
use rustix::fs::{FallocateFlags, OFlags};

use super::{Identity, NodeKind, block_geometry};
use crate::aligned_buffer::AlignedBuffer;

/// How much is written at once when sectors around a write are read first, and when zeros are written, in bytes.
const BOUNCE_LENGTH: usize = 1 << 20;

/// What direct I/O on a regular file is aligned to, in bytes: enough for every filesystem.
const FILE_ALIGNMENT: usize = 4096;

/// How to open a target.
#[derive(Clone, Copy, Debug)]
pub struct TargetOptions {
    /// Bytes that must fit. A regular file is created if missing, and made this long if it is shorter; a longer one
    /// keeps its length, as a block device does.
    pub length: u64,
    /// Whether to go around the system's cache; `None` does for block devices and does not for files. Where it is not
    /// possible, the cache is used.
    pub direct: Option<bool>,
    /// Whether a block device is opened exclusively, so that the system neither mounts it nor lets others use it so.
    /// Only a user who insists on a device in use says false.
    pub exclusive: bool,
    /// The sector size of a regular file, 512 or 4096. A block device knows its own.
    pub sector_size: u32,
    /// What must stand at the path: what was checked before. `None` takes whatever does.
    pub expected: Option<Identity>,
}

impl TargetOptions {
    /// The usual way, for a disk of that length and sectors of 512 bytes.
    pub fn new(length: u64) -> Self {
        Self { length, direct: None, exclusive: true, sector_size: 512, expected: None }
    }
}

/// A block device or a regular file that is written, by many threads if need be. It can be read, too.
#[derive(Debug)]
pub struct Target {
    file: File,
    path: PathBuf,
    kind: NodeKind,
    length: u64,
    sector_size: u32,
    /// What offset, length and address of a write are multiples of to go straight to the device; 1 without direct
    /// I/O.
    alignment: usize,
    /// Shared by aligned writes, held alone by one that reads sectors first.
    alone: RwLock<()>,
}

impl Target {
    /// Opens a disk for writing, creating a regular file if nothing is there.
    ///
    /// # Errors
    /// `Io` if it cannot be opened or made so long; `Refused` if it is neither a block device nor a regular file, in
    /// use, or too small.
    pub fn open(path: &Path, options: &TargetOptions) -> Result<Self> {
        let known = match std::fs::metadata(path) {
            Ok(metadata) => Some(NodeKind::of(&metadata, path)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::io(format!("looking at {}", path.display()), error)),
        };
        let create = match options.expected {
            Some(expected) => expected == Identity::Nothing,
            None => known.is_none(),
        };
        let direct = options.direct.unwrap_or(known == Some(NodeKind::Block));
        let exclusive = options.exclusive && known == Some(NodeKind::Block);
        let (file, mut direct) = open_file(path, create, exclusive, direct)?;
        if create {
            sync_folder_of(path)?;
        }
        let metadata = file.metadata().context(|| format!("looking at {}", path.display()))?;
        if options.expected.is_some_and(|expected| !create && expected != Identity::of(Some(&metadata))) {
            return Err(Error::refused(format!(
                "{} is not what it was when it was checked: another device or file stands there now",
                path.display()
            )));
        }
        let kind = NodeKind::of(&metadata, path)?;
        let (length, sector_size) = match kind {
            NodeKind::Block => block_geometry(&file, path)?,
            NodeKind::Regular => (regular_length(&file, path, metadata.len(), options)?, options.sector_size),
        };
        if length < options.length {
            return Err(Error::refused(format!(
                "{} holds {length} bytes, {} are needed: a larger disk would do",
                path.display(),
                options.length
            )));
        }
        if direct && !length.is_multiple_of(FILE_ALIGNMENT as u64) && kind == NodeKind::Regular {
            // The last bytes of such a file cannot be written directly: none are.
            write_through_cache(&file, path)?;
            direct = false;
        }
        let alignment = match (direct, kind) {
            (false, _) => 1,
            (true, NodeKind::Block) => sector_size as usize,
            (true, NodeKind::Regular) => FILE_ALIGNMENT,
        };
        Ok(Self { file, path: path.to_owned(), kind, length, sector_size, alignment, alone: RwLock::new(()) })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.kind == NodeKind::Block
    }

    fn check_range(&self, offset: u64, length: u64, error: io::ErrorKind) -> io::Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(error.into()),
        }
    }

    fn is_aligned(&self, buffer: &[u8], offset: u64) -> bool {
        let numbers = buffer.as_ptr().addr() | buffer.len() | offset as usize;
        numbers.is_multiple_of(self.alignment)
    }

    /// Writes by way of an aligned buffer, with the rest of the first and last sectors as it was.
    fn write_around(&self, mut buffer: &[u8], mut offset: u64) -> io::Result<()> {
        let _alone = self.alone.write();
        let alignment = self.alignment as u64;
        let mut bounce = AlignedBuffer::zeroed(BOUNCE_LENGTH)?;
        while !buffer.is_empty() {
            let start = offset / alignment * alignment;
            let skipped = (offset - start) as usize;
            let length = buffer.len().min(BOUNCE_LENGTH - skipped);
            let sectors = &mut bounce[..(skipped + length).next_multiple_of(self.alignment)];
            if skipped != 0 || sectors.len() != length {
                self.file.read_exact_at(sectors, start)?;
            }
            sectors[skipped..skipped + length].copy_from_slice(&buffer[..length]);
            self.file.write_all_at(sectors, start)?;
            buffer = &buffer[length..];
            offset += length as u64;
        }
        Ok(())
    }

    fn write_zeros_plainly(&self, offset: u64, length: u64) -> io::Result<()> {
        let zeros = AlignedBuffer::zeroed(length.min(BOUNCE_LENGTH as u64) as usize)?;
        let mut done = 0;
        while done < length {
            let step = (length - done).min(zeros.len() as u64);
            self.write_all_at(&zeros[..step as usize], offset + done)?;
            done += step;
        }
        Ok(())
    }

    /// Asks the filesystem or the device for zeros; false if it cannot.
    fn ask_for_zeros(&self, offset: u64, length: u64) -> io::Result<bool> {
        // Of a block device, both become what BLKZEROOUT does; the first may also give the space back.
        for flags in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
            match rustix::fs::fallocate(&self.file, flags | FallocateFlags::KEEP_SIZE, offset, length) {
                Ok(()) => return Ok(true),
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}

/// The mode of a file that is made: it holds what the disk holds.
const FILE_MODE: u32 = 0o600;

/// Makes the name of a file that was just made durable: syncing the file need not do that.
fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // This file system cannot, and there is nothing else to ask of it.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => Ok(()),
        synced => synced.context(|| format!("syncing {}", folder.display())),
    }
}

/// Makes a regular file long enough; gives its length. A file of the right length is left alone: not every file system
/// lets one be changed (FUSE file systems with a single file do not).
fn regular_length(file: &File, path: &Path, length: u64, options: &TargetOptions) -> Result<u64> {
    if length < options.length {
        file.set_len(options.length)
            .context(|| format!("making {} {} bytes long", path.display(), options.length))?;
    }
    Ok(length.max(options.length))
}

/// Ends direct I/O on an open file.
fn write_through_cache(file: &File, path: &Path) -> Result<()> {
    let flags = rustix::fs::fcntl_getfl(file).map_err(io::Error::from);
    let flags = flags.context(|| format!("asking how {} was opened", path.display()))?;
    rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT)
        .map_err(io::Error::from)
        .context(|| format!("using the system's cache for {}", path.display()))
}

fn open_file(path: &Path, create: bool, exclusive: bool, direct: bool) -> Result<(File, bool)> {
    let mut flags = OFlags::empty();
    flags.set(OFlags::EXCL, exclusive);
    flags.set(OFlags::DIRECT, direct);
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(create)
        .mode(FILE_MODE)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    match opened {
        Ok(file) => Ok((file, direct)),
        Err(error) if direct && error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            // The file may have been created before direct I/O was denied.
            open_file(path, create && !path.exists(), exclusive, false)
        }
        Err(error) if create && path.is_symlink() => Err(Error::refused(format!(
            "{} is a symbolic link that leads to nothing: name the file that is to be made",
            path.display()
        ))
        .with_source(error)),
        Err(error) if create && error.kind() == io::ErrorKind::AlreadyExists => Err(Error::refused(format!(
            "{} was not there when it was checked, and is there now",
            path.display()
        ))
        .with_source(error)),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(Error::refused(format!(
            "{} is in use: unmount its filesystems, and stop swap, RAID or volume groups on it",
            path.display()
        ))
        .with_source(error)),
        Err(error) => Err(Error::io(format!("opening {} for writing", path.display()), error)),
    }
}

impl DiskWrite for Target {
    fn length(&self) -> u64 {
        self.length
    }

    fn alignment(&self) -> usize {
        self.alignment.max(512)
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.check_range(offset, buffer.len() as u64, io::ErrorKind::WriteZero)?;
        if !self.is_aligned(buffer, offset) {
            return self.write_around(buffer, offset);
        }
        let _shared = self.alone.read();
        self.file.write_all_at(buffer, offset)
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check_range(offset, length, io::ErrorKind::WriteZero)?;
        // Whole sectors by the cheap way; what is left on both sides by writing.
        let sector = u64::from(self.sector_size);
        let (start, end) = (offset.next_multiple_of(sector), (offset + length) / sector * sector);
        if start >= end {
            return self.write_zeros_plainly(offset, length);
        }
        let asked = {
            let _shared = self.alone.read();
            self.ask_for_zeros(start, end - start)?
        };
        if !asked {
            return self.write_zeros_plainly(offset, length);
        }
        self.write_zeros_plainly(offset, start - offset)?;
        self.write_zeros_plainly(end, offset + length - end)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()?;
        if self.alignment == 1 {
            // What is durable need not stay in the cache, and whoever reads it back asks the device. Advice only.
            let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
        }
        Ok(())
    }
}

impl DiskRead for Target {
    fn length(&self) -> u64 {
        self.length
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.check_range(offset, buffer.len() as u64, io::ErrorKind::UnexpectedEof)?;
        if self.is_aligned(buffer, offset) {
            return self.file.read_exact_at(buffer, offset);
        }
        let alignment = self.alignment as u64;
        let mut bounce = AlignedBuffer::zeroed(BOUNCE_LENGTH)?;
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let start = at / alignment * alignment;
            let skipped = (at - start) as usize;
            let length = (buffer.len() - done).min(BOUNCE_LENGTH - skipped);
            let sectors = &mut bounce[..(skipped + length).next_multiple_of(self.alignment)];
            self.file.read_exact_at(sectors, start)?;
            buffer[done..done + length].copy_from_slice(&sectors[skipped..skipped + length]);
            done += length;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::ErrorKind;

    /// Writes of all alignments, from several threads, end up where they belong, with and without direct I/O.
    #[test]
    fn unaligned_writes_are_right() {
        let directory = tempfile::tempdir().unwrap();
        for direct in [false, true] {
            let path = directory.path().join(format!("disk-{direct}"));
            let length = 256 << 10;
            let options = TargetOptions { direct: Some(direct), ..TargetOptions::new(length) };
            let target = Target::open(&path, &options).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..4_u64 {
                    let target = &target;
                    scope.spawn(move || {
                        for slot in (thread..512).step_by(4) {
                            target.write_all_at(&[(slot as u8).wrapping_add(1); 512], slot * 512).unwrap();
                        }
                    });
                }
            });
            target.write_all_at(&[0xee; 1000], 4000).unwrap();
            target.flush().unwrap();
            let mut expected: Vec<u8> = (0..length).map(|at| ((at / 512) as u8).wrapping_add(1)).collect();
            expected[4000..5000].fill(0xee);
            assert_eq!(std::fs::read(&path).unwrap(), expected, "direct: {direct}");
            let mut part = vec![0; 3000];
            target.read_exact_at(&mut part, 3001).unwrap();
            assert_eq!(part, expected[3001..6001]);
            target.write_zeroes(777, 100_000).unwrap();
            expected[777..100_777].fill(0);
            assert_eq!(std::fs::read(&path).unwrap(), expected, "direct: {direct}");
            let beyond = target.write_all_at(&[1; 2], length - 1).unwrap_err();
            assert_eq!(beyond.kind(), io::ErrorKind::WriteZero);
        }
    }

    #[test]
    fn a_file_gets_its_length_and_stays_sparse() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        for length in [(1 << 20) + 512, 1 << 30] {
            let target = Target::open(&path, &TargetOptions::new(length)).unwrap();
            target.write_zeroes(0, length).unwrap();
            target.write_all_at(&[5; 512], length - 512).unwrap();
            let metadata = std::fs::metadata(&path).unwrap();
            assert_eq!(metadata.len(), length);
            assert!(metadata.blocks() < 100);
        }
        let error = Target::open(Path::new("/dev/null"), &TargetOptions::new(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
    }

    #[test]
    fn a_longer_file_keeps_its_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        for direct in [None, Some(true)] {
            std::fs::write(&path, vec![1; 100_001]).unwrap();
            let target = Target::open(&path, &TargetOptions { direct, ..TargetOptions::new(4096) }).unwrap();
            assert_eq!(DiskWrite::length(&target), 100_001);
            target.write_all_at(&[2; 3], 99_998).unwrap();
            target.flush().unwrap();
            let found = std::fs::read(&path).unwrap();
            assert_eq!((found.len(), &found[99_996..]), (100_001, &[1, 1, 2, 2, 2][..]));
        }
    }

    #[test]
    fn only_what_was_checked_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let identity = |path: &Path| Identity::of(std::fs::metadata(path).ok().as_ref());
        let options = |expected| TargetOptions { expected: Some(expected), ..TargetOptions::new(512) };
        let nothing = identity(&path);
        std::fs::write(&path, [1; 512]).unwrap();
        assert_eq!(Target::open(&path, &options(nothing)).unwrap_err().kind(), ErrorKind::Refused);
        let checked = identity(&path);
        Target::open(&path, &options(checked)).unwrap();
        std::fs::rename(&path, directory.path().join("old")).unwrap();
        std::fs::write(&path, [1; 512]).unwrap();
        assert_eq!(Target::open(&path, &options(checked)).unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(std::fs::read(&path).unwrap(), [1; 512], "and it is untouched");
    }
}
