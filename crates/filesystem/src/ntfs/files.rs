//! The files of an NTFS volume. Owners and permissions of Windows are not shown; named streams are extended attributes of the class
//! `user`, as ntfs-3g shows them.

use std::ops::Range;
use std::sync::Arc;

use platter_image::{DiskRead, Error, Extent, Result};

use super::attribute::{self, Coding};
use super::compressed::visit_units;
use super::examine::{FIRST_FILE, LOG_FILE, Ntfs, ROOT, check_volume};
use super::index::Index;
use super::label::label;
use super::links::{self, MARKED_LENGTH_MAX, Reparse};
use super::log_file;
use super::master_table::MasterTable;
use super::record::{Record, wrong};
use super::stream::Stream;
use crate::clusters::Clusters;
use crate::fields::{le16, le32, le64};
use crate::files::{
    Attribute, AttributeList, DOS_FLAGS, FileContents, FileInode, FileKind, FileTree, Listing, Metadata,
    Piece, Run, Visit,
};
use crate::reader::Reader;

/// The longest reparse point, as in Windows.
const REPARSE_MAX: u64 = 16 << 10;

/// Bits of a file's attributes: read-only and system.
const READ_ONLY: u32 = 1;
const SYSTEM: u32 = 4;

/// Times count in units of 100 ns from 1601 on; this many seconds before 1970.
const UNITS_PER_SECOND: u64 = 10_000_000;
const SECONDS_TO_1970: i64 = 11_644_473_600;

/// The files of one volume.
pub(crate) struct Files<'d> {
    disk: &'d dyn DiskRead,
    ntfs: Ntfs<'d>,
    clusters: Clusters<'d>,
    /// The runs of the master file table.
    runs: Arc<Stream>,
    label: Option<String>,
    /// The number and the contents of the compressed file that was read last.
    last: Option<(u64, Stream)>,
}

impl<'d> Files<'d> {
    /// Opens the volume at the start of `extent`.
    ///
    /// # Errors
    /// `Corrupt` if there is no trustworthy volume; `Refused` if it was not unmounted; errors of reading the disk.
    pub(crate) fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let ntfs = Ntfs::open(disk, extent)?;
        let boot = ntfs.boot();
        let volume = Extent::new(extent.offset, boot.length);
        let clusters = Clusters::new(disk, volume, volume.offset, (boot.cluster_size, boot.clusters), 0)?;
        let runs = {
            let table = MasterTable::open(&clusters, boot)?;
            check_volume(&table)?;
            let log = table.attribute(LOG_FILE, attribute::DATA)?;
            log_file::check(&log.ok_or_else(|| wrong(LOG_FILE, "it has no contents"))?, &clusters)?;
            table.runs()
        };
        let label = label(disk, extent);
        Ok(Self { disk, ntfs, clusters, runs, label, last: None })
    }

    fn table(&self) -> MasterTable<'_, 'd> {
        MasterTable::with_runs(&self.clusters, self.ntfs.boot(), self.runs.clone())
    }

    /// The whole contents of a short attribute; `None` if there is none.
    fn short(&self, number: u64, kind: u32, length_max: u64) -> Result<Option<Vec<u8>>> {
        let Some(stream) = self.table().attribute(number, kind)? else { return Ok(None) };
        self.read_short(number, &stream, length_max).map(Some)
    }

    fn read_short(&self, number: u64, stream: &Stream, length_max: u64) -> Result<Vec<u8>> {
        let length = stream.written();
        if length > length_max {
            return Err(wrong(number, &format!("an attribute of it has {length} bytes")));
        }
        let mut bytes = vec![0; length as usize];
        stream.read(&self.clusters, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// The contents of a stream with a name.
    fn read_stream(&self, stream: &Stream) -> Result<Vec<u8>> {
        let length = stream.length();
        let mut bytes = vec![0; length as usize];
        match coding(stream) {
            Coding::Plain => {
                stream.read(&self.clusters, 0, &mut bytes[..stream.written() as usize])?;
            }
            Coding::Compressed(unit) => {
                visit_units(stream, &self.clusters, unit, (0..length, length), &mut |offset, piece| {
                    if let Piece::Bytes(piece) = piece {
                        bytes[offset as usize..][..piece.len()].copy_from_slice(piece);
                    }
                    Ok(())
                })?;
            }
            Coding::Encrypted | Coding::Unknown(_) => {
                return Err(Error::refused(
                    "a named stream is encrypted, or compressed by an unknown method",
                ));
            }
        }
        Ok(bytes)
    }

    /// Where the written parts of a stream are.
    fn places(&self, stream: &Stream) -> Vec<Run> {
        let Stream::Extended { runs, initialized, coding, .. } = stream else { return Vec::new() };
        let size = self.clusters.size();
        let end = if *coding == Coding::Plain { *initialized } else { u64::MAX };
        let places = runs.iter().filter_map(|(at, run)| {
            let (file_offset, cluster) = (at.saturating_mul(size), run.cluster?);
            let place = self.clusters.at(cluster, run.count);
            let used = place.length.min(end.saturating_sub(file_offset));
            (used > 0).then_some(Run { file_offset, place: Extent::new(place.offset, used) })
        });
        places.collect()
    }

    /// The bytes of the clusters in these runs that exist.
    fn allocated(&self, runs: &[(u64, super::runs::Run)]) -> u64 {
        let used = runs.iter().filter(|(_, run)| run.cluster.is_some()).map(|(_, run)| run.count);
        used.fold(0_u64, u64::saturating_add).saturating_mul(self.clusters.size())
    }

    /// The target of a file that is a link; `None` if it is none.
    fn link_target(&self, number: u64, flags: u32) -> Result<Option<Vec<u8>>> {
        if let Some(bytes) = self.short(number, attribute::REPARSE_POINT, REPARSE_MAX)? {
            return Ok(match links::reparse(&bytes) {
                Reparse::Link(target) => Some(target),
                Reparse::Other(_) => None,
            });
        }
        if flags & SYSTEM == 0 {
            return Ok(None);
        }
        let Some(stream) = self.table().attribute(number, attribute::DATA)? else { return Ok(None) };
        let is_short = stream.written() <= MARKED_LENGTH_MAX && coding(&stream) == Coding::Plain;
        Ok(if is_short { links::marked(&self.read_short(number, &stream, MARKED_LENGTH_MAX)?) } else { None })
    }
}

/// How the contents are stored.
fn coding(stream: &Stream) -> Coding {
    match stream {
        Stream::Resident(_) => Coding::Plain,
        Stream::Extended { coding, .. } => *coding,
    }
}

impl FileTree for Files<'_> {
    fn filesystem(&self) -> &'static str {
        Ntfs::NAME
    }

    fn block_size(&self) -> u32 {
        self.clusters.size() as u32
    }

    fn names(&self) -> (Option<&str>, Option<&str>) {
        (self.label.as_deref(), Some(&self.ntfs.boot().serial))
    }

    fn root(&self) -> u64 {
        ROOT
    }

    fn renew(&mut self) {
        // One file at a time is read, of which every part is limited.
    }

    fn inode(&mut self, number: u64) -> Result<FileInode> {
        let mut buffer = Vec::new();
        let table = self.table();
        let record = table.record(number, &mut buffer)?.filter(|record| record.base().is_none());
        let record = record.ok_or_else(|| wrong(number, "it has a name but is not in use"))?;
        let found = facts(record).map_err(|error| wrong(number, &error.to_string()))?;
        let Facts { is_directory, flags, times: [mtime, ctime, atime], links, is_encrypted } = found;
        let bytes = record.bytes().to_vec();
        let target = self.link_target(number, flags)?;
        let (size, allocated) = match (&target, is_directory) {
            (Some(target), _) => (target.len() as u64, 0),
            (None, true) => (0, 0),
            (None, false) => match table.attribute(number, attribute::DATA)? {
                Some(Stream::Extended { length, runs, .. }) => (length, self.allocated(&runs)),
                Some(Stream::Resident(bytes)) => (bytes.len() as u64, 0),
                None => (0, 0),
            },
        };
        let (kind, mode) = match (target.is_some(), is_directory) {
            (true, _) => (FileKind::Link, 0o777),
            (_, true) => (FileKind::Directory, 0o755),
            _ => (FileKind::Regular, 0o644),
        };
        let is_read_only = flags & READ_ONLY != 0 && kind == FileKind::Regular;
        let metadata = Metadata {
            mode: if is_read_only { mode & !0o222 } else { mode },
            size,
            allocated,
            mtime,
            atime,
            ctime,
            links: links.into(),
            flags: u64::from(flags) & DOS_FLAGS,
            ..Metadata::new(kind)
        };
        Ok(FileInode { number, metadata, is_encrypted, bytes })
    }

    fn list(&mut self, directory: &FileInode) -> Result<Listing> {
        let number = directory.number;
        let index = Index::open(&self.table(), &self.clusters, number)?;
        let mut listing = Listing::default();
        index
            .list(&mut listing, &self.clusters, FIRST_FILE)
            .map_err(|error| wrong(number, &error.to_string()))?;
        Ok(listing.sorted())
    }

    fn disk(&self) -> &dyn DiskRead {
        self.disk
    }

    fn contents(&mut self, file: &FileInode) -> Result<FileContents> {
        let number = file.number;
        if let Some(bytes) = self.short(number, attribute::REPARSE_POINT, REPARSE_MAX)? {
            return Err(Error::refused(format!(
                "its contents are stored in a way that only Windows understands (reparse tag {:#x})",
                le32(&bytes, 0)
            )));
        }
        let stream = match self.table().attribute(number, attribute::DATA)? {
            None => return Ok(FileContents::Runs(Vec::new())),
            Some(Stream::Resident(bytes)) => return Ok(FileContents::Inline(bytes)),
            Some(stream) => stream,
        };
        match coding(&stream) {
            Coding::Plain | Coding::Encrypted => Ok(FileContents::Runs(self.places(&stream))),
            Coding::Compressed(_) => Ok(FileContents::Packed),
            Coding::Unknown(method) => {
                Err(Error::refused(format!("its contents are compressed by the unknown method {method:#x}")))
            }
        }
    }

    fn visit_packed(&mut self, file: &FileInode, range: Range<u64>, visit: Visit<'_>) -> Result<()> {
        let known = self.last.take().filter(|(number, _)| *number == file.number);
        let stream = match known {
            Some((_, stream)) => Some(stream),
            None => self.table().attribute(file.number, attribute::DATA)?,
        };
        let stream = &self.last.insert((file.number, stream.unwrap_or(Stream::Resident(Vec::new())))).1;
        match Some((stream, coding(stream))) {
            Some((stream, Coding::Compressed(unit))) => {
                visit_units(stream, &self.clusters, unit, (range, file.metadata.size), visit)
            }
            _ => Err(Error::bug("a compressed file is none")),
        }
    }

    fn visit_places(&mut self, file: &FileInode, visit: &mut dyn FnMut(Extent)) -> Result<bool> {
        if let Some(stream) = self.table().attribute(file.number, attribute::DATA)? {
            self.places(&stream).iter().for_each(|run| visit(run.place));
        }
        // Records are missing, and other attributes.
        Ok(false)
    }

    fn target(&mut self, link: &FileInode) -> Result<Vec<u8>> {
        let mut buffer = Vec::new();
        let record = self.table().record(link.number, &mut buffer)?.map(facts).transpose()?;
        let target = self.link_target(link.number, record.map_or(0, |facts| facts.flags))?;
        target.ok_or_else(|| wrong(link.number, "it is no symbolic link"))
    }

    fn attributes(&mut self, file: &FileInode) -> Result<Vec<Attribute>> {
        let mut list = AttributeList::default();
        for name in self.table().stream_names(file.number)? {
            let stream = self.table().named_attribute(file.number, (attribute::DATA, &name))?;
            let stream = stream.ok_or_else(|| wrong(file.number, "it lacks a named stream"))?;
            let units = name.chunks_exact(2).map(|unit| le16(unit, 0)).collect::<Vec<_>>();
            let name = format!("user.{}", String::from_utf16_lossy(&units)).into_bytes();
            list.check_room(&name, stream.length())?;
            list.add(Attribute { name, value: self.read_stream(&stream)? })?;
        }
        Ok(list.sorted())
    }
}

/// The fields of a file's base record.
struct Facts {
    is_directory: bool,
    flags: u32,
    /// Of the last change of the contents, of the last change of anything, and of the last access.
    times: [(i64, u32); 3],
    links: u16,
    is_encrypted: bool,
}

fn facts(record: Record<'_>) -> Result<Facts> {
    let standard = record.find(attribute::STANDARD_INFORMATION)?;
    let standard = standard.map(attribute::Attribute::value).transpose()?.flatten();
    let standard = standard.filter(|value| value.len() >= 36);
    let standard = standard.ok_or_else(|| Error::corrupt("it lacks its times and attributes"))?;
    let times = [8, 16, 24].map(|at| {
        let time = le64(standard, at);
        let seconds = (time / UNITS_PER_SECOND).cast_signed() - SECONDS_TO_1970;
        (seconds, (time % UNITS_PER_SECOND) as u32 * 100)
    });
    let data = record.find(attribute::DATA)?;
    // Short names for DOS count as names, too.
    let mut names = 0;
    record.for_each(|found| {
        if let Some(value) = found.value()?.filter(|_| found.kind() == attribute::FILE_NAME) {
            names += u16::from(value.get(65) != Some(&2));
        }
        Ok(())
    })?;
    Ok(Facts {
        is_directory: record.is_directory(),
        flags: le32(standard, 32),
        times,
        links: names.max(if record.links() > 0 { 1 } else { 0 }),
        is_encrypted: data.is_some_and(|data| data.coding() == Coding::Encrypted),
    })
}
