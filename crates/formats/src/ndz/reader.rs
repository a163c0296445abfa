//! Unpacks a Frisbee image.

use std::io::{self, Read};

use flate2::{Decompress, FlushDecompress, Status};
use platter_image::{Error, Extent, IoContext, Result};

use super::chunk::{self, HEADER_LENGTH, Header, LENGTH, Relocation};
use crate::spool::Spool;
use crate::stream::fill;

/// Bytes that are decompressed at once.
const PIECE: usize = 256 << 10;
/// LILO: the checksum of its table of images. The other kinds make addresses relative to the slice absolute, or shorten a
/// file; on a disk that begins where the image begins, they change nothing.
const LILO_CHECKSUM: u32 = 5;
/// Bytes of LILO's table of images, and of the two sectors that it is in. The relocation is at its end.
const LILO_TABLE: u64 = 990;
const LILO_SECTORS: usize = 1024;
const LILO_SEED: u16 = 0xabcd;

/// Unpacks an image, and returns the length of its disk in bytes. An image of one slice is a disk of its own.
///
/// # Errors
/// `Corrupt` with the offset of the chunk if the image is damaged or incomplete; `Refused` for other versions; `Io`.
pub fn read_ndz(image: &mut dyn Read, spool: &mut dyn Spool) -> Result<u64> {
    let (mut offset, mut length) = (0, 0);
    let mut bytes = vec![0; LENGTH];
    let mut piece = vec![0; PIECE];
    loop {
        match fill(image, &mut bytes).context(|| format!("reading the chunk at offset {offset}"))? {
            0 if offset > 0 => return Ok(length),
            LENGTH => {}
            read => {
                return Err(Error::corrupt(format!(
                    "the chunk at offset {offset} has only {read} of {LENGTH} bytes: the image is incomplete"
                )));
            }
        }
        let Some((head, stream)) = bytes.split_first_chunk::<HEADER_LENGTH>() else {
            return Err(Error::bug("a chunk without a header"));
        };
        let header = chunk::decode(head, offset)?;
        let number = offset / LENGTH as u64;
        if u64::from(header.number) != number {
            return Err(Error::corrupt(format!(
                "the chunk at offset {offset} is number {} of the image, not {number}: a part of the image is missing",
                header.number
            )));
        }
        unpack(&header, &stream[..header.compressed], offset, &mut piece, spool)?;
        for relocation in &header.relocations {
            relocate(relocation, spool)
                .context(|| format!("relocating {} in the chunk at offset {offset}", relocation.offset))?;
        }
        length = length.max(header.end);
        offset += LENGTH as u64;
    }
}

/// Decompresses a chunk to its ranges. The stream must have exactly their bytes.
fn unpack(
    header: &Header,
    stream: &[u8],
    offset: u64,
    piece: &mut [u8],
    spool: &mut dyn Spool,
) -> Result<()> {
    let wrong =
        |what: String| Error::corrupt(format!("the compressed data of the chunk at offset {offset}: {what}"));
    let mut inflate = Decompress::new(true);
    let mut ranges = header.ranges.iter().copied();
    let mut left = Extent::new(0, 0);
    loop {
        let before = inflate.total_out();
        let rest = stream.get(inflate.total_in() as usize..).unwrap_or_default();
        let status = inflate
            .decompress(rest, piece, FlushDecompress::None)
            .map_err(|error| wrong(error.to_string()))?;
        let mut bytes = &piece[..(inflate.total_out() - before) as usize];
        let is_stuck = bytes.is_empty();
        while !bytes.is_empty() {
            if left.length == 0 {
                left = ranges.next().ok_or_else(|| wrong("it has more bytes than its ranges".to_owned()))?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(left.length.try_into().unwrap_or(usize::MAX)));
            spool.write_all_at(now, left.offset).context(|| format!("writing at offset {}", left.offset))?;
            left = Extent::new(left.offset + now.len() as u64, left.length - now.len() as u64);
            bytes = later;
        }
        if status == Status::StreamEnd {
            break;
        }
        if is_stuck {
            return Err(wrong("it ends early".to_owned()));
        }
    }
    let is_whole = left.length == 0 && ranges.next().is_none() && inflate.total_in() == stream.len() as u64;
    is_whole.then_some(()).ok_or_else(|| wrong("its length is not that of its ranges".to_owned()))
}

fn relocate(relocation: &Relocation, spool: &mut dyn Spool) -> io::Result<()> {
    let Some(start) = relocation.offset.checked_sub(LILO_TABLE) else { return Ok(()) };
    if relocation.kind != LILO_CHECKSUM {
        return Ok(());
    }
    let mut table = [0; LILO_SECTORS];
    spool.read_exact_at(&mut table, start)?;
    let words = table.chunks_exact(2).skip(1).map(|word| u16::from_le_bytes([word[0], word[1]]));
    let sum = words.fold(LILO_SEED, |sum, word| sum ^ word);
    spool.write_all_at(&sum.to_le_bytes(), start)
}
