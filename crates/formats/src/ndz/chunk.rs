//! The header of a chunk: ranges and relocations.

use platter_image::{Error, Extent, Result};

/// Bytes of a chunk.
pub(super) const LENGTH: usize = 1 << 20;
/// Bytes before the compressed data.
pub(super) const HEADER_LENGTH: usize = 4096;
pub(super) const SECTOR: u64 = 512;
/// So that all products fit into 64 bits.
const SECTORS_MAX: u64 = 1 << 52;

/// The widths of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    number: u32,
    magic: u32,
    header: usize,
    region: usize,
    relocation: usize,
}

const VERSIONS: [Version; 3] = [
    Version { number: 2, magic: 0x6969_696a, header: 36, region: 8, relocation: 16 },
    Version { number: 3, magic: 0x6969_696b, header: 36, region: 8, relocation: 16 },
    Version { number: 5, magic: 0x6969_696d, header: 72, region: 16, relocation: 24 },
];
/// All versions that exist.
const MAGICS: std::ops::RangeInclusive<u32> = 0x6969_6969..=0x6969_696e;

/// Most ranges of a chunk without relocations, of version 5 if `is_wide`, else of version 3.
pub(super) fn ranges_max(is_wide: bool) -> usize {
    let version = version(is_wide);
    (HEADER_LENGTH - version.header) / version.region
}

fn version(is_wide: bool) -> Version {
    if is_wide { VERSIONS[2] } else { VERSIONS[1] }
}

/// Encodes a header. `part` is the range of the disk that the chunk is responsible for.
pub(super) fn encode(
    is_wide: bool,
    number: u32,
    part: Extent,
    ranges: &[Extent],
    compressed: usize,
) -> Vec<u8> {
    let version = version(is_wide);
    let mut bytes = vec![0; HEADER_LENGTH];
    let mut put = |at: usize, value: u64, width: usize| {
        bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    };
    put(0, u64::from(version.magic), 4);
    put(4, compressed as u64, 4);
    put(8, u64::from(number), 4);
    put(16, HEADER_LENGTH as u64, 4);
    put(20, ranges.len() as u64, 4);
    let (place, width) = if is_wide { (40, 8) } else { (24, 4) };
    put(place, part.offset / SECTOR, width);
    put(place + width, part.end() / SECTOR, width);
    for (index, range) in ranges.iter().enumerate() {
        let at = version.header + index * version.region;
        put(at, range.offset / SECTOR, width);
        put(at + width, range.length / SECTOR, width);
    }
    bytes
}

/// A place that is changed after it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relocation {
    pub(super) kind: u32,
    /// Offset on the disk.
    pub(super) offset: u64,
}

/// A decoded header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Its place among the chunks, from 0.
    pub(super) number: u32,
    /// Bytes of the zlib stream.
    pub(super) compressed: usize,
    /// The ranges of the disk whose contents the stream has, ascending.
    pub(super) ranges: Vec<Extent>,
    /// The end of the range of the disk that the chunk is responsible for.
    pub(super) end: u64,
    pub(super) relocations: Vec<Relocation>,
}

/// Decodes the header of a chunk at an offset of the file.
///
/// # Errors
/// `Corrupt` if it contradicts itself; `Refused` for other versions.
pub(super) fn decode(bytes: &[u8; HEADER_LENGTH], offset: u64) -> Result<Header> {
    let wrong = |what: String| Error::corrupt(format!("the chunk at offset {offset}: {what}"));
    let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let wide = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let magic = u32_at(0);
    let Some(version) = VERSIONS.into_iter().find(|version| version.magic == magic) else {
        return Err(match MAGICS.contains(&magic) {
            true => Error::refused(format!(
                "the chunk at offset {offset} has version {} of the format, and only 2, 3 and 5 are read: restore the \
                 image with the `imageunzip` that belongs to it",
                magic - MAGICS.start() + 1
            )),
            false => wrong("it does not begin with the magic of a Frisbee image".to_owned()),
        });
    };
    let (compressed, regions, relocations) = (u32_at(4) as usize, u32_at(20), u32_at(32));
    let table =
        u64::from(regions) * version.region as u64 + u64::from(relocations) * version.relocation as u64;
    if version.header as u64 + table > HEADER_LENGTH as u64 || compressed > LENGTH - HEADER_LENGTH {
        return Err(wrong(format!(
            "{compressed} compressed bytes, {regions} ranges and {relocations} relocations do not fit into it"
        )));
    }
    let is_wide = version.number == 5;
    let field = |at: usize| if is_wide { wide(at) } else { u64::from(u32_at(at)) };
    let width = if is_wide { 8 } else { 4 };
    let mut ranges = Vec::with_capacity(regions as usize);
    let mut reached = 0;
    for at in (0..regions as usize).map(|index| version.header + index * version.region) {
        let (start, length) = (field(at), field(at + width));
        if start < reached || length == 0 || start >= SECTORS_MAX || length > SECTORS_MAX - start {
            return Err(wrong(format!("its range of {length} sectors at sector {start} is invalid")));
        }
        reached = start + length;
        ranges.push(Extent::new(start * SECTOR, length * SECTOR));
    }
    let last = if is_wide { wide(48) } else { u64::from(u32_at(28)) };
    if last > SECTORS_MAX {
        return Err(wrong(format!("it ends at sector {last}, which is invalid")));
    }
    let first = version.header + regions as usize * version.region;
    let relocations = (0..relocations as usize).map(|index| first + index * version.relocation).map(|at| {
        let (sector, inside) = if is_wide {
            (wide(at + 8), u32_at(at + 4))
        } else {
            (u64::from(u32_at(at + 4)), u32_at(at + 8))
        };
        match sector < SECTORS_MAX {
            true => Ok(Relocation { kind: u32_at(at), offset: sector * SECTOR + u64::from(inside) }),
            false => Err(wrong(format!("its relocation at sector {sector} is invalid"))),
        }
    });
    let relocations = relocations.collect::<Result<Vec<_>>>()?;
    Ok(Header { number: u32_at(8), compressed, end: reached.max(last) * SECTOR, ranges, relocations })
}
