//! Which partition of a table can grow to the end of a larger disk, and which range a numbered partition has.
//!
//! Both are decided from a table that was read; a table that cannot be relied on yields a reason instead.

use platter_image::{Error, Extent, Result};

use super::ebr::FIRST_NUMBER as FIRST_LOGICAL;
use super::{Partition, PartitionTable, TableKind};

/// The partition that ends last, if it may grow; `Ok(None)` for a disk without a table.
///
/// # Errors
/// Why no partition may grow, in words.
pub fn last_partition(table: &PartitionTable) -> Result<Option<&Partition>, String> {
    if let Some(doubt) = table.doubts.first() {
        return Err(doubt.clone());
    }
    if table.kind == TableKind::None {
        return Ok(None);
    }
    if table.is_hybrid {
        return Err("the MBR is a hybrid, and its entries would contradict the GPT".to_owned());
    }
    let volumes = table.partitions.iter().filter(|partition| !partition.container);
    let last = volumes.max_by_key(|partition| partition.extent.end());
    let last = last.ok_or("the disk has no partition")?;
    let number = last.number;
    if !last.trusted {
        return Err(format!("partition {number} overlaps another range, or is not on the disk"));
    }
    if last.is_in_label() {
        return Err(format!("partition {number} is in a disklabel, which Platter does not change"));
    }
    let extended = extended_around(table, last);
    if table.kind == TableKind::Mbr && extended.is_some() != (number >= FIRST_LOGICAL) {
        return Err(format!("partition {number} and the extended partition contradict each other"));
    }
    if let Some(doubt) = extended.and_then(|extended| extended.doubt.as_ref()) {
        return Err(doubt.clone());
    }
    let is_behind = |extent: &Extent| extent.end() > last.extent.end();
    let others = table.partitions.iter().filter(|partition| Some(*partition) != extended);
    if table.kind == TableKind::Mbr
        && (others.clone().any(|other| is_behind(&other.extent)) || table.structures.iter().any(is_behind))
    {
        return Err(format!("an extended partition or a boot record lies behind partition {number}"));
    }
    Ok(Some(last))
}

/// The extended partition that contains a partition.
pub(super) fn extended_around<'a>(table: &'a PartitionTable, partition: &Partition) -> Option<&'a Partition> {
    let mut containers = table.partitions.iter().filter(|other| other.container);
    containers.find(|other| other.extent.intersect(&partition.extent) == Some(partition.extent))
}

impl PartitionTable {
    /// The range of the partition with that number on a disk of that length.
    ///
    /// # Errors
    /// `Missing` if there is none; `Refused` if it is an extended partition, or its range cannot be relied on.
    pub fn range_of(&self, number: u32, disk_length: u64) -> Result<Extent> {
        let listed: Vec<String> =
            self.partitions.iter().map(|partition| partition.number.to_string()).collect();
        let Some(found) = self.partitions.iter().find(|partition| partition.number == number) else {
            return Err(Error::missing(match listed.is_empty() {
                true => format!("the image has no partition table, so no partition {number}"),
                false => format!("the image has no partition {number}; it has {}", listed.join(", ")),
            }));
        };
        if found.container {
            return Err(Error::refused(format!(
                "partition {number} is an extended partition or a slice: name one of the partitions in it"
            )));
        }
        let (extent, is_on_disk) = (found.extent, found.extent.end() <= disk_length);
        if !found.trusted || !is_on_disk || extent.length == 0 || !extent.offset.is_multiple_of(512) {
            return Err(Error::refused(format!(
                "partition {number}, {} bytes at {}, overlaps another range, or is not on the disk: install the whole disk",
                extent.length, extent.offset
            )));
        }
        Ok(extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(number: u32, start: u64, end: u64) -> Partition {
        Partition {
            number,
            extent: Extent::between(start * 512, end * 512),
            type_id: "0x83".into(),
            type_name: "Linux",
            name: None,
            uuid: None,
            bootable: false,
            container: false,
            trusted: true,
            doubt: None,
        }
    }

    fn table(kind: TableKind, partitions: Vec<Partition>) -> PartitionTable {
        PartitionTable { kind, sector_size: Some(512), partitions, ..PartitionTable::default() }
    }

    #[test]
    fn the_last_partition_is_the_one_that_ends_last() {
        let two = table(TableKind::Gpt, vec![partition(1, 500, 900), partition(2, 100, 400)]);
        assert_eq!(last_partition(&two).unwrap().unwrap().number, 1);
        assert_eq!(last_partition(&table(TableKind::None, vec![])), Ok(None));
        for (change, reason) in [
            (&|it: &mut PartitionTable| it.doubts.push("a doubt".into()), "a doubt"),
            (&|it: &mut PartitionTable| it.is_hybrid = true, "hybrid"),
            (&|it: &mut PartitionTable| it.partitions[0].trusted = false, "overlaps"),
            (&|it: &mut PartitionTable| it.partitions.clear(), "no partition"),
        ] as [(&dyn Fn(&mut PartitionTable), &str); 4]
        {
            let mut wrong = two.clone();
            change(&mut wrong);
            let found = last_partition(&wrong).unwrap_err();
            assert!(found.contains(reason), "{found}");
        }
    }

    #[test]
    fn extended_partitions_must_end_with_a_logical_one() {
        let extended = Partition { container: true, trusted: false, ..partition(2, 200, 1000) };
        let logical = table(
            TableKind::Mbr,
            vec![partition(1, 10, 100), extended.clone(), partition(5, 210, 600), partition(6, 610, 1000)],
        );
        assert_eq!(last_partition(&logical).unwrap().unwrap().number, 6);
        let mut doubtful = logical.clone();
        doubtful.partitions[1].doubt = Some("the chain loops".into());
        assert_eq!(last_partition(&doubtful).unwrap_err(), "the chain loops");
        let mut with_record = logical;
        with_record.structures = [Extent::new(1_000_000, 512)].into_iter().collect();
        assert!(last_partition(&with_record).unwrap_err().contains("lies behind partition 6"));
        let empty = table(TableKind::Mbr, vec![partition(1, 10, 100), extended]);
        assert!(last_partition(&empty).unwrap_err().contains("lies behind partition 1"));
    }

    #[test]
    fn ranges_that_cannot_be_relied_on_are_refused() {
        let mut two = table(TableKind::Gpt, vec![partition(1, 500, 900), partition(2, 100, 400)]);
        assert_eq!(two.range_of(2, 512_000).unwrap(), Extent::between(100 * 512, 400 * 512));
        assert!(two.range_of(3, 512_000).unwrap_err().to_string().contains("no partition 3; it has 1, 2"));
        assert!(two.range_of(1, 1000).is_err(), "past the end of the disk");
        two.partitions[0].trusted = false;
        assert!(two.range_of(1, 512_000).is_err());
        two.partitions[1].container = true;
        assert!(two.range_of(2, 512_000).unwrap_err().to_string().contains("extended"));
    }
}
