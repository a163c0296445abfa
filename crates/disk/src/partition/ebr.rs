//! Extended partitions: chains of extended boot records (EBR), each describing one logical partition.
//!
//! An extended partition starts with its own boot record. In the plain form, the first entry is a logical
//! partition, relative to that record; the second is the next record, relative to the start of the extended
//! partition; the others are blank. Systems differ on all other forms: DR-DOS puts the link first, OS/2 uses
//! four entries, some systems write two extended partitions, and none agree on what follows an invalid
//! record. The partitions of such a chain are found as Linux finds them, but nothing in their extended
//! partition may be dropped.

use platter_image::{DiskRead, Extent, Result};

use super::mbr;
use super::{PartitionTable, read_sectors};
use platter_filesystem::boot_record::{Entry, Record};

/// The most records of a chain that are read: no system numbers as many partitions.
const RECORDS_MAX: usize = 128;

/// The number of the first logical partition.
pub(super) const FIRST_NUMBER: u32 = 5;

/// Adds the logical partitions of all extended partitions, and their records, to a table with the primary
/// ones.
pub(super) fn read(
    disk: &dyn DiskRead,
    containers: &[Entry],
    sector_size: u32,
    table: &mut PartitionTable,
) -> Result<()> {
    let mut number = FIRST_NUMBER;
    for (place, container) in containers.iter().enumerate() {
        let first = table.partitions.len();
        let mut chain =
            Chain { container: *container, sector_size, number, seen: Vec::new(), doubt: None, table };
        chain.follow(disk)?;
        let mut doubt = chain.doubt;
        number = chain.number;
        if place > 0 {
            doubt.get_or_insert_with(|| "there is more than one extended partition".to_owned());
        }
        let Some(doubt) = doubt else { continue };
        let extent = mbr::partition(0, *container, u64::from(container.start), sector_size).extent;
        table
            .notes
            .push(format!("{doubt}: the whole extended partition at offset {} is stored", extent.offset));
        let (primary, logical) = table.partitions.split_at_mut(first);
        let itself = primary.iter_mut().filter(|partition| partition.container && partition.extent == extent);
        for partition in itself.chain(logical) {
            partition.doubt = Some(doubt.clone());
        }
    }
    Ok(())
}

/// The chain of one extended partition.
struct Chain<'t> {
    container: Entry,
    sector_size: u32,
    /// The number of the next logical partition.
    number: u32,
    /// Records that were read, in sectors from the start of the extended partition.
    seen: Vec<u32>,
    /// The first thing that was not understood.
    doubt: Option<String>,
    table: &'t mut PartitionTable,
}

impl Chain<'_> {
    fn doubt(&mut self, reason: impl Into<String>) {
        self.doubt.get_or_insert_with(|| reason.into());
    }

    fn follow(&mut self, disk: &dyn DiskRead) -> Result<()> {
        let (mut next, mut room) = (Some(0), self.container.sectors);
        while let Some(at) = next {
            let end = if self.seen.contains(&at) {
                Some("loops back to itself")
            } else if at >= self.container.sectors {
                Some("leaves the extended partition")
            } else if self.seen.len() == RECORDS_MAX {
                Some("is longer than 128 records")
            } else {
                None
            };
            if let Some(end) = end {
                self.doubt(format!("the chain of logical partitions {end}"));
                return Ok(());
            }
            if self.seen.last().is_some_and(|last| at < *last) {
                self.doubt("the chain of logical partitions goes backwards");
            }
            self.seen.push(at);
            let sector = u64::from(self.container.start) + u64::from(at);
            let offset = sector.saturating_mul(u64::from(self.sector_size));
            let bytes = read_sectors(disk, offset, 512)?;
            let Some(record) = bytes.as_deref().and_then(Record::parse).filter(Record::is_table) else {
                self.doubt(format!("there is no extended boot record at offset {offset}"));
                return Ok(());
            };
            let record_extent = Extent::new(offset, u64::from(self.sector_size));
            self.table.structures = self.table.structures.iter().copied().chain([record_extent]).collect();
            self.add_partitions(&record, sector, room);
            let link = record.entries.iter().find(|entry| entry.is_extended());
            (next, room) = link.map_or((None, 0), |link| (Some(link.start), link.sectors));
        }
        Ok(())
    }

    /// Adds the partitions that a record describes. `room` is the length that the link to it states, in
    /// sectors.
    fn add_partitions(&mut self, record: &Record, sector: u64, room: u32) {
        let [first, second, third, fourth] = record.entries;
        let is_plain = !first.is_extended()
            && (second.is_extended() || !second.is_used())
            && !third.is_used()
            && !fourth.is_used();
        if !is_plain {
            self.doubt(format!("the extended boot record in sector {sector} has entries in unusual places"));
        }
        let container_start = u64::from(self.container.start);
        let container_end = container_start + u64::from(self.container.sectors);
        for (slot, entry) in record.entries.iter().enumerate() {
            if !entry.is_used() || entry.is_extended() {
                continue;
            }
            let start = sector + u64::from(entry.start);
            let end = start + u64::from(entry.sectors);
            let is_inside = start >= container_start && end <= container_end;
            let fits = u64::from(entry.start) + u64::from(entry.sectors) <= u64::from(room);
            // Linux ignores the last two entries if they are invalid.
            if slot >= 2 && !(is_inside && fits) {
                continue;
            }
            if !is_inside {
                self.doubt(format!("logical partition {} leaves the extended partition", self.number));
            }
            self.table.partitions.push(mbr::partition(self.number, *entry, start, self.sector_size));
            self.number += 1;
        }
    }
}
