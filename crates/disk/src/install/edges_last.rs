//! A target whose first and last MiB are written after everything else.
//!
//! What finds a disk's contents stands there: the partition table, the boot loader, the superblock of a file system
//! without a table, the backup GPT. Both edges are emptied before anything else is written, and what belongs there is
//! kept in memory until everything between them is durable. So at every moment, whatever ends the job, the target either
//! has all of the disk or nothing that looks like one.
//!
//! ```text
//! empty both edges · sync · everything between · sync · last MiB · sync · first MiB without its first 4 KiB · sync
//! · first 4 KiB · sync
//! ```
//!
//! What lies past the disk's end on a longer target stays, except the header of an old backup GPT.

use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::sync::Arc;

use platter_image::{DiskRead, DiskWrite, Extent, IoContext, Result};

use super::state::{Phase, TargetState};
use crate::partition::gpt;

/// How long each edge is.
pub const EDGE_LENGTH: u64 = 1 << 20;
/// What an edge is written in: pieces that the target has already are left out.
const PIECE_LENGTH: usize = 4096;
/// What a header of a GPT begins with.
const GPT_MAGIC: &[u8] = b"EFI PART";

/// What finishing did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Whether the backup GPT was moved to the end of a larger target.
    pub backup_gpt_moved: bool,
    /// What is odd, in sentences.
    pub notes: Vec<String>,
}

/// One edge: where it is, what the target has there until it is finished, and what will stand there.
#[derive(Debug)]
struct Edge {
    extent: Extent,
    emptied: Vec<u8>,
    bytes: Mutex<Vec<u8>>,
}

impl Edge {
    /// Empties an edge of a target that gets a disk of that length.
    fn empty(target: &(impl DiskRead + DiskWrite), extent: Extent, disk_length: u64) -> Result<Self> {
        let what = || format!("emptying {} bytes at {} of the target", extent.length, extent.offset);
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

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock()
    }

    /// The part of `range` that lies in this edge: as a range of the edge's bytes, and where it begins in `range`.
    fn part(&self, range: Extent) -> Option<(std::ops::Range<usize>, usize)> {
        let both = self.extent.intersect(&range)?;
        let start = (both.offset - self.extent.offset) as usize;
        Some((start..start + both.length as usize, (both.offset - range.offset) as usize))
    }
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
    /// Empties both edges of a target that gets a disk of that length, durably, and tells `state` that the target is no
    /// longer what it was.
    ///
    /// # Errors
    /// `Io` when the target fails.
    pub fn begin(target: T, disk_length: u64, state: Arc<TargetState>) -> Result<Self> {
        let length = DiskWrite::length(&target);
        let first = Extent::between(0, length.min(EDGE_LENGTH));
        let last = Extent::between(first.end().max(length.saturating_sub(EDGE_LENGTH)), length);
        state.enter(Phase::Filling);
        let first = Edge::empty(&target, first, disk_length)?;
        let last = Edge::empty(&target, last, disk_length)?;
        target.flush().context(|| "making the emptied target durable".to_owned())?;
        Ok(Self { target, disk_length, first, last, state })
    }

    /// Everything else was written. Makes that durable, moves the backup GPT of a disk that is shorter than the target
    /// to the target's end, and writes the edges, and with `read_back` compares them with what the target has then. All
    /// of the disk is durable then.
    ///
    /// # Errors
    /// `Io` when the target fails; `Refused` when a partition leaves no room for the backup GPT; `Corrupt`, with the
    /// offset of the first difference found.
    pub fn finish(&self, read_back: bool) -> Result<Finished> {
        self.sync()?;
        let mut finished = Finished::default();
        if self.disk_length < DiskWrite::length(&self.target) {
            let relocation = gpt::relocate_backup(self)?;
            for (offset, bytes) in &relocation.writes {
                self.write_all_at(bytes, *offset).context(|| format!("moving the backup GPT to {offset}"))?;
            }
            finished = Finished { backup_gpt_moved: !relocation.writes.is_empty(), notes: relocation.notes };
            // A table with very many entries begins before the last MiB.
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

    /// Compares both edges with what the target has there.
    fn compare_edges(&self) -> Result<()> {
        for edge in [&self.first, &self.last] {
            let wanted = edge.lock();
            let mut found = vec![0; wanted.len()];
            self.target
                .read_exact_at(&mut found, edge.extent.offset)
                .context(|| format!("reading {} bytes at {} back", wanted.len(), edge.extent.offset))?;
            if let Some(at) = found.iter().zip(wanted.iter()).position(|(found, wanted)| found != wanted) {
                return Err(super::differs(edge.extent.offset + at as u64));
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.target.flush().context(|| "making the target durable".to_owned())
    }

    /// Writes what the target does not have yet of a range of an edge.
    fn write_edge(&self, edge: &Edge, range: std::ops::Range<usize>) -> Result<()> {
        let bytes = edge.lock();
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
                .context(|| format!("writing {} bytes at {offset} of the target", at - start))?;
        }
        Ok(())
    }

    /// What of `range` lies between the edges.
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
                edge.lock()[to].copy_from_slice(&buffer[from..from + length]);
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
                edge.lock()[to].fill(0);
            }
        }
        match self.middle(range) {
            Some(middle) => self.target.write_zeroes(middle.offset, middle.length),
            None => Ok(()),
        }
    }

    /// Makes durable what lies between the edges. The edges are written by [`EdgesLast::finish`] alone.
    fn flush(&self) -> io::Result<()> {
        self.target.flush()
    }
}

/// What the target will hold: the edges as they will be.
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
                buffer[to..to + length].copy_from_slice(&edge.lock()[from]);
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
