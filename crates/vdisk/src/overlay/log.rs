//! The log of an overlay: what is in the file, in the order in which it came there.
//!
//! Owns appending, replaying and starting anew. Replaying decides what a crash has left (`docs/formats/overlay.md` has
//! the argument): after a power cut, a block that was not flushed counts only if the file holds what it was recorded with.

use std::collections::HashMap;

use platter_image::{Error, IoContext, Result};
use platter_vfs::VfsFile;

use super::format::{
    BLOCK, HEADER_LENGTH, OverlayHeader, PRESENT_BLOCKS_MAX, RECORD_LENGTH_MAX, Record, block_checksum,
    decode_later_record, decode_record, encode_record,
};
use super::state::{BlockState, States};

/// Bytes of the log that are read at once.
const READ_LENGTH: usize = 1 << 20;

/// The end of a log that is being written.
#[derive(Debug)]
pub(super) struct Log {
    end: u64,
    generation: u32,
    sequence: u64,
    record: Vec<u8>,
}

impl Log {
    /// Begins the log of that header, which holds what `states` says, as flushed. Nothing is synced.
    pub(super) fn begin(file: &dyn VfsFile, header: &OverlayHeader, states: &States) -> Result<Self> {
        let mut log =
            Self { end: header.log_offset, generation: header.generation, sequence: 0, record: Vec::new() };
        for (first, end, state) in states.runs() {
            match state {
                BlockState::Zero => log.append(file, &Record::Zero { first, count: end - first })?,
                _ => log.append_kept(file, states, (first, end))?,
            }
        }
        log.append(file, &Record::Flushed)?;
        Ok(log)
    }

    /// Appends records of blocks in the file, with their checksums where these are known.
    fn append_kept(
        &mut self,
        file: &dyn VfsFile,
        states: &States,
        (mut first, end): (u64, u64),
    ) -> Result<()> {
        while first < end {
            let checksums: Vec<u32> =
                (first..end).take(PRESENT_BLOCKS_MAX).map_while(|block| states.checksum(block)).collect();
            let is_known = |block: &u64| states.checksum(*block).is_some();
            let (record, count) = match checksums.len() as u64 {
                0 => {
                    let count = (first + 1..end).find(is_known).unwrap_or(end) - first;
                    (Record::Kept { first, count }, count)
                }
                count => (Record::Present { first, checksums }, count),
            };
            self.append(file, &record)?;
            first += count;
        }
        Ok(())
    }

    /// Appends a record; after an error the log is as it was.
    pub(super) fn append(&mut self, file: &dyn VfsFile, record: &Record) -> Result<()> {
        self.record.clear();
        encode_record(record, self.generation, self.sequence, &mut self.record);
        file.write_all_at(&self.record, self.end).context(|| "writing the log of an overlay".to_owned())?;
        self.end += self.record.len() as u64;
        self.sequence += 1;
        Ok(())
    }
}

/// What a log says, and where it ends.
pub(super) struct Replayed {
    pub(super) states: States,
    pub(super) end: u64,
}

/// Replays the log of that header. `believe` says that no power was cut since it was written.
///
/// # Errors
/// `Corrupt` when a record is damaged that a sound one behind it proves to have been whole; `Io`.
pub(super) fn replay(file: &dyn VfsFile, header: &OverlayHeader, believe: bool) -> Result<Replayed> {
    let (records, end) = read_records(file, header)?;
    // A crash tears the end of a log. It can leave a hole before sound records only where power was cut before a flush.
    if let Some(found) = find_behind(file, header, (end, records.len() as u64), believe)? {
        return Err(Error::corrupt(format!(
            "its log is damaged at {end}: record {} is not whole, and record {found} behind it is",
            records.len()
        )));
    }
    let flushed = records.iter().rposition(|record| *record == Record::Flushed).map_or(0, |at| at + 1);
    let (before, after) = records.split_at(if believe { records.len() } else { flushed });
    let mut states = States::default();
    for record in before {
        match record {
            Record::Present { first, checksums } => {
                states.set(*first..first + checksums.len() as u64, BlockState::Present);
                states.set_checksums(*first, checksums);
            }
            Record::Changing { first, count } => states.forget_checksums(*first..first + count),
            Record::Kept { first, count } => states.set(*first..first + count, BlockState::Present),
            Record::Zero { first, count } => states.set(*first..first + count, BlockState::Zero),
            Record::Flushed => {}
        }
    }
    if !believe {
        // Blocks may have been changed in place, and the records that say so are lost.
        states.forget_all_checksums();
    }
    replay_unflushed(file, after, &mut states)?;
    Ok(Replayed { states, end })
}

/// Records that may have come without what they speak of. Of each block, the last one whose checksum the file has
/// counts; zeros need none.
fn replay_unflushed(file: &dyn VfsFile, records: &[Record], states: &mut States) -> Result<()> {
    let mut found: HashMap<u64, Option<u32>> = HashMap::new();
    let mut bytes = vec![0; BLOCK as usize];
    let mut checksum_of = |block: u64| -> Result<Option<u32>> {
        if let Some(known) = found.get(&block) {
            return Ok(*known);
        }
        let checksum = match file.read_exact_at(&mut bytes, HEADER_LENGTH + block * BLOCK) {
            Ok(()) => Some(block_checksum(&bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(platter_image::Error::io("reading an overlay", error)),
        };
        found.insert(block, checksum);
        Ok(checksum)
    };
    for record in records {
        match record {
            Record::Present { first, checksums } => {
                for (block, checksum) in (*first..).zip(checksums) {
                    if checksum_of(block)? == Some(*checksum) {
                        states.set(block..block + 1, BlockState::Present);
                        states.set_checksums(block, &[*checksum]);
                    }
                }
            }
            Record::Zero { first, count } => states.set(*first..first + count, BlockState::Zero),
            // Kept: only at the beginning of a log, which is flushed before it counts.
            Record::Kept { .. } | Record::Flushed | Record::Changing { .. } => {}
        }
    }
    Ok(())
}

fn read_records(file: &dyn VfsFile, header: &OverlayHeader) -> Result<(Vec<Record>, u64)> {
    let blocks = header.disk_length.div_ceil(BLOCK);
    let (mut records, mut position) = (Vec::new(), header.log_offset);
    let mut buffer = vec![0; READ_LENGTH];
    loop {
        let mut filled = 0;
        while filled < buffer.len() {
            let read = file.read_at(&mut buffer[filled..], position + filled as u64);
            match read.context(|| "reading the log of an overlay".to_owned())? {
                0 => break,
                count => filled += count,
            }
        }
        let mut rest = &buffer[..filled];
        // A record cut off by the end of the buffer is read again, unless it is the end of the file, too.
        while rest.len() >= RECORD_LENGTH_MAX || filled < READ_LENGTH {
            let Some((record, length)) = decode_record(rest, header.generation, records.len() as u64, blocks)
            else {
                return Ok((records, position));
            };
            records.push(record);
            rest = &rest[length..];
            position += length as u64;
        }
    }
}

/// Looks behind the end of the log, and record `next`, for a sound record that can only stand there if the log went on:
/// any one if no power was cut, else one that says that all before it was flushed. Gives its number.
fn find_behind(
    file: &dyn VfsFile,
    header: &OverlayHeader,
    (end, next): (u64, u64),
    believe: bool,
) -> Result<Option<u64>> {
    let blocks = header.disk_length.div_ceil(BLOCK);
    let context = || "reading the log of an overlay".to_owned();
    let length = file.length().context(context)?;
    let mut position = end;
    let mut buffer = Vec::new();
    while position < length {
        buffer.resize((length - position).min((READ_LENGTH + RECORD_LENGTH_MAX) as u64) as usize, 0);
        file.read_exact_at(&mut buffer, position).context(context)?;
        // Records begin at multiples of four bytes from each other.
        for at in (0..buffer.len().min(READ_LENGTH)).step_by(4) {
            let found = decode_later_record(&buffer[at..], header.generation, next, blocks);
            if let Some((record, number)) = found
                && (believe || record == Record::Flushed)
            {
                return Ok(Some(number));
            }
        }
        position += READ_LENGTH as u64;
    }
    Ok(None)
}

/// The records for blocks that were written: `checksums` of consecutive ones from `first` on.
pub(super) fn present_records(first: u64, checksums: &[u32]) -> impl Iterator<Item = Record> + '_ {
    checksums
        .chunks(PRESENT_BLOCKS_MAX)
        .zip((first..).step_by(PRESENT_BLOCKS_MAX))
        .map(|(checksums, first)| Record::Present { first, checksums: checksums.to_vec() })
}
