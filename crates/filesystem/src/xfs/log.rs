//! The log: whether it ends in an unmount record.
//!
//! The log is a ring of 512-byte blocks. The first word of each is the number of the pass over the ring in which it was
//! written; only headers of records have their magic number there, and the pass behind it. The head is where the pass
//! becomes smaller. After a clean unmount, the last record before the head has one operation, which says so. Everything is
//! in the main filesystem when that record is written. The kernel finds the head by bisection; here the whole log is
//! read, so that a log with a gap is not taken for a clean one.

use platter_image::{Error, Result};

use super::volume::Volume;
use crate::fields::be32;
use crate::reader::needs_recovery;

/// The unit of the log, in bytes.
const BLOCK: usize = 512;
/// The log is read in pieces of that many bytes.
const READ_LENGTH: usize = 1 << 20;
/// Longer logs cannot be made: less than 2 GiB.
const LENGTH_MAX: u64 = 1 << 31;

const HEADER_MAGIC: u32 = 0xfeed_babe;
/// A header of version 2 takes another block for this many bytes of the record.
const HEADER_COVERS: u32 = 32 << 10;
const UNMOUNT_FLAG: u8 = 0x20;

/// Checks that there is nothing to replay.
///
/// # Errors
/// `Refused` if there is; `Corrupt` if there is no valid log; errors of reading the disk.
pub(super) fn check(volume: &Volume<'_>) -> Result<()> {
    let superblock = &volume.superblock;
    let Some(place) = volume.place(superblock.log_start, superblock.log_blocks.into()) else {
        return Err(Error::corrupt(format!(
            "its log of {} blocks at block {} is outside of the filesystem",
            superblock.log_blocks, superblock.log_start
        )));
    };
    if place.length > LENGTH_MAX {
        return Err(Error::corrupt(format!("its log has the impossible length of {} bytes", place.length)));
    }
    let blocks = place.length / BLOCK as u64;
    let unclean =
        |what: String| Err(needs_recovery(format!("it was not unmounted: {what}"), "Mount and unmount it"));
    let Some(end) = find_end(volume, place.offset, place.length)? else {
        return unclean("the end of its log was not found".to_owned());
    };
    let read = |block: u64| {
        let mut bytes = [0; BLOCK];
        volume.read(place.offset + block % blocks * BLOCK as u64, &mut bytes)?;
        Ok::<_, Error>(bytes)
    };
    let header = read(end.record)?;
    let header_blocks = match be32(&header, 320) {
        size if be32(&header, 8) & 2 != 0 && size > HEADER_COVERS => u64::from(size.div_ceil(HEADER_COVERS)),
        _ => 1,
    };
    let length = u64::from(be32(&header, 12)).div_ceil(BLOCK as u64);
    let after = (end.record + header_blocks + length) % blocks;
    let operation = read(end.record + header_blocks)?;
    let is_unmount = be32(&header, 40) == 1 && operation[9] & UNMOUNT_FLAG != 0;
    if after != end.head || !is_unmount {
        let offset = end.record * BLOCK as u64;
        return unclean(format!(
            "the last record of its log, at offset {offset} of the log, is not that of an unmount"
        ));
    }
    Ok(())
}

/// The end of the log, in blocks.
struct End {
    /// Where the next record would be written.
    head: u64,
    /// The header of the last record.
    record: u64,
}

/// Finds the end; `None` if the passes are not those of one ring, or if there is no record.
fn find_end(volume: &Volume<'_>, start: u64, length: u64) -> Result<Option<End>> {
    let mut buffer = vec![0; READ_LENGTH.min(length as usize)];
    let mut ring = Ring::default();
    let mut at = 0;
    while at < length {
        let piece = (length - at).min(buffer.len() as u64) as usize;
        volume.read(start + at, &mut buffer[..piece])?;
        for (index, block) in (at / BLOCK as u64..).zip(buffer[..piece].chunks_exact(BLOCK)) {
            let is_header = be32(block, 0) == HEADER_MAGIC;
            let pass = be32(block, if is_header { 4 } else { 0 });
            if !ring.add(index, pass, is_header) {
                return Ok(None);
            }
        }
        at += piece as u64;
    }
    Ok(ring.end())
}

/// The passes of all blocks that were read, from the start of the log.
#[derive(Default)]
struct Ring {
    first_pass: u32,
    /// The first block of the previous pass.
    head: Option<u64>,
    /// The last header before the head, and the last one after it.
    records: [Option<u64>; 2],
}

impl Ring {
    /// Adds the next block. Returns `false` if the log is not one ring: the pass may become smaller once, by one.
    fn add(&mut self, index: u64, pass: u32, is_header: bool) -> bool {
        if index == 0 {
            self.first_pass = pass;
        }
        match (self.head, self.first_pass.checked_sub(pass)) {
            (None, Some(0)) | (Some(_), Some(1)) => {}
            (None, Some(1)) => self.head = Some(index),
            _ => return false,
        }
        if is_header {
            self.records[usize::from(self.head.is_some())] = Some(index);
        }
        true
    }

    fn end(&self) -> Option<End> {
        let record = self.records[0].or(self.records[1])?;
        Some(End { head: self.head.unwrap_or(0), record })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(blocks: &[(u32, bool)]) -> Option<(u64, u64)> {
        let mut ring = Ring::default();
        let is_ring = (0..).zip(blocks).all(|(index, (pass, is_header))| ring.add(index, *pass, *is_header));
        ring.end().filter(|_| is_ring).map(|end| (end.head, end.record))
    }

    #[test]
    fn the_end_is_where_the_pass_becomes_smaller() {
        let (header, data, old, old_header) = ((3, true), (3, false), (2, false), (2, true));
        assert_eq!(end(&[header, data, data, old, old_header, old]), Some((3, 0)));
        assert_eq!(end(&[header, data, header, data]), Some((0, 2)), "the ring is full");
        assert_eq!(
            end(&[data, old, old_header, old]),
            Some((1, 2)),
            "the last record begins at the end of the log"
        );
        assert_eq!(end(&[(1, true), (1, false), (0, false)]), Some((2, 0)), "a new log");
        for wrong in
            [[header, old, data], [header, data, (1, false)], [old, header, data], [data, data, data]]
        {
            assert_eq!(end(&wrong), None, "{wrong:?}");
        }
    }
}
