//! The boot sector: where tables, root directory and clusters lie.
//!
//! The width of the table's entries follows from the number of clusters: below 4,085 it is 12 bits, below 65,525 it is
//! 16 bits, and 32 bits otherwise. A volume that states the length of its table in the field that only FAT32 has is
//! FAT32, whatever its size: systems agree on that, because the other types cannot have a table without a length.

use platter_image::{Error, Result};

use crate::clusters::Width;
use crate::fields::{le16, le32};

/// Its length in bytes, whatever the length of a sector.
const BOOT_SECTOR_LENGTH: usize = 512;

/// From this many clusters on, entries have 16 bits.
const CLUSTERS_FAT16: u64 = 4085;
/// From this many clusters on, entries have 32 bits.
const CLUSTERS_FAT32: u64 = 65525;

/// Bits of the state that systems keep in the boot sector while a volume is mounted.
const STATE_DIRTY: u8 = 1;

/// The contents of a boot sector, checked for plausibility. Offsets and lengths are in bytes from the volume's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BootSector {
    pub(super) width: Width,
    pub(super) cluster_size: u64,
    pub(super) clusters: u64,
    /// The first cluster.
    pub(super) data: u64,
    /// The first copy of the table.
    pub(super) tables: u64,
    /// The length of each copy.
    pub(super) table_length: u64,
    /// How many copies there are.
    pub(super) copies: u64,
    /// The copy that is in use; `None` if all are.
    pub(super) active: Option<u64>,
    /// The root directory of FAT12 and FAT16.
    pub(super) root: u64,
    pub(super) root_length: u64,
    /// The first cluster of the root directory of FAT32.
    pub(super) root_cluster: Option<u64>,
    /// The length that the volume states.
    pub(super) length: u64,
    pub(super) is_dirty: bool,
    pub(super) serial: Option<String>,
}

impl BootSector {
    /// Decodes and checks a boot sector.
    ///
    /// # Errors
    /// `Corrupt` if it contains impossible values.
    pub(super) fn parse(bytes: &[u8; BOOT_SECTOR_LENGTH]) -> Result<Self> {
        let sector = sound("bytes per sector", le16(bytes, 11).into(), |size: u64| {
            size.is_power_of_two() && (512..=4096).contains(&size)
        })?;
        let per_cluster = sound("sectors per cluster", bytes[13].into(), u64::is_power_of_two)?;
        let reserved = sound("reserved sectors", le16(bytes, 14).into(), |count| count > 0)?;
        let copies = sound("copies of the table", bytes[16].into(), |count| (1..=2).contains(&count))?;
        let is_32 = le16(bytes, 22) == 0;
        let (short, long) = (u64::from(le16(bytes, 22)), u64::from(le32(bytes, 36)));
        let table = sound("sectors per table", if is_32 { long } else { short }, |count| count > 0)?;
        let root_entries = u64::from(le16(bytes, 17));
        if is_32 {
            sound("entries of the root directory", root_entries, |count| count == 0)?;
            sound("version", le16(bytes, 42).into(), |version| version == 0)?;
        } else {
            sound("entries of the root directory", root_entries, |count| count > 0)?;
        }
        let sectors = match le16(bytes, 19) {
            0 => u64::from(le32(bytes, 32)),
            few => u64::from(few),
        };
        let root_start = reserved + copies * table;
        let data = root_start + (root_entries * 32).div_ceil(sector);
        let clusters = sectors.checked_sub(data).map_or(0, |rest| rest / per_cluster);
        let clusters = sound("clusters", clusters, |count| count > 0)?;
        let width = width(clusters, is_32)?;
        let table_length = table * sector;
        if width.bytes(clusters + 2) > table_length {
            return Err(Error::corrupt(format!(
                "its allocation table of {table_length} bytes has no room for its {clusters} clusters"
            )));
        }
        let flags = le16(bytes, 40);
        let active = (is_32 && flags & 0x80 != 0).then_some(u64::from(flags & 0xf));
        if let Some(active) = active {
            sound("number of the active table", active, |number| number < copies)?;
        }
        let extension = if is_32 { 64 } else { 36 };
        let is_extended = matches!(bytes[extension + 2], 0x28 | 0x29);
        let serial = is_extended
            .then(|| format!("{:04X}-{:04X}", le16(bytes, extension + 5), le16(bytes, extension + 3)));
        Ok(Self {
            width,
            cluster_size: per_cluster * sector,
            clusters,
            data: data * sector,
            tables: reserved * sector,
            table_length,
            copies,
            active,
            root: root_start * sector,
            root_length: root_entries * 32,
            root_cluster: is_32.then(|| u64::from(le32(bytes, 44) & 0x0fff_ffff)),
            length: sectors * sector,
            is_dirty: is_extended && bytes[extension + 1] & STATE_DIRTY != 0,
            serial,
        })
    }
}

/// The width of entries.
fn width(clusters: u64, is_32: bool) -> Result<Width> {
    match clusters {
        _ if is_32 => Ok(Width::Bits28),
        0..CLUSTERS_FAT16 => Ok(Width::Bits12),
        CLUSTERS_FAT16..CLUSTERS_FAT32 => Ok(Width::Bits16),
        _ => {
            Err(Error::corrupt(format!("it has {clusters} clusters, too many for a table of 16-bit entries")))
        }
    }
}

/// `value`, if it is sound.
fn sound(name: &str, value: u64, is_sound: impl Fn(u64) -> bool) -> Result<u64> {
    match is_sound(value) {
        true => Ok(value),
        false => {
            Err(Error::corrupt(format!("its boot sector states an impossible number of {name}: {value}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The boot sector of a volume with this many clusters of 512 bytes, with 16-bit fields.
    fn boot_sector(clusters: u32, table: u16) -> [u8; 512] {
        let mut bytes = [0; 512];
        bytes[11..13].copy_from_slice(&512_u16.to_le_bytes());
        bytes[13] = 1;
        bytes[14] = 1;
        bytes[16] = 2;
        bytes[17..19].copy_from_slice(&16_u16.to_le_bytes());
        bytes[22..24].copy_from_slice(&table.to_le_bytes());
        bytes[32..36].copy_from_slice(&(clusters + 1 + 2 * u32::from(table) + 1).to_le_bytes());
        bytes
    }

    #[test]
    fn the_width_follows_from_the_number_of_clusters() {
        for (clusters, width) in [(4084, Width::Bits12), (4085, Width::Bits16), (65524, Width::Bits16)] {
            let parsed = BootSector::parse(&boot_sector(clusters, 256)).unwrap();
            assert_eq!((parsed.width, parsed.clusters), (width, clusters.into()));
        }
        let error = BootSector::parse(&boot_sector(65525, 256)).unwrap_err().to_string();
        assert!(error.contains("65525 clusters, too many"), "{error}");
        let mut large = boot_sector(4084, 256);
        (large[22], large[23], large[17], large[36]) = (0, 0, 0, 64);
        assert_eq!(BootSector::parse(&large).unwrap().width, Width::Bits28);
    }

    #[test]
    fn impossible_values_are_named() {
        let sound = boot_sector(4000, 12);
        BootSector::parse(&sound).unwrap();
        for (offset, value, expected) in [
            (12, 0, "bytes per sector: 0"),
            (12, 3, "bytes per sector: 768"),
            (13, 3, "sectors per cluster: 3"),
            (14, 0, "reserved sectors: 0"),
            (16, 0, "copies of the table: 0"),
            (16, 3, "copies of the table: 3"),
            (17, 0, "entries of the root directory: 0"),
            (22, 0, "sectors per table: 0"),
            (22, 11, "5632 bytes has no room"),
            (33, 0, "clusters: 0"),
        ] {
            let mut bytes = sound;
            bytes[offset] = value;
            if offset == 33 {
                bytes[32] = 9;
            }
            let error = BootSector::parse(&bytes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
