//! Partition tables: how a disk is divided. MBR with extended partitions and BSD slices, GPT, and disklabels of whole disks.
//!
//! Tables are read from any [`DiskRead`] and never trusted: impossible values are noted. A partition that
//! overlaps another, or does not lie on the disk, stays in the list but is marked ([`Partition::trusted`]),
//! so that no one looks for a filesystem in it. A reason not to rely on a table, or on a part of it, is a
//! doubt: then the described space is kept in full. Reading fails only if the disk fails.

mod behind;
mod bsd;
mod change;
mod ebr;
pub mod gpt;
mod last;
pub mod mbr;
mod mbr_change;

use platter_filesystem::TABLES_READ;
use platter_filesystem::boot_record::Record;
use platter_image::{DiskRead, Extent, Extents, IoContext, Result};

pub use behind::{data_behind, first_used};
pub use change::{Grown, TableChange, TableChanges, change_table};
pub use last::last_partition;

/// The kind of partition table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TableKind {
    /// None that is known: the disk may be one filesystem.
    #[default]
    None,
    /// A master boot record, possibly with extended partition tables.
    Mbr,
    /// A GUID partition table.
    Gpt,
    /// A disklabel of the whole disk.
    Bsd,
}

impl TableKind {
    /// Its name as used by other tools.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Mbr => "mbr",
            Self::Gpt => "gpt",
            Self::Bsd => "bsd",
        }
    }

    /// Names of the marks of owners that a table of this kind leaves on the whole disk.
    pub(crate) fn marks(self) -> &'static [&'static str] {
        match self {
            Self::None => &[],
            Self::Mbr | Self::Gpt => &TABLES_READ,
            Self::Bsd => &["bsd"],
        }
    }
}

/// An entry of a partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number as the system counts: from 1; logical partitions of an MBR from 5, then those of disklabels in it.
    pub number: u32,
    /// Its stated range. If it is not [`Self::trusted`], the range may lie outside of the disk.
    pub extent: Extent,
    /// `0x83`, `bsd:0x07` in a disklabel, or the type GUID in lower case.
    pub type_id: String,
    /// The name of that type; `unknown` if there is none.
    pub type_name: &'static str,
    /// Its name (GPT) or letter (disklabel), if it has one.
    pub name: Option<String>,
    /// Its own GUID (GPT).
    pub uuid: Option<String>,
    /// Marked active (MBR) or legacy-bootable (GPT).
    pub bootable: bool,
    /// An extended partition or a slice, which contains other partitions and no filesystem.
    pub container: bool,
    /// It lies on the disk, and overlaps neither another partition nor the table.
    pub trusted: bool,
    /// Why all its contents must be kept: something in or around it is not understood.
    pub doubt: Option<String>,
}

impl Partition {
    /// The mark that a volume has at its start, if the partition's type says that it is one of LVM or RAID; `None` for other types.
    pub fn announced_owner(&self) -> Option<&'static str> {
        match self.type_id.as_str() {
            "0x8e" | "e6d6d379-f507-44c2-a23c-238f2a3df928" => Some("LVM2_member"),
            "0xfd" | "a19d880f-05fc-4d3b-a006-743f0f84911e" => Some("linux_raid_member"),
            _ => None,
        }
    }
}

/// The partition table of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionTable {
    /// Its kind.
    pub kind: TableKind,
    /// The sector size in bytes in which its numbers count; `None` without a table. For the image of a disk
    /// with 4096-byte sectors, it may differ from what the image file states.
    pub sector_size: Option<u32>,
    /// The disk's own id, if it has one: a GUID, or eight hexadecimal digits.
    pub disk_id: Option<String>,
    /// Its partitions in the order of their numbers.
    pub partitions: Vec<Partition>,
    /// The sectors of the table itself.
    pub structures: Extents,
    /// Ranges announced in addition to the partitions: entries of a hybrid MBR.
    pub announced: Extents,
    /// The MBR has entries in addition to the one that announces the GPT.
    pub is_hybrid: bool,
    /// Why the table does not prove what the disk contains, in sentences: then the whole disk must be kept.
    pub doubts: Vec<String>,
    /// Other peculiarities, in sentences.
    pub notes: Vec<String>,
    /// The length in bytes of the shortest disk that has all that the table states; 0 without a table.
    pub stated_length: u64,
}

impl PartitionTable {
    /// Reads the partition table of a disk with the disk's sector size; a GPT is also found if it was written
    /// with the other sector size.
    ///
    /// # Errors
    /// Only errors of reading the disk.
    pub fn read(disk: &dyn DiskRead) -> Result<Self> {
        Self::read_with_sectors(disk, disk.sector_size())
    }

    /// Reads the partition table with another sector size, for a disk that may have been written with it.
    ///
    /// # Errors
    /// Only errors of reading the disk.
    pub fn read_with_sectors(disk: &dyn DiskRead, sector_size: u32) -> Result<Self> {
        let Some(sector) = read_sectors(disk, 0, 512)? else { return Ok(Self::default()) };
        let record = Record::parse(&sector);
        if let Some(table) = bsd::read_whole(disk, record.as_ref(), sector_size)? {
            return Ok(table.judged(disk.length()));
        }
        let Some(record) = record else { return Ok(Self::default()) };
        if !record.is_table() {
            let doubt = "sector 0 ends like a partition table, but its entries are invalid";
            let doubts = record.is_used().then(|| doubt.to_owned()).into_iter().collect();
            return Ok(Self { doubts, ..Self::default() });
        }
        let other_size = if sector_size == 512 { 4096 } else { 512 };
        let first = gpt::read(disk, sector_size)?;
        let second = gpt::read(disk, other_size)?;
        let both = first.is_some() && second.is_some();
        let table = match first.or(second) {
            Some(mut table) if record.is_protective() => {
                if both {
                    table.doubts.push("there are GPTs for both 512-byte and 4096-byte sectors".to_owned());
                }
                mbr::add_hybrid(&record, &mut table);
                table
            }
            unannounced => {
                let mut table = mbr::read(disk, &record, sector_size)?;
                if unannounced.is_some() {
                    table.doubts.push("there is a GPT, but the MBR does not announce it".to_owned());
                }
                if record.is_protective() {
                    let doubt = "the MBR announces a GPT, but neither it nor its backup can be read";
                    table.doubts.push(doubt.to_owned());
                }
                table
            }
        };
        Ok(table.judged(disk.length()))
    }

    /// Marks and notes the partitions that cannot be examined.
    fn judged(mut self, disk_length: u64) -> Self {
        let fixed = |extents: &Extents, area| -> Vec<(u64, u64, Area)> {
            extents.iter().map(|extent| (extent.offset, extent.end(), area)).collect()
        };
        let mut areas = fixed(&self.structures, Area::Table);
        areas.extend(fixed(&self.announced, Area::Hybrid));
        for (place, partition) in self.partitions.iter_mut().enumerate() {
            let extent = partition.extent;
            self.stated_length = self.stated_length.max(extent.end());
            partition.trusted = extent.length > 0 && extent.end() <= disk_length && !partition.container;
            if extent.end() > disk_length {
                self.notes.push(format!(
                    "partition {} ends at {}, past the end of the disk at {disk_length}: it is stored in full",
                    partition.number,
                    extent.end()
                ));
            }
            if !partition.container {
                areas.push((extent.offset, extent.end(), Area::Partition(place)));
            }
        }
        areas.sort_unstable();
        let mut reaching: Option<(u64, Area)> = None;
        for (start, end, area) in areas {
            if let Some((_, other)) = reaching.filter(|(reach, _)| start < *reach) {
                let places = [area, other].map(Area::place);
                for place in places.into_iter().flatten() {
                    self.partitions[place].trusted = false;
                }
                if places != [None, None] {
                    self.notes.push(overlap_note(&self.partitions, area, other));
                }
            }
            if reaching.is_none_or(|(reach, _)| end > reach) {
                reaching = Some((end, area));
            }
        }
        self
    }
}

/// The kind of a range of the disk, for finding overlaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Area {
    /// Sectors of the table itself.
    Table,
    /// An entry of a hybrid MBR that is not a partition of the GPT.
    Hybrid,
    /// The partition with that index in the list.
    Partition(usize),
}

impl Area {
    fn place(self) -> Option<usize> {
        match self {
            Self::Table | Self::Hybrid => None,
            Self::Partition(place) => Some(place),
        }
    }
}

fn overlap_note(partitions: &[Partition], one: Area, other: Area) -> String {
    let name = |area: Area| match area {
        Area::Table => "the partition table".to_owned(),
        Area::Hybrid => "an entry of the hybrid MBR".to_owned(),
        Area::Partition(place) => format!("partition {}", partitions[place].number),
    };
    format!("{} overlaps {}: their ranges are stored in full", name(one), name(other))
}

/// The doubt about a partition whose type announces volumes or a table that are not read.
fn container_doubt(is_container: bool, type_name: &str) -> Option<String> {
    is_container.then(|| format!("its type ({type_name}) announces a container"))
}

/// `length` bytes at `offset`; `None` if the disk ends first.
fn read_sectors(disk: &dyn DiskRead, offset: u64, length: usize) -> Result<Option<Vec<u8>>> {
    if offset.checked_add(length as u64).is_none_or(|end| end > disk.length()) {
        return Ok(None);
    }
    let mut bytes = vec![0; length];
    disk.read_exact_at(&mut bytes, offset)
        .context(|| format!("reading {length} bytes of the partition table at offset {offset}"))?;
    Ok(Some(bytes))
}
