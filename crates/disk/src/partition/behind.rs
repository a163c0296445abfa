//! Whether the last partition may grow over what follows it on the image.
//!
//! What an earlier backup GPT left there is of no use to anybody; everything else that is not zero is data.

use platter_image::{DiskRead, Extent, Extents, IoContext, Result};

use super::{Partition, PartitionTable};

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;
/// More sectors with data than this behind the last partition are not the rest of an old GPT: header and entries, twice.
const OLD_SECTORS_MAX: usize = 2 * 33;

/// Returns why the last partition cannot grow, in words, if there is data in these ranges behind it.
///
/// # Errors
/// Those of reading the disk.
pub fn data_behind(
    disk: &dyn DiskRead,
    table: &PartitionTable,
    last: &Partition,
    ranges: &[Extent],
) -> Result<Option<String>> {
    let sector = u64::from(disk.sector_size());
    let (mut used, mut old) = (Vec::new(), Vec::new());
    let pieces = ranges.iter().flat_map(|extent| {
        let starts = (extent.offset..extent.end()).step_by(PIECE as usize);
        starts.map(|start| Extent::new(start, PIECE.min(extent.end() - start)))
    });
    for piece in pieces {
        let mut bytes = vec![0; piece.length as usize];
        disk.read_exact_at(&mut bytes, piece.offset)
            .context(|| format!("reading {} bytes at offset {}", piece.length, piece.offset))?;
        for (offset, bytes) in (piece.offset..).step_by(sector as usize).zip(bytes.chunks(sector as usize)) {
            old.extend(old_gpt(bytes, offset, sector));
            if bytes.iter().any(|byte| *byte != 0) {
                used.push(Extent::new(offset, bytes.len() as u64));
            }
        }
        let left = used.into_iter().collect::<Extents>().subtract(&table.structures);
        used = left.iter().copied().collect();
        if left.total() > OLD_SECTORS_MAX as u64 * sector {
            break;
        }
    }
    let left = used.into_iter().collect::<Extents>().subtract(&Extents::from_unsorted(old));
    Ok(left.iter().next().map(|first| {
        let (number, offset) = (last.number, first.offset);
        format!(
            "the image has data behind partition {number}, at offset {offset}, and the partition would grow over it"
        )
    }))
}

/// The place of a backup GPT whose header may be this sector: on a disk that was enlarged, the earlier one is left.
fn old_gpt(sector: &[u8], offset: u64, sector_size: u64) -> Option<Extent> {
    let number = |at: usize| Some(u64::from_le_bytes(sector.get(at..at + 8)?.try_into().ok()?));
    let is_header = sector.starts_with(b"EFI PART") && number(24)?.checked_mul(sector_size) == Some(offset);
    let entries = number(72)?.checked_mul(sector_size)?;
    (is_header && entries < offset).then(|| Extent::between(entries, offset + sector_size))
}
