//! VHD, also called VPC (Microsoft: Virtual Hard Disk Image Format Specification): a footer at the end, and one
//! table that maps blocks.
//!
//! Differencing images are refused: they need another file.

use std::io;

use platter_image::{DiskRead, Result};

use crate::fields::Structure;
use crate::mapped::{Layout, Mapped, Unit};
use crate::tables::Tables;

const FOOTER_LENGTH: u64 = 512;
const HEADER_LENGTH: usize = 1024;
const FIXED: u32 = 2;
const DYNAMIC: u32 = 3;
const ABSENT: u32 = 0xffff_ffff;
const BLOCK_MAX: u32 = 1 << 28;

pub(crate) fn open(file: Box<dyn DiskRead + '_>) -> Result<Mapped<'_>> {
    let footer = Structure::read(&*file, "the VHD footer", file.length().saturating_sub(FOOTER_LENGTH), 512)?;
    if footer.bytes()[..8] != *b"conectix" {
        return Err(footer.error("it does not begin with the magic of VHD: the file may be incomplete"));
    }
    check_sum(&footer, 64)?;
    let length = footer.u64_be(48);
    let layout: Box<dyn Layout> = match footer.u32_be(60) {
        FIXED if length > footer.offset() => {
            return Err(footer.error(format!("a disk of {length} bytes does not fit before it")));
        }
        FIXED => Box::new(Fixed { length }),
        DYNAMIC => Box::new(Dynamic::open(&*file, footer.u64_be(16), length)?),
        kind => {
            return Err(footer.refused(format!("an image of type {kind} that needs other files is not read")));
        }
    };
    Ok(Mapped::new(file, layout, None))
}

/// The sum of all bytes but its own, inverted.
fn check_sum(structure: &Structure, at: usize) -> Result<()> {
    let counted = structure.bytes().iter().enumerate().filter(|(place, _)| !(at..at + 4).contains(place));
    let sum = !counted.fold(0_u32, |sum, (_, byte)| sum.wrapping_add(u32::from(*byte)));
    if sum != structure.u32_be(at) {
        return Err(structure.error(format!("its checksum is {:#x}, not {sum:#x}", structure.u32_be(at))));
    }
    Ok(())
}

/// A raw disk before the footer.
struct Fixed {
    length: u64,
}

impl Layout for Fixed {
    fn length(&self) -> u64 {
        self.length
    }

    fn unit(&self) -> u64 {
        1 << 20
    }

    fn units(&self, _: &dyn DiskRead, number: u64, _: u64) -> io::Result<(Unit, u64)> {
        Ok((Unit::At(number << 20), (self.length >> 20).saturating_sub(number).max(1)))
    }
}

struct Dynamic {
    length: u64,
    block: u64,
    map: u64,
    /// Bytes of the bitmap of sectors before each block.
    bitmap: u64,
    tables: Tables,
}

impl Dynamic {
    fn open(file: &dyn DiskRead, offset: u64, length: u64) -> Result<Self> {
        let head = Structure::read(file, "the VHD dynamic header", offset, HEADER_LENGTH)?;
        if head.bytes()[..8] != *b"cxsparse" {
            return Err(head.error("it does not begin with the magic of a dynamic VHD"));
        }
        check_sum(&head, 36)?;
        let (map, blocks, block) = (head.u64_be(16), u64::from(head.u32_be(28)), head.u32_be(32));
        if !block.is_power_of_two() || !(512..=BLOCK_MAX).contains(&block) {
            return Err(head.error(format!("blocks of {block} bytes are invalid")));
        }
        let block = u64::from(block);
        if length > blocks * block {
            return Err(head.error(format!("{blocks} blocks are too few for a disk of {length} bytes")));
        }
        if !map.is_multiple_of(4) || map.saturating_add(blocks * 4) > file.length() {
            return Err(head.error(format!(
                "a table of {blocks} blocks at offset {map} is not inside the file of {} bytes",
                file.length()
            )));
        }
        let bitmap = (block / 512).div_ceil(8).next_multiple_of(512);
        Ok(Self { length, block, map, bitmap, tables: Tables::default() })
    }
}

impl Layout for Dynamic {
    fn length(&self) -> u64 {
        self.length
    }

    fn unit(&self) -> u64 {
        self.block
    }

    fn units(&self, file: &dyn DiskRead, number: u64, _: u64) -> io::Result<(Unit, u64)> {
        let entry = self.tables.entry(file, "the table of blocks of VHD", self.map + number * 4)?;
        Ok(match u32::from_be_bytes(entry) {
            ABSENT => (Unit::Zero, 1),
            sector => (Unit::At(u64::from(sector) * 512 + self.bitmap), 1),
        })
    }
}
