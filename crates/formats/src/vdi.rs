//! VDI, version 1.1 (VirtualBox: src/VBox/Storage/VDICore.h): one table that maps blocks.
//!
//! Differencing images are refused: they need another file.

use std::io;

use platter_image::{DiskRead, Result};

use crate::fields::Structure;
use crate::mapped::{Layout, Unit};
use crate::tables::Tables;

const MAGIC: u32 = 0xbeda_107f;
const VERSION: u32 = 0x0001_0001;
/// Entries of the table: unallocated, and discarded.
const ABSENT: [u32; 2] = [0xffff_ffff, 0xffff_fffe];
/// Images that grow, and images of fixed size.
const TYPES: std::ops::RangeInclusive<u32> = 1..=2;
const BLOCK_MAX: u32 = 1 << 30;

pub(crate) struct Vdi {
    length: u64,
    block: u64,
    blocks: u64,
    map: u64,
    data: u64,
    tables: Tables,
}

impl Vdi {
    pub(crate) fn open(file: &dyn DiskRead) -> Result<Self> {
        let head = Structure::read(file, "the VDI header", 0, 512)?;
        if head.u32_le(0x40) != MAGIC {
            return Err(head.error("it does not have the magic of VDI"));
        }
        if head.u32_le(0x44) != VERSION {
            return Err(head.refused(format!("version {:#x} is not supported", head.u32_le(0x44))));
        }
        let kind = head.u32_le(0x4c);
        if !TYPES.contains(&kind) || head.array::<32>(0x1a8) != [0; 32] {
            return Err(head.refused(format!("an image of type {kind} that needs other files is not read")));
        }
        let (length, block, blocks) = (head.u64_le(0x170), head.u32_le(0x178), head.u32_le(0x180));
        if !block.is_power_of_two() || !(512..=BLOCK_MAX).contains(&block) || head.u32_le(0x17c) != 0 {
            return Err(head.error(format!("blocks of {block} bytes are invalid")));
        }
        let (block, blocks) = (u64::from(block), u64::from(blocks));
        if length > blocks * block {
            return Err(head.error(format!("{blocks} blocks are too few for a disk of {length} bytes")));
        }
        let (map, data) = (u64::from(head.u32_le(0x154)), u64::from(head.u32_le(0x158)));
        if !map.is_multiple_of(4) || map + blocks * 4 > file.length() {
            return Err(head.error(format!(
                "a table of {blocks} blocks at offset {map} is not inside the file of {} bytes",
                file.length()
            )));
        }
        Ok(Self { length, block, blocks, map, data, tables: Tables::default() })
    }

    fn entry(&self, file: &dyn DiskRead, number: u64) -> io::Result<Unit> {
        let entry = self.tables.entry(file, "the table of blocks of VDI", self.map + number * 4)?;
        let entry = u32::from_le_bytes(entry);
        let is_absent = ABSENT.contains(&entry);
        Ok(if is_absent { Unit::Zero } else { Unit::At(self.data + u64::from(entry) * self.block) })
    }
}

impl Layout for Vdi {
    fn length(&self) -> u64 {
        self.length
    }

    fn unit(&self) -> u64 {
        self.block
    }

    fn units(&self, file: &dyn DiskRead, number: u64, _: u64) -> io::Result<(Unit, u64)> {
        if number >= self.blocks {
            return Ok((Unit::Zero, 1));
        }
        Ok((self.entry(file, number)?, 1))
    }
}
