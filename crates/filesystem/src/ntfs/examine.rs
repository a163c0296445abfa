//! Determines which bytes of an NTFS volume are kept: reads all records, and compares what they claim with the bitmap.

use platter_image::{DiskRead, Error, ErrorKind, Extent, Extents, Result};

use super::attribute::{self, Attribute};
use super::boot_sector::BootSector;
use super::claims::Claims;
use super::label::label;
use super::master_table::MasterTable;
use super::record::{Record, wrong};
use super::stream::Stream;
use super::volatile::VolatileFiles;
use super::{bitmap, log_file, shadow_copies};
use crate::clusters::Clusters;
use crate::fields::le16;
use crate::reader::{Identity, Map, Reader, check_fits, needs_recovery, read_boot_sector, unsupported};

/// The numbers of records with a fixed meaning.
pub(super) const LOG_FILE: u64 = 2;
pub(super) const VOLUME: u64 = 3;
pub(super) const ROOT: u64 = 5;
const BITMAP: u64 = 6;
const MASTER_TABLE: u64 = 0;
/// These records must be in use.
const REQUIRED: std::ops::RangeInclusive<u64> = 0..=10;
/// The first record that is not reserved for the filesystem.
pub(super) const FIRST_FILE: u64 = 24;

/// The boot code fills this many bytes, whatever the length of a cluster.
const BOOT_LENGTH: u64 = 8192;

/// What the user can do about a volume that Windows has not finished with.
pub(super) const REMEDY: &str =
    "Start Windows, let it check the volume (`chkdsk`), and shut it down completely (`shutdown /s /t 0`)";

/// The volume was not unmounted or has errors; a check has begun.
const FLAGS_DIRTY: u16 = 0x4001;

/// An NTFS volume that begins at the start of an extent and fits into it.
pub(crate) struct Ntfs<'d> {
    disk: &'d dyn DiskRead,
    extent: Extent,
    boot: BootSector,
}

impl<'d> Reader<'d> for Ntfs<'d> {
    const NAME: &'static str = "ntfs";

    fn open(disk: &'d dyn DiskRead, extent: Extent) -> Result<Self> {
        let boot = BootSector::parse(&read_boot_sector(disk, extent)?)?;
        check_fits(boot.length, extent)?;
        Ok(Self { disk, extent, boot })
    }

    fn identity(&self) -> Identity {
        Identity {
            filesystem: Self::NAME.to_owned(),
            label: label(self.disk, self.extent),
            uuid: Some(self.boot.serial.clone()),
            block_size: self.boot.cluster_size as u32,
            length: self.boot.length,
        }
    }

    fn map(&self) -> Result<Map> {
        let boot = &self.boot;
        let volume = Extent::new(self.extent.offset, boot.length);
        let clusters =
            Clusters::new(self.disk, volume, volume.offset, (boot.cluster_size, boot.clusters), 0)?;
        let table = MasterTable::open(&clusters, boot)?;
        check_volume(&table)?;
        let log = table.attribute(LOG_FILE, attribute::DATA)?;
        log_file::check(&log.ok_or_else(|| wrong(LOG_FILE, "it has no contents"))?, &clusters)?;

        let mut records = read_records(&table, &clusters)?;
        let notes = records.volatile.compare_with_root(&table, &clusters)?;
        records.volatile.check_hibernation(&table, &clusters)?;
        if shadow_copies::exist(self.disk, volume)? {
            return Err(Error::corrupt(
                "it has shadow copies (restore points), which may need its free clusters; \
                 `vssadmin delete shadows /all` deletes them",
            ));
        }
        let map = table.attribute(BITMAP, attribute::DATA)?;
        let used = bitmap::used(&map.ok_or_else(|| wrong(BITMAP, "it has no contents"))?, &clusters)?;
        check_records(&table, &clusters, &records)?;
        let (mut files, unwritten) = records.claims.check(&used)?;

        let mut volatile = Vec::new();
        for number in records.volatile.files() {
            let stream = table.attribute(number, attribute::DATA)?;
            let runs = stream.iter().flat_map(Stream::runs);
            volatile
                .extend(runs.filter_map(|run| run.cluster.map(|cluster| clusters.at(cluster, run.count))));
        }
        let volatile = Extents::from_unsorted(volatile).subtract(&unwritten);
        files.retain(|run| volatile.clip(run.extent()).next().is_none());
        let outside = Extents::from_unsorted(vec![clusters.all()]).complement(volume);
        let start = Extent::new(volume.offset, BOOT_LENGTH.min(volume.length));
        let allocated = used.subtract(&unwritten);
        let allocated = allocated.iter().chain(&outside).copied().chain([start]).collect();
        Ok(Map { allocated, files, volatile, notes, ..Map::default() })
    }
}

impl Ntfs<'_> {
    pub(super) fn boot(&self) -> &BootSector {
        &self.boot
    }
}

/// A summary of the records in use.
struct Records<'c, 'd> {
    claims: Claims<'c, 'd>,
    /// The end of the last record, in bytes of the master file table.
    table_end: u64,
    volatile: VolatileFiles,
    /// A bit for each record: whether it is in use.
    in_use: Vec<u8>,
}

/// Checks the version and the state of the volume.
///
/// # Errors
/// [`unsupported`] if the version is unknown; `Refused` if the volume is dirty; errors of reading the disk.
pub(super) fn check_volume(table: &MasterTable<'_, '_>) -> Result<()> {
    let mut buffer = Vec::new();
    let record = table.record(VOLUME, &mut buffer)?.ok_or_else(|| wrong(VOLUME, "it is not in use"))?;
    let found = record.find(attribute::VOLUME_INFORMATION).and_then(|found| match found {
        Some(attribute) => attribute.value(),
        None => Ok(None),
    });
    let found = found.map_err(|error| wrong(VOLUME, &error.to_string()))?;
    let value = found.filter(|value| value.len() >= 12);
    let value = value.ok_or_else(|| wrong(VOLUME, "it lacks the state of the volume"))?;
    if !matches!(value[8], 1 | 3) {
        return Err(unsupported(format!("it has the unknown version {}.{}", value[8], value[9])));
    }
    match le16(value, 10) & FLAGS_DIRTY {
        0 => Ok(()),
        _ => Err(needs_recovery("it is marked as dirty: it was not unmounted, or has errors", REMEDY)),
    }
}

/// Reads all records in use.
fn read_records<'c, 'd>(table: &MasterTable<'_, '_>, clusters: &'c Clusters<'d>) -> Result<Records<'c, 'd>> {
    let mut records = Records {
        claims: Claims::new(clusters),
        table_end: table.end()?,
        volatile: VolatileFiles::default(),
        in_use: vec![0; table.records().div_ceil(8) as usize],
    };
    table.for_each(|number, record| {
        records.in_use[(number / 8) as usize] |= 1 << (number % 8);
        records.add(clusters, number, record).map_err(|error| match error.kind() {
            ErrorKind::Corrupt => wrong(number, &error.to_string()),
            _ => error,
        })
    })?;
    Ok(records)
}

impl Records<'_, '_> {
    fn add(&mut self, clusters: &Clusters<'_>, number: u64, record: Record<'_>) -> Result<()> {
        let owner = record.base().unwrap_or(number);
        self.volatile.add(number, record)?;
        record.for_each(|attribute| self.add_attribute(clusters, owner, attribute))
    }

    fn add_attribute(&mut self, clusters: &Clusters<'_>, owner: u64, attribute: Attribute<'_>) -> Result<()> {
        attribute.value()?;
        let Some(extended) = attribute.extended(clusters.count(), clusters.size())? else { return Ok(()) };
        self.claims.claim(&extended)?;
        let is_file = owner >= FIRST_FILE;
        // The filesystem's own files are read by their runs, whatever their initialized length is. The records of the master
        // file table are known.
        if attribute.kind() != attribute::DATA || !is_file && (attribute.is_named() || owner != MASTER_TABLE)
        {
            return Ok(());
        }
        // Compressed and encrypted contents are longer than what was written; other parts lack lengths.
        let is_plain = !attribute.is_coded() && extended.is_all(clusters.size());
        let written = match is_plain {
            true if is_file => extended.initialized,
            true => self.table_end.max(extended.initialized),
            false => u64::MAX,
        };
        self.claims.contents(&extended, written, is_file)
    }

    fn is_in_use(&self, number: u64) -> bool {
        self.in_use.get((number / 8) as usize).is_some_and(|byte| byte >> (number % 8) & 1 == 1)
    }
}

/// Checks that the records of the filesystem exist, and that the bitmap of records marks no others as used.
fn check_records(
    table: &MasterTable<'_, '_>,
    clusters: &Clusters<'_>,
    records: &Records<'_, '_>,
) -> Result<()> {
    if let Some(number) = REQUIRED.clone().find(|number| !records.is_in_use(*number)) {
        return Err(wrong(number, "it is not in use"));
    }
    let map = table.attribute(MASTER_TABLE, attribute::BITMAP)?;
    let map = map.ok_or_else(|| wrong(MASTER_TABLE, "it has no bitmap of records"))?;
    bitmap::for_each_run(&map, clusters, table.records(), |first, count| {
        let missing = (first.max(FIRST_FILE)..first + count).find(|number| !records.is_in_use(*number));
        match missing {
            Some(number) => Err(wrong(number, "it is not in use, but its bitmap marks it as used")),
            None => Ok(()),
        }
    })
}
