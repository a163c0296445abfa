//! Reads the label of a filesystem, mostly from its superblock, so that people can recognize a disk.

use platter_image::{DiskRead, Extent};

use crate::fields::has;
use crate::{exfat, ntfs};

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

/// The label of the filesystem of that name in `extent`; `None` if it has none or cannot be read.
pub fn label(disk: &dyn DiskRead, extent: Extent, name: &str) -> Option<String> {
    let text = match name {
        "vfat" => fat(disk, extent),
        "ntfs" => ntfs::label(disk, extent),
        "exfat" => exfat::label(disk, extent),
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
