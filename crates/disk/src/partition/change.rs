//! Changes to the partition table of a disk that was just written, possibly to a larger target: the backup GPT moves
//! to the end, and on request the last partition grows, and the disk and its partitions get new ids.
//!
//! Computes only what to write. What cannot be changed safely is left as it is, with a note.

use platter_image::{BlockId, DiskRead, Extent, Extents, Kind, Result};

use super::behind::data_behind;
use super::last::last_partition;
use super::{Partition, PartitionTable, TableKind, gpt, mbr_change};

/// Grown partitions end at multiples of this many bytes.
pub(super) const ALIGNMENT: u64 = 1 << 20;

/// The changes that were requested. The backup GPT moves in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableChanges {
    /// Grow the last partition to the end of the disk.
    pub grow: bool,
    /// Give the disk and its partitions new ids, derived from these random bytes.
    pub new_ids: Option<[u8; 32]>,
}

/// A partition that was grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Its number; `None` for a disk without a partition table.
    pub number: Option<u32>,
    /// Its range before.
    pub before: Extent,
    /// Its range now.
    pub after: Extent,
}

/// An offset on the disk, and the bytes to write there.
pub(super) type Write = (u64, Vec<u8>);

/// The writes that change a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableChange {
    /// Offsets and bytes in writing order: backups first, so that a crash leaves the old table intact.
    pub writes: Vec<Write>,
    /// Whether the backup GPT moves.
    pub moves_backup: bool,
    /// The partition that grows.
    pub grown: Option<Grown>,
    /// Whether ids are replaced.
    pub replaces_ids: bool,
    /// Notes about what was left unchanged, and why.
    pub notes: Vec<String>,
}

/// Computes the changes to the table of an installed disk, which may be longer than the image on it. Nothing is
/// written without a table, or if the primary GPT is bad. A file system without a table counts as a partition that grows.
///
/// `data`: the ranges that the image fills, if a partition is to grow; none grows over them.
///
/// # Errors
/// `Refused` if a partition would not fit before the backup GPT; errors of reading the disk.
pub fn change_table(
    disk: &dyn DiskRead,
    image_length: u64,
    changes: &TableChanges,
    data: &Extents,
) -> Result<TableChange> {
    let table = PartitionTable::read(disk)?;
    let mut change = TableChange::default();
    let last = if changes.grow { growing(disk, &table, data)? } else { Ok(None) };
    let last = last.unwrap_or_else(|reason| {
        change.notes.push(format!("no partition was grown: {reason}"));
        None
    });
    match table.kind {
        TableKind::Gpt => gpt::change(disk, &table, last, changes.new_ids, &mut change)?,
        TableKind::Mbr => mbr_change::change(disk, &table, last, changes.new_ids, &mut change)?,
        TableKind::None if changes.new_ids.is_some() => {
            change.notes.push("the disk has no partition table, so no ids were replaced".to_owned());
        }
        TableKind::Bsd if changes.new_ids.is_some() => {
            change.notes.push("the disk has a disklabel, so no ids were replaced".to_owned());
        }
        TableKind::None | TableKind::Bsd => {}
    }
    let is_bare = table.kind == TableKind::None && table.doubts.is_empty();
    if changes.grow && is_bare && image_length < disk.length() {
        let (before, after) = (Extent::new(0, image_length), Extent::new(0, disk.length()));
        change.grown = Some(Grown { number: None, before, after });
    }
    Ok(change)
}

/// Returns the partition that grows, or why none can. `Ok(None)` for a disk without a table.
fn growing<'a>(
    disk: &dyn DiskRead,
    table: &'a PartitionTable,
    data: &Extents,
) -> Result<Result<Option<&'a Partition>, String>> {
    let last = match last_partition(table) {
        Ok(Some(last)) => last,
        other => return Ok(other),
    };
    let reason = data_behind(disk, table, last, data)?;
    Ok(reason.map_or(Ok(Some(last)), Err))
}

/// The note about a partition that cannot grow further.
pub(super) fn note_full(number: u32) -> String {
    format!("partition {number} already reaches the end of the target")
}

/// Random bytes for the id with that number.
pub(super) fn random_id(seed: &[u8; 32], number: u32) -> [u8; 16] {
    let bytes = [&seed[..], &number.to_le_bytes()].concat();
    let mut id = [0; 16];
    id.copy_from_slice(&BlockId::of(Kind::Data, &bytes).0[..16]);
    id
}
