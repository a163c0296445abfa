//! What the partition table of an image decides before a target is written: which range of the disk is one of its
//! partitions, and whether the last partition can grow.

use std::sync::Arc;

use platter_disk::partition::{Partition, PartitionTable, last_partition};
use platter_disk::survey::read_table;
use platter_fetch::memory_cache;
use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{DiskRead, Error, Extent, Extents, IoContext, Result};
use platter_vdisk::{DiskView, RecipeDisk, Source};

use crate::target::TargetRequest;

/// Memory for decoded blocks of the table, in bytes.
const CACHE_BYTES: usize = 16 << 20;
/// Bytes behind the last partition that are read at once.
const PIECE: u64 = 1 << 20;
/// More sectors with data than this behind the last partition are not the rest of an old GPT: header and entries, twice.
const OLD_SECTORS_MAX: usize = 2 * 33;

/// The recipe of what the target is to hold: the whole disk, or the requested partition of it.
///
/// # Errors
/// `Missing` if there is no such partition; `Refused` if it cannot be installed alone, or the last partition is to grow and
/// cannot; those of reading the image.
pub(crate) fn wanted_part<P: PageSource>(
    request: &TargetRequest,
    recipe: Recipe<P>,
    source: &Arc<dyn Source>,
) -> Result<Recipe<P>> {
    if request.part.is_none() && !request.grow {
        return Ok(recipe);
    }
    let disk = RecipeDisk::open(recipe.score(), source.clone(), memory_cache(CACHE_BYTES)?)?;
    let root = *recipe.root();
    let disk = DiskView { device: &disk, sector_size: root.sector_size };
    let Some(number) = request.part else {
        let table = PartitionTable::read(&disk)?;
        let last = last_partition(&table);
        let last =
            last.map_err(|reason| Error::refused(format!("no partition of the image can grow: {reason}")))?;
        if let Some(last) = last {
            refuse_data_behind(&disk, &recipe, &table, last)?;
        }
        return Ok(recipe);
    };
    let range = read_table(&disk)?.range_of(number, root.disk_length)?;
    Ok(recipe.of_part(range))
}

/// Refuses to grow the last partition over data of the image. The backup GPT moves, and what an earlier one left is of no
/// use to anybody.
fn refuse_data_behind<P: PageSource>(
    disk: &dyn DiskRead,
    recipe: &Recipe<P>,
    table: &PartitionTable,
    last: &Partition,
) -> Result<()> {
    let behind = Extent::between(last.extent.end(), recipe.root().disk_length);
    let mut data = Vec::new();
    for entry in recipe.entries(behind) {
        let entry = entry?;
        if matches!(entry.state, State::Data { .. }) {
            data.extend(entry.extent.intersect(&behind));
        }
    }
    let sector = u64::from(disk.sector_size());
    let (mut used, mut old) = (Vec::new(), Vec::new());
    let pieces = data.iter().flat_map(|extent| {
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
    match left.iter().next() {
        Some(first) => Err(Error::refused(format!(
            "the image has data behind partition {}, at offset {}, and --grow would lay the partition over it: leave out \
             --grow",
            last.number, first.offset
        ))),
        None => Ok(()),
    }
}

/// The place of a backup GPT whose header may be this sector: on a disk that was enlarged, the earlier one is left.
fn old_gpt(sector: &[u8], offset: u64, sector_size: u64) -> Option<Extent> {
    let number = |at: usize| Some(u64::from_le_bytes(sector.get(at..at + 8)?.try_into().ok()?));
    let is_header = sector.starts_with(b"EFI PART") && number(24)?.checked_mul(sector_size) == Some(offset);
    let entries = number(72)?.checked_mul(sector_size)?;
    (is_header && entries < offset).then(|| Extent::between(entries, offset + sector_size))
}
