//! Matches the partitions of two disks, and compares their tables.

use platter_disk::partition::{Partition, PartitionTable, TableKind};
use platter_image::Extent;

/// A partition that both disks have, or two whole disks without a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) number: Option<u32>,
    pub(super) a: Extent,
    pub(super) b: Extent,
}

impl Pair {
    /// Whether it is at the same place on both disks.
    pub(super) fn is_in_place(&self) -> bool {
        self.a == self.b
    }
}

/// Returns the common partitions, by number, and the differences in sentences.
pub(super) fn compare(
    (a, length_a): (&PartitionTable, u64),
    (b, length_b): (&PartitionTable, u64),
) -> (Vec<Pair>, Vec<String>) {
    let mut notes = Vec::new();
    if length_a != length_b {
        notes.push(format!("the disks have {length_a} and {length_b} bytes"));
    }
    if a.kind != b.kind {
        notes.push(format!("the partition tables are {} and {}", a.kind.name(), b.kind.name()));
        return (Vec::new(), notes);
    }
    if a.kind == TableKind::None {
        let whole = |length| Extent::new(0, length);
        return (vec![Pair { number: None, a: whole(length_a), b: whole(length_b) }], notes);
    }
    if a.disk_id != b.disk_id {
        notes.push("the partition tables have other ids".to_owned());
    }
    let mut pairs = Vec::new();
    for one in &a.partitions {
        match b.partitions.iter().find(|other| other.number == one.number) {
            None => notes.push(format!("partition {} is only on the first disk", one.number)),
            Some(other) => {
                notes.extend(partition_note(one, other));
                if one.trusted && other.trusted {
                    pairs.push(Pair { number: Some(one.number), a: one.extent, b: other.extent });
                }
            }
        }
    }
    let added = b.partitions.iter().filter(|one| a.partitions.iter().all(|other| other.number != one.number));
    notes.extend(added.map(|one| format!("partition {} is only on the second disk", one.number)));
    (pairs, notes)
}

fn partition_note(a: &Partition, b: &Partition) -> Option<String> {
    let differences = [
        ("place or length", a.extent != b.extent),
        ("type", a.type_id != b.type_id),
        ("name", a.name != b.name),
        ("id", a.uuid != b.uuid),
        ("boot mark", a.bootable != b.bootable),
    ];
    let named: Vec<&str> =
        differences.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect();
    (!named.is_empty()).then(|| format!("partition {} has another {}", a.number, named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(number: u32, offset: u64) -> Partition {
        Partition {
            number,
            extent: Extent::new(offset, 1 << 20),
            type_id: "0x83".into(),
            type_name: "",
            name: None,
            uuid: None,
            bootable: false,
            container: false,
            doubt: None,
            trusted: true,
        }
    }

    fn table(partitions: Vec<Partition>) -> PartitionTable {
        PartitionTable { kind: TableKind::Mbr, partitions, ..PartitionTable::default() }
    }

    #[test]
    fn partitions_are_matched_by_number() {
        let a = table(vec![partition(1, 1 << 20), partition(2, 2 << 20)]);
        let moved = Partition { bootable: true, ..partition(2, 4 << 20) };
        let b = table(vec![moved, partition(3, 2 << 20)]);
        let (pairs, notes) = compare((&a, 8 << 20), (&b, 8 << 20));
        assert_eq!(pairs.len(), 1);
        assert!(!pairs[0].is_in_place());
        assert_eq!(
            notes,
            [
                "partition 1 is only on the first disk",
                "partition 2 has another place or length, boot mark",
                "partition 3 is only on the second disk"
            ]
        );
        assert_eq!(compare((&a, 1), (&a, 1)).1, Vec::<String>::new());
    }
}
