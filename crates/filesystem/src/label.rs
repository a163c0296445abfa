//! Reads the label of a filesystem from its superblock, so that people can recognize a disk.

use platter_image::{DiskRead, Extent};

use crate::fields::{has, le16, le32, le64};

/// How a label is encoded.
#[derive(Clone, Copy)]
enum Text {
    /// Bytes up to the first zero byte, or all of them.
    Bytes,
    /// UTF-16, little-endian.
    Wide,
}

/// Filesystem names with the offset, length in bytes and encoding of their labels.
const LABELS: &[(&str, usize, usize, Text)] = &[
    ("ext", 1024 + 0x78, 16, Text::Bytes),
    ("swap", 1024 + 28, 16, Text::Bytes),
    ("xfs", 108, 12, Text::Bytes),
    ("btrfs", 0x1_0000 + 0x12b, 256, Text::Bytes),
    ("f2fs", 1024 + 0x7c, 1024, Text::Wide),
    ("iso9660", 32768 + 40, 32, Text::Bytes),
    ("crypto_LUKS", 24, 48, Text::Bytes),
    ("jfs", 32768 + 152, 16, Text::Bytes),
    ("reiserfs", 65536 + 100, 16, Text::Bytes),
];

/// Longer records of an NTFS master file table are not read.
const NTFS_RECORD_MAX: usize = 4096;
/// The file record that contains the name of an NTFS volume, and the attribute with it.
const NTFS_VOLUME: u64 = 3;
const NTFS_VOLUME_NAME: u32 = 0x60;

/// The label of the filesystem of that name in `extent`; `None` if it has none or cannot be read.
pub fn label(disk: &dyn DiskRead, extent: Extent, name: &str) -> Option<String> {
    let text = match name {
        "vfat" => fat(disk, extent),
        "ntfs" => ntfs(disk, extent),
        _ => {
            let (_, offset, length, form) = LABELS.iter().find(|(known, ..)| *known == name)?;
            Some(decode(&read(disk, extent, *offset as u64, *length)?, *form))
        }
    };
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn read(disk: &dyn DiskRead, extent: Extent, offset: u64, length: usize) -> Option<Vec<u8>> {
    if offset.checked_add(length as u64)? > extent.length {
        return None;
    }
    let mut bytes = vec![0; length];
    disk.read_exact_at(&mut bytes, extent.offset + offset).ok()?;
    Some(bytes)
}

fn decode(bytes: &[u8], form: Text) -> String {
    match form {
        Text::Bytes => {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        }
        Text::Wide => {
            let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
            String::from_utf16_lossy(&units.take_while(|unit| *unit != 0).collect::<Vec<_>>())
        }
    }
}

/// From the boot sector; in FAT32 the label is further back than in older versions.
fn fat(disk: &dyn DiskRead, extent: Extent) -> Option<String> {
    let sector = read(disk, extent, 0, 512)?;
    let offset = if has(&sector, 82, b"FAT32") { 71 } else { 43 };
    let text = decode(&sector[offset..offset + 11], Text::Bytes);
    Some(text).filter(|text| text.trim() != "NO NAME")
}

/// From the attribute "volume name" in the volume's file record.
fn ntfs(disk: &dyn DiskRead, extent: Extent) -> Option<String> {
    let sector = read(disk, extent, 0, 512)?;
    let sector_size = u64::from(le16(&sector, 11));
    let cluster_size = sector_size * u64::from(sector[13]);
    // A negative number is a power of two in bytes; a positive number counts clusters.
    let record_size = match sector[64].cast_signed() {
        power @ -12..=-9 => 1_u64 << -power,
        clusters @ 1.. => cluster_size * u64::from(clusters.unsigned_abs()),
        _ => return None,
    };
    let record_size =
        usize::try_from(record_size).ok().filter(|size| (512..=NTFS_RECORD_MAX).contains(size))?;
    let table = le64(&sector, 48).checked_mul(cluster_size)?;
    let mut record = read(disk, extent, table.checked_add(NTFS_VOLUME * record_size as u64)?, record_size)?;
    if !has(&record, 0, b"FILE") {
        return None;
    }
    // The last two bytes of every 512 are stored in the header.
    let kept = usize::from(le16(&record, 4));
    for piece in 1..=record_size / 512 {
        let bytes: [u8; 2] = record.get(kept + 2 * piece..)?.get(..2)?.try_into().ok()?;
        record[piece * 512 - 2..piece * 512].copy_from_slice(&bytes);
    }
    let mut at = usize::from(le16(&record, 20));
    while at + 24 <= record_size {
        let length = le32(&record, at + 4) as usize;
        if le32(&record, at) == NTFS_VOLUME_NAME {
            let start = at + usize::from(le16(&record, at + 20));
            let bytes = record.get(start..)?.get(..le32(&record, at + 16) as usize)?;
            return Some(decode(bytes, Text::Wide));
        }
        if length == 0 {
            return None;
        }
        at += length;
    }
    None
}
