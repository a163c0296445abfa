//! The files of one version for the clients of an origin: partitions, parts of directories, contents from any offset.
//!
//! Nothing is kept between requests but decoded blocks. So each request reads the partition table, the filesystem and the directories
//! on the path again, which are then mostly in memory.

use std::sync::Arc;

use platter_api::{DirectoryPage, PartitionEntry};
use platter_filesystem::{FileInode, FileKind, FileTree, escaped, resolve};
use platter_image::{Error, Result, Score};
use platter_vdisk::{BlockCache, Source, advise};

use crate::contents::{Contents, LastDecoded};
use crate::location::FileLocation;
use crate::open_filesystem::{OpenFilesystem, VersionDisk};
use crate::opened::{entry, open_directory, shown};
use crate::partitions::Partitions;

/// The most names in a part of a directory.
const NAMES_MAX: usize = 500;
/// The most messages with it.
const FAULTS_MAX: usize = 100;
/// A served file is the only one of its reader.
const ONLY: u64 = 0;

/// A version that is open.
pub struct VersionFiles {
    disk: Arc<VersionDisk>,
}

impl VersionFiles {
    /// Opens a version, of which blocks are kept in `memory`.
    ///
    /// # Errors
    /// `Missing` if the source has no such recipe; those of reading it.
    pub fn open(source: Arc<dyn Source>, memory: &Arc<BlockCache>, score: Score) -> Result<Self> {
        Ok(Self { disk: Arc::new(VersionDisk::open(source, memory, score)?) })
    }

    /// Returns its partitions. Messages contain `version`.
    ///
    /// # Errors
    /// Those of reading, except that a damaged partition is an entry.
    pub fn partitions(&self, version: &str) -> Result<Vec<PartitionEntry>> {
        Partitions::read(&*self.disk, version)?.describe()
    }

    /// Returns names of the directory at a location, from this number on. Links are followed.
    ///
    /// # Errors
    /// `Missing` if there is no such partition or path; `Refused` if it cannot be read; those of reading the directory itself.
    pub fn list(&self, location: &FileLocation, from: u64) -> Result<DirectoryPage> {
        let listed = self.with_file(location, |files, path, inode| {
            if inode.metadata().kind != FileKind::Directory {
                let entries = vec![entry(files, path.to_owned(), &inode)?];
                return Ok(DirectoryPage {
                    is_directory: false,
                    entries,
                    faults: Vec::new(),
                    total: 1,
                    next: None,
                });
            }
            let listing = open_directory(files, &inode).map_err(|error| error.within(shown(path)))?;
            let start = usize::try_from(from).unwrap_or(usize::MAX).min(listing.len());
            let end = listing.len().min(start.saturating_add(NAMES_MAX));
            let (mut entries, mut faults) = (Vec::new(), Vec::new());
            if start == 0 {
                faults.extend_from_slice(listing.faults());
            }
            for (name, number) in (start..end).filter_map(|place| listing.get(place)) {
                match files.inode(number).and_then(|child| entry(files, name.to_vec(), &child)) {
                    Ok(entry) => entries.push(entry),
                    Err(error) => faults.push(error.within(escaped(name)).with_causes()),
                }
            }
            faults.truncate(FAULTS_MAX);
            let next = (end < listing.len()).then_some(end as u64);
            Ok(DirectoryPage { is_directory: true, entries, faults, total: listing.len() as u64, next })
        });
        listed.map(|(page, _)| page)
    }

    /// Opens a file for reading. Links are followed.
    ///
    /// # Errors
    /// As [`VersionFiles::list`]; `Refused` if it is no regular file, or encrypted.
    pub fn open_file(&self, location: &FileLocation) -> Result<OpenFile> {
        let opened = self.with_file(location, |files, _, inode| {
            if inode.metadata().kind != FileKind::Regular {
                return Err(Error::refused(format!("{location} is no regular file")));
            }
            let size = inode.metadata().size;
            Ok((size, Contents::of(files, Arc::new(inode))?))
        });
        let ((size, contents), filesystem) = opened?;
        Ok(OpenFile { filesystem, contents, size, last: LastDecoded::default() })
    }

    /// Runs `work` with the files, the path and the file at a location. Returns the filesystem, too.
    fn with_file<T>(
        &self,
        location: &FileLocation,
        work: impl FnOnce(&mut dyn FileTree, &[u8], FileInode) -> Result<T>,
    ) -> Result<(T, OpenFilesystem)> {
        let partition = Partitions::read(&*self.disk, &location.version)?.choose(location)?;
        let path = location.path.as_deref().unwrap_or(b"/");
        let done = OpenFilesystem::open(self.disk.clone(), &partition).and_then(|filesystem| {
            let done = filesystem.with(|files| {
                let inode = resolve(files, path, true)?;
                work(files, path, inode)
            });
            Ok((done?, filesystem))
        });
        done.map_err(|error| advise(error, || partition.of(&location.version)))
    }
}

/// A regular file that is open.
pub struct OpenFile {
    filesystem: OpenFilesystem,
    contents: Contents,
    size: u64,
    last: LastDecoded,
}

impl OpenFile {
    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills `buffer` with what is at `offset`; returns how many bytes there are.
    ///
    /// # Errors
    /// Those of reading.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.contents.read((&self.filesystem, ONLY, &self.last), offset, buffer)
    }
}
