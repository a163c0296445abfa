//! A target whose first and last MiB are written after everything else.
//!
//! These contain whatever makes a disk's contents findable: the partition table, the boot loader, the
//! superblock of a filesystem without a table, the backup GPT. Both edges are emptied before anything else is
//! written, and their final bytes are kept in memory until everything in between is durable. So whenever the
//! job ends, the target contains either the whole disk or nothing that looks like a disk.
//!
//! ```text
//! empty both edges · sync · everything between · sync · last MiB · sync · first MiB without its first 4 KiB · sync
//! · first 4 KiB · sync
//! ```
//!
//! On a longer target, what lies past the disk's end is kept, except for the header of an old backup GPT.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

use platter_image::{DiskRead, DiskWrite, Extent, Extents, IoContext, Result};

use super::state::{Phase, TargetState};
use crate::partition::{Grown, TableChanges, change_table};

/// Length of each edge in bytes.
pub const EDGE_LENGTH: u64 = 1 << 20;
/// The unit in which an edge is written; pieces that the target already has are skipped.
const PIECE_LENGTH: usize = 4096;
/// The first bytes of a GPT header.
const GPT_MAGIC: &[u8] = b"EFI PART";

/// The result of finishing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Whether there was a backup GPT, and it was moved to the end of a larger target.
    pub backup_gpt_moved: bool,
    /// The partition that was grown.
    pub grown: Option<Grown>,
    /// Whether the disk and its partitions have new ids.
    pub new_ids: bool,
    /// Peculiarities, in sentences.
    pub notes: Vec<String>,
}

/// An edge: its range, the target's bytes there until it is finished, and its final bytes.
#[derive(Debug)]
struct Edge {
    extent: Extent,
    emptied: Vec<u8>,
    bytes: Mutex<Vec<u8>>,
}

impl Edge {
    /// Empties an edge of a target that receives a disk of that length.
    fn empty(target: &(impl DiskRead + DiskWrite), extent: Extent, disk_length: u64) -> Result<Self> {
        let what = || format!("emptying {} bytes at offset {} of the target", extent.length, extent.offset);
        let mut emptied = vec![0; extent.length as usize];
        let past = Extent::between(extent.offset.max(disk_length), extent.end());
        if past.offset < past.end() {
            let past = &mut emptied[(past.offset - extent.offset) as usize..];
            target.read_exact_at(past, extent.end() - past.len() as u64).context(what)?;
            for sector in [512, 4096] {
                let Some(header) = past.len().checked_sub(sector).map(|at| &mut past[at..]) else { continue };
                if header.starts_with(GPT_MAGIC) {
                    header.fill(0);
                    let offset = extent.end() - sector as u64;
                    target.write_zeroes(offset, sector as u64).context(what)?;
                }
            }
        }
        if let Some(of_disk) = extent.intersect(&Extent::between(0, disk_length)) {
            target.write_zeroes(of_disk.offset, of_disk.length).context(what)?;
        }
        Ok(Self { extent, bytes: Mutex::new(emptied.clone()), emptied })
    }

    /// The part of `range` in this edge: as a range of the edge's bytes, and its start in `range`.
    fn part(&self, range: Extent) -> Option<(std::ops::Range<usize>, usize)> {
        let both = self.extent.intersect(&range)?;
        let start = (both.offset - self.extent.offset) as usize;
        Some((start..start + both.length as usize, (both.offset - range.offset) as usize))
    }
}

/// The edges of a target of that length.
pub(super) fn edges(length: u64) -> [Extent; 2] {
    let first = Extent::between(0, length.min(EDGE_LENGTH));
    [first, Extent::between(first.end().max(length.saturating_sub(EDGE_LENGTH)), length)]
}

/// A target that is written from the middle outwards.
#[derive(Debug)]
pub struct EdgesLast<T> {
    target: T,
    disk_length: u64,
    first: Edge,
    last: Edge,
    state: Arc<TargetState>,
}

impl<T: DiskRead + DiskWrite> EdgesLast<T> {
    /// Empties both edges of a target that receives a disk of that length, and syncs. Tells `state` that the
    /// target has been changed.
    ///
    /// # Errors
    /// `Io` when the target fails.
    pub fn begin(target: T, disk_length: u64, state: Arc<TargetState>) -> Result<Self> {
        let [first, last] = edges(DiskWrite::length(&target));
        state.enter(Phase::Filling);
        let first = Edge::empty(&target, first, disk_length)?;
        let last = Edge::empty(&target, last, disk_length)?;
        target.flush().context(|| "making the emptied target durable".to_owned())?;
        Ok(Self { target, disk_length, first, last, state })
    }

    /// Call this when everything else was written. It makes that durable, moves the backup GPT to the end of
    /// a target longer than the disk, makes the other changes to the table, writes the edges, and with `read_back`
    /// compares them with the target. Without `changes` the target is a partition, and there is no table to change.
    /// `data`: the ranges that the disk fills, if a partition is to grow. The whole disk is durable when this returns.
    ///
    /// # Errors
    /// `Io` when the target fails; `Refused` when a partition leaves no space for the backup GPT; `Corrupt`
    /// with the offset of the first difference found.
    pub fn finish(
        &self,
        read_back: bool,
        changes: Option<&TableChanges>,
        data: &Extents,
    ) -> Result<Finished> {
        self.sync()?;
        let mut finished = Finished::default();
        let is_longer = self.disk_length < DiskWrite::length(&self.target);
        if let Some(changes) = changes.filter(|changes| is_longer || **changes != TableChanges::default()) {
            let change = change_table(self, self.disk_length, changes, data)?;
            for (offset, bytes) in &change.writes {
                self.write_all_at(bytes, *offset)
                    .context(|| format!("changing the partition table at offset {offset}"))?;
            }
            finished = Finished {
                backup_gpt_moved: change.moves_backup,
                grown: change.grown,
                new_ids: change.replaces_ids,
                notes: change.notes,
            };
            // A table with very many entries begins before the last MiB, and boot records may be anywhere.
            self.sync()?;
        }
        self.state.enter(Phase::Finishing);
        let first = self.first.extent.length as usize;
        for (edge, range) in [
            (&self.last, 0..self.last.extent.length as usize),
            (&self.first, PIECE_LENGTH.min(first)..first),
            (&self.first, 0..PIECE_LENGTH.min(first)),
        ] {
            self.write_edge(edge, range)?;
            self.sync()?;
        }
        if read_back {
            self.compare_edges()?;
        }
        self.state.enter(Phase::Complete);
        Ok(finished)
    }

    /// Compares both edges with the target's bytes.
    fn compare_edges(&self) -> Result<()> {
        for edge in [&self.first, &self.last] {
            let wanted = edge.bytes.lock();
            let mut found = vec![0; wanted.len()];
            self.target.read_exact_at(&mut found, edge.extent.offset).context(|| {
                format!("reading back {} bytes at offset {}", wanted.len(), edge.extent.offset)
            })?;
            if let Some(at) = found.iter().zip(wanted.iter()).position(|(found, wanted)| found != wanted) {
                return Err(super::differs(edge.extent.offset + at as u64));
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.target.flush().context(|| "making the target durable".to_owned())
    }

    /// Writes the pieces in a range of an edge that the target does not have yet.
    fn write_edge(&self, edge: &Edge, range: std::ops::Range<usize>) -> Result<()> {
        let bytes = edge.bytes.lock();
        let piece = |at: usize| at..range.end.min(at + PIECE_LENGTH);
        let mut at = range.start;
        while at < range.end {
            let start = at;
            while at < range.end && bytes[piece(at)] != edge.emptied[piece(at)] {
                at = piece(at).end;
            }
            if at == start {
                at = piece(at).end;
                continue;
            }
            let offset = edge.extent.offset + start as u64;
            self.target
                .write_all_at(&bytes[start..at], offset)
                .context(|| format!("writing {} bytes at offset {offset} of the target", at - start))?;
        }
        Ok(())
    }

    /// The part of `range` between the edges.
    fn middle(&self, range: Extent) -> Option<Extent> {
        Extent::between(self.first.extent.end(), self.last.extent.offset).intersect(&range)
    }

    fn check(&self, offset: u64, length: usize, error: io::ErrorKind) -> io::Result<Extent> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= DiskWrite::length(&self.target) => Ok(Extent::between(offset, end)),
            _ => Err(error.into()),
        }
    }
}

impl<T: DiskRead + DiskWrite> DiskWrite for EdgesLast<T> {
    fn length(&self) -> u64 {
        DiskWrite::length(&self.target)
    }

    fn alignment(&self) -> usize {
        self.target.alignment()
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let range = self.check(offset, buffer.len(), io::ErrorKind::WriteZero)?;
        for edge in [&self.first, &self.last] {
            if let Some((to, from)) = edge.part(range) {
                let length = to.len();
                edge.bytes.lock()[to].copy_from_slice(&buffer[from..from + length]);
            }
        }
        match self.middle(range) {
            Some(middle) => {
                let from = (middle.offset - offset) as usize;
                self.target.write_all_at(&buffer[from..from + middle.length as usize], middle.offset)
            }
            None => Ok(()),
        }
    }

    fn write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        let range = self.check(offset, length as usize, io::ErrorKind::WriteZero)?;
        for edge in [&self.first, &self.last] {
            if let Some((to, _)) = edge.part(range) {
                edge.bytes.lock()[to].fill(0);
            }
        }
        match self.middle(range) {
            Some(middle) => self.target.write_zeroes(middle.offset, middle.length),
            None => Ok(()),
        }
    }

    /// Makes everything between the edges durable. Only [`EdgesLast::finish`] writes the edges.
    fn flush(&self) -> io::Result<()> {
        self.target.flush()
    }
}

/// The target's future contents: the edges as they will be.
impl<T: DiskRead + DiskWrite> DiskRead for EdgesLast<T> {
    fn length(&self) -> u64 {
        DiskRead::length(&self.target)
    }

    fn sector_size(&self) -> u32 {
        self.target.sector_size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let range = self.check(offset, buffer.len(), io::ErrorKind::UnexpectedEof)?;
        for edge in [&self.first, &self.last] {
            if let Some((from, to)) = edge.part(range) {
                let length = from.len();
                buffer[to..to + length].copy_from_slice(&edge.bytes.lock()[from]);
            }
        }
        match self.middle(range) {
            Some(middle) => {
                let to = (middle.offset - offset) as usize;
                self.target.read_exact_at(&mut buffer[to..to + middle.length as usize], middle.offset)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "edges_last_tests.rs"]
mod tests;
