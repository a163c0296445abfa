//! VMDK in one file: sparse and stream-optimized extents with an embedded descriptor (VMware: Virtual Disk
//! Format 5.0). Two levels of tables map grains.
//!
//! Disks that consist of several files, and those with a parent, are refused: a name in an image is never
//! followed.

use std::io;

use platter_image::{DiskRead, Result};

use crate::fields::Structure;
use crate::mapped::{Codec, Layout, Unit};
use crate::recognize::{Reader, Wrapping, wrapping};
use crate::tables::{Tables, invalid};

const HAS_ZERO_GRAINS: u32 = 1 << 2;
const IS_COMPRESSED: u32 = 1 << 16;
/// The place of the first table is in the footer.
const AT_END: u64 = u64::MAX;
/// From the start of the footer to the end of the file: the footer, and a marker.
const FOOTER: u64 = 1024;
const DESCRIPTOR_MAX: u64 = 1 << 20;
/// As in QEMU.
const GRAIN_MAX: u64 = 64 << 20;
const TABLE_ENTRIES: u32 = 512;
/// Enough for 64 TiB in grains of the usual size.
const DIRECTORY_MAX: u64 = 2 << 20;
/// Compressed grains are a bit longer than others, at worst.
const OVERHEAD: u64 = 4096;

pub(crate) struct Vmdk {
    length: u64,
    grain: u64,
    /// Offsets of the tables of grains; 0 where there is none.
    directory: Vec<u64>,
    has_zero_grains: bool,
    is_compressed: bool,
    tables: Tables,
}

impl Vmdk {
    pub(crate) fn open(file: &dyn DiskRead) -> Result<Self> {
        let mut head = Structure::read(file, "the VMDK header", 0, 512)?;
        if head.bytes()[..4] != *b"KDMV" {
            if let Some(found @ Wrapping { reader: Reader::Command(..), .. }) = wrapping(head.bytes(), &[]) {
                return Err(head.refused(format!("it is {}: {}", found.name, found.hint("FILE"))));
            }
            return Err(head.error(
                "it does not begin with the magic of a VMDK in one file; if it is a raw disk, such as NAME-flat.vmdk, use \
                 `--format raw`",
            ));
        }
        check_descriptor(file, &head)?;
        if head.u64_le(56) == AT_END {
            let place = file.length().saturating_sub(FOOTER);
            head = Structure::read(file, "the VMDK footer", place, 512)?;
            if head.bytes()[..4] != *b"KDMV" {
                return Err(head.error("it does not begin with its magic: the file may be incomplete"));
            }
        }
        let (flags, entries) = (head.u32_le(8), head.u32_le(44));
        let (capacity, grain) = (head.u64_le(12), head.u64_le(20));
        let is_valid = grain.is_power_of_two() && grain <= GRAIN_MAX / 512 && entries == TABLE_ENTRIES;
        if !is_valid || capacity > u64::MAX / 1024 {
            return Err(head.error(format!(
                "{capacity} sectors in grains of {grain} and tables of {entries} grains are invalid"
            )));
        }
        let (length, grain) = (capacity * 512, grain * 512);
        Ok(Self {
            length,
            grain,
            directory: read_directory(file, &head, length.div_ceil(grain * u64::from(entries)))?,
            has_zero_grains: flags & HAS_ZERO_GRAINS != 0,
            is_compressed: flags & IS_COMPRESSED != 0,
            tables: Tables::default(),
        })
    }

    fn entry(&self, file: &dyn DiskRead, table: u64, index: u64) -> io::Result<Unit> {
        let place = table + index * 4;
        let sector = u32::from_le_bytes(self.tables.entry(file, "a grain table of VMDK", place)?);
        let offset = u64::from(sector) * 512;
        if sector == 0 || (sector == 1 && self.has_zero_grains) {
            return Ok(Unit::Zero);
        }
        if !self.is_compressed {
            return Ok(Unit::At(offset));
        }
        // Before the data: the grain's first sector on the disk, and the length of the data.
        let length = match offset + 12 <= file.length() {
            true => {
                let mut head = [0; 12];
                file.read_exact_at(&mut head, offset)?;
                u64::from(u32::from_le_bytes([head[8], head[9], head[10], head[11]]))
            }
            false => u64::MAX,
        };
        if length > self.grain + OVERHEAD || offset + 12 + length > file.length() {
            return Err(invalid(format!(
                "a grain table of VMDK: its entry at offset {place} names a grain at {offset} that is not inside the \
                 file of {} bytes, or too long",
                file.length()
            )));
        }
        Ok(Unit::Compressed { offset: offset + 12, length, codec: Codec::Zlib })
    }
}

impl Layout for Vmdk {
    fn length(&self) -> u64 {
        self.length
    }

    fn unit(&self) -> u64 {
        self.grain
    }

    fn units(&self, file: &dyn DiskRead, number: u64, most: u64) -> io::Result<(Unit, u64)> {
        let entries = u64::from(TABLE_ENTRIES);
        let (first, index) = (number / entries, number % entries);
        let table = self.directory.get(first as usize).copied().unwrap_or(0);
        if table == 0 {
            return Ok((Unit::Zero, entries - index));
        }
        let place = self.entry(file, table, index)?;
        let mut count = 1;
        while count < most && index + count < entries && !self.is_compressed {
            let next = match place {
                Unit::At(offset) => Unit::At(offset + count * self.grain),
                alike => alike,
            };
            if self.entry(file, table, index + count).ok() != Some(next) {
                break;
            }
            count += 1;
        }
        Ok((place, count))
    }
}

/// Refuses an image whose descriptor names other files.
fn check_descriptor(file: &dyn DiskRead, head: &Structure) -> Result<()> {
    let (offset, length) = (head.u64_le(28).saturating_mul(512), head.u64_le(36).saturating_mul(512));
    if offset == 0 || length == 0 {
        return Err(one_of_several(head));
    }
    if length > DESCRIPTOR_MAX {
        return Err(head.error(format!("a descriptor of {length} bytes is invalid")));
    }
    let descriptor = Structure::read(file, "the VMDK descriptor", offset, length as usize)?;
    let text = String::from_utf8_lossy(descriptor.bytes());
    let lines = || text.trim_end_matches('\0').lines().map(str::trim);
    let value = |key: &str| {
        lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            name.trim().eq_ignore_ascii_case(key).then(|| value.trim().trim_matches('"').to_owned())
        })
    };
    let extents =
        lines().filter(|line| ["RW ", "RDONLY ", "NOACCESS "].iter().any(|word| line.starts_with(word)));
    let kinds: Vec<Option<&str>> = extents.map(|line| line.split_whitespace().nth(2)).collect();
    if kinds.is_empty() {
        return Err(one_of_several(head));
    }
    if !value("parentCID").is_some_and(|parent| parent.eq_ignore_ascii_case("ffffffff")) {
        return Err(descriptor.refused("a disk that needs its parent is not read"));
    }
    if kinds != [Some("SPARSE")] {
        return Err(
            descriptor.refused("a disk in several files is not read: convert it with `qemu-img convert`, if you trust these files (`qemu-img info` names them)")
        );
    }
    Ok(())
}

fn one_of_several(head: &Structure) -> platter_image::Error {
    head.refused("it is one of several files of a disk: convert the disk by its description with `qemu-img convert`, if you trust the files in it (`qemu-img info` names them)")
}

/// Reads the directory of tables. Each table must be used once, so that the map is not larger than the file.
fn read_directory(file: &dyn DiskRead, head: &Structure, needed: u64) -> Result<Vec<u64>> {
    let offset = head.u64_le(56).saturating_mul(512);
    if needed > DIRECTORY_MAX {
        return Err(head.error(format!("a directory of {needed} tables is invalid")));
    }
    let directory = Structure::read(file, "the VMDK grain directory", offset, needed as usize * 4)?;
    let tables: Vec<u64> =
        (0..needed as usize).map(|index| u64::from(directory.u32_le(index * 4)) * 512).collect();
    let mut used: Vec<u64> = tables.iter().copied().filter(|offset| *offset != 0).collect();
    used.sort_unstable();
    if let Some(two) = used.windows(2).find(|two| two[1] - two[0] < u64::from(TABLE_ENTRIES) * 4) {
        return Err(directory.error(format!("the grain tables at offsets {} and {} overlap", two[0], two[1])));
    }
    let is_outside = |table: &u64| *table + u64::from(TABLE_ENTRIES) * 4 > file.length();
    if let Some(outside) = used.into_iter().find(is_outside) {
        return Err(directory.error(format!(
            "an entry names a grain table at offset {outside}, which is not inside the file of {} bytes",
            file.length()
        )));
    }
    Ok(tables)
}
