//! The partitions of a version: those of its table, or the whole disk; and the logical volumes on them.
//!
//! Only the table is read at first. What a partition contains is looked up for each one alone, and logical volumes only if one is
//! named, or all are listed. So a damaged partition or physical volume does not affect the others.

use std::cell::OnceCell;
use std::collections::HashMap;

use platter_api::PartitionEntry;
use platter_disk::survey::read_table;
use platter_filesystem::{
    FileTree, FilesystemPlace, Found, PHYSICAL_VOLUME, PlaceContents, READABLE, filesystem_name, is_readable,
    logical_volumes,
};
use platter_image::{DiskRead, Error, ErrorKind, Extent, Result};
use platter_vdisk::{advise, is_store_damage};

use crate::location::{FileLocation, PartitionName};

/// A partition, as its table states it, or a logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    name: PartitionName,
    /// The number of the partition, or of the one in which the volume begins; `None` for the whole disk.
    number: Option<u32>,
    place: FilesystemPlace,
    type_name: &'static str,
    /// Whether it lies on the disk.
    is_inside: bool,
}

impl Partition {
    pub(crate) fn name(&self) -> &PartitionName {
        &self.name
    }

    fn volume(&self) -> Option<&String> {
        match &self.name {
            PartitionName::Volume(name) => Some(name),
            PartitionName::Number(_) | PartitionName::WholeDisk => None,
        }
    }

    /// Its name in messages.
    pub(crate) fn of(&self, version: &str) -> String {
        match &self.name {
            PartitionName::Number(number) => format!("partition {number} of {version}"),
            PartitionName::WholeDisk => format!("the disk of {version}"),
            PartitionName::Volume(name) => format!("volume {name} of {version}"),
        }
    }

    /// Whether it contains a filesystem of a kind whose files can be read.
    ///
    /// # Errors
    /// Those of reading the disk.
    fn is_readable(&self, disk: &dyn DiskRead) -> Result<bool> {
        Ok(self.probe(disk)?.is_some_and(|contents| is_readable(&contents.found)))
    }

    /// What it contains; `None` if it does not lie on the disk.
    fn probe(&self, disk: &dyn DiskRead) -> Result<Option<PlaceContents>> {
        let contents = if self.is_inside { Some(self.place.probe(disk)?) } else { None };
        match contents {
            Some(PlaceContents { reason: Some(error), .. }) if is_store_damage(&error) => Err(error),
            contents => Ok(contents),
        }
    }

    /// Opens the files in it.
    ///
    /// # Errors
    /// `Corrupt` or `Refused` if they cannot be read; those of reading the disk.
    pub(crate) fn open<'d>(&self, disk: &'d dyn DiskRead) -> Result<Box<dyn FileTree + 'd>> {
        let contents = self.probe(disk)?;
        match contents.as_ref().and_then(|contents| contents.open(disk)) {
            Some(files) => files.map_err(|error| match &self.name {
                // It may be in several pieces.
                PartitionName::Volume(name) => error.within(format!("the filesystem on volume {name}")),
                _ => error.within(format!("the filesystem at offset {}", self.place.offset())),
            }),
            // Only a physical volume that is damaged is opened like this.
            None => Err(contents
                .and_then(|contents| logical_volumes(disk, &[contents]).failed.pop())
                .map_or_else(|| Error::corrupt("the filesystem is no longer readable"), |(_, error)| error)),
        }
    }

    /// What it contains. Damage of the store is a part of the answer.
    ///
    /// # Errors
    /// Others of reading the disk.
    fn describe(&self, disk: &dyn DiskRead, version: &str) -> Result<PartitionEntry> {
        let mut entry = PartitionEntry {
            number: self.number,
            volume: self.volume().cloned(),
            offset: self.place.offset(),
            length: self.place.length(),
            filesystem: self.type_name.to_owned(),
            label: None,
            is_readable: false,
            unreadable: None,
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
        let Some(contents) = self.probe(disk)? else { return Ok(()) };
        entry.label = contents.label(disk);
        let files = match contents.open(disk) {
            Some(Err(error)) if is_store_damage(&error) => return Err(error),
            files => files,
        };
        let files = match files {
            Some(Ok(files)) => {
                entry.is_readable = true;
                entry.label = files.names().0.map(str::to_owned);
                Some(files)
            }
            // It was damaged, or in use, when it was captured.
            Some(Err(error)) => {
                entry.unreadable = Some(error.with_causes());
                None
            }
            None => None,
        };
        if contents.found != Found::Nothing {
            entry.filesystem = filesystem_name(&contents.found, files.as_deref());
        }
        Ok(())
    }
}

/// A partition or volume, and what it contains.
type Described<'p> = (&'p Partition, PartitionEntry);

/// The logical volumes of a version.
struct Volumes {
    /// Each with the index of the partition in which it begins, by name.
    list: Vec<(usize, Partition)>,
    /// The names of those that cannot be read, each with the reason.
    unreadable: Vec<(String, String)>,
    /// Indexes of partitions that may have further volumes, but are damaged; and the damage.
    damaged: Vec<(usize, Error)>,
    /// Indexes of physical volumes that are not understood, and why. They were stored in full.
    unknown: Vec<(usize, Error)>,
}

/// The partitions of a version.
pub(crate) struct Partitions<'d> {
    disk: &'d dyn DiskRead,
    version: &'d str,
    list: Vec<Partition>,
    volumes: OnceCell<Volumes>,
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
                number: Some(partition.number),
                place: FilesystemPlace::Partition(partition.extent),
                type_name: partition.type_name,
                is_inside: partition.extent.end() <= disk.length(),
            })
            .collect();
        if list.is_empty() {
            list.push(Partition {
                name: PartitionName::WholeDisk,
                number: None,
                place: FilesystemPlace::Partition(Extent::new(0, disk.length())),
                type_name: "",
                is_inside: true,
            });
        }
        Ok(Self { disk, version, list, volumes: OnceCell::new() })
    }

    /// Looks through all physical volumes, unless this was done.
    ///
    /// # Errors
    /// Those of reading the disk, except damage of the store.
    fn volumes(&self) -> Result<&Volumes> {
        if let Some(found) = self.volumes.get() {
            return Ok(found);
        }
        let found = self.find_volumes()?;
        Ok(self.volumes.get_or_init(|| found))
    }

    fn find_volumes(&self) -> Result<Volumes> {
        let (mut failed, mut indexes, mut physical) = (Vec::new(), Vec::new(), Vec::new());
        for (index, partition) in self.list.iter().enumerate() {
            match partition.probe(self.disk) {
                Ok(Some(contents)) if contents.is_physical_volume() => {
                    indexes.push(index);
                    physical.push(contents);
                }
                Ok(_) => {}
                Err(error) => failed.push((index, error)),
            }
        }
        let found = logical_volumes(self.disk, &physical);
        failed.extend(found.failed.into_iter().map(|(index, error)| (indexes[index], error)));
        let (mut damaged, mut unknown) = (Vec::new(), Vec::new());
        for (index, error) in failed {
            if is_store_damage(&error) {
                damaged.push((index, advise(error, || self.list[index].of(self.version))));
            } else if error.kind() == ErrorKind::Corrupt {
                unknown.push((index, error));
            } else {
                return Err(error);
            }
        }
        let list = found.volumes.into_iter().map(|(index, volume)| {
            let index = indexes[index];
            let name = PartitionName::Volume(volume.name().to_owned());
            let (number, place) = (self.list[index].number, FilesystemPlace::Volume(volume));
            (index, Partition { name, number, place, type_name: "", is_inside: true })
        });
        Ok(Volumes { list: list.collect(), unreadable: found.unreadable, damaged, unknown })
    }

    /// The damage of a partition that may have volumes.
    fn damage(&self, index: usize) -> Result<Option<&Error>> {
        let damaged = self.volumes()?.damaged.iter().find(|(damaged, _)| *damaged == index);
        Ok(damaged.map(|(_, error)| error))
    }

    /// The volumes that begin in a partition.
    fn volumes_of(&self, index: usize) -> Result<impl Iterator<Item = &Partition>> {
        let volumes = self.volumes()?.list.iter().filter(move |(begins_in, _)| *begins_in == index);
        Ok(volumes.map(|(_, volume)| volume))
    }

    /// Those whose files can be read: each partition, and the volumes that begin in it. Damaged ones are among them, after `tell`
    /// got the damage. No two have the same name.
    ///
    /// # Errors
    /// Those of reading the disk, except damage of the store.
    pub(crate) fn readable(&self, tell: impl Fn(&Error)) -> Result<Vec<&Partition>> {
        let mut counts: HashMap<&PartitionName, u32> = HashMap::new();
        self.volumes()?.list.iter().for_each(|(_, volume)| *counts.entry(&volume.name).or_default() += 1);
        let mut found: Vec<&Partition> = Vec::new();
        for (index, partition) in self.list.iter().enumerate() {
            if let Some(damage) = self.damage(index)? {
                tell(damage);
                found.push(partition);
            } else if partition.is_readable(self.disk)? {
                found.push(partition);
            }
            for volume in self.volumes_of(index)? {
                if counts.get(&volume.name).is_some_and(|count| *count > 1) {
                    let twins = format!("{} is not shown: several have this name", volume.of(self.version));
                    tell(&Error::refused(twins));
                    continue;
                }
                match volume.is_readable(self.disk) {
                    Ok(true) => found.push(volume),
                    Ok(false) => {}
                    Err(error) if is_store_damage(&error) => {
                        tell(&advise(error, || volume.of(self.version)));
                        found.push(volume);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(found)
    }

    /// What they contain: each partition, and the volumes that begin in it.
    ///
    /// # Errors
    /// Those of reading the disk, except damage of the store.
    pub(crate) fn describe(&self) -> Result<Vec<PartitionEntry>> {
        Ok(self.describe_all()?.into_iter().map(|(_, entry)| entry).collect())
    }

    fn describe_all(&self) -> Result<Vec<Described<'_>>> {
        let mut all = Vec::new();
        for (index, partition) in self.list.iter().enumerate() {
            let entry = partition.describe(self.disk, self.version)?;
            all.extend(self.with_volumes(index, entry)?);
        }
        Ok(all)
    }

    /// A partition and the volumes that begin in it.
    fn with_volumes(&self, index: usize, mut entry: PartitionEntry) -> Result<Vec<Described<'_>>> {
        if entry.damage.is_none() {
            entry.damage = self.damage(index)?.map(Error::with_causes);
        }
        let volumes = self.volumes_of(index)?;
        let volumes = volumes.map(|volume| Ok((volume, volume.describe(self.disk, self.version)?)));
        [Ok((&self.list[index], entry))].into_iter().chain(volumes).collect()
    }

    /// Returns the partition or volume that a location names. Nothing is read of other partitions, except what is needed to find
    /// volumes if one could be meant.
    ///
    /// # Errors
    /// `Missing` if there is no such partition; `Refused` if its files cannot be read, or several could be meant; `Corrupt` if it
    /// is damaged; those of reading the disk.
    pub(crate) fn choose(&self, location: &FileLocation) -> Result<Partition> {
        let version = self.version;
        match &location.partition {
            None => {
                let hint = format!("{version}:NUMBER/PATH or {version}:GROUP-VOLUME/PATH");
                only(&self.describe_all()?, version, &hint)
            }
            Some(PartitionName::Volume(name)) => self.choose_volume(name),
            Some(name) => self.choose_partition(name),
        }
    }

    fn choose_partition(&self, name: &PartitionName) -> Result<Partition> {
        let version = self.version;
        let Some(index) = self.list.iter().position(|found| found.name == *name) else {
            let has = names(&self.describe_all()?);
            return Err(Error::missing(match name {
                PartitionName::WholeDisk => {
                    format!("{version} has a partition table: write {version}:NUMBER; it has {has}")
                }
                name => format!("{version} has no partition {name}; it has {has}"),
            }));
        };
        let found = &self.list[index];
        let what = found.describe(self.disk, version)?;
        if what.damage.is_none() && what.filesystem == PHYSICAL_VOLUME {
            if let Some((_, reason)) = self.volumes()?.unknown.iter().find(|(unknown, _)| *unknown == index) {
                return Err(self.not_understood(index, reason));
            }
            let described = self.with_volumes(index, what)?;
            return only(&described, &found.of(version), &format!("{version}:GROUP-VOLUME/PATH"));
        }
        self.checked(found, what)
    }

    fn choose_volume(&self, name: &str) -> Result<Partition> {
        let version = self.version;
        let volumes = self.volumes()?;
        let named = |volume: &&Partition| volume.volume().is_some_and(|known| known == name);
        let mut named = volumes.list.iter().map(|(_, volume)| volume).filter(named);
        match (named.next(), named.next()) {
            (Some(found), None) => self.checked(found, found.describe(self.disk, version)?),
            (Some(_), Some(_)) => Err(Error::refused(format!("{version} has several volumes {name}"))),
            (None, _) => Err(self.no_volume(name, volumes)?),
        }
    }

    /// Why there is no volume of this name.
    fn no_volume(&self, name: &str, volumes: &Volumes) -> Result<Error> {
        let version = self.version;
        if let Some((_, reason)) = volumes.unreadable.iter().find(|(known, _)| known == name) {
            return Ok(Error::refused(format!("volume {name} of {version} cannot be read: {reason}")));
        }
        // It may be there.
        if let Some((_, damage)) = volumes.damaged.first() {
            return Ok(Error::corrupt(format!("{version}: volume {name} was not found, and {damage}")));
        }
        if let Some((index, reason)) = volumes.unknown.first() {
            return Ok(self.not_understood(*index, reason));
        }
        let has = names(&self.describe_all()?);
        Ok(Error::missing(format!("{version} has no volume {name}; it has {has}")))
    }

    /// Why nothing is known about the volumes on a physical volume.
    fn not_understood(&self, index: usize, reason: &Error) -> Error {
        let physical = self.list[index].of(self.version);
        Error::refused(format!("the logical volumes on {physical} cannot be read: {}", reason.with_causes()))
    }

    /// The partition or volume, if its files can be read.
    fn checked(&self, found: &Partition, what: PartitionEntry) -> Result<Partition> {
        match what.damage {
            Some(damage) => Err(Error::corrupt(damage)),
            None if may_be_opened(&what) => Ok(found.clone()),
            None => Err(Error::refused(format!(
                "{} contains {}: only files of {READABLE} can be read",
                found.of(self.version),
                if what.filesystem.is_empty() { "nothing known" } else { &what.filesystem }
            ))),
        }
    }
}

/// Whether it is to be opened; that tells why its files cannot be read.
fn may_be_opened(what: &PartitionEntry) -> bool {
    what.is_readable || what.unreadable.is_some()
}

/// The only one of these whose files can be read. In messages, they are those of `what`, and `hint` is to be written.
fn only(described: &[Described<'_>], what: &str, hint: &str) -> Result<Partition> {
    // What a damaged one contains is unknown.
    let mut candidates = described.iter().filter(|(_, what)| may_be_opened(what) || what.damage.is_some());
    match (candidates.next(), candidates.next()) {
        (Some((_, PartitionEntry { damage: Some(damage), .. })), None) => Err(Error::corrupt(damage.clone())),
        (Some((only, _)), None) => Ok(Partition::clone(only)),
        (None, _) => Err(Error::refused(format!(
            "{what} has no filesystem whose files can be read ({READABLE}); it has {}",
            names(described)
        ))),
        _ => Err(Error::refused(format!(
            "{what} has several filesystems: write {hint}; it has {}",
            names(described)
        ))),
    }
}

/// `1 (ext4), 2 (damaged)`
fn names(partitions: &[Described<'_>]) -> String {
    let shown = partitions.iter().map(|(partition, found)| {
        let contents = match found.filesystem.as_str() {
            _ if found.damage.is_some() => "damaged",
            "" => "unknown",
            filesystem => filesystem,
        };
        format!("{} ({contents})", partition.name)
    });
    shown.collect::<Vec<_>>().join(", ")
}
