//! What the partition table of an image decides before a target is written: which range of the disk is one of its
//! partitions, and whether the last partition can grow.

use std::sync::Arc;

use platter_disk::partition::{Partition, PartitionTable, data_behind, last_partition};
use platter_disk::survey::read_table;
use platter_fetch::memory_cache;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{DiskRead, Error, Extent, Result};
use platter_vdisk::{DiskView, RecipeDisk, Source};

use crate::target::{TargetRequest, data_in};

/// Memory for decoded blocks of the table, in bytes.
const CACHE_BYTES: usize = 16 << 20;

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

/// Refuses to grow the last partition over data of the image, before anything is written.
fn refuse_data_behind<P: PageSource>(
    disk: &dyn DiskRead,
    recipe: &Recipe<P>,
    table: &PartitionTable,
    last: &Partition,
) -> Result<()> {
    let behind = Extent::between(last.extent.end(), recipe.root().disk_length);
    match data_behind(disk, table, last, &data_in(recipe, behind)?)? {
        Some(reason) => Err(Error::refused(format!("{reason}: leave out --grow"))),
        None => Ok(()),
    }
}
