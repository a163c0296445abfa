//! The boot region: where the table and the clusters lie, and the state of the volume.
//!
//! The first of its twelve sectors has the numbers, the last is filled with a checksum of the first eleven, in which the
//! volume's flags and its percentage in use do not count, because they change while it is mounted.

use platter_image::{DiskRead, Error, Extent, IoContext, Result};

use crate::fields::{has, le16, le32, le64};

/// Sectors of a boot region, without its checksum.
const SECTORS: usize = 11;
const SECTOR_LENGTH_MIN: u64 = 512;

const FLAG_DIRTY: u16 = 2;

/// The contents of a boot region, checked for plausibility. Offsets and lengths are in bytes from the volume's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BootRegion {
    pub(super) cluster_size: u64,
    pub(super) clusters: u64,
    /// The first cluster.
    pub(super) heap: u64,
    /// The allocation table.
    pub(super) table: u64,
    pub(super) table_length: u64,
    pub(super) root_cluster: u64,
    /// The length that the volume states.
    pub(super) length: u64,
    /// The number of tables and of bitmaps.
    pub(super) tables: u8,
    pub(super) is_dirty: bool,
    pub(super) serial: String,
}

impl BootRegion {
    /// Reads and checks the boot region at the start of `extent`.
    ///
    /// # Errors
    /// `Corrupt` if it contains impossible values or its checksum is wrong; errors of reading the disk.
    pub(super) fn read(disk: &dyn DiskRead, extent: Extent) -> Result<Self> {
        let read = |length: usize| {
            if extent.length < length as u64 {
                return Err(Error::corrupt("there is no boot region"));
            }
            let mut bytes = vec![0; length];
            disk.read_exact_at(&mut bytes, extent.offset)
                .context(|| format!("reading the boot region at offset {}", extent.offset))?;
            Ok(bytes)
        };
        let (region, sector) = Self::parse(&read(SECTOR_LENGTH_MIN as usize)?)?;
        check(&read((SECTORS + 1) * sector as usize)?, sector as usize)?;
        Ok(region)
    }

    /// The numbers, and the length of a sector.
    fn parse(bytes: &[u8]) -> Result<(Self, u64)> {
        if !has(bytes, 3, b"EXFAT   ") || bytes[11..64].iter().any(|byte| *byte != 0) {
            return Err(Error::corrupt("there is no boot region"));
        }
        let shift =
            sound("sector size (its logarithm)", bytes[108].into(), |shift| (9..=12).contains(&shift))?;
        let per_cluster =
            sound("cluster size (its logarithm)", bytes[109].into(), |more| shift + more <= 25)?;
        let version = sound("version", le16(bytes, 104).into(), |version| version >> 8 == 1)?;
        sound("number of tables", bytes[110].into(), |count| (1..=2).contains(&count))?;
        let sector = 1 << shift;
        let [table, table_length, heap, clusters, root] =
            [80, 84, 88, 92, 96].map(|offset| u64::from(le32(bytes, offset)));
        let cluster_size = sector << per_cluster;
        let bytes_of = |sectors: u64| sectors.checked_mul(sector);
        let length = bytes_of(le64(bytes, 72));
        let length =
            length.ok_or_else(|| Error::corrupt(format!("it claims to have {} sectors", le64(bytes, 72))))?;
        sound("number of clusters", clusters, |count| (1..=0xffff_fff5).contains(&count))?;
        sound("first cluster of the root directory", root, |root| root >= 2 && root - 2 < clusters)?;
        let end = heap * sector + clusters * cluster_size;
        let tables = table * sector + table_length * sector * u64::from(bytes[110]);
        if table < 24 || (clusters + 2) * 4 > table_length * sector || tables > heap * sector || end > length
        {
            return Err(Error::corrupt(format!(
                "its tables, {clusters} clusters and length of {length} bytes contradict one another (version {version:#x})"
            )));
        }
        let flags = le16(bytes, 106);
        let serial = format!("{:04X}-{:04X}", le16(bytes, 102), le16(bytes, 100));
        let region = Self {
            cluster_size,
            clusters,
            heap: heap * sector,
            table: table * sector,
            table_length: table_length * sector,
            root_cluster: root,
            length,
            tables: bytes[110],
            is_dirty: flags & FLAG_DIRTY != 0,
            serial,
        };
        Ok((region, sector))
    }
}

/// `value`, if it is sound.
fn sound(name: &str, value: u64, is_sound: impl Fn(u64) -> bool) -> Result<u64> {
    match is_sound(value) {
        true => Ok(value),
        false => Err(Error::corrupt(format!("its boot region states an impossible {name}: {value}"))),
    }
}

/// Checks the checksum of a region with sectors of this length.
fn check(bytes: &[u8], sector: usize) -> Result<()> {
    let (summed, sums) = bytes.split_at(SECTORS * sector);
    let counted = summed.iter().enumerate().filter(|(at, _)| !matches!(at, 106 | 107 | 112));
    let sum = counted.fold(0_u32, |sum, (_, byte)| sum.rotate_right(1).wrapping_add(u32::from(*byte)));
    match sums.chunks_exact(4).all(|stored| le32(stored, 0) == sum) {
        true => Ok(()),
        false => Err(Error::corrupt("the checksum of its boot region is wrong")),
    }
}
