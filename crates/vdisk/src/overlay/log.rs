//! The log of an overlay: records in the order in which blocks were written to the file.
//!
//! It appends records, replays a log, and starts a new one. Replay decides what survived a crash
//! (`docs/formats/overlay.md` has the proof): after a power cut, an unflushed block counts only if the file's
//! contents match the recorded checksum.

use std::collections::HashMap;

use platter_image::{Error, IoContext, Result};
use platter_vfs::VfsFile;

use super::format::{
    BLOCK, HEADER_LENGTH, OverlayHeader, PRESENT_BLOCKS_MAX, RECORD_LENGTH_MAX, Record, block_checksum,
    decode_later_record, decode_record, encode_record,
};
use super::state::{BlockState, States};

/// Bytes of the log read in one call.
const READ_LENGTH: usize = 1 << 20;

/// The writing end of a log.
#[derive(Debug)]
pub(super) struct Log {
    end: u64,
    generation: u32,
    sequence: u64,
    record: Vec<u8>,
}

impl Log {
    /// Starts the log that `header` describes. It records `states` as flushed. Does not sync.
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

    /// Appends records for blocks in the file: with checksums where they are known, else as `Kept`.
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

    /// Appends a record. On error, the log's end does not move.
    pub(super) fn append(&mut self, file: &dyn VfsFile, record: &Record) -> Result<()> {
        self.record.clear();
        encode_record(record, self.generation, self.sequence, &mut self.record);
        file.write_all_at(&self.record, self.end).context(|| "writing the log of an overlay".to_owned())?;
        self.end += self.record.len() as u64;
        self.sequence += 1;
        Ok(())
    }
}

/// The block states after replay, and the length of the file.
pub(super) struct Replayed {
    pub(super) states: States,
    pub(super) length: u64,
}

/// Replays the log that `header` describes. `believe` means that no power cut happened since it was written,
/// so that even unflushed records are valid.
///
/// # Errors
/// `Corrupt` when the file ends before the log, or a record is damaged and a valid record after it proves that the log went
/// on; `Io`.
pub(super) fn replay(file: &dyn VfsFile, header: &OverlayHeader, believe: bool) -> Result<Replayed> {
    let length = file.length().context(|| "reading an overlay's length".to_owned())?;
    if header.log_offset > length {
        return Err(Error::corrupt(format!(
            "truncated: the log starts at {}, the file has {length} bytes",
            header.log_offset
        )));
    }
    let (records, end) = read_records(file, header)?;
    // A crash tears the end of a log. Only a power cut before a flush can leave a hole before valid records.
    if let Some(found) = find_behind(file, header, (end, records.len() as u64), believe)? {
        return Err(Error::corrupt(format!(
            "the log is damaged at offset {end}: record {} is invalid, yet record {found} follows",
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
        // Blocks may have been changed in place, and the `Changing` records may be lost.
        states.forget_all_checksums();
    }
    replay_unflushed(file, after, &mut states)?;
    Ok(Replayed { states, length })
}

/// Replays records whose data may not have reached the disk. For each block, the last record whose checksum
/// matches the file counts. `Zero` records need no data.
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
            // `Kept` records appear only at the beginning of a log, which is flushed before it takes effect.
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
        // A record that the end of the buffer cuts off is read again, unless the file ends there.
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

/// Searches behind the end of the log for a valid record with a number above `next`; it proves that the log
/// went on. Without a power cut (`believe`), any record counts; after one, only a `Flushed` record. Returns
/// its number.
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
        // Every record's length is a multiple of four bytes.
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

/// The records for written blocks: `checksums` are those of consecutive blocks, starting at block `first`.
pub(super) fn present_records(first: u64, checksums: &[u32]) -> impl Iterator<Item = Record> + '_ {
    checksums
        .chunks(PRESENT_BLOCKS_MAX)
        .zip((first..).step_by(PRESENT_BLOCKS_MAX))
        .map(|(checksums, first)| Record::Present { first, checksums: checksums.to_vec() })
}
