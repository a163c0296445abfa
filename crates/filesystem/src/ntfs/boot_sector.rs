//! The boot sector: lengths of clusters and records, and where the master file table begins.
//!
//! Lengths may be powers of two given as negative numbers: of sectors for clusters, of bytes for records. The backup of
//! the boot sector is in the sector after the volume's end, so it is kept with everything else after that.

use platter_image::{Error, Result};

use crate::fields::{has, le16, le64};

/// Its length in bytes, whatever the length of a sector.
const BOOT_SECTOR_LENGTH: usize = 512;

const CLUSTER_LENGTH_MAX: u64 = 2 << 20;
const RECORD_LENGTHS: std::ops::RangeInclusive<u64> = 512..=65536;

/// The contents of a boot sector, checked for plausibility.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BootSector {
    /// Bytes per cluster.
    pub(super) cluster_size: u64,
    pub(super) clusters: u64,
    /// Bytes per record of the master file table.
    pub(super) record_size: u64,
    /// The cluster in which the master file table begins.
    pub(super) master_table: u64,
    /// The length that the volume states, in bytes.
    pub(super) length: u64,
    pub(super) serial: String,
}

impl BootSector {
    /// Decodes and checks a boot sector.
    ///
    /// # Errors
    /// `Corrupt` if it contains impossible values.
    pub(super) fn parse(bytes: &[u8; BOOT_SECTOR_LENGTH]) -> Result<Self> {
        if !has(bytes, 3, b"NTFS    ") {
            return Err(Error::corrupt("its boot sector lacks the NTFS signature"));
        }
        let sector = sound("number of bytes per sector", le16(bytes, 11).into(), |size: u64| {
            size.is_power_of_two() && (512..=4096).contains(&size)
        })?;
        let per_cluster = match bytes[13] {
            count @ 0..=0x80 => u64::from(count),
            power => 1_u64.checked_shl(u32::from(power.wrapping_neg())).unwrap_or(0),
        };
        let is_size = |count: u64| {
            count.is_power_of_two()
                && count.checked_mul(sector).is_some_and(|size| size <= CLUSTER_LENGTH_MAX)
        };
        let cluster_size = sector * sound("number of sectors per cluster", per_cluster, is_size)?;
        let record_size = match bytes[64].cast_signed() {
            clusters @ 0.. => cluster_size * u64::from(clusters.unsigned_abs()),
            power => 1_u64.checked_shl(u32::from(power.unsigned_abs())).unwrap_or(0),
        };
        let record_size = sound("number of bytes per record", record_size, |size| {
            size.is_power_of_two() && RECORD_LENGTHS.contains(&size)
        })?;
        let sectors = le64(bytes, 40);
        let length = sectors.checked_mul(sector).filter(|length| *length <= i64::MAX as u64);
        let length =
            length.ok_or_else(|| Error::corrupt(format!("its boot sector states {sectors} sectors")))?;
        let clusters = sound("number of clusters", length / cluster_size, |count| count > 0)?;
        let master_table =
            sound("place of the master file table", le64(bytes, 48), |place| place < clusters)?;
        Ok(Self {
            cluster_size,
            clusters,
            record_size,
            master_table,
            length,
            serial: format!("{:016X}", le64(bytes, 72)),
        })
    }
}

/// `value`, if it is sound.
fn sound(name: &str, value: u64, is_sound: impl Fn(u64) -> bool) -> Result<u64> {
    match is_sound(value) {
        true => Ok(value),
        false => Err(Error::corrupt(format!("its boot sector states an impossible {name}: {value}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot_sector(sector: u16, per_cluster: u8, record: u8, sectors: u64) -> [u8; 512] {
        let mut bytes = [0; 512];
        bytes[3..11].copy_from_slice(b"NTFS    ");
        bytes[11..13].copy_from_slice(&sector.to_le_bytes());
        (bytes[13], bytes[64], bytes[48]) = (per_cluster, record, 4);
        bytes[40..48].copy_from_slice(&sectors.to_le_bytes());
        bytes
    }

    #[test]
    fn lengths_are_numbers_or_powers_of_two() {
        for (sector, per_cluster, record, cluster_size, record_size) in [
            (512, 1, 2, 512, 1024),
            (512, 8, 0xf6, 4096, 1024),
            (512, 0x80, 0xf6, 65536, 1024),
            (512, 0xf4, 0xf4, 2 << 20, 4096),
            (4096, 1, 1, 4096, 4096),
            (4096, 0xf7, 0xf6, 2 << 20, 1024),
        ] {
            let parsed = BootSector::parse(&boot_sector(sector, per_cluster, record, 1 << 20)).unwrap();
            assert_eq!((parsed.cluster_size, parsed.record_size), (cluster_size, record_size));
        }
    }

    #[test]
    fn impossible_values_are_named() {
        let sound = boot_sector(512, 8, 0xf6, 1 << 20);
        for (offset, value, expected) in [
            (3, b'X', "lacks the NTFS signature"),
            (12, 3, "bytes per sector: 768"),
            (13, 0, "sectors per cluster: 0"),
            (13, 3, "sectors per cluster: 3"),
            (13, 0xf3, "sectors per cluster: 8192"),
            (13, 0x81, "sectors per cluster: 0"),
            (64, 0, "bytes per record: 0"),
            (64, 0x80, "bytes per record: 0"),
            (64, 0xef, "bytes per record: 131072"),
            (47, 0x80, "sectors"),
            (55, 1, "place of the master file table"),
        ] {
            let mut bytes = sound;
            bytes[offset] = value;
            let error = BootSector::parse(&bytes).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
