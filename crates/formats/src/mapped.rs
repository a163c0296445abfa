//! A disk whose bytes are scattered over a file, by a map that the format defines ([`Layout`]).

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_image::{DiskRead, Extent, Extents, IoContext, Result, SECTOR};

use crate::tables::invalid;

/// Decompressed bytes that stay in memory.
const DECODED_MAX: u64 = 16 << 20;
/// The most extents of data that are listed; a disk with more counts as all data. They take 64 MiB of memory.
const EXTENTS_MAX: usize = 4 << 20;

/// Where the bytes of a disk are. A disk consists of units of equal length; the last one may be longer than
/// the rest of the disk.
pub(crate) trait Layout: Send + Sync {
    /// Length of the disk in bytes.
    fn length(&self) -> u64;

    /// Sector size of the disk.
    fn sector_size(&self) -> u32 {
        512
    }

    /// Length of a unit in bytes, a power of two of at least 512.
    fn unit(&self) -> u64;

    /// Where the unit with this number is, and how many units from it on are alike: zeros, or data one after the
    /// other. No more than `most` are looked at. The count is at least 1, and may exceed the number of units on the
    /// disk.
    ///
    /// # Errors
    /// `InvalidData` if the map is wrong there, with structure and offset; errors of reading the file.
    fn units(&self, file: &dyn DiskRead, number: u64, most: u64) -> io::Result<(Unit, u64)>;
}

/// Where a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nowhere: zeros.
    Zero,
    /// In the backing disk; zeros if there is none.
    Below,
    /// In the file at this offset.
    At(u64),
    /// In the file, compressed. The stored bytes may include some that do not belong to it.
    Compressed { offset: u64, length: u64, codec: Codec },
}

/// How a unit is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// DEFLATE without a header (RFC 1951).
    Deflate,
    /// zlib (RFC 1950).
    Zlib,
    /// zstd (RFC 8878).
    Zstd,
}

/// The disk in an image file.
pub struct Mapped<'d> {
    file: Box<dyn DiskRead + 'd>,
    layout: Box<dyn Layout>,
    backing: Option<Box<dyn DiskRead + 'd>>,
    /// Decompressed units by number, the last one used first.
    decoded: Mutex<VecDeque<(u64, Arc<Vec<u8>>)>>,
}

impl<'d> Mapped<'d> {
    pub(crate) fn new(
        file: Box<dyn DiskRead + 'd>,
        layout: Box<dyn Layout>,
        backing: Option<Box<dyn DiskRead + 'd>>,
    ) -> Self {
        Self { file, layout, backing, decoded: Mutex::default() }
    }

    /// Where the image has data; all else is zeros. `None` if all of it must count as data, because it is in too
    /// many pieces.
    ///
    /// # Errors
    /// `Corrupt` if the map of the image is wrong; `Io` if it cannot be read.
    pub fn data_extents(&self) -> Result<Option<Extents>> {
        let (length, unit) = (self.length(), self.layout.unit());
        let mut data = Extents::new();
        let mut at = 0;
        while at < length {
            let (place, count) =
                self.map(at / unit, u64::MAX).context(|| format!("finding the data at offset {at}"))?;
            let end = at.saturating_add(count.saturating_mul(unit)).min(length);
            let is_data = match place {
                Unit::Zero => false,
                Unit::Below => self.backing.is_some(),
                Unit::At(_) | Unit::Compressed { .. } => true,
            };
            if is_data {
                data.push(Extent::between(at, end).align_outwards());
            }
            if data.as_slice().len() > EXTENTS_MAX {
                return Ok(None);
            }
            at = end;
        }
        Ok(Some(data))
    }

    fn map(&self, number: u64, most: u64) -> io::Result<(Unit, u64)> {
        let (place, count) = self.layout.units(&*self.file, number, most)?;
        Ok((place, count.max(1)))
    }

    /// Fills `buffer` with what begins at `offset`. It lies in units that are alike and begin with `number`.
    fn read_alike(&self, place: Unit, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let inside = offset % self.layout.unit();
        match place {
            Unit::Zero => buffer.fill(0),
            Unit::Below => return self.read_below(buffer, offset),
            Unit::At(start) => {
                let start = start.saturating_add(inside);
                if start.checked_add(buffer.len() as u64).is_none_or(|end| end > self.file.length()) {
                    return Err(invalid(format!(
                        "the disk's {} bytes at {offset} are at {start} of the file, which has only {}: it is \
                         incomplete",
                        buffer.len(),
                        self.file.length()
                    )));
                }
                self.file.read_exact_at(buffer, start)?;
            }
            Unit::Compressed { offset: stored, length, codec } => {
                let decoded = self.decoded(offset / self.layout.unit(), stored, length, codec)?;
                let wanted = decoded.get(inside as usize..inside as usize + buffer.len());
                buffer.copy_from_slice(wanted.ok_or(io::ErrorKind::UnexpectedEof)?);
            }
        }
        Ok(())
    }

    fn read_below(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let below = self.backing.as_ref();
        let length = below.map_or(0, |below| below.length().saturating_sub(offset));
        let (shown, beyond) = buffer.split_at_mut(length.min(buffer.len() as u64) as usize);
        beyond.fill(0);
        below.map_or(
            Ok(()),
            |below| if shown.is_empty() { Ok(()) } else { below.read_exact_at(shown, offset) },
        )
    }

    fn decoded(&self, number: u64, offset: u64, length: u64, codec: Codec) -> io::Result<Arc<Vec<u8>>> {
        {
            let mut kept = self.decoded.lock();
            if let Some(at) = kept.iter().position(|(known, _)| *known == number) {
                kept.swap(0, at);
                return Ok(kept[0].1.clone());
            }
        }
        let unit = self.layout.unit();
        // Compressed data may share its last sector with the end of the file.
        let stored = self.file.length().saturating_sub(offset).min(length);
        let mut bytes = vec![0; stored as usize];
        self.file.read_exact_at(&mut bytes, offset)?;
        // The rest of the disk may be shorter than its last unit, and some programs store no more.
        let least = self.layout.length().saturating_sub(number * unit).min(unit);
        let decoded = decode(&bytes, unit as usize, least as usize, codec).map_err(|error| {
            invalid(format!(
                "the compressed data at offset {offset} of the file, for offset {} of the disk: {error}",
                number * unit
            ))
        })?;
        let decoded = Arc::new(decoded);
        let mut kept = self.decoded.lock();
        kept.truncate((DECODED_MAX / unit).max(1) as usize - 1);
        kept.push_front((number, decoded.clone()));
        Ok(decoded)
    }
}

impl DiskRead for Mapped<'_> {
    fn length(&self) -> u64 {
        self.layout.length().next_multiple_of(SECTOR)
    }

    fn sector_size(&self) -> u32 {
        self.layout.sector_size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        if end > self.length() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let unit = self.layout.unit();
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let most = (buffer.len() - done) as u64 / unit + 2;
            let (place, count) = self.map(at / unit, most)?;
            // Compressed units are decoded one by one.
            let count = if matches!(place, Unit::Compressed { .. }) { 1 } else { count };
            let alike = (at / unit * unit).saturating_add(count.saturating_mul(unit)) - at;
            let now = alike.min((buffer.len() - done) as u64) as usize;
            self.read_alike(place, &mut buffer[done..done + now], at)?;
            done += now;
        }
        Ok(())
    }
}

impl fmt::Debug for Mapped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped").field("length", &self.length()).finish_non_exhaustive()
    }
}

/// Decompresses up to `length` bytes, and at least so many; zeros follow. Bytes after the end of the stream are ignored.
fn decode(stored: &[u8], length: usize, least: usize, codec: Codec) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let written = match codec {
        Codec::Deflate | Codec::Zlib => inflate(stored, &mut bytes, codec == Codec::Zlib)?,
        Codec::Zstd => zstd(stored, &mut bytes)?,
    };
    match written >= least {
        true => Ok(bytes),
        false => Err(invalid(format!("it has {written} of {least} bytes"))),
    }
}

fn inflate(stored: &[u8], bytes: &mut [u8], has_header: bool) -> io::Result<usize> {
    let mut stream = flate2::Decompress::new(has_header);
    stream.decompress(stored, bytes, flate2::FlushDecompress::Finish).map_err(io::Error::other)?;
    Ok(stream.total_out() as usize)
}

fn zstd(stored: &[u8], bytes: &mut [u8]) -> io::Result<usize> {
    use zstd_safe::{DCtx, InBuffer, OutBuffer, get_error_name};
    let mut context = DCtx::create();
    let (mut input, mut output) = (InBuffer::around(stored), OutBuffer::around(bytes));
    loop {
        let before = (input.pos(), output.pos());
        let hint = context
            .decompress_stream(&mut output, &mut input)
            .map_err(|code| invalid(get_error_name(code).to_owned()))?;
        let is_stuck = before == (input.pos(), output.pos());
        if hint == 0 || output.pos() == output.capacity() || is_stuck {
            return Ok(output.pos());
        }
    }
}
