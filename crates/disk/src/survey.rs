//! What stands where on a disk, before any of its data is read: tables, filesystems, gaps.
//!
//! Owns the decision what counts. Every byte of the disk is in exactly one [`Part`]; a part says what of it is
//! allocated. Bytes are dropped only on proof: a filesystem may drop its free space if its place on the disk is beyond
//! doubt and nobody else left a mark there. If the partition table contradicts itself, or the disk as a whole carries
//! marks of somebody beside the table, all of the disk counts. So do sectors in no partition, unless the user says
//! otherwise: RAID controllers, boot loaders and forgotten partitions live there.

use platter_image::chunking::{FileRun, GRID, Region};
use platter_image::{DiskRead, Error, Extent, Extents, Result, SECTOR};

use crate::filesystem::{Contents, Found, Owners, TABLES_READ, Trust, examine, probe};
use crate::partition::{Partition, PartitionTable, TableKind};

/// A gap counts whole even if gaps are skipped, if it is not longer, in bytes: alignment makes such gaps.
pub const GAP_KEPT_MAX: u64 = 1 << 20;

/// So much before the first partition counts even if gaps are skipped, in bytes: boot loaders, firmware of small
/// computers.
pub const LEADING_GAP_KEPT: u64 = 64 << 20;

/// So much at the end of the disk counts even if gaps are skipped, in bytes: backup tables, RAID and dynamic disk
/// metadata.
pub const TRAILING_GAP_KEPT: u64 = 1 << 20;

/// What to look at, and how closely.
#[derive(Clone, Copy, Debug, Default)]
pub struct SurveyOptions {
    /// Take a filesystem that needs recovery whole, instead of refusing it.
    pub force: bool,
    /// Look for neither partitions nor filesystems: every byte counts.
    pub raw: bool,
    /// Long gaps between and behind partitions do not count.
    pub skip_gaps: bool,
}

/// A part of the disk, with what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it covers and what of it counts.
    pub region: Region,
    /// The number of the partition it is; `None` for an unpartitioned disk and for what is in no partition.
    pub partition: Option<u32>,
    /// `ext4`, `swap`, `xfs`, …; `unallocated` for what is in no partition; empty if nothing is known.
    pub filesystem: String,
    /// The filesystem's label.
    pub label: Option<String>,
    /// The filesystem's UUID.
    pub uuid: Option<String>,
    /// Bytes of the filesystem's blocks; 0 if nothing is known.
    pub block_size: u32,
    /// Bytes that count, zeros among them.
    pub used: u64,
    /// Bytes in no partition that do not count because gaps are skipped.
    pub skipped: u64,
    /// What is odd about it, in sentences.
    pub notes: Vec<String>,
}

/// A disk, surveyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Bytes of the disk.
    pub length: u64,
    /// Bytes of the sectors that its table counts in; those of the device if it has no table.
    pub sector_size: u32,
    /// The partition table.
    pub table: PartitionTable,
    /// All parts, ascending, without gaps or overlaps, from the first byte of the disk to the last.
    pub parts: Vec<Part>,
    /// What is odd about the disk, in sentences. Those about a part are with the part.
    pub notes: Vec<String>,
}

impl Survey {
    /// Bytes that count.
    pub fn used(&self) -> u64 {
        self.parts.iter().map(|part| part.used).sum()
    }

    /// Bytes in no partition that do not count because gaps are skipped.
    pub fn skipped(&self) -> u64 {
        self.parts.iter().map(|part| part.skipped).sum()
    }

    /// Every note, with the partition it is about.
    pub fn all_notes(&self) -> impl Iterator<Item = String> {
        let of_parts = self.parts.iter().flat_map(|part| {
            part.notes.iter().map(|note| match part.partition {
                Some(number) => format!("partition {number}: {note}"),
                None => format!("at {}: {note}", part.region.extent.offset),
            })
        });
        let doubts = self.table.doubts.iter().map(|doubt| format!("{doubt}: all of the disk is kept"));
        self.notes.iter().chain(&self.table.notes).cloned().chain(doubts).chain(of_parts)
    }
}

/// Surveys a disk. `data` says where a sparse file has data, if that is known: everything else is zeros, and is
/// stored as zeros without being read (inside of files it is read all the same, so that files are cut alike
/// everywhere).
///
/// # Errors
/// `Refused` if a filesystem needs recovery and `force` does not say to take it whole, or the length of the disk is
/// not a multiple of 512; and what reading the disk says.
pub fn survey(disk: &dyn DiskRead, data: Option<&Extents>, options: &SurveyOptions) -> Result<Survey> {
    let length = disk.length();
    if !length.is_multiple_of(SECTOR) {
        return Err(Error::refused(format!("a disk of {length} bytes: not a multiple of {SECTOR}")));
    }
    let all = Extent::new(0, length);
    let mut table = if options.raw { PartitionTable::default() } else { read_table(disk)? };
    let parts = if options.raw || length == 0 {
        vec![part(None, all, Contents::whole("", all))]
    } else if table.kind == TableKind::None {
        let owners = Owners::find(disk, all)?;
        let trust = if table.doubts.is_empty() { Trust::Sole } else { Trust::Kept };
        vec![part(None, all, examine(disk, all, &owners, trust, options.force)?)]
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

/// The parts of a disk that has a table. Doubts that come up are added to it.
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
    let doubts = doubts_of_whole_disk(disk, &owned)?;
    let is_doubted = !(doubts.is_empty() && table.doubts.is_empty());
    let mut parts = Vec::new();
    let mut end = 0;
    for (partition, owners) in owned {
        let extent = partition.extent;
        parts.extend(gap(Extent::between(end, extent.offset), table, is_doubted, (length, data), options));
        let trust = match &partition.doubt {
            _ if is_doubted => Trust::Kept,
            Some(doubt) => Trust::Doubted(doubt),
            None => Trust::Sole,
        };
        let contents = examine(disk, extent, &owners, trust, options.force)
            .map_err(|error| error.within(format!("partition {} at {}", partition.number, extent.offset)))?;
        parts.push(part(Some(partition.number), extent, contents));
        end = extent.end();
    }
    parts.extend(gap(Extent::between(end, length), table, is_doubted, (length, data), options));
    table.doubts.extend(doubts);
    Ok(parts)
}

/// What speaks against the table: marks of somebody who owns the disk as a whole. A mark that lies in a partition which
/// carries the same one is the partition's: at the end of a disk, the places of both may be one.
fn doubts_of_whole_disk(disk: &dyn DiskRead, owned: &[(&Partition, Owners)]) -> Result<Vec<String>> {
    let whole = Owners::find(disk, Extent::new(0, disk.length()))?;
    let is_explained = |name: &str, offset: u64| {
        let holds =
            |partition: &Partition| (partition.extent.offset..partition.extent.end()).contains(&offset);
        owned.iter().any(|(partition, owners)| holds(partition) && owners.has(name))
    };
    let others = whole.list().iter().filter(|owner| !TABLES_READ.contains(&owner.name));
    let others = others.filter(|owner| !is_explained(owner.name, owner.offset));
    Ok(others.map(|owner| format!("the disk as a whole carries the mark of {}, too", owner.name)).collect())
}

/// The partition table, in the sectors it was written for.
///
/// # Errors
/// What reading the disk says.
pub fn read_table(disk: &dyn DiskRead) -> Result<PartitionTable> {
    let table = PartitionTable::read(disk)?;
    if table.kind != TableKind::Mbr || disk.sector_size() != 512 || filesystems(disk, &table)? > 0 {
        return Ok(table);
    }
    // It may be the image of a disk with large sectors, in a file that does not say so.
    let mut large = PartitionTable::read_with_sectors(disk, 4096)?;
    let all_trusted = large.partitions.iter().all(|partition| partition.trusted || partition.container);
    if all_trusted && filesystems(disk, &large)? > 0 {
        let doubt = "the table makes sense with sectors of 4096 bytes only, and the file does not say that it has such";
        large.doubts.push(doubt.to_owned());
        return Ok(large);
    }
    Ok(table)
}

/// How many partitions hold something that is known.
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
        region: contents.into_region(extent),
    }
}

/// What lies in no partition that can be looked into.
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
    // What counts for sure: the table, what else it announces, and partitions that could not be looked into.
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
    // What is a hole anyway is nothing to speak of.
    let filled =
        |rest: &Extent| data.map_or(rest.length, |data| data.clip(*rest).map(|one| one.length).sum());
    let skipped: u64 = large.iter().map(filled).sum();
    let allocated: Extents = certain.iter().copied().chain(small).collect();
    let contents = Contents { filesystem: "unallocated".to_owned(), allocated, ..Contents::default() };
    let contents = match large.first() {
        Some(first) if skipped > 0 => contents.with_note(format!(
            "{skipped} bytes from {} on are in no partition and are skipped, as was asked for",
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

/// Adds to the zeroed extents of a region what is allocated, in no file, and in a hole of the disk's own file.
///
/// Only whole cells of the grid: zeros beside data belong to the block of their cell, as they do where they are read. So a
/// disk has one score, whether its zeros are holes or not.
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
