//! Whether the last partition, or a filesystem in its partition, may grow over what follows it on the image.
//!
//! Behind a partition, what an earlier backup GPT left is of no use to anybody; everything else that is not zero is data.

use platter_image::{DiskRead, Extent, Extents, IoContext, Result};

use super::{Partition, PartitionTable};

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;
/// Sectors of 512 bytes that the header and the entries of a GPT usually have; with larger sectors they have fewer.
const OLD_SECTORS: u64 = 33;

/// Returns why the last partition cannot grow, in words, if there is data behind it. `data`: the ranges of the disk that the image fills.
///
/// # Errors
/// Those of reading the disk.
pub fn data_behind(
    disk: &dyn DiskRead,
    table: &PartitionTable,
    last: &Partition,
    data: &Extents,
) -> Result<Option<String>> {
    let behind = Extent::between(last.extent.end(), disk.length().max(last.extent.end()));
    let ranges: Extents = data.clip(behind).collect();
    let sector = u64::from(disk.sector_size());
    let (mut used, mut old) = (Vec::new(), Vec::new());
    // Both copies of an old GPT, and no more: the rest need not be read.
    let most = 2 * (OLD_SECTORS + 1) * sector;
    visit_used(disk, &ranges.subtract(&table.structures), &mut |place, bytes| {
        old.extend(old_gpt(bytes, place.offset, sector));
        used.push(place);
        used.len() as u64 * sector <= most
    })?;
    let left = used.into_iter().collect::<Extents>().subtract(&Extents::from_unsorted(old));
    Ok(left.iter().next().map(|first| {
        let (number, offset) = (last.number, first.offset);
        format!(
            "the image has data behind partition {number}, at offset {offset}, and the partition would grow over it"
        )
    }))
}

/// Returns the offset of the first sector in these ranges that is not zero.
///
/// # Errors
/// Those of reading the disk.
pub fn first_used(disk: &dyn DiskRead, ranges: &Extents) -> Result<Option<u64>> {
    let mut first = None;
    visit_used(disk, ranges, &mut |place, _| {
        first = Some(place.offset);
        false
    })?;
    Ok(first)
}

/// Calls `visit` with the place and the bytes of each sector in these ranges that is not zero, until it returns false.
fn visit_used(
    disk: &dyn DiskRead,
    ranges: &Extents,
    visit: &mut dyn FnMut(Extent, &[u8]) -> bool,
) -> Result<()> {
    let sector = disk.sector_size() as usize;
    let pieces = ranges.iter().flat_map(|extent| {
        let starts = (extent.offset..extent.end()).step_by(PIECE as usize);
        starts.map(|start| Extent::new(start, PIECE.min(extent.end() - start)))
    });
    for piece in pieces {
        let mut bytes = vec![0; piece.length as usize];
        disk.read_exact_at(&mut bytes, piece.offset)
            .context(|| format!("reading {} bytes at offset {}", piece.length, piece.offset))?;
        for (offset, bytes) in (piece.offset..).step_by(sector).zip(bytes.chunks(sector)) {
            let is_used = bytes.iter().any(|byte| *byte != 0);
            if is_used && !visit(Extent::new(offset, bytes.len() as u64), bytes) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The place of a backup GPT whose header may be this sector: on a disk that was enlarged, the earlier one is left.
fn old_gpt(sector: &[u8], offset: u64, sector_size: u64) -> Option<Extent> {
    let number = |at: usize| Some(u64::from_le_bytes(sector.get(at..at + 8)?.try_into().ok()?));
    let is_header = sector.starts_with(b"EFI PART") && number(24)?.checked_mul(sector_size) == Some(offset);
    let entries = number(72)?.checked_mul(sector_size)?;
    let is_usual = entries < offset && offset - entries <= OLD_SECTORS * sector_size;
    (is_header && is_usual).then(|| Extent::between(entries, offset + sector_size))
}
