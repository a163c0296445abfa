//! Writes a Frisbee image that `imageunzip` restores: version 3, or 5 for disks of 2 TiB and more.

use std::io::Write;

use flate2::{Compress, Compression, FlushCompress, Status};
use platter_image::{DiskRead, Error, Extent, Extents, IoContext, Result};

use super::chunk::{self, HEADER_LENGTH, LENGTH, SECTOR};

/// As `imagezip` by default.
const LEVEL: u32 = 4;
/// Bytes that are compressed at once.
const PIECE: u64 = 128 << 10;
/// More than incompressible bytes grow by.
const GROWTH: usize = 1024;
/// A chunk with less room is closed.
const ROOM_MIN: usize = 8192;

/// Writes the ranges in `kept`, whole sectors; the rest of the disk is free space. `progress` is called with the
/// number of bytes that were read.
///
/// # Errors
/// `Io` when the disk cannot be read or the image not be written.
pub fn write_ndz(
    disk: &dyn DiskRead,
    kept: &Extents,
    image: &mut dyn Write,
    progress: &dyn Fn(u64),
) -> Result<()> {
    let length = disk.length();
    let is_wide = length / SECTOR > u64::from(u32::MAX);
    let mut writer = Writer { disk, image, is_wide, number: 0, first: 0, chunk: Chunk::new(), progress };
    for range in kept {
        writer.add(*range)?;
    }
    // The last chunk is responsible for the free space at the end.
    writer.close(length)
}

struct Chunk {
    ranges: Vec<Extent>,
    stream: Compress,
    compressed: Vec<u8>,
}

impl Chunk {
    fn new() -> Self {
        Self {
            ranges: Vec::new(),
            stream: Compress::new(Compression::new(LEVEL), true),
            compressed: Vec::with_capacity(LENGTH - HEADER_LENGTH),
        }
    }

    fn room(&self) -> usize {
        (LENGTH - HEADER_LENGTH).saturating_sub(self.compressed.len())
    }
}

struct Writer<'a> {
    disk: &'a dyn DiskRead,
    image: &'a mut dyn Write,
    is_wide: bool,
    /// Number of the current chunk.
    number: u32,
    /// Where the disk's part of the current chunk begins.
    first: u64,
    chunk: Chunk,
    progress: &'a dyn Fn(u64),
}

impl Writer<'_> {
    fn add(&mut self, range: Extent) -> Result<()> {
        let mut left = range;
        let mut piece = vec![0; PIECE as usize];
        while left.length > 0 {
            let is_new = self.chunk.ranges.last().is_none_or(|last| last.end() != left.offset);
            let is_full = self.chunk.room() < ROOM_MIN
                || (is_new && self.chunk.ranges.len() == chunk::ranges_max(self.is_wide));
            if is_full {
                self.close(left.offset)?;
                continue;
            }
            let room = (self.chunk.room() - GROWTH) as u64 / SECTOR * SECTOR;
            let now = Extent::new(left.offset, left.length.min(PIECE).min(room));
            let bytes = &mut piece[..now.length as usize];
            self.disk
                .read_exact_at(bytes, now.offset)
                .context(|| format!("reading {} bytes at offset {}", now.length, now.offset))?;
            compress(&mut self.chunk, bytes, FlushCompress::Sync)?;
            match self.chunk.ranges.last_mut().filter(|last| last.end() == now.offset) {
                Some(last) => last.length += now.length,
                None => self.chunk.ranges.push(now),
            }
            (self.progress)(now.length);
            left = Extent::new(now.end(), left.length - now.length);
        }
        Ok(())
    }

    /// Writes the current chunk, whose part of the disk ends at `end`.
    fn close(&mut self, end: u64) -> Result<()> {
        let mut chunk = std::mem::replace(&mut self.chunk, Chunk::new());
        compress(&mut chunk, &[], FlushCompress::Finish)?;
        let Chunk { ranges, compressed, .. } = chunk;
        let part = Extent::between(self.first, end);
        let mut bytes = chunk::encode(self.is_wide, self.number, part, &ranges, compressed.len());
        bytes.extend_from_slice(&compressed);
        bytes.resize(LENGTH, 0);
        self.image.write_all(&bytes).context(|| format!("writing chunk {}", self.number))?;
        self.number += 1;
        self.first = end;
        Ok(())
    }
}

fn compress(chunk: &mut Chunk, bytes: &[u8], flush: FlushCompress) -> Result<()> {
    let before = chunk.stream.total_in();
    loop {
        let done = (chunk.stream.total_in() - before) as usize;
        let status = chunk
            .stream
            .compress_vec(&bytes[done..], &mut chunk.compressed, flush)
            .map_err(|error| Error::bug(format!("compressing a chunk: {error}")))?;
        let is_done = match flush {
            FlushCompress::Finish => status == Status::StreamEnd,
            _ => (chunk.stream.total_in() - before) as usize == bytes.len() && chunk.room() > 0,
        };
        if is_done {
            return Ok(());
        }
        if chunk.room() == 0 {
            return Err(Error::bug("a chunk of a Frisbee image is full"));
        }
    }
}
