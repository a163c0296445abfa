//! The partitions of a version: those of its table, or the whole disk.
//!
//! Only the table is read at first. What a partition contains is looked up for each one alone ([`Partition::describe`]), so a
//! damaged one does not affect the others.

use platter_disk::survey::read_table;
use platter_filesystem::{FileTree, Found, READABLE, filesystem_name, is_readable, label, open_files, probe};
use platter_image::{DiskRead, Error, Extent, Result};
use platter_vdisk::{advise, is_store_damage};

use crate::entry::PartitionEntry;
use crate::location::{FileLocation, PartitionName};

/// A partition, as its table states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    name: PartitionName,
    extent: Extent,
    type_name: &'static str,
    /// Whether it lies on the disk.
    is_inside: bool,
}

impl Partition {
    pub(crate) fn name(&self) -> PartitionName {
        self.name
    }

    fn number(&self) -> Option<u32> {
        match self.name {
            PartitionName::WholeDisk => None,
            PartitionName::Number(number) => Some(number),
        }
    }

    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    /// Its name in messages.
    pub(crate) fn of(&self, version: &str) -> String {
        match self.name {
            PartitionName::Number(number) => format!("partition {number} of {version}"),
            PartitionName::WholeDisk => format!("the disk of {version}"),
        }
    }

    /// Whether it contains a filesystem of a kind whose files can be read.
    ///
    /// # Errors
    /// Those of reading the disk.
    pub(crate) fn is_readable(&self, disk: &dyn DiskRead) -> Result<bool> {
        Ok(is_readable(&self.probe(disk)?))
    }

    fn probe(&self, disk: &dyn DiskRead) -> Result<Found> {
        if self.is_inside { probe(disk, self.extent) } else { Ok(Found::Nothing) }
    }

    /// Opens the files in it.
    ///
    /// # Errors
    /// `Corrupt` or `Refused` if they cannot be read; those of reading the disk.
    pub(crate) fn open<'d>(&self, disk: &'d dyn DiskRead) -> Result<Box<dyn FileTree + 'd>> {
        let files = open_files(&self.probe(disk)?, disk, self.extent);
        let files = files.ok_or_else(|| Error::corrupt("the filesystem is no longer readable"))?;
        files.map_err(|error| error.within(format!("the filesystem at offset {}", self.extent.offset)))
    }

    /// What it contains. Damage of the store is a part of the answer.
    ///
    /// # Errors
    /// Others of reading the disk.
    fn describe(&self, disk: &dyn DiskRead, version: &str) -> Result<PartitionEntry> {
        let mut entry = PartitionEntry {
            number: self.number(),
            offset: self.extent.offset,
            length: self.extent.length,
            filesystem: self.type_name.to_owned(),
            label: None,
            is_readable: false,
            damage: None,
        };
        if let Err(error) = self.look(disk, &mut entry) {
            if !is_store_damage(&error) {
                return Err(error);
            }
            entry.damage = Some(advise(error, || self.of(version)).with_causes());
        }
        Ok(entry)
    }

    fn look(&self, disk: &dyn DiskRead, entry: &mut PartitionEntry) -> Result<()> {
        let found = self.probe(disk)?;
        if let Found::Filesystem(name) = &found {
            entry.label = label(disk, self.extent, name);
        }
        let files = match open_files(&found, disk, self.extent) {
            Some(Err(error)) if is_store_damage(&error) => return Err(error),
            files => files,
        };
        // If the filesystem was damaged, or in use, when it was captured, whoever reads its files is told.
        entry.is_readable = files.is_some();
        let files = files.and_then(Result::ok);
        if let Some(files) = &files {
            entry.label = files.names().0.map(str::to_owned);
        }
        if found != Found::Nothing {
            entry.filesystem = filesystem_name(&found, files.as_deref());
        }
        Ok(())
    }
}

/// The partitions of a version.
pub(crate) struct Partitions<'d> {
    disk: &'d dyn DiskRead,
    version: &'d str,
    list: Vec<Partition>,
}

impl<'d> Partitions<'d> {
    /// Reads the partition table.
    ///
    /// # Errors
    /// Those of reading the disk.
    pub(crate) fn read(disk: &'d dyn DiskRead, version: &'d str) -> Result<Self> {
        let table = read_table(disk)
            .map_err(|error| advise(error, || format!("the partition table of {version}")))?;
        let listed = table.partitions.iter().filter(|partition| !partition.container);
        let mut list: Vec<Partition> = listed
            .map(|partition| Partition {
                name: PartitionName::Number(partition.number),
                extent: partition.extent,
                type_name: partition.type_name,
                is_inside: partition.extent.end() <= disk.length(),
            })
            .collect();
        if list.is_empty() {
            let extent = Extent::new(0, disk.length());
            list.push(Partition { name: PartitionName::WholeDisk, extent, type_name: "", is_inside: true });
        }
        Ok(Self { disk, version, list })
    }

    pub(crate) fn list(&self) -> &[Partition] {
        &self.list
    }

    /// What they contain.
    ///
    /// # Errors
    /// Those of reading the disk, except damage of the store.
    pub(crate) fn describe(&self) -> Result<Vec<PartitionEntry>> {
        self.list.iter().map(|partition| partition.describe(self.disk, self.version)).collect()
    }

    /// Returns the partition that a location names. Nothing is read of the others.
    ///
    /// # Errors
    /// `Missing` if there is no such partition; `Refused` if its files cannot be read, or several could be meant; `Corrupt` if it
    /// is damaged; those of reading the disk.
    pub(crate) fn choose(&self, location: &FileLocation) -> Result<Partition> {
        let version = self.version;
        let Some(name) = location.partition else { return self.only() };
        let Some(found) = self.list.iter().find(|found| found.name == name) else {
            let has = names(&self.describe()?);
            return Err(Error::missing(match name {
                PartitionName::WholeDisk => {
                    format!("{version} has a partition table: write {version}:NUMBER; it has {has}")
                }
                PartitionName::Number(number) => format!("{version} has no partition {number}; it has {has}"),
            }));
        };
        let what = found.describe(self.disk, version)?;
        match what.damage {
            Some(damage) => Err(Error::corrupt(damage)),
            None if what.is_readable => Ok(*found),
            None => Err(Error::refused(format!(
                "{} contains {}: only files of {READABLE} can be read",
                found.of(version),
                if what.filesystem.is_empty() { "nothing known" } else { &what.filesystem }
            ))),
        }
    }

    /// The only partition whose files can be read.
    fn only(&self) -> Result<Partition> {
        let version = self.version;
        let described = self.describe()?;
        // What a damaged one contains is unknown.
        let mut candidates =
            self.list.iter().zip(&described).filter(|(_, what)| what.is_readable || what.damage.is_some());
        match (candidates.next(), candidates.next()) {
            (Some((_, PartitionEntry { damage: Some(damage), .. })), None) => {
                Err(Error::corrupt(damage.clone()))
            }
            (Some((only, _)), None) => Ok(*only),
            (None, _) => Err(Error::refused(format!(
                "{version} has no filesystem whose files can be read ({READABLE}); it has {}",
                names(&described)
            ))),
            _ => Err(Error::refused(format!(
                "{version} has several filesystems: write {version}:NUMBER/PATH; it has {}",
                names(&described)
            ))),
        }
    }
}

/// `1 (ext4), 2 (damaged)`
fn names(partitions: &[PartitionEntry]) -> String {
    let shown = partitions.iter().map(|found| {
        let name = found.number.map_or(PartitionName::WholeDisk, PartitionName::Number);
        let contents = match found.filesystem.as_str() {
            _ if found.damage.is_some() => "damaged",
            "" => "unknown",
            filesystem => filesystem,
        };
        format!("{name} ({contents})")
    });
    shown.collect::<Vec<_>>().join(", ")
}
