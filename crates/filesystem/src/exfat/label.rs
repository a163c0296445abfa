//! The label of a volume: an entry of its root directory.

use platter_image::{DiskRead, Extent};

use super::boot_region::BootRegion;
use super::entry_set::{ENTRY_LENGTH, LABEL};
use super::examine::FIRST_CLUSTER;
use crate::fields::{le16, le32};

/// The root directory is read in pieces of this many bytes, and at most so many of them. The label is one of the first entries.
const PIECE_LENGTH: u64 = 512;
const PIECES_MAX: usize = 8192;
/// The most characters of a label.
const CHARACTERS_MAX: usize = 11;

/// The label of the volume at the start of an extent; `None` if it has none or cannot be read.
pub(crate) fn label(disk: &dyn DiskRead, extent: Extent) -> Option<String> {
    let boot = BootRegion::read(disk, extent).ok()?;
    let read = |offset: u64, bytes: &mut [u8]| {
        let end = offset.checked_add(bytes.len() as u64)?;
        (end <= extent.length).then(|| disk.read_exact_at(bytes, extent.offset + offset).ok())?
    };
    let mut piece = [0; PIECE_LENGTH as usize];
    let (mut cluster, mut skip) = (boot.root_cluster, 0);
    for _ in 0..PIECES_MAX {
        read(boot.heap + (cluster - FIRST_CLUSTER) * boot.cluster_size + skip, &mut piece)?;
        for entry in piece.chunks_exact(ENTRY_LENGTH) {
            match entry[0] {
                0 => return None,
                LABEL => return decode(entry),
                _ => {}
            }
        }
        skip += PIECE_LENGTH;
        if skip == boot.cluster_size {
            let mut next = [0; 4];
            read(boot.table + 4 * cluster, &mut next)?;
            (cluster, skip) = (le32(&next, 0).into(), 0);
            if !(FIRST_CLUSTER..boot.clusters + FIRST_CLUSTER).contains(&cluster) {
                return None;
            }
        }
    }
    None
}

fn decode(entry: &[u8]) -> Option<String> {
    let units = entry[2..].chunks_exact(2).take(usize::from(entry[1]).min(CHARACTERS_MAX));
    let text = String::from_utf16_lossy(&units.map(|unit| le16(unit, 0)).collect::<Vec<_>>());
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
