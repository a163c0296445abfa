//! VHDX (Microsoft: MS-VHDX): headers, a table of regions, metadata, and one table that maps blocks.
//!
//! An image with entries in its log was not closed, and is refused, as are differencing images: they need
//! another file.

use std::io;

use crc::{CRC_32_ISCSI, Crc};
use platter_image::{DiskRead, Result};

use crate::fields::Structure;
use crate::mapped::{Layout, Unit};
use crate::tables::{Tables, invalid};

const KIB: u64 = 1 << 10;
const HEADERS: [u64; 2] = [64 * KIB, 128 * KIB];
const HEADER_LENGTH: usize = 4096;
const REGIONS: [u64; 2] = [192 * KIB, 256 * KIB];
const REGIONS_LENGTH: usize = 64 << 10;
/// As the specification says, for regions and for items of metadata.
const ENTRIES_MAX: u32 = 2047;
const BLOCK_SIZES: std::ops::RangeInclusive<u32> = 1 << 20..=256 << 20;
/// As the specification says: 64 TiB.
const LENGTH_MAX: u64 = 64 << 40;

type Guid = [u8; 16];
const MAP: Guid = *b"\x66\x77\xc2\x2d\x23\xf6\x00\x42\x9d\x64\x11\x5e\x9b\xfd\x4a\x08";
const METADATA: Guid = *b"\x06\xa2\x7c\x8b\x90\x47\x9a\x4b\xb8\xfe\x57\x5f\x05\x0f\x88\x6e";
const PARAMETERS: Guid = *b"\x37\x67\xa1\xca\x36\xfa\x43\x4d\xb3\xb6\x33\xf0\xaa\x44\xe7\x6b";
const DISK_SIZE: Guid = *b"\x24\x42\xa5\x2f\x1b\xcd\x76\x48\xb2\x11\x5d\xbe\xd8\x3b\xf4\xb8";
const SECTOR_SIZE: Guid = *b"\x1d\xbf\x41\x81\x6f\xa9\x09\x47\xba\x47\xf2\x33\xa8\xfa\xab\x5f";
/// Items that are known, but not needed.
const IGNORED: [Guid; 2] = [
    *b"\xc7\x48\xa3\xcd\x5d\x44\x71\x44\x9c\xc9\xe9\x88\x52\x51\xc5\x56",
    *b"\xab\x12\xca\xbe\xe6\xb2\x23\x45\x93\xef\xc3\x09\xe0\x00\xc7\x46",
];
const HAS_PARENT: u32 = 2;
const IS_REQUIRED: u32 = 4;

pub(crate) struct Vhdx {
    length: u64,
    block: u64,
    sector_size: u32,
    map: u64,
    map_length: u64,
    /// After so many blocks, the table has an entry for a bitmap of sectors.
    blocks_per_bitmap: u64,
    tables: Tables,
}

impl Vhdx {
    pub(crate) fn open(file: &dyn DiskRead) -> Result<Self> {
        let kind = Structure::read(file, "the VHDX file identifier", 0, 8)?;
        if kind.bytes() != b"vhdxfile" {
            return Err(kind.error("it does not begin with the magic of VHDX"));
        }
        check_log(file)?;
        let regions = checked(file, "the VHDX region table", &REGIONS, REGIONS_LENGTH, *b"regi")?;
        let (map, map_length) = region(&regions, MAP)?;
        let (metadata, metadata_length) = region(&regions, METADATA)?;
        let metadata = Metadata::read(file, metadata, metadata_length)?;
        let block = u64::from(metadata.block);
        let blocks_per_bitmap = (1 << 23) * u64::from(metadata.sector_size) / block;
        let blocks = metadata.length.div_ceil(block);
        let needed = blocks + blocks.saturating_sub(1) / blocks_per_bitmap;
        if needed * 8 > u64::from(map_length) || map.saturating_add(needed * 8) > file.length() {
            return Err(regions.error(format!(
                "a table of {map_length} bytes at offset {map} is too short for the {needed} entries of a disk of {} \
                 bytes, or not inside the file",
                metadata.length
            )));
        }
        Ok(Self {
            length: metadata.length,
            block,
            sector_size: metadata.sector_size,
            map,
            map_length: needed * 8,
            blocks_per_bitmap,
            tables: Tables::default(),
        })
    }
}

impl Layout for Vhdx {
    fn length(&self) -> u64 {
        self.length
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn unit(&self) -> u64 {
        self.block
    }

    fn units(&self, file: &dyn DiskRead, number: u64, _: u64) -> io::Result<(Unit, u64)> {
        let place = (number + number / self.blocks_per_bitmap) * 8;
        if place >= self.map_length {
            return Ok((Unit::Zero, 1));
        }
        let place = self.map + place;
        let entry = u64::from_le_bytes(self.tables.entry(file, "the table of blocks of VHDX", place)?);
        let unit = match entry & 7 {
            // Not present, undefined, zero, unmapped.
            0..=3 => Unit::Zero,
            6 => Unit::At(entry >> 20 << 20),
            state => {
                return Err(invalid(format!(
                    "the table of blocks of VHDX: its entry at offset {place} has the state {state}"
                )));
            }
        };
        Ok((unit, 1))
    }
}

/// What the metadata says of the disk.
struct Metadata {
    length: u64,
    block: u32,
    sector_size: u32,
}

impl Metadata {
    fn read(file: &dyn DiskRead, start: u64, region_length: u32) -> Result<Self> {
        let table = Structure::read(file, "the VHDX metadata table", start, REGIONS_LENGTH)?;
        if table.bytes()[..8] != *b"metadata" {
            return Err(table.error("it does not begin with its magic"));
        }
        let count = u32::from(table.u16_le(10));
        if count > ENTRIES_MAX {
            return Err(table.error(format!("it has {count} items, more than {ENTRIES_MAX}")));
        }
        let (mut parameters, mut length, mut sector_size) = (None, None, None);
        for at in (0..count as usize).map(|index| 32 + index * 32) {
            let (offset, flags) = (table.u32_le(at + 16), table.u32_le(at + 24));
            let value = || match offset < region_length {
                true => Structure::read(file, "an item of the VHDX metadata", start + u64::from(offset), 8),
                false => Err(table.error(format!("an item is at {offset}, outside of the region"))),
            };
            match table.array(at) {
                PARAMETERS => parameters = Some(value()?),
                DISK_SIZE => length = Some(value()?.u64_le(0)),
                SECTOR_SIZE => sector_size = Some(value()?.u32_le(0)),
                known if IGNORED.contains(&known) => {}
                _ if flags & IS_REQUIRED == 0 => {}
                _ => return Err(table.refused("it has a required item that is not supported")),
            }
        }
        let (Some(parameters), Some(length), Some(sector_size)) = (parameters, length, sector_size) else {
            return Err(table.error("the length of the disk, of its blocks or of its sectors is missing"));
        };
        if parameters.u32_le(4) & HAS_PARENT != 0 {
            return Err(parameters.refused("a differencing image needs other files, and is not read"));
        }
        let block = parameters.u32_le(0);
        let is_valid = BLOCK_SIZES.contains(&block) && block.is_power_of_two();
        if !is_valid || length > LENGTH_MAX || !matches!(sector_size, 512 | 4096) {
            return Err(table.error(format!(
                "a disk of {length} bytes with blocks of {block} and sectors of {sector_size} bytes is invalid"
            )));
        }
        Ok(Self { length, block, sector_size })
    }
}

/// The first of two copies of a structure with the right magic and checksum.
fn checked(
    file: &dyn DiskRead,
    name: &'static str,
    places: &[u64],
    length: usize,
    magic: [u8; 4],
) -> Result<Structure> {
    let mut result = None;
    for place in places {
        let read = Structure::read(file, name, *place, length)?;
        let mut bytes = read.bytes().to_vec();
        bytes[4..8].fill(0);
        let sum = Crc::<u32>::new(&CRC_32_ISCSI).checksum(&bytes);
        if read.array(0) == magic && sum == read.u32_le(4) {
            return Ok(read);
        }
        result = Some(read.error("neither it nor its copy has the right magic and checksum"));
    }
    Err(result.unwrap_or_else(|| platter_image::Error::bug("a structure has no place")))
}

/// Refuses an image whose log must be applied first.
fn check_log(file: &dyn DiskRead) -> Result<()> {
    let name = "the VHDX header";
    let copies = HEADERS.map(|place| checked(file, name, &[place], HEADER_LENGTH, *b"head").ok());
    let current = copies.into_iter().flatten().max_by_key(|copy| copy.u64_le(8));
    let Some(current) = current else {
        return checked(file, name, &HEADERS, HEADER_LENGTH, *b"head").map(drop);
    };
    if current.array::<16>(48) != [0; 16] {
        return Err(current.refused(
            "the image was not closed properly, and its log must be applied: open it in Hyper-V, or convert it with \
             `qemu-img convert`",
        ));
    }
    Ok(())
}

/// Offset and length of a region.
fn region(table: &Structure, wanted: Guid) -> Result<(u64, u32)> {
    let count = table.u32_le(8);
    if count > ENTRIES_MAX {
        return Err(table.error(format!("it has {count} entries, more than {ENTRIES_MAX}")));
    }
    let mut found = None;
    for at in (0..count as usize).map(|index| 16 + index * 32) {
        let (guid, is_required) = (table.array::<16>(at), table.u32_le(at + 28) & 1 != 0);
        if guid == wanted {
            found = Some((table.u64_le(at + 16), table.u32_le(at + 24)));
        } else if is_required && guid != MAP && guid != METADATA {
            return Err(table.refused("it has a required region that is not supported"));
        }
    }
    found.ok_or_else(|| table.error("a region is missing"))
}
