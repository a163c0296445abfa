//! The files of an exFAT volume.
//!
//! A file has no inode, so its number is the place of its set of directory entries: the offset in the volume, in entries. A set
//! may continue in the next cluster of its directory.

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

use super::boot_region::BootRegion;
use super::directory::DIRECTORY_LENGTH_MAX;
use super::entry_set::{ENTRY_LENGTH, FILE, FileSet};
use super::examine::{ExFat, FIRST_CLUSTER};
use super::label::label;
use crate::clusters::{Chains, Clusters, Run, Table, Width, read_directory};
use crate::files::{Attribute, FileContents, FileInode, FileKind, FileTree, Listing, Metadata};
use crate::reader::Reader;

/// The number of the root directory, which has no entries; the boot region is at this place.
const ROOT: u64 = 1;
/// More directories in one piece are not remembered, and cannot be read.
const PIECES_MAX: usize = 1 << 22;

/// The files of one volume.
pub(crate) struct Files<'d> {
    disk: &'d dyn DiskRead,
    boot: BootRegion,
    chains: Chains<'d>,
    volume: Extent,
    label: Option<String>,
    /// The directories that lie in one piece, for which the table says nothing; sorted.
    pieces: Vec<Extent>,
}

impl<'d> Files<'d> {
    /// Opens the volume at the start of `extent`.
    ///
    /// # Errors
    /// `Corrupt` if there is no trustworthy volume; errors of reading the disk.
    pub(crate) fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let boot = BootRegion::read(disk, extent)?;
        if boot.length > extent.length || boot.tables > 1 {
            return Err(Error::corrupt(format!(
                "it has {} bytes in a partition of {}, and {} allocation tables",
                boot.length, extent.length, boot.tables
            )));
        }
        let volume = Extent::new(extent.offset, boot.length);
        let heap = volume.offset + boot.heap;
        let clusters = Clusters::new(disk, volume, heap, (boot.cluster_size, boot.clusters), FIRST_CLUSTER)?;
        let entries = boot.clusters + FIRST_CLUSTER;
        let table = Table::read(disk, volume.offset + boot.table, Width::Bits32, entries)?;
        let chains = Chains::new(clusters, table);
        let label = label(disk, extent);
        Ok(Self { disk, boot, chains, volume, label, pieces: Vec::new() })
    }

    /// The bytes of a directory, and its clusters; `None`: the root directory.
    fn directory(&mut self, set: Option<&FileSet>) -> Result<(Vec<u8>, Vec<Run>)> {
        let runs = match set {
            None => self.chains.chain(self.boot.root_cluster, None)?,
            Some(set) => self.runs(set)?,
        };
        if let Some(run) = runs.first().filter(|_| set.is_some_and(|set| set.stream.is_one_piece)) {
            let place = self.chains.clusters().at(run.first, run.count);
            let at = self.pieces.partition_point(|known| *known < place);
            if self.pieces.get(at) != Some(&place) {
                if self.pieces.len() >= PIECES_MAX {
                    return Err(Error::corrupt(format!("it has more than {PIECES_MAX} directories")));
                }
                self.pieces.insert(at, place);
            }
        }
        Ok((read_directory(self.chains.clusters(), &runs, DIRECTORY_LENGTH_MAX)?, runs))
    }

    fn runs(&mut self, set: &FileSet) -> Result<Vec<Run>> {
        let stream = set.stream;
        match (stream.length, stream.is_one_piece) {
            (0, _) => Ok(Vec::new()),
            (length, true) => self.chains.piece(stream.cluster, length),
            (length, false) => self.chains.chain(stream.cluster, Some(length)),
        }
    }

    /// The offset on the disk after `offset`, which is the end of an entry of a directory.
    fn next(&self, offset: u64) -> Option<u64> {
        let clusters = self.chains.clusters();
        let (start, size) = (clusters.all().offset, clusters.size());
        if !(offset - start).is_multiple_of(size) {
            return Some(offset);
        }
        let last = offset - 1;
        let after = self.pieces.partition_point(|piece| piece.offset <= last);
        let piece = after.checked_sub(1).and_then(|at| self.pieces.get(at));
        if let Some(piece) = piece.filter(|piece| last < piece.end()) {
            return (offset < piece.end()).then_some(offset);
        }
        let next = self.chains.after(clusters.at_offset(last))?;
        clusters.hold(next, 1).then(|| clusters.at(next, 1).offset)
    }

    /// Reads the set of entries with that number.
    fn set(&self, number: u64) -> Result<Vec<u8>> {
        let missing = || Error::corrupt(format!("there is no file {number}"));
        let heap = self.chains.clusters().all();
        let offset =
            number.checked_mul(ENTRY_LENGTH as u64).and_then(|offset| offset.checked_add(self.volume.offset));
        let mut offset =
            offset.filter(|offset| (heap.offset..heap.end()).contains(offset)).ok_or_else(missing)?;
        let mut set: Vec<u8> = Vec::new();
        loop {
            let at = set.len();
            set.resize(at + ENTRY_LENGTH, 0);
            self.disk
                .read_exact_at(&mut set[at..], offset)
                .context(|| format!("reading a directory entry at offset {offset}"))?;
            if set[0] != FILE {
                return Err(missing());
            }
            if set.len() == (usize::from(set[1]) + 1) * ENTRY_LENGTH {
                return Ok(set);
            }
            offset = self.next(offset + ENTRY_LENGTH as u64).ok_or_else(missing)?;
        }
    }
}

impl FileTree for Files<'_> {
    fn filesystem(&self) -> &'static str {
        ExFat::NAME
    }

    fn block_size(&self) -> u32 {
        self.boot.cluster_size as u32
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        (self.label.as_deref(), Some(&self.boot.serial))
    }

    fn root(&self) -> u64 {
        ROOT
    }

    fn renew(&mut self) {
        self.chains.renew();
    }

    fn forgets(&self) -> bool {
        !self.pieces.is_empty()
    }

    fn inode(&mut self, number: u64) -> Result<FileInode> {
        if number == ROOT {
            let metadata = Metadata { mode: 0o755, ..Metadata::new(FileKind::Directory) };
            return Ok(FileInode { number, metadata, is_encrypted: false, bytes: Vec::new() });
        }
        let bytes = self.set(number)?;
        let set = FileSet::parse(&bytes)?;
        let (kind, mode) =
            if set.is_directory { (FileKind::Directory, 0o755) } else { (FileKind::Regular, 0o644) };
        let size = if set.is_directory { 0 } else { set.stream.length };
        let metadata = Metadata {
            mode: if set.is_read_only { mode & !0o222 } else { mode },
            size,
            allocated: self.chains.clusters().round_up(size),
            mtime: set.mtime,
            atime: set.atime,
            ctime: set.mtime,
            flags: set.flags,
            ..Metadata::new(kind)
        };
        Ok(FileInode { number, metadata, is_encrypted: false, bytes })
    }

    fn list(&mut self, directory: &FileInode) -> Result<Listing> {
        let set = if directory.number == ROOT { None } else { Some(FileSet::parse(&directory.bytes)?) };
        let read = self.directory(set.as_ref());
        let (bytes, runs) = read.map_err(|error| error.within(format!("directory {}", directory.number)))?;
        let mut listing = Listing::without_dots();
        let mut at = 0;
        while let Some(entry) = bytes.get(at..at + ENTRY_LENGTH).filter(|entry| entry[0] != 0) {
            let count = if entry[0] == FILE { usize::from(entry[1]) + 1 } else { 1 };
            if entry[0] == FILE {
                let set = bytes.get(at..at + count * ENTRY_LENGTH);
                let set = set.ok_or_else(|| Error::corrupt("the last set of a directory is cut off"))?;
                let place = self.chains.offset_in(&runs, at as u64) - self.volume.offset;
                match FileSet::parse(set) {
                    Ok(set) => listing.add(set.name.as_bytes(), place / ENTRY_LENGTH as u64)?,
                    Err(error) => listing.fault(error.to_string()),
                }
            }
            at += count * ENTRY_LENGTH;
        }
        Ok(listing.sorted())
    }

    fn disk(&self) -> &dyn DiskRead {
        self.disk
    }

    fn contents(&mut self, file: &FileInode) -> Result<FileContents> {
        if file.number == ROOT {
            let runs = self.chains.chain(self.boot.root_cluster, None)?;
            return Ok(FileContents::Runs(self.chains.places(&runs, u64::MAX)));
        }
        let set = FileSet::parse(&file.bytes)?;
        let runs = self.runs(&set)?;
        // What was not written reads as zeros.
        Ok(FileContents::Runs(self.chains.places(&runs, set.valid)))
    }

    fn target(&mut self, _link: &FileInode) -> Result<Vec<u8>> {
        Err(Error::bug("exFAT has no symbolic links"))
    }

    fn attributes(&mut self, _file: &FileInode) -> Result<Vec<Attribute>> {
        Ok(Vec::new())
    }
}
