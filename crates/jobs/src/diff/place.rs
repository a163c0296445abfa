//! The places that are compared if not two whole disks: a partition of each, or a file or directory in it.

use std::fmt;

use platter_disk::partition::PartitionTable;
use platter_disk::survey::read_table;
use platter_filesystem::{FileTree, is_readable, probe, resolve};
use platter_image::{DiskRead, Error, Extent, Result};
use platter_vdisk::advise;

use super::table::Pair;
use super::walk::displayed;

/// A partition of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffPartition {
    /// The only one with a filesystem whose files can be read.
    Only,
    /// The whole disk, which has no partition table.
    WholeDisk,
    /// The one with this number.
    Number(u32),
}

/// A place in a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffPlace {
    /// The partition.
    pub partition: DiffPartition,
    /// The path of the file or directory in its filesystem; `/` for the partition.
    pub path: Vec<u8>,
}

impl fmt::Display for DiffPlace {
    /// `:1/etc`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.partition {
            DiffPartition::Only => f.write_str(":"),
            DiffPartition::WholeDisk => f.write_str(":disk"),
            DiffPartition::Number(number) => write!(f, ":{number}"),
        }?;
        f.write_str(&displayed(&self.path, false))
    }
}

impl DiffPlace {
    fn is_partition(&self) -> bool {
        self.path.iter().all(|byte| *byte == b'/')
    }

    /// Where the partition is on the disk of `version`, and its number.
    fn find(&self, disk: &dyn DiskRead, version: &str) -> Result<(Option<u32>, Extent)> {
        let table = read_table(disk);
        let table = table.map_err(|error| advise(error, || format!("the partition table of {version}")))?;
        let named = match self.partition {
            DiffPartition::Number(number) => {
                table.range_of(number, disk.length()).map(|extent| (Some(number), extent))
            }
            DiffPartition::WholeDisk if !table.partitions.is_empty() => {
                Err(Error::missing("it has a partition table: write NAME:NUMBER"))
            }
            DiffPartition::WholeDisk | DiffPartition::Only => only(disk, &table),
        };
        named.map_err(|error| advise(error.within(version), || format!("a partition of {version}")))
    }
}

/// The only partition with a filesystem whose files can be read, or the whole disk.
fn only(disk: &dyn DiskRead, table: &PartitionTable) -> Result<(Option<u32>, Extent)> {
    let mut listed = table.partitions.iter().filter(|partition| !partition.container).peekable();
    if listed.peek().is_none() {
        return Ok((None, Extent::new(0, disk.length())));
    }
    let mut found = None;
    for partition in listed.filter(|partition| partition.trusted) {
        if is_readable(&probe(disk, partition.extent)?) {
            match found {
                None => found = Some((Some(partition.number), partition.extent)),
                Some(_) => return Err(Error::refused("it has several filesystems: write NAME:NUMBER/PATH")),
            }
        }
    }
    found.ok_or_else(|| Error::refused("it has no filesystem whose files can be read"))
}

/// A place in each of two versions.
#[derive(Debug)]
pub(super) struct Places<'p> {
    /// The partitions.
    pub(super) pair: Pair,
    places: &'p [DiffPlace; 2],
}

impl<'p> Places<'p> {
    /// Looks for the partitions on both disks.
    ///
    /// # Errors
    /// `Missing` if there is none with that number; `Refused` if it is unclear which is meant; those of reading the disks.
    pub(super) fn find(
        places: &'p [DiffPlace; 2],
        disks: [&dyn DiskRead; 2],
        titles: &[String; 2],
    ) -> Result<Self> {
        let (number, a) = places[0].find(disks[0], &titles[0])?;
        let (_, b) = places[1].find(disks[1], &titles[1])?;
        Ok(Self { pair: Pair { number, a, b }, places })
    }

    /// Checks that the blocks of both places can be compared.
    ///
    /// # Errors
    /// `Refused` otherwise.
    pub(super) fn check_blocks(&self) -> Result<()> {
        match () {
            () if !self.places.iter().all(DiffPlace::is_partition) => {
                Err(Error::refused("--blocks compares disks or partitions: leave out the path"))
            }
            () if !self.pair.is_in_place() => Err(Error::refused(
                "--blocks compares partitions at the same place on both disks: leave it out to compare files",
            )),
            () => Ok(()),
        }
    }

    /// Whether the same path was named in both.
    pub(super) fn is_same_path(&self) -> bool {
        self.places[0].path == self.places[1].path
    }

    /// Whether partitions were named, and nothing in them.
    pub(super) fn are_partitions(&self) -> bool {
        self.places.iter().all(DiffPlace::is_partition)
    }

    /// The numbers of both files, and the path of the first one as text.
    ///
    /// # Errors
    /// `Missing` if there is none; those of reading.
    pub(super) fn start(&self, a: &mut dyn FileTree, b: &mut dyn FileTree) -> Result<([u64; 2], String)> {
        let numbers = [
            resolve(a, &self.places[0].path, true)?.number(),
            resolve(b, &self.places[1].path, true)?.number(),
        ];
        let path = displayed(&self.places[0].path, false);
        Ok((numbers, path.trim_end_matches('/').to_owned()))
    }
}
