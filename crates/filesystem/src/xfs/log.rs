//! The log: whether it ends in an unmount record.
//!
//! The log is a ring of 512-byte blocks. The first word of each is the number of the pass over the ring in which it was
//! written; only headers of records have their magic number there, and the pass behind it. The head is where the pass
//! becomes smaller. After a clean unmount, the last record before the head has one operation, which says so. Everything is
//! in the main filesystem when that record is written.
//!
//! The head is found by bisection, as the kernel does it, so that a look at a file does not read the log. Bytes are dropped
//! only after all blocks were read ([`Log::check_passes`]): a log with a gap shows that writes were lost.
//!
//! Tools that clear a log that was used before (xfs_repair, xfs_admin, xfs_copy; `libxfs_log_clear`) leave one gap. They write
//! zeros, then the record of an unmount at the start, in a new pass, and from [`CLEARED_FROM`] on records of an unmount in
//! the previous pass. The zeros between them belong to no pass. Only this layout is accepted: the kernel never writes records
//! that name no previous one.

use platter_image::{Error, Result};

use super::volume::Volume;
use crate::fields::be32;
use crate::reader::needs_recovery;

/// The unit of the log, in bytes.
const BLOCK: usize = 512;
/// The whole log is read in pieces of that many blocks.
const READ_BLOCKS: u64 = 2048;
/// Longer logs cannot be made: less than 2 GiB.
const LENGTH_MAX: u64 = 1 << 31;

const HEADER_MAGIC: u32 = 0xfeed_babe;
/// A header of version 2 takes another block for this many bytes of the record.
const HEADER_COVERS: u32 = 32 << 10;
const UNMOUNT_FLAG: u8 = 0x20;

/// The most blocks of the record of an unmount: headers, one block, and zeros up to the stripe, which is at most 256 KiB.
const RECORD_MAX: u64 = 8 + 512;

/// The block of the second record in a log that tools cleared: the length of the longest record, 256 KiB.
const CLEARED_FROM: u64 = 512;
/// What such records say about the place of the record before them.
const NO_PREVIOUS: u32 = u32::MAX;

/// A log that has nothing to replay.
pub(super) struct Log<'v, 'd> {
    ring: Ring<'v, 'd>,
    /// The block where the next record would be written.
    head: u64,
    /// Zeros from the head up to this block belong to no pass; the head itself if there are none.
    gap_end: u64,
}

impl<'v, 'd> Log<'v, 'd> {
    /// Checks that there is nothing to replay.
    ///
    /// # Errors
    /// `Refused` if there is; `Corrupt` if there is no valid log; errors of reading the disk.
    pub(super) fn check(volume: &'v Volume<'d>) -> Result<Self> {
        let ring = Ring::open(volume)?;
        let cleared = ring.cleared_head()?;
        let head = match cleared {
            Some(head) => head,
            None => find_head(ring.blocks, |block| ring.pass(block))?.ok_or_else(no_end)?,
        };
        let Some(record) = ring.record_before(head)? else { return Err(no_end()) };
        let header = ring.read(record)?;
        let header_blocks = header_blocks(&header);
        let after = (record + header_blocks + record_blocks(&header)) % ring.blocks;
        let operation = ring.read((record + header_blocks) % ring.blocks)?;
        let is_unmount = be32(&header, 40) == 1 && operation[9] & UNMOUNT_FLAG != 0;
        if after != head || !is_unmount {
            let offset = record * BLOCK as u64;
            return Err(unclean(&format!(
                "the last record of its log, at offset {offset} of the log, is not that of an unmount"
            )));
        }
        let gap_end = if cleared.is_some() { CLEARED_FROM } else { head };
        Ok(Self { ring, head, gap_end })
    }

    /// Checks that all blocks before the head were written in one pass, and all others in the one before, except for the
    /// zeros of a cleared log.
    ///
    /// # Errors
    /// `Refused` if not; errors of reading the disk.
    pub(super) fn check_passes(&self) -> Result<()> {
        let Ring { volume, start, blocks } = self.ring;
        let first = self.ring.pass(0)?;
        let mut buffer = vec![0; READ_BLOCKS.min(blocks) as usize * BLOCK];
        for at in (0..blocks).step_by(READ_BLOCKS as usize) {
            let piece = (blocks - at).min(READ_BLOCKS) as usize * BLOCK;
            volume.read(start + at * BLOCK as u64, &mut buffer[..piece])?;
            for (index, block) in (at..).zip(buffer[..piece].chunks_exact(BLOCK)) {
                let is_older = self.head > 0 && index >= self.head;
                let is_right = match (self.head..self.gap_end).contains(&index) {
                    true => block.iter().all(|byte| *byte == 0),
                    false => first.checked_sub(pass(block)) == Some(is_older.into()),
                };
                if !is_right {
                    return Err(no_end());
                }
            }
        }
        Ok(())
    }
}

/// Where the log is.
struct Ring<'v, 'd> {
    volume: &'v Volume<'d>,
    /// The offset on the disk, in bytes.
    start: u64,
    blocks: u64,
}

impl<'v, 'd> Ring<'v, 'd> {
    fn open(volume: &'v Volume<'d>) -> Result<Self> {
        let superblock = &volume.superblock;
        let Some(place) = volume.place(superblock.log_start, superblock.log_blocks.into()) else {
            return Err(Error::corrupt(format!(
                "its log of {} blocks at block {} is outside of the filesystem",
                superblock.log_blocks, superblock.log_start
            )));
        };
        if place.length == 0 || place.length > LENGTH_MAX {
            return Err(Error::corrupt(format!(
                "its log has the impossible length of {} bytes",
                place.length
            )));
        }
        Ok(Self { volume, start: place.offset, blocks: place.length / BLOCK as u64 })
    }

    fn read(&self, block: u64) -> Result<[u8; BLOCK]> {
        let mut bytes = [0; BLOCK];
        self.volume.read(self.start + block * BLOCK as u64, &mut bytes)?;
        Ok(bytes)
    }

    fn pass(&self, block: u64) -> Result<u32> {
        Ok(pass(&self.read(block)?))
    }

    /// The end of the first record if the log was cleared and has zeros behind this record.
    fn cleared_head(&self) -> Result<Option<u64>> {
        if self.blocks <= CLEARED_FROM {
            return Ok(None);
        }
        let (first, second) = (self.read(0)?, self.read(CLEARED_FROM)?);
        let head = header_blocks(&first) + record_blocks(&first);
        // In the first pass, the zeros are those of a new log.
        let is_cleared = |header: &[u8], pass: u32, block: u64| {
            is_header(header)
                && pass > 0
                && be32(header, 36) == NO_PREVIOUS
                && (be32(header, 16), u64::from(be32(header, 20))) == (pass, block)
        };
        let previous = pass(&first).saturating_sub(1);
        let is_cleared = is_cleared(&first, pass(&first), 0) && is_cleared(&second, previous, CLEARED_FROM);
        if !is_cleared || head >= CLEARED_FROM {
            return Ok(None);
        }
        // Without zeros (`logformat` of xfs_db), it is like any other log.
        let has_gap = self.read(head)?.iter().all(|byte| *byte == 0);
        Ok(has_gap.then_some(head))
    }

    /// The last header before `head`; `None` if it is farther away than the record of an unmount can be long.
    fn record_before(&self, head: u64) -> Result<Option<u64>> {
        for back in 1..=RECORD_MAX.min(self.blocks) {
            let block = (head + self.blocks - back) % self.blocks;
            if is_header(&self.read(block)?) {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }
}

fn is_header(block: &[u8]) -> bool {
    be32(block, 0) == HEADER_MAGIC
}

fn pass(block: &[u8]) -> u32 {
    be32(block, if is_header(block) { 4 } else { 0 })
}

/// The number of blocks of the header of a record.
fn header_blocks(header: &[u8]) -> u64 {
    match be32(header, 320) {
        size if be32(header, 8) & 2 != 0 && size > HEADER_COVERS => u64::from(size.div_ceil(HEADER_COVERS)),
        _ => 1,
    }
}

/// The number of blocks of a record behind its header.
fn record_blocks(header: &[u8]) -> u64 {
    u64::from(be32(header, 12)).div_ceil(BLOCK as u64)
}

/// Finds the first block of the previous pass; 0 if all blocks are of one. `None` if the passes that were read are not
/// those of one ring.
fn find_head(blocks: u64, pass: impl Fn(u64) -> Result<u32>) -> Result<Option<u64>> {
    let first = pass(0)?;
    let is_older =
        |block| Ok(first.checked_sub(pass(block)?).filter(|passes| *passes <= 1).map(|passes| passes == 1));
    let (mut newer, mut older) = (0, blocks - 1);
    match is_older(older)? {
        Some(true) => {}
        Some(false) => return Ok(Some(0)),
        None => return Ok(None),
    }
    while older - newer > 1 {
        let middle = newer + (older - newer) / 2;
        match is_older(middle)? {
            Some(true) => older = middle,
            Some(false) => newer = middle,
            None => return Ok(None),
        }
    }
    Ok(Some(older))
}

fn no_end() -> Error {
    unclean("the end of its log was not found")
}

fn unclean(what: &str) -> Error {
    needs_recovery(format!("it was not unmounted: {what}"), "Mount and unmount it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_where_the_pass_becomes_smaller() {
        let head = |passes: &[u32]| {
            find_head(passes.len() as u64, |block| Ok(passes[block as usize]))
                .expect("nothing is read from disk")
        };
        for length in 1..40 {
            for first_older in 1..length {
                let passes: Vec<u32> = (0..length).map(|block| 3 - u32::from(block >= first_older)).collect();
                assert_eq!(head(&passes), Some(first_older as u64), "{passes:?}");
            }
            assert_eq!(head(&vec![3; length]), Some(0), "the ring is full");
        }
        assert_eq!(head(&[1, 1, 0]), Some(2), "a new log");
        for wrong in [[3, 3, 1], [2, 2, 3], [3, 4, 2], [3, 1, 2]] {
            assert_eq!(head(&wrong), None, "{wrong:?}");
        }
    }
}
