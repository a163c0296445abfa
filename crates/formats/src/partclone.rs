//! Images of partclone 0.3 and later (partclone: IMAGE_FORMATS.md, format 0002): a header, a bitmap of blocks, and
//! the blocks with checksums between them.

use std::io::Read;

use platter_image::{Error, Extent, IoContext, Result};

use crate::compression::Compression;
use crate::format::Format;
use crate::recognize::{Reader, wrapping};
use crate::spool::Spool;
use crate::stream::fill;

const MAGIC: &[u8] = b"partclone-image";
const HEADER_LENGTH: usize = 110;
const LITTLE_ENDIAN: u16 = 0xc0de;
/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// Most runs of used blocks that are kept: 64 MiB of memory.
const RUNS_MAX: usize = 4 << 20;
const BLOCK_MAX: u32 = 64 << 20;
/// Types of checksums between the blocks.
const CRC32: u16 = 0x20;
const XXH64: u16 = 0x30;
/// The type of bitmap with a bit for each block.
const BITS: u8 = 1;
/// CRC-32 as usual, but without the inversion at the end.
static CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::Algorithm { xorout: 0, ..crc::CRC_32_ISO_HDLC });

struct Header {
    block: u32,
    blocks: u64,
    checksum: u16,
    checksum_length: u16,
    blocks_per_checksum: u32,
    is_reseeded: bool,
    is_ntfs: bool,
}

/// Unpacks an image, and returns the length of its file system in bytes.
///
/// # Errors
/// `Corrupt` with the offset if the image is damaged or incomplete; `Refused` for other versions; `Io`.
pub fn read_partclone(image: &mut dyn Read, spool: &mut dyn Spool) -> Result<u64> {
    let mut image = Counted { stream: image, offset: 0 };
    let header = Header::read(&mut image)?;
    let runs = read_bitmap(&mut image, &header)?;
    read_blocks(&mut image, &header, &runs, spool)?;
    // The sectors behind the last cluster of an NTFS, with a copy of its boot sector, are not in the image. Without a place for them,
    // the volume would be cut off.
    Ok((header.blocks + u64::from(header.is_ntfs)) * u64::from(header.block))
}

/// The program that unpacks a stream with this beginning, if it is compressed.
fn decompressor(first: &[u8]) -> Option<&'static str> {
    match wrapping(first, &[])?.reader {
        Reader::Format(Format::Compressed(Compression::Gzip)) => Some("zcat"),
        Reader::Format(Format::Compressed(Compression::Xz)) => Some("xzcat"),
        Reader::Format(Format::Compressed(Compression::Zstd)) => Some("zstdcat"),
        _ => None,
    }
}

/// A stream that knows where it is.
struct Counted<'s> {
    stream: &'s mut dyn Read,
    offset: u64,
}

impl Counted<'_> {
    fn read_exact(&mut self, buffer: &mut [u8], what: &str) -> Result<()> {
        let offset = self.offset;
        let read = fill(self.stream, buffer).context(|| format!("reading {what} at offset {offset}"))?;
        self.offset += read as u64;
        match read == buffer.len() {
            true => Ok(()),
            false => Err(Error::corrupt(format!(
                "{what} at offset {offset}: only {read} of {} bytes are there, so the image is incomplete",
                buffer.len()
            ))),
        }
    }
}

impl Header {
    fn read(image: &mut Counted<'_>) -> Result<Self> {
        let mut bytes = [0; HEADER_LENGTH];
        image.read_exact(&mut bytes, "the header of the partclone image")?;
        let wrong = |what: String| Error::corrupt(format!("the header of the partclone image: {what}"));
        if let Some(program) = decompressor(&bytes) {
            return Err(Error::refused(format!(
                "the partclone image is compressed: `{program} FILE | platter capture --format partclone - NAME`"
            )));
        }
        if !bytes.starts_with(MAGIC) {
            return Err(wrong("it does not begin with the magic of partclone".to_owned()));
        }
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes[30..34] != *b"0002" || u16_at(34) != LITTLE_ENDIAN {
            return Err(Error::refused(format!(
                "version {} of the format of partclone is not read, only 0002 of a little-endian machine: restore the \
                 image with partclone",
                String::from_utf8_lossy(&bytes[30..34]).escape_debug()
            )));
        }
        if CRC.checksum(&bytes[..106]) != u32_at(106) {
            return Err(wrong("its checksum is wrong".to_owned()));
        }
        let header = Self {
            block: u32_at(84),
            blocks: u64_at(60),
            checksum: u16_at(96),
            checksum_length: u16_at(98),
            blocks_per_checksum: u32_at(100),
            is_reseeded: bytes[104] != 0,
            is_ntfs: bytes[36..].starts_with(b"NTFS\0"),
        };
        let is_valid = header.block.is_multiple_of(512)
            && (512..=BLOCK_MAX).contains(&header.block)
            && header.blocks <= (1 << 62) / u64::from(header.block)
            && matches!((header.checksum, header.checksum_length), (0, _) | (CRC32, 4) | (XXH64, 8));
        if header.checksum > XXH64 {
            return Err(Error::refused(format!(
                "checksums of type {:#x} are not read: restore the image with partclone",
                header.checksum
            )));
        }
        if !is_valid {
            return Err(wrong(format!(
                "{} blocks of {} bytes with checksums of type {} and {} bytes are invalid",
                header.blocks, header.block, header.checksum, header.checksum_length
            )));
        }
        if bytes[105] != BITS {
            return Err(Error::refused(format!(
                "a bitmap of type {} is not read: restore it with partclone",
                bytes[105]
            )));
        }
        Ok(header)
    }
}

/// The runs of used blocks, in bytes of the file system.
fn read_bitmap(image: &mut Counted<'_>, header: &Header) -> Result<Vec<Extent>> {
    let what = "the bitmap of the partclone image";
    let block = u64::from(header.block);
    let mut sum = CRC.digest();
    let mut runs: Vec<Extent> = Vec::new();
    let mut left = header.blocks.div_ceil(8);
    let mut piece = vec![0; PIECE];
    let mut number = 0;
    while left > 0 {
        let now = &mut piece[..left.min(PIECE as u64) as usize];
        image.read_exact(now, what)?;
        sum.update(now);
        left -= now.len() as u64;
        for byte in now {
            for bit in 0..8 {
                if *byte & 1 << bit != 0 && number < header.blocks {
                    match runs.last_mut().filter(|last| last.end() == number * block) {
                        Some(last) => last.length += block,
                        None => runs.push(Extent::new(number * block, block)),
                    }
                }
                number += 1;
            }
        }
        if runs.len() > RUNS_MAX {
            return Err(Error::refused(format!("{what} has more than {RUNS_MAX} runs of used blocks")));
        }
    }
    let mut expected = [0; 4];
    let offset = image.offset;
    image.read_exact(&mut expected, "the checksum of the bitmap")?;
    match sum.finalize() == u32::from_le_bytes(expected) {
        true => Ok(runs),
        false => Err(Error::corrupt(format!("{what}: its checksum at offset {offset} is wrong"))),
    }
}

/// The checksum of the blocks since the last one.
enum Sum {
    None,
    Crc(crc::Digest<'static, u32>),
    Xxh(Box<twox_hash::XxHash64>),
}

impl Sum {
    fn new(kind: u16) -> Self {
        match kind {
            CRC32 => Self::Crc(CRC.digest()),
            XXH64 => Self::Xxh(Box::new(twox_hash::XxHash64::with_seed(0))),
            _ => Self::None,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        use std::hash::Hasher;
        match self {
            Self::None => {}
            Self::Crc(sum) => sum.update(bytes),
            Self::Xxh(sum) => sum.write(bytes),
        }
    }

    fn value(&self) -> Vec<u8> {
        use std::hash::Hasher;
        match self {
            Self::None => Vec::new(),
            Self::Crc(sum) => sum.clone().finalize().to_le_bytes().to_vec(),
            Self::Xxh(sum) => sum.finish().to_le_bytes().to_vec(),
        }
    }
}

fn read_blocks(
    image: &mut Counted<'_>,
    header: &Header,
    runs: &[Extent],
    spool: &mut dyn Spool,
) -> Result<()> {
    let what = "the blocks of the partclone image";
    let per_checksum = match (header.checksum, header.blocks_per_checksum) {
        (0, _) | (_, 0) => u64::MAX,
        (_, blocks) => u64::from(blocks) * u64::from(header.block),
    };
    let (mut sum, mut until_checksum) = (Sum::new(header.checksum), per_checksum);
    let mut piece = vec![0; PIECE];
    for run in runs {
        let mut left = *run;
        while left.length > 0 {
            let now = &mut piece[..left.length.min(until_checksum).min(PIECE as u64) as usize];
            image.read_exact(now, what)?;
            sum.update(now);
            spool.write_all_at(now, left.offset).context(|| format!("writing at offset {}", left.offset))?;
            left = Extent::new(left.offset + now.len() as u64, left.length - now.len() as u64);
            until_checksum -= now.len() as u64;
            if until_checksum == 0 {
                check(image, header, &mut sum)?;
                until_checksum = per_checksum;
            }
        }
    }
    if header.checksum != 0 && until_checksum < per_checksum {
        check(image, header, &mut sum)?;
    }
    Ok(())
}

fn check(image: &mut Counted<'_>, header: &Header, sum: &mut Sum) -> Result<()> {
    let offset = image.offset;
    let mut expected = vec![0; usize::from(header.checksum_length)];
    image.read_exact(&mut expected, "a checksum of the partclone image")?;
    if sum.value() != expected {
        return Err(Error::corrupt(format!(
            "the blocks of the partclone image before offset {offset}: their checksum there is wrong"
        )));
    }
    if header.is_reseeded {
        *sum = Sum::new(header.checksum);
    }
    Ok(())
}
