//! The copies of the allocation table: which clusters any of them calls used, and whether they agree.

use platter_image::{DiskRead, Result};

use super::boot_sector::BootSector;
use crate::clusters::{ClusterSet, Table, Width};

/// Copies are compared in pieces of this many entries: a whole number of bytes and sectors in each width.
const PIECE_ENTRIES: u64 = 1 << 18;

/// All copies of the table.
pub(super) struct Copies {
    /// The copy that is in use.
    pub(super) table: Table,
    /// The clusters that are not free in at least one copy.
    pub(super) used: ClusterSet,
    /// The number of entries in which the other copies differ from it.
    pub(super) differences: u64,
}

/// Reads all copies. The volume starts at `start` of the disk.
///
/// # Errors
/// `Corrupt` if the table is too long; errors of reading the disk.
pub(super) fn read(disk: &dyn DiskRead, start: u64, boot: &BootSector) -> Result<Copies> {
    let (entries, active) = (boot.clusters + 2, boot.active.unwrap_or(0));
    let offset = |copy: u64| start + boot.tables + copy * boot.table_length;
    let table = Table::read(disk, offset(active), boot.width, entries)?;
    let mut used = ClusterSet::new(boot.clusters);
    for cluster in (2..entries).filter(|cluster| table.entry(*cluster) != 0) {
        used.insert(cluster - 2);
    }
    let mut differences = 0;
    for copy in (0..boot.copies).filter(|copy| *copy != active) {
        for first in (0..entries).step_by(PIECE_ENTRIES as usize) {
            let count = PIECE_ENTRIES.min(entries - first);
            let piece = Table::read(disk, offset(copy) + boot.width.bytes(first), boot.width, count)?;
            for cluster in first.max(2)..first + count {
                let entry = piece.entry(cluster - first);
                differences += u64::from(entry != table.entry(cluster));
                if entry != 0 {
                    used.insert(cluster - 2);
                }
            }
        }
    }
    Ok(Copies { table, used, differences })
}

/// Whether the first entries say that the volume was not unmounted, or that the disk had errors. FAT12 cannot say it.
pub(super) fn is_dirty(table: &Table, width: Width) -> bool {
    let clean = match width {
        Width::Bits16 => 0xc000,
        Width::Bits28 => 0x0c00_0000,
        Width::Bits12 | Width::Bits32 => 0,
    };
    table.entry(1) & clean != clean
}
