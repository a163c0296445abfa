//! What is where on a disk, found before reading its data: tables, filesystems, gaps.
//!
//! It decides which bytes are kept. Every byte of the disk is in exactly one [`Part`], and each part says
//! which of its bytes are allocated. Bytes are dropped only on proof: a filesystem may drop its free space
//! only if its place on the disk is beyond doubt and there is no mark of another owner. If the partition
//! table contradicts itself, or if there are marks of an owner of the whole disk besides the table, the whole
//! disk is kept. Sectors outside of partitions are kept, too, unless the user says otherwise: RAID
//! controllers, boot loaders and forgotten partitions live there.

use platter_image::chunking::{FileRun, GRID, Region};
use platter_image::{DiskRead, Error, Extent, Extents, Result, SECTOR};

use crate::choices::{self, Choice, PartitionChoices};
use crate::partition::{Partition, PartitionTable, TableKind};
use platter_filesystem::{
    Contents, ExamineOptions, Found, Owners, PHYSICAL_VOLUME, Trust, examine, examine_volumes, probe,
};

/// With `skip_gaps`, gaps of at most this many bytes are kept anyway: alignment creates such gaps.
pub const GAP_KEPT_MAX: u64 = 1 << 20;

/// With `skip_gaps`, at most this many bytes before the first partition are kept anyway: boot loaders,
/// firmware of small computers.
pub const LEADING_GAP_KEPT: u64 = 64 << 20;

/// With `skip_gaps`, this many bytes at the end of the disk are kept anyway: backup tables, metadata of RAID
/// and dynamic disks.
pub const TRAILING_GAP_KEPT: u64 = 1 << 20;

/// The options of a survey.
#[derive(Clone, Debug, Default)]
pub struct SurveyOptions {
    /// Keep all of a filesystem that needs recovery, instead of refusing it.
    pub force: bool,
    /// Keep contents that mean nothing to the next boot, such as page files.
    pub all: bool,
    /// Look for neither partitions nor filesystems: every byte is kept.
    pub raw: bool,
    /// Drop long gaps between and after partitions.
    pub skip_gaps: bool,
    /// Decisions about partitions.
    pub choices: PartitionChoices,
}

impl SurveyOptions {
    fn examine(&self) -> ExamineOptions {
        ExamineOptions { force: self.force, all: self.all }
    }
}

/// A part of the disk and what is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its range, and which bytes of it are kept.
    pub region: Region,
    /// The partition's number; `None` for an unpartitioned disk and for space outside of partitions.
    pub partition: Option<u32>,
    /// `ext4`, `swap`, `xfs`, …; `unallocated` for space outside of partitions; empty if unknown.
    pub filesystem: String,
    /// The filesystem's label.
    pub label: Option<String>,
    /// The filesystem's UUID.
    pub uuid: Option<String>,
    /// Block size of the filesystem in bytes; 0 if unknown.
    pub block_size: u32,
    /// Number of bytes that are kept, including zeros.
    pub used: u64,
    /// Bytes outside of partitions that are dropped because gaps are skipped.
    pub skipped: u64,
    /// Peculiarities of this part, in sentences.
    pub notes: Vec<String>,
    /// Whether the filesystem states more bytes than this part has.
    pub is_cut_off: bool,
}

/// The result of a survey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Length of the disk in bytes.
    pub length: u64,
    /// Sector size in which the table counts, in bytes; without a table, that of the device.
    pub sector_size: u32,
    /// The partition table.
    pub table: PartitionTable,
    /// All parts in ascending order, without gaps or overlaps, from the first byte of the disk to the last.
    pub parts: Vec<Part>,
    /// Peculiarities of the disk, in sentences. Those of a part are in the part.
    pub notes: Vec<String>,
}

impl Survey {
    /// Number of bytes that are kept.
    pub fn used(&self) -> u64 {
        self.parts.iter().map(|part| part.used).sum()
    }

    /// Bytes outside of partitions that are dropped because gaps are skipped.
    pub fn skipped(&self) -> u64 {
        self.parts.iter().map(|part| part.skipped).sum()
    }

    /// Says which structure ends past the end of the disk or of its partition, as in a truncated copy; `None` if none does.
    pub fn cut_off(&self) -> Option<String> {
        let has = self.length;
        if self.table.stated_length > has {
            return Some(format!(
                "its partition table describes a disk of at least {} bytes, but it has {has}",
                self.table.stated_length
            ));
        }
        let part = self.parts.iter().find(|part| part.is_cut_off)?;
        let what = &part.filesystem;
        Some(match part.partition {
            Some(number) => format!("the {what} filesystem is larger than partition {number}"),
            None => format!("the {what} filesystem is larger than {has} bytes"),
        })
    }

    /// All notes, each with the partition to which it applies.
    pub fn all_notes(&self) -> impl Iterator<Item = String> {
        let of_parts = self.parts.iter().flat_map(|part| {
            part.notes.iter().map(|note| match part.partition {
                Some(number) => format!("partition {number}: {note}"),
                None => format!("at offset {}: {note}", part.region.extent.offset),
            })
        });
        let doubts = self.table.doubts.iter().map(|doubt| format!("{doubt}: the whole disk is stored"));
        self.notes.iter().chain(&self.table.notes).cloned().chain(doubts).chain(of_parts)
    }
}

/// Surveys a disk. `data` says where a sparse file has data, if known: other ranges are zeros, and are stored
/// as zeros without being read. Holes inside files are read anyway, so that files are cut alike everywhere.
///
/// # Errors
/// `Refused` if a filesystem needs recovery and `force` is not set, or if the disk's length is not a multiple
/// of 512; errors of reading the disk.
pub fn survey(disk: &dyn DiskRead, data: Option<&Extents>, options: &SurveyOptions) -> Result<Survey> {
    let length = disk.length();
    if !length.is_multiple_of(SECTOR) {
        return Err(Error::refused(format!(
            "the disk has {length} bytes, which is not a multiple of {SECTOR}"
        )));
    }
    let all = Extent::new(0, length);
    let named = options.choices.of_disk();
    let has_table = !options.raw && named.is_none();
    let mut table = if has_table { read_table(disk)? } else { PartitionTable::default() };
    options.choices.check(&table)?;
    let parts = if let Some(name) = named {
        let owners = Owners::find(disk, all)?;
        vec![part(None, all, examine(disk, all, &owners, Trust::Named(name), options.examine())?)]
    } else if options.raw || length == 0 {
        vec![part(None, all, Contents::whole("", all))]
    } else if table.kind == TableKind::None {
        let owners = Owners::find(disk, all)?;
        let trust = if table.doubts.is_empty() { Trust::Sole } else { Trust::Kept };
        vec![part(None, all, examine(disk, all, &owners, trust, options.examine())?)]
    } else {
        partitioned(disk, &mut table, data, options)?
    };
    let mut survey = Survey {
        length,
        sector_size: table.sector_size.unwrap_or(disk.sector_size()),
        table,
        parts,
        notes: Vec::new(),
    };
    for part in &mut survey.parts {
        if let Some(data) = data {
            mark_holes(&mut part.region, data);
        }
        part.region.check()?;
    }
    Ok(survey)
}

/// The parts of a disk with a partition table. Adds new doubts to the table.
fn partitioned(
    disk: &dyn DiskRead,
    table: &mut PartitionTable,
    data: Option<&Extents>,
    options: &SurveyOptions,
) -> Result<Vec<Part>> {
    let length = disk.length();
    let trusted = table.partitions.iter().filter(|partition| partition.trusted);
    let owned = trusted.map(|partition| Ok((partition, Owners::find(disk, partition.extent)?)));
    let mut owned = owned.collect::<Result<Vec<_>>>()?;
    owned.sort_unstable_by_key(|(partition, _)| partition.extent);
    let doubts = doubts_of_whole_disk(disk, table.kind, &owned)?;
    let is_doubted = !(doubts.is_empty() && table.doubts.is_empty());
    let mut volumes = if is_doubted { Vec::new() } else { physical_volumes(disk, &owned, options)? };
    let mut parts = Vec::new();
    let mut end = 0;
    for (partition, owners) in owned {
        let extent = partition.extent;
        parts.extend(gap(Extent::between(end, extent.offset), table, is_doubted, (length, data), options));
        let choice = options.choices.of(partition.number);
        let doubt = doubt_of(partition, &owners);
        let trust = match (choice, &doubt) {
            (Some(Choice::Named(name)), _) => Trust::Named(name),
            _ if is_doubted => Trust::Kept,
            (_, Some(doubt)) => Trust::Doubted(doubt),
            (_, None) => Trust::Sole,
        };
        let volume = volumes.iter().position(|(place, _)| *place == extent);
        let contents = match (choice, volume) {
            (Some(Choice::Skip), _) => choices::skipped(extent),
            (Some(Choice::Whole), _) => choices::whole(extent, &owners),
            (None, Some(at)) => volumes.swap_remove(at).1,
            _ => examine(disk, extent, &owners, trust, options.examine()).map_err(|error| {
                error.within(format!("partition {} at offset {}", partition.number, extent.offset))
            })?,
        };
        parts.push(part(Some(partition.number), extent, contents));
        end = extent.end();
    }
    parts.extend(gap(Extent::between(end, length), table, is_doubted, (length, data), options));
    table.doubts.extend(doubts);
    Ok(parts)
}

/// Why all of a partition must be kept, whatever is in it.
fn doubt_of(partition: &Partition, owners: &Owners) -> Option<String> {
    let announced = partition.announced_owner().filter(|name| !owners.has(name));
    let announced = announced.map(|name| {
        format!("its type ({}) announces a container, but there is no mark of {name}", partition.type_name)
    });
    partition.doubt.clone().or(announced)
}

/// The partitions that are physical volumes of LVM and nothing else, with what is kept of them. They are examined together,
/// because a volume group may have several of them.
fn physical_volumes(
    disk: &dyn DiskRead,
    owned: &[(&Partition, Owners)],
    options: &SurveyOptions,
) -> Result<Vec<(Extent, Contents)>> {
    let is_volume = |(partition, owners): &&(&Partition, Owners)| {
        owners.found() == Found::Filesystem(PHYSICAL_VOLUME) && doubt_of(partition, owners).is_none()
    };
    let extents: Vec<Extent> =
        owned.iter().filter(is_volume).map(|(partition, _)| partition.extent).collect();
    let contents = examine_volumes(disk, &extents, options.examine())?;
    Ok(extents.into_iter().zip(contents).collect())
}

/// Reasons to doubt the table: marks of owners of the whole disk. A mark inside a partition that has the same
/// mark is the partition's own: at the end of a disk, the places for both may coincide.
fn doubts_of_whole_disk(
    disk: &dyn DiskRead,
    kind: TableKind,
    owned: &[(&Partition, Owners)],
) -> Result<Vec<String>> {
    let whole = Owners::find(disk, Extent::new(0, disk.length()))?;
    let is_explained = |name: &str, offset: u64| {
        let holds =
            |partition: &Partition| (partition.extent.offset..partition.extent.end()).contains(&offset);
        owned.iter().any(|(partition, owners)| holds(partition) && owners.has(name))
    };
    let others = whole.list().iter().filter(|owner| !kind.marks().contains(&owner.name));
    let others = others.filter(|owner| !is_explained(owner.name, owner.offset));
    Ok(others.map(|owner| format!("there is also a mark of {} for the whole disk", owner.name)).collect())
}

/// Reads the partition table, with the sector size for which it was written.
///
/// # Errors
/// Errors of reading the disk.
pub fn read_table(disk: &dyn DiskRead) -> Result<PartitionTable> {
    let table = PartitionTable::read(disk)?;
    if table.kind != TableKind::Mbr || disk.sector_size() != 512 || filesystems(disk, &table)? > 0 {
        return Ok(table);
    }
    // The file may be the image of a disk with large sectors.
    let mut large = PartitionTable::read_with_sectors(disk, 4096)?;
    let all_trusted = large.partitions.iter().all(|partition| partition.trusted || partition.container);
    if all_trusted && filesystems(disk, &large)? > 0 {
        let doubt = "the partition table is valid only with 4096-byte sectors, but the file does not state its sector size \
                     (--sector-size 4096 does)";
        large.doubts.push(doubt.to_owned());
        return Ok(large);
    }
    Ok(table)
}

/// Number of partitions whose contents are recognized.
fn filesystems(disk: &dyn DiskRead, table: &PartitionTable) -> Result<usize> {
    let mut known = 0;
    for partition in table.partitions.iter().filter(|partition| partition.trusted) {
        known += usize::from(probe(disk, partition.extent)? != Found::Nothing);
    }
    Ok(known)
}

fn part(partition: Option<u32>, extent: Extent, contents: Contents) -> Part {
    Part {
        partition,
        filesystem: contents.filesystem.clone(),
        label: contents.label.clone(),
        uuid: contents.uuid.clone(),
        block_size: contents.block_size,
        used: contents.allocated.total(),
        skipped: 0,
        notes: contents.notes.clone(),
        is_cut_off: contents.is_cut_off,
        region: contents.into_region(extent),
    }
}

/// The part for space outside of partitions.
fn gap(
    extent: Extent,
    table: &PartitionTable,
    is_doubted: bool,
    (length, data): (u64, Option<&Extents>),
    options: &SurveyOptions,
) -> Option<Part> {
    if extent.length == 0 {
        return None;
    }
    if is_doubted || !options.skip_gaps {
        return Some(part(None, extent, Contents::whole("unallocated", extent)));
    }
    // Always kept: the table, other announced ranges, and partitions that could not be examined.
    let is_kept = |partition: &&Partition| match partition.container {
        true => partition.doubt.is_some(),
        false => !partition.trusted,
    };
    let kept = table.partitions.iter().filter(is_kept).map(|partition| partition.extent);
    let kept = table.structures.iter().chain(&table.announced).copied().chain(kept);
    let mut kept: Vec<Extent> = kept.filter_map(|one| one.align_outwards().intersect(&extent)).collect();
    let ends = [Extent::new(0, leading(table)), trailing(length)];
    kept.extend(ends.iter().filter_map(|one| one.intersect(&extent)));
    let certain = Extents::from_unsorted(kept);
    let (small, large): (Vec<Extent>, Vec<Extent>) =
        certain.complement(extent).iter().partition(|rest| rest.length <= GAP_KEPT_MAX);
    // Do not report ranges that are holes anyway.
    let filled =
        |rest: &Extent| data.map_or(rest.length, |data| data.clip(*rest).map(|one| one.length).sum());
    let skipped: u64 = large.iter().map(filled).sum();
    let allocated: Extents = certain.iter().copied().chain(small).collect();
    let contents = Contents { filesystem: "unallocated".to_owned(), allocated, ..Contents::default() };
    let contents = match large.first() {
        Some(first) if skipped > 0 => contents.with_note(format!(
            "{skipped} bytes from offset {} on are outside of partitions and were skipped as requested",
            first.offset
        )),
        _ => contents,
    };
    Some(Part { skipped, ..part(None, extent, contents) })
}

fn leading(table: &PartitionTable) -> u64 {
    let first = table.partitions.iter().map(|partition| partition.extent.offset).min().unwrap_or(0);
    first.clamp(GAP_KEPT_MAX, LEADING_GAP_KEPT)
}

fn trailing(length: u64) -> Extent {
    Extent::between(length.saturating_sub(TRAILING_GAP_KEPT), length)
}

/// Adds to a region's zeroed extents the allocated space that is in a hole of the disk's file and outside of
/// files.
///
/// Only whole grid cells are added: zeros next to data belong to the block of their cell, as when they are
/// read. So a disk has the same score whether its zeros are holes or not.
fn mark_holes(region: &mut Region, data: &Extents) {
    let origin = region.extent.offset;
    let cells = |one: Extent| {
        let start = origin + (one.offset - origin) / GRID * GRID;
        let end = origin + (one.end() - origin).div_ceil(GRID) * GRID;
        Extent::between(start, end.min(region.extent.end()))
    };
    let filled = Extents::from_unsorted(data.clip(region.extent).map(cells).collect());
    let holes = region.allocated.subtract(&filled);
    let files = region.files.iter().map(FileRun::extent);
    let files: Extents = files.filter(|file| holes.clip(*file).next().is_some()).collect();
    let zeroed = holes.subtract(&files);
    region.zeroed = region.zeroed.iter().chain(&zeroed).copied().collect();
}

#[cfg(test)]
#[path = "survey_tests.rs"]
mod tests;
