//! The GUID partition table (UEFI specification 2.10, section 5.3). It is read with its checksums and its
//! backup, and after an install its backup is moved to the end of a larger disk, and other changes are made on request.
//!
//! Sector 1 contains the header ("EFI PART"), which names the sectors of the table; the last sector of the
//! disk contains a backup header, which names a copy of the table before it. A header or table with a wrong
//! CRC-32 is not used. Nothing is repaired silently: a disk with a bad primary header is left as it is. Only
//! two copies that agree prove what a disk contains: systems differ in which copy they read, and whatever
//! damaged one copy may own the disk.

use crc::{CRC_32_ISO_HDLC, Crc};
use platter_image::{DiskRead, Error, Extent, Extents, Result};

use super::change::{ALIGNMENT, Grown, TableChange, note_full, random_id};
use super::{Partition, PartitionTable, TableKind, container_doubt, read_sectors};
use platter_filesystem::fields::{guid, has, le16, le32, le64};

const NO_BACKUP: &str = "the disk had no valid backup GPT: one was written at the end of the target";
const CRC32: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// Tables with more entries are not trusted; usually there are 128.
const ENTRIES_MAX: u32 = 1024;
/// Longer entries are not trusted, in bytes; usually they have 128 bytes.
const ENTRY_LENGTH_MAX: u32 = 4096;
const HEADER_LENGTH_MIN: usize = 92;
/// The most UTF-16 units of a partition's name.
const NAME_UNITS: usize = 36;

/// Offsets of the header fields that change.
mod field {
    pub(super) const HEADER_LENGTH: usize = 12;
    pub(super) const HEADER_CRC: usize = 16;
    pub(super) const OWN_SECTOR: usize = 24;
    pub(super) const OTHER_SECTOR: usize = 32;
    pub(super) const LAST_USABLE: usize = 48;
    pub(super) const TABLE_SECTOR: usize = 72;
    pub(super) const TABLE_CRC: usize = 88;
}

/// A header with its table, both with correct checksums.
#[derive(Clone, Debug)]
struct Copy {
    /// The sector of the header.
    header: Vec<u8>,
    /// All entries.
    table: Vec<u8>,
    sector_size: u64,
}

impl Copy {
    /// Reads the copy whose header is in that sector; the inner error says what is wrong with it.
    fn read(disk: &dyn DiskRead, sector: u64, sector_size: u32) -> Result<Result<Self, &'static str>> {
        let sector_size = u64::from(sector_size);
        let offset = sector.saturating_mul(sector_size);
        let Some(header) = read_sectors(disk, offset, sector_size as usize)? else {
            return Ok(Err("lies past the end of the disk"));
        };
        if let Err(reason) = check_header(&header, sector) {
            return Ok(Err(reason));
        }
        let copy = Self { header, table: Vec::new(), sector_size };
        let place = copy.table_place();
        let Some(table) = read_sectors(disk, place.offset, place.length as usize)? else {
            return Ok(Err("has its table past the end of the disk"));
        };
        if CRC32.checksum(&table) != le32(&copy.header, field::TABLE_CRC) {
            return Ok(Err("has a table with a wrong checksum"));
        }
        Ok(Ok(Self { table, ..copy }))
    }

    /// The range of its table, without the rest of its last sector.
    fn table_place(&self) -> Extent {
        let length = u64::from(le32(&self.header, 80)) * u64::from(le32(&self.header, 84));
        Extent::new(le64(&self.header, field::TABLE_SECTOR).saturating_mul(self.sector_size), length)
    }

    fn table_sectors(&self) -> u64 {
        self.table_place().length.div_ceil(self.sector_size)
    }

    fn other_sector(&self) -> u64 {
        le64(&self.header, field::OTHER_SECTOR)
    }

    /// The sectors of header and table.
    fn structures(&self) -> [Extent; 2] {
        let header = le64(&self.header, field::OWN_SECTOR).saturating_mul(self.sector_size);
        let table = self.table_place().offset;
        [Extent::new(header, self.sector_size), Extent::new(table, self.table_sectors() * self.sector_size)]
    }

    /// The entries in use, with their numbers.
    fn entries(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let entries = self.table.chunks_exact(le32(&self.header, 84) as usize);
        (1..).zip(entries).filter(|(_, entry)| entry[..16] != [0; 16])
    }

    fn partitions(&self) -> Vec<Partition> {
        self.entries()
            .map(|(number, entry)| {
                let (first, last) = (le64(entry, 32), le64(entry, 40));
                let type_id = guid(entry, 0).unwrap_or_default();
                let name: Vec<u16> = (0..NAME_UNITS)
                    .map(|unit| le16(entry, 56 + 2 * unit))
                    .take_while(|unit| *unit != 0)
                    .collect();
                Partition {
                    number,
                    extent: Extent::between(
                        first.saturating_mul(self.sector_size),
                        last.saturating_add(1).saturating_mul(self.sector_size),
                    ),
                    type_name: type_name(&type_id),
                    doubt: container_doubt(is_container(&type_id), type_name(&type_id)),
                    type_id,
                    name: (!name.is_empty()).then(|| String::from_utf16_lossy(&name)),
                    uuid: guid(entry, 16),
                    bootable: le64(entry, 48) & 4 != 0,
                    container: false,
                    trusted: false,
                }
            })
            .collect()
    }

    /// Where the backup's table goes on a disk of that length, and the last usable sector before it.
    fn place_of_backup(&self, disk_length: u64) -> Result<(u64, u64)> {
        let last = disk_length / self.sector_size - 1;
        let backup_table = last.saturating_sub(self.table_sectors());
        if backup_table < 2 + self.table_sectors() {
            return Err(Error::refused(format!("a disk of {disk_length} bytes is too small for two GPTs")));
        }
        let last_usable = backup_table - 1;
        if let Some((number, entry)) = self.entries().find(|(_, entry)| le64(entry, 40) > last_usable) {
            return Err(Error::refused(format!(
                "partition {number} ends in sector {}, but the last usable sector of this disk is {last_usable}: use a \
                 larger disk",
                le64(entry, 40)
            )));
        }
        Ok((backup_table, last_usable))
    }

    fn entry_mut(&mut self, number: u32) -> Option<&mut [u8]> {
        let length = le32(&self.header, 84) as usize;
        self.table.chunks_exact_mut(length).nth((number as usize).checked_sub(1)?)
    }

    /// Lets a partition end at that offset, unless it already reaches it.
    fn grow(&mut self, last: &Partition, end: u64, change: &mut TableChange) {
        let size = self.sector_size;
        let Some(entry) = self.entry_mut(last.number).filter(|_| end > last.extent.end()) else {
            change.notes.push(note_full(last.number));
            return;
        };
        entry[40..48].copy_from_slice(&(end / size - 1).to_le_bytes());
        let after = Extent::between(last.extent.offset, end);
        change.grown = Some(Grown { number: Some(last.number), before: last.extent, after });
    }

    /// Gives the disk and all partitions new GUIDs.
    fn replace_ids(&mut self, seed: &[u8; 32]) {
        self.header[56..72].copy_from_slice(&random_guid(seed, 0));
        let numbers: Vec<u32> = self.entries().map(|(number, _)| number).collect();
        for number in numbers {
            let Some(entry) = self.entry_mut(number) else { continue };
            entry[16..32].copy_from_slice(&random_guid(seed, number));
        }
    }

    /// The header with other locations and corrected checksums.
    fn placed(&self, own: u64, other: u64, table: u64, last_usable: u64) -> Vec<u8> {
        let mut header = self.header.clone();
        let places = [
            (field::OWN_SECTOR, own),
            (field::OTHER_SECTOR, other),
            (field::TABLE_SECTOR, table),
            (field::LAST_USABLE, last_usable),
        ];
        for (offset, value) in places {
            header[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        }
        header[field::TABLE_CRC..field::TABLE_CRC + 4]
            .copy_from_slice(&CRC32.checksum(&self.table).to_le_bytes());
        let checksum = header_checksum(&header);
        header[field::HEADER_CRC..field::HEADER_CRC + 4].copy_from_slice(&checksum.to_le_bytes());
        header
    }
}

/// A random GUID (version 4 of RFC 9562), as stored: the first three fields are little-endian.
fn random_guid(seed: &[u8; 32], number: u32) -> [u8; 16] {
    let mut id = random_id(seed, number);
    id[7] = id[7] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

/// The checksum of a header whose length was checked, with the checksum field taken as zero.
fn header_checksum(header: &[u8]) -> u32 {
    let length = le32(header, field::HEADER_LENGTH) as usize;
    let mut digest = CRC32.digest();
    digest.update(&header[..field::HEADER_CRC]);
    digest.update(&[0; 4]);
    digest.update(&header[field::HEADER_CRC + 4..length]);
    digest.finalize()
}

fn check_header(header: &[u8], sector: u64) -> Result<(), &'static str> {
    if !has(header, 0, b"EFI PART") {
        return Err("is missing");
    }
    let length = le32(header, field::HEADER_LENGTH) as usize;
    if length < HEADER_LENGTH_MIN || length > header.len() {
        return Err("has an impossible length");
    }
    if header_checksum(header) != le32(header, field::HEADER_CRC) {
        return Err("has a wrong checksum");
    }
    if le64(header, field::OWN_SECTOR) != sector {
        return Err("belongs to another sector");
    }
    let (entries, entry_length) = (le32(header, 80), le32(header, 84));
    if entries == 0 || entries > ENTRIES_MAX {
        return Err("has an impossible number of entries");
    }
    if !(128..=ENTRY_LENGTH_MAX).contains(&entry_length) || !entry_length.is_multiple_of(8) {
        return Err("has entries of an impossible length");
    }
    Ok(())
}

/// The GPT of a disk for sectors of that size, if there is one: the primary, or its backup if the primary is
/// bad.
pub(super) fn read(disk: &dyn DiskRead, sector_size: u32) -> Result<Option<PartitionTable>> {
    let last = (disk.length() / u64::from(sector_size)).saturating_sub(1);
    if last < 2 {
        return Ok(None);
    }
    let primary = Copy::read(disk, 1, sector_size)?;
    let backup_sector = primary.as_ref().map_or(last, Copy::other_sector);
    let backup = Copy::read(disk, backup_sector, sector_size)?;
    let mut table = PartitionTable::default();
    let used = match (&primary, &backup) {
        (Ok(primary), Ok(backup)) => {
            if primary.table != backup.table || le32(&primary.header, 84) != le32(&backup.header, 84) {
                table.doubts.push("the backup GPT and the primary GPT have different partitions".to_owned());
            }
            primary
        }
        (Ok(primary), Err(reason)) => {
            table.doubts.push(format!("the backup GPT header in sector {backup_sector} {reason}"));
            table.stated_length = backup_sector.saturating_add(1).saturating_mul(u64::from(sector_size));
            primary
        }
        (Err(reason), Ok(backup)) => {
            table.doubts.push(format!("the primary GPT header {reason}; only its backup can be read"));
            backup
        }
        (Err(_), Err(_)) => return Ok(None),
    };
    if backup_sector != last {
        table
            .notes
            .push(format!("the backup GPT is in sector {backup_sector}, not in the last sector, {last}"));
        if Copy::read(disk, last, sector_size)?.is_ok_and(|other| other.table != used.table) {
            table.doubts.push("another GPT at the end of the disk has different partitions".to_owned());
        }
    }
    if used.entries().next().is_none() {
        table.doubts.push("the GPT has no partitions".to_owned());
    }
    table.kind = TableKind::Gpt;
    table.sector_size = Some(sector_size);
    table.disk_id = guid(&used.header, 56);
    table.partitions = used.partitions();
    let copies = [&primary, &backup].into_iter().flatten().flat_map(Copy::structures);
    let first = Extent::new(0, u64::from(sector_size) * 2);
    table.structures = Extents::from_unsorted(copies.chain([first]).collect());
    Ok(Some(table))
}

/// Adds what must be written so that the GPT fits a disk that may be longer than the captured one, and the requested
/// changes. `last` is the partition to grow. Nothing if the GPT already fits and nothing is requested, or if its primary
/// is bad.
///
/// # Errors
/// `Refused` if a partition would not fit before the backup; errors of reading the disk.
pub(super) fn change(
    disk: &dyn DiskRead,
    table: &PartitionTable,
    last: Option<&Partition>,
    new_ids: Option<[u8; 32]>,
    change: &mut TableChange,
) -> Result<()> {
    let sector_size = table.sector_size.unwrap_or(512);
    let mut primary = match Copy::read(disk, 1, sector_size)? {
        Ok(primary) => primary,
        Err(reason) => {
            let note = format!("the primary GPT header {reason}: the partition tables are left unchanged");
            change.notes.push(note);
            return Ok(());
        }
    };
    let size = u64::from(sector_size);
    let last_sector = disk.length() / size - 1;
    let fitting =
        Copy::read(disk, last_sector, sector_size)?.ok().filter(|_| primary.other_sector() == last_sector);
    if fitting.is_some() && last.is_none() && new_ids.is_none() {
        return Ok(());
    }
    if fitting.as_ref().is_some_and(|backup| backup.table.len() != primary.table.len()) {
        change
            .notes
            .push("the backup GPT has another length: the partition tables are left unchanged".to_owned());
        return Ok(());
    }
    let (backup_table, last_usable) = match &fitting {
        Some(backup) => {
            (le64(&backup.header, field::TABLE_SECTOR), le64(&primary.header, field::LAST_USABLE))
        }
        None => primary.place_of_backup(disk.length())?,
    };
    let primary_table = le64(&primary.header, field::TABLE_SECTOR);
    if fitting.is_none() {
        let old = primary.other_sector();
        change.moves_backup = old != last_sector && Copy::read(disk, old, sector_size)?.is_ok();
        change.notes.extend((!change.moves_backup).then(|| NO_BACKUP.to_owned()));
    }
    if let Some(last) = last {
        // The tables of a strange GPT may lie anywhere.
        let tables = [backup_table, primary_table, last_usable.saturating_add(1)].into_iter();
        let behind = tables.map(|sector| sector.saturating_mul(size)).filter(|at| *at >= last.extent.end());
        let end = behind.min().unwrap_or(0) / ALIGNMENT * ALIGNMENT;
        primary.grow(last, end, change);
    }
    if let Some(seed) = new_ids {
        primary.replace_ids(&seed);
        change.replaces_ids = true;
    }
    if fitting.is_some() && change.grown.is_none() && new_ids.is_none() {
        return Ok(());
    }
    let mut backup = primary.table.clone();
    if fitting.is_none() {
        backup.resize((primary.table_sectors() * size) as usize, 0);
    }
    change.writes.push((backup_table * size, backup));
    change.writes.push((last_sector * size, primary.placed(last_sector, 1, backup_table, last_usable)));
    if change.grown.is_some() || new_ids.is_some() {
        change.writes.push((primary_table * size, primary.table.clone()));
    }
    change.writes.push((size, primary.placed(1, last_sector, primary_table, last_usable)));
    if fitting.is_none() {
        change.writes.extend(protective_mbr(disk, size as usize, last_sector)?);
    }
    Ok(())
}

/// Sector 0 with its protective entry extended to the length of the disk; `None` for a hybrid MBR.
fn protective_mbr(disk: &dyn DiskRead, sector_size: usize, last: u64) -> Result<Option<(u64, Vec<u8>)>> {
    let Some(mut sector) = read_sectors(disk, 0, sector_size)? else { return Ok(None) };
    let kinds = [446, 462, 478, 494].map(|entry| sector[entry + 4]);
    let Some(slot) = kinds.iter().position(|kind| *kind == 0xee) else { return Ok(None) };
    if kinds.iter().filter(|kind| **kind != 0).count() != 1 {
        return Ok(None);
    }
    let sectors = u32::try_from(last).unwrap_or(u32::MAX);
    let at = 446 + slot * 16 + 12;
    sector[at..at + 4].copy_from_slice(&sectors.to_le_bytes());
    Ok(Some((0, sector)))
}

/// Types whose partitions contain volumes that are not looked through, or a table of their own that is not read here.
fn is_container(type_id: &str) -> bool {
    matches!(
        type_id,
        "ca7d7ccb-63ed-4c53-861c-1742536059cc"
            | "7ffec5c9-2d00-49b7-8941-3ea10a5586b7"
            | "5808c8aa-7e8f-42e0-85d2-e1e90434cfb3"
            | "af9b60a0-1431-4f62-bc68-3311714a69ad"
            | "e75caf8f-f680-4cee-afa3-b001e56efc2d"
            | "516e7cb4-6ecf-11d6-8ff8-00022d09712b"
            | "516e7cb8-6ecf-11d6-8ff8-00022d09712b"
            | "516e7cba-6ecf-11d6-8ff8-00022d09712b"
            | "6a898cc3-1dd2-11b2-99a6-080020736631"
            | "aa31e02a-400f-11db-9590-000c2911d1b8"
            | "53746f72-6167-11aa-aa11-00306543ecac"
            | "7c3457ef-0000-11aa-aa11-00306543ecac"
    )
}

fn type_name(type_id: &str) -> &'static str {
    match type_id {
        "c12a7328-f81f-11d2-ba4b-00a0c93ec93b" => "EFI system",
        "21686148-6449-6e6f-744e-656564454649" => "BIOS boot",
        "0fc63daf-8483-4772-8e79-3d69d8477de4" => "Linux",
        "4f68bce3-e8cd-4db1-96e7-fbcaf984b709" => "Linux root (x86-64)",
        "b921b045-1df0-41c3-af44-4c6f280d3fae" => "Linux root (ARM-64)",
        "933ac7e1-2eb4-4f13-b844-0e14e2aef915" => "Linux home",
        "bc13c2ff-59e6-4262-a352-b275fd6f7172" => "Linux extended boot",
        "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f" => "Linux swap",
        "e6d6d379-f507-44c2-a23c-238f2a3df928" => "Linux LVM",
        "a19d880f-05fc-4d3b-a006-743f0f84911e" => "Linux RAID",
        "ca7d7ccb-63ed-4c53-861c-1742536059cc" => "LUKS",
        "7ffec5c9-2d00-49b7-8941-3ea10a5586b7" => "dm-crypt",
        "5808c8aa-7e8f-42e0-85d2-e1e90434cfb3" | "af9b60a0-1431-4f62-bc68-3311714a69ad" => {
            "Windows dynamic disk"
        }
        "e75caf8f-f680-4cee-afa3-b001e56efc2d" => "Windows storage space",
        "516e7cb4-6ecf-11d6-8ff8-00022d09712b" => "FreeBSD",
        "516e7cb8-6ecf-11d6-8ff8-00022d09712b" => "FreeBSD vinum",
        "6a898cc3-1dd2-11b2-99a6-080020736631" => "ZFS",
        "aa31e02a-400f-11db-9590-000c2911d1b8" => "VMware VMFS",
        "53746f72-6167-11aa-aa11-00306543ecac" => "Apple Core Storage",
        "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7" => "Microsoft basic data",
        "e3c9e316-0b5c-4db8-817d-f92df00215ae" => "Microsoft reserved",
        "de94bba4-06d1-4d40-a16a-bfd50179d6ac" => "Windows recovery",
        "516e7cb6-6ecf-11d6-8ff8-00022d09712b" => "FreeBSD UFS",
        "516e7cba-6ecf-11d6-8ff8-00022d09712b" => "FreeBSD ZFS",
        "7c3457ef-0000-11aa-aa11-00306543ecac" => "Apple APFS",
        _ => "unknown",
    }
}

#[cfg(test)]
#[path = "gpt_tests.rs"]
mod tests;
