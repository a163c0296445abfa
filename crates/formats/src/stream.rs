//! Unpacks a raw disk from a stream.

use std::io::{self, Read};

use platter_image::{IoContext, Result};

use crate::spool::Spool;

/// Bytes that are written at once.
const PIECE: usize = 1 << 20;

/// Unpacks a raw disk, and returns its length in bytes.
///
/// # Errors
/// `Io` if the stream is damaged or cannot be read, or the disk not be written.
pub fn read_raw(stream: &mut dyn Read, spool: &mut dyn Spool) -> Result<u64> {
    copy(stream, spool, u64::MAX)
}

/// Copies at most `limit` bytes, and returns how many there were.
pub(crate) fn copy(stream: &mut dyn Read, spool: &mut dyn Spool, limit: u64) -> Result<u64> {
    let mut piece = vec![0; PIECE];
    let mut offset = 0;
    while offset < limit {
        let wanted = (limit - offset).min(PIECE as u64) as usize;
        let read = fill(stream, &mut piece[..wanted])
            .context(|| format!("unpacking the bytes from offset {offset} on"))?;
        spool.write_all_at(&piece[..read], offset).context(|| format!("writing at offset {offset}"))?;
        offset += read as u64;
        if read < wanted {
            break;
        }
    }
    Ok(offset)
}

/// Reads until the buffer is full or the stream ends; returns the number of bytes.
pub(crate) fn fill(stream: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match stream.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
