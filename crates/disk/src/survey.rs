//! What stands where on a disk, before any of its data is read: tables, filesystems, gaps.
//!
//! Owns the decision what counts. Every byte of the disk is in exactly one [`Part`]; a part says what of it is
//! allocated. Sectors in no partition that nothing is known to read (a gap of more than [`GAP_KEPT_MAX`]) are free
//! unless asked for; boot loaders' room before the first partition and the end of the disk, where RAID and
//! partition tables keep backups, always count.

use platter_image::chunking::Region;
use platter_image::{DiskRead, Error, Extent, Extents, Result, SECTOR};

use crate::filesystem::{Contents, Found, examine, probe};
use crate::partition::{Partition, PartitionTable, TableKind};

/// A gap between partitions counts whole if it is not longer, in bytes: alignment makes such gaps.
pub const GAP_KEPT_MAX: u64 = 1 << 20;

/// So much before the first partition counts, in bytes: boot loaders, firmware of small computers.
pub const LEADING_GAP_KEPT: u64 = 64 << 20;

/// So much at the end of the disk counts, in bytes: backup tables, RAID and dynamic disk metadata.
pub const TRAILING_GAP_KEPT: u64 = 1 << 20;

/// What to look at, and how closely.
#[derive(Clone, Copy, Debug, Default)]
pub struct SurveyOptions {
    /// Take a filesystem that needs recovery whole, instead of refusing it.
    pub force: bool,
    /// Look for neither partitions nor filesystems: every byte counts.
    pub raw: bool,
    /// Gaps between partitions count, however long they are.
    pub keep_gaps: bool,
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

    /// Every note, with the partition it is about.
    pub fn all_notes(&self) -> impl Iterator<Item = String> {
        let of_parts = self.parts.iter().flat_map(|part| {
            part.notes.iter().map(|note| match part.partition {
                Some(number) => format!("partition {number}: {note}"),
                None => format!("at {}: {note}", part.region.extent.offset),
            })
        });
        self.notes.iter().chain(&self.table.notes).cloned().chain(of_parts)
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
    let table = if options.raw { PartitionTable::default() } else { read_table(disk)? };
    let mut survey = Survey {
        length,
        sector_size: table.sector_size.unwrap_or(disk.sector_size()),
        table: PartitionTable::default(),
        parts: Vec::new(),
        notes: Vec::new(),
    };
    let all = Extent::new(0, length);
    if options.raw || length == 0 {
        survey.parts.push(part(None, all, Contents::whole("", all)));
    } else if table.kind == TableKind::None {
        survey.parts.push(part(None, all, examine(disk, all, options.force)?));
    } else {
        let mut trusted: Vec<&Partition> =
            table.partitions.iter().filter(|partition| partition.trusted).collect();
        trusted.sort_unstable_by_key(|partition| partition.extent);
        let mut end = 0;
        for partition in trusted {
            let extent = partition.extent;
            survey.parts.extend(gap(Extent::between(end, extent.offset), &table, (length, data), options));
            let contents = examine(disk, extent, options.force).map_err(|error| {
                error.within(format!("partition {} at {}", partition.number, extent.offset))
            })?;
            survey.parts.push(part(Some(partition.number), extent, contents));
            end = extent.end();
        }
        survey.parts.extend(gap(Extent::between(end, length), &table, (length, data), options));
    }
    survey.table = table;
    for part in &mut survey.parts {
        if let Some(data) = data {
            mark_holes(&mut part.region, data);
        }
        part.region.check()?;
    }
    Ok(survey)
}

/// The partition table, in the sectors it was written for. An ext filesystem on the whole disk may carry a boot
/// record with a table in front; it counts if no partition of that table holds anything.
///
/// # Errors
/// What reading the disk says.
pub fn read_table(disk: &dyn DiskRead) -> Result<PartitionTable> {
    let table = PartitionTable::read(disk)?;
    if table.kind != TableKind::Mbr {
        return Ok(table);
    }
    let here = filesystems(disk, &table)?;
    if here > 0 {
        return Ok(table);
    }
    if probe(disk, Extent::new(0, disk.length()))? == Found::Ext
        && crate::filesystem::ext::fits(disk, Extent::new(0, disk.length()))?
    {
        return Ok(PartitionTable::default());
    }
    // The image of a disk with large sectors, in a file that does not say so.
    if disk.sector_size() == 512 {
        let large = PartitionTable::read_with_sectors(disk, 4096)?;
        let all_trusted = large.partitions.iter().all(|partition| partition.trusted || partition.container);
        if all_trusted && filesystems(disk, &large)? > 0 {
            return Ok(large);
        }
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
        notes: contents.notes.clone(),
        region: contents.into_region(extent),
    }
}

/// What lies in no partition that can be looked into.
fn gap(
    extent: Extent,
    table: &PartitionTable,
    (length, data): (u64, Option<&Extents>),
    options: &SurveyOptions,
) -> Option<Part> {
    if extent.length == 0 {
        return None;
    }
    // What counts for sure: the table, and partitions that could not be looked into.
    let distrusted = table.partitions.iter().filter(|partition| !partition.trusted && !partition.container);
    let certain = table.structures.iter().copied().chain(distrusted.map(|partition| partition.extent));
    let mut kept: Vec<Extent> = certain.filter_map(|one| one.align_outwards().intersect(&extent)).collect();
    let ends = [Extent::new(0, first_partition(table).min(LEADING_GAP_KEPT)), trailing(length)];
    kept.extend(ends.iter().filter_map(|one| one.intersect(&extent)));
    let certain = Extents::from_unsorted(kept);
    let (small, large): (Vec<Extent>, Vec<Extent>) =
        certain.complement(extent).iter().partition(|rest| options.keep_gaps || rest.length <= GAP_KEPT_MAX);
    // What is a hole anyway is nothing to speak of.
    let filled =
        |rest: &Extent| data.map_or(rest.length, |data| data.clip(*rest).map(|one| one.length).sum());
    let skipped: u64 = large.iter().map(filled).sum();
    let allocated: Extents = certain.iter().copied().chain(small).collect();
    let contents = Contents { filesystem: "unallocated".to_owned(), allocated, ..Contents::default() };
    let contents = match large.first() {
        Some(first) if skipped > 0 => contents.with_note(format!(
            "{skipped} bytes from {} on are in no partition and are not captured; keeping gaps would",
            first.offset
        )),
        _ => contents,
    };
    Some(part(None, extent, contents))
}

fn first_partition(table: &PartitionTable) -> u64 {
    table.partitions.iter().map(|partition| partition.extent.offset).min().unwrap_or(0)
}

fn trailing(length: u64) -> Extent {
    Extent::between(length.saturating_sub(TRAILING_GAP_KEPT), length)
}

/// Adds to the zeroed extents of a region what is allocated, in no file, and a hole of the disk's own file.
fn mark_holes(region: &mut Region, data: &Extents) {
    let filled: Extents = data.clip(region.extent).collect();
    let holes = region.allocated.subtract(&filled);
    let files = region.files.iter().map(platter_image::chunking::FileRun::extent);
    let files: Extents = files.filter(|file| holes.clip(*file).next().is_some()).collect();
    let zeroed = holes.subtract(&files);
    region.zeroed = region.zeroed.iter().chain(&zeroed).copied().collect();
}

#[cfg(test)]
#[path = "survey_tests.rs"]
mod tests;
