//! A disk to be installed to: a block device or a regular file, opened for writing.
//!
//! Direct I/O is used where it works, so that installing a disk does not evict everything else from the page
//! cache. Then an unaligned write reads the sectors around it, changes them and writes them back. A lock
//! keeps other writes out meanwhile, because two such writes at once would undo each other.

use parking_lot::RwLock;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use platter_image::{DiskRead, DiskWrite, Error, IoContext, Result};
use rustix::fs::{FallocateFlags, OFlags};

use super::{Identity, NodeKind, block_geometry};
use crate::aligned_buffer::AlignedBuffer;

/// How many bytes are written at once by unaligned writes, and when writing zeros.
const BOUNCE_LENGTH: usize = 1 << 20;

/// The alignment of direct I/O on a regular file in bytes; enough for every filesystem.
const FILE_ALIGNMENT: usize = 4096;

/// How to open a target.
#[derive(Clone, Copy, Debug)]
pub struct TargetOptions {
    /// Bytes that must fit. A regular file is created if missing and extended if shorter; a longer one keeps
    /// its length, like a block device.
    pub length: u64,
    /// Whether to bypass the system's cache; `None` means yes for block devices and no for files. Where that
    /// is not possible, the cache is used.
    pub direct: Option<bool>,
    /// Whether to open it exclusively, so that no one else mounts it or opens it exclusively; a regular file
    /// is locked for that. False only if the user insists on a device or file in use.
    pub exclusive: bool,
    /// The sector size of a regular file, 512 or 4096. A block device has its own.
    pub sector_size: u32,
    /// The identity that was checked before; anything else at the path is refused. `None` accepts anything.
    pub expected: Option<Identity>,
}

impl TargetOptions {
    /// The defaults, for a disk with that length and 512-byte sectors.
    pub fn new(length: u64) -> Self {
        Self { length, direct: None, exclusive: true, sector_size: 512, expected: None }
    }
}

/// A block device or a regular file for writing and reading, usable by many threads.
#[derive(Debug)]
pub struct Target {
    file: File,
    path: PathBuf,
    kind: NodeKind,
    length: u64,
    sector_size: u32,
    /// Offset, length and address of a direct write are multiples of this; 1 without direct I/O.
    alignment: usize,
    /// Shared by aligned writes, and exclusive for a write that first reads sectors.
    alone: RwLock<()>,
}

impl Target {
    /// Opens a disk for writing; creates a regular file if the path does not exist.
    ///
    /// # Errors
    /// `Io` if it cannot be opened or extended; `Refused` if it is neither a block device nor a regular file,
    /// is in use, or is too small.
    pub fn open(path: &Path, options: &TargetOptions) -> Result<Self> {
        let known = match std::fs::metadata(path) {
            Ok(metadata) => Some(NodeKind::of(&metadata, path)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::io(format!("examining {}", path.display()), error)),
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
        let metadata = file.metadata().context(|| format!("examining {}", path.display()))?;
        if options.expected.is_some_and(|expected| !create && expected != Identity::of(Some(&metadata))) {
            return Err(Error::refused(format!(
                "{} has changed since it was checked: it is now another device or file",
                path.display()
            )));
        }
        let kind = NodeKind::of(&metadata, path)?;
        if kind == NodeKind::Regular && is_locked_elsewhere(&file) && options.exclusive {
            return Err(Error::refused(format!(
                "{} cannot be written to: a program has it open exclusively: stop that program",
                path.display()
            )));
        }
        let (length, sector_size) = match kind {
            NodeKind::Block => block_geometry(&file, path)?,
            NodeKind::Regular => (regular_length(&file, path, metadata.len(), options)?, options.sector_size),
        };
        if length < options.length {
            return Err(Error::refused(format!(
                "{} has {length} bytes, but {} are needed: use a larger disk",
                path.display(),
                options.length
            )));
        }
        if direct && !length.is_multiple_of(FILE_ALIGNMENT as u64) && kind == NodeKind::Regular {
            // The end of such a file cannot be written directly, so direct I/O is not used at all.
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

    /// The path at which it was opened.
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

    /// Writes through an aligned buffer and keeps the rest of the first and last sectors.
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
                self.file.read_exact_at(sectors, start).map_err(|error| {
                    let what = format!("reading the sectors around it, from offset {start} on: {error}");
                    io::Error::new(error.kind(), what)
                })?;
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

    /// Asks the filesystem or the device to make zeros; `false` if it cannot.
    fn ask_for_zeros(&self, offset: u64, length: u64) -> io::Result<bool> {
        // On a block device both act like BLKZEROOUT; the first may also free the space.
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

/// The mode of a created file: it contains the data of a disk, so only the owner may read it.
const FILE_MODE: u32 = 0o600;

/// Locks a regular file until it is closed, so that no other job writes to it meanwhile. Returns whether someone
/// else has it locked. Filesystems without locks count as unlocked.
fn is_locked_elsewhere(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Makes the name of a new file durable, which syncing the file may not do.
fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // This filesystem cannot sync directories; nothing more can be done.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => Ok(()),
        synced => synced.context(|| format!("syncing {}", folder.display())),
    }
}

/// Extends a regular file if necessary and returns its length. A file of the right length is not touched:
/// some filesystems (FUSE with a single file) do not allow changing it.
fn regular_length(file: &File, path: &Path, length: u64, options: &TargetOptions) -> Result<u64> {
    if length < options.length {
        file.set_len(options.length)
            .context(|| format!("extending {} to {} bytes", path.display(), options.length))?;
    }
    Ok(length.max(options.length))
}

/// Turns direct I/O off for an open file.
fn write_through_cache(file: &File, path: &Path) -> Result<()> {
    let flags = rustix::fs::fcntl_getfl(file).map_err(io::Error::from);
    let flags = flags.context(|| format!("reading the flags of {}", path.display()))?;
    rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT)
        .map_err(io::Error::from)
        .context(|| format!("turning off direct I/O for {}", path.display()))
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
            // The file may have been created before direct I/O was refused.
            open_file(path, create && !path.exists(), exclusive, false)
        }
        Err(error) if create && path.is_symlink() => Err(Error::refused(format!(
            "{} is a symbolic link to a file that does not exist: name the file to create",
            path.display()
        ))
        .with_source(error)),
        Err(error) if create && error.kind() == io::ErrorKind::AlreadyExists => Err(Error::refused(format!(
            "{} did not exist when it was checked, but exists now",
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
        // Zero whole sectors in the cheap way, and write the rest on both sides.
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
            // Durable data need not stay in the cache, and a later read-back then comes from the device. Only
            // advice.
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

    /// Writes of any alignment from several threads arrive correctly, with and without direct I/O.
    #[test]
    fn unaligned_writes_are_correct() {
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
    fn a_file_is_extended_and_stays_sparse() {
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
    fn a_file_is_opened_by_one_job_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let options = TargetOptions::new(4096);
        let first = Target::open(&path, &options).unwrap();
        let longer = TargetOptions::new(8192);
        let error = Target::open(&path, &longer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("a program has it open exclusively"), "{error}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096, "it must be untouched");
        Target::open(&path, &TargetOptions { exclusive: false, ..options }).unwrap();
        drop(first);
        Target::open(&path, &longer).unwrap();
    }

    #[test]
    fn only_the_checked_file_is_opened() {
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
        assert_eq!(std::fs::read(&path).unwrap(), [1; 512], "it must be untouched");
    }
}
