//! What the user decides about partitions: left out, stored in full, or read as a certain filesystem.

use platter_filesystem::{Contents, Owners};
use platter_image::{Error, Extent, Result};

use crate::partition::PartitionTable;

/// Decisions about partitions, by number. They apply whatever is found on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionChoices {
    /// Partitions whose contents are left out.
    pub skip: Vec<u32>,
    /// Partitions of which every byte is kept.
    pub whole: Vec<u32>,
    /// Filesystems by name; `None` is the whole disk, whose partition table is then ignored.
    pub filesystems: Vec<(Option<u32>, String)>,
}

/// The decision about a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice<'a> {
    Skip,
    Whole,
    Named(&'a str),
}

impl PartitionChoices {
    /// Checks that the table has each partition that is named, and that there is one decision about each.
    pub(crate) fn check(&self, table: &PartitionTable) -> Result<()> {
        let mut numbers: Vec<u32> = self.skip.iter().chain(&self.whole).copied().collect();
        numbers.extend(self.filesystems.iter().filter_map(|(number, _)| *number));
        numbers.sort_unstable();
        if let Some(twice) = numbers.windows(2).find(|two| two[0] == two[1]) {
            return Err(Error::refused(format!("there are two options for partition {}", twice[0])));
        }
        for number in numbers {
            let found = table.partitions.iter().find(|partition| partition.number == number);
            let why = match found {
                Some(partition) if partition.trusted => continue,
                Some(_) => "is an extended partition, overlaps another one, or does not lie on the disk",
                None => "does not exist",
            };
            return Err(Error::refused(format!("partition {number}, for which an option was given, {why}")));
        }
        Ok(())
    }

    /// The decision about this partition.
    pub(crate) fn of(&self, number: u32) -> Option<Choice<'_>> {
        let named = self.filesystems.iter().find(|(partition, _)| *partition == Some(number));
        match named {
            _ if self.skip.contains(&number) => Some(Choice::Skip),
            _ if self.whole.contains(&number) => Some(Choice::Whole),
            named => named.map(|(_, name)| Choice::Named(name)),
        }
    }

    /// The filesystem that the whole disk is.
    pub(crate) fn of_disk(&self) -> Option<&str> {
        self.filesystems.iter().find(|(partition, _)| partition.is_none()).map(|(_, name)| name.as_str())
    }
}

/// A partition that is left out.
pub(crate) fn skipped(extent: Extent) -> Contents {
    let note = format!(
        "left out as requested: {} bytes, which read as zeros; `install` leaves there what the target holds, unless \
         `--free zero` is given",
        extent.length
    );
    Contents { filesystem: "skipped".to_owned(), ..Contents::default() }.with_note(note)
}

/// A partition of which every byte is kept.
pub(crate) fn whole(extent: Extent, owners: &Owners) -> Contents {
    let name = match owners.list() {
        [owner] => owner.name,
        _ => "",
    };
    Contents::whole(name, extent).with_note("stored in full as requested")
}
