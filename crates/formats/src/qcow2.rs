//! qcow2, versions 2 and 3 (QEMU: docs/interop/qcow2.txt): two levels of tables that map clusters.
//!
//! Snapshots inside the file are ignored. An image with a backing file is read only over a disk that the user
//! named; the name in the image is never followed. Encrypted images and external data files are refused.

use std::io;

use platter_image::{DiskRead, Result};

use crate::fields::Structure;
use crate::mapped::{Codec, Layout, Unit};
use crate::tables::{Tables, invalid};

const MAGIC: u32 = 0x5146_49fb;
/// As in QEMU.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// As in QEMU: 32 MiB.
const L1_ENTRIES_MAX: u64 = 4 << 20;
/// As in QEMU.
const NAME_MAX: usize = 1023;

/// The extensions of the header that are read, and the type of the one that names the format of the backing file.
const EXTENSIONS_MAX: usize = 64;
const EXTENSIONS_END: u32 = 0;
const BACKING_FORMAT: u32 = 0xe279_2aca;

/// Incompatible features of version 3, by bit.
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const SUBCLUSTERS: u64 = 1 << 4;
/// Also the dirty bit: it concerns reference counts, which are not read.
const READ: u64 = 1 | COMPRESSION_TYPE;

const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;

pub(crate) struct Qcow2 {
    length: u64,
    cluster_bits: u32,
    /// Offsets of the tables of the second level; 0 where there is none.
    l1: Vec<u64>,
    codec: Codec,
    has_zero_flag: bool,
    tables: Tables,
}

impl Qcow2 {
    pub(crate) fn open(file: &dyn DiskRead, has_backing: bool) -> Result<Self> {
        let head = Structure::read(file, "the qcow2 header", 0, 72)?;
        if head.u32_be(0) != MAGIC {
            return Err(head.error(
                "it does not begin with the magic of qcow2; if it is a raw disk, use `--format raw`",
            ));
        }
        let version = head.u32_be(4);
        if !matches!(version, 2 | 3) {
            return Err(head.refused(format!("version {version} is not supported")));
        }
        if head.u32_be(32) != 0 {
            return Err(head.refused("the image is encrypted"));
        }
        let codec = if version == 3 { features(file)? } else { Codec::Deflate };
        check_backing(file, &head, has_backing)?;
        let (cluster_bits, length) = (head.u32_be(20), head.u64_be(24));
        if !CLUSTER_BITS.contains(&cluster_bits) {
            return Err(head.error(format!("clusters of 2^{cluster_bits} bytes are invalid")));
        }
        let l1 = read_l1(file, &head, cluster_bits, length)?;
        Ok(Self { length, cluster_bits, l1, codec, has_zero_flag: version == 3, tables: Tables::default() })
    }

    fn entries(&self) -> u64 {
        1 << (self.cluster_bits - 3)
    }

    fn entry(&self, file: &dyn DiskRead, table: u64, index: u64) -> io::Result<Unit> {
        let place = table + index * 8;
        let entry = u64::from_be_bytes(self.tables.entry(file, "an L2 table of qcow2", place)?);
        if entry & COMPRESSED != 0 {
            let offset_bits = 62 - (self.cluster_bits - 8);
            let offset = entry & ((1 << offset_bits) - 1);
            let sectors = ((entry & (COMPRESSED - 1)) >> offset_bits) + 1;
            let length = sectors * 512 - offset % 512;
            if offset >= file.length() {
                return Err(invalid(format!(
                    "an L2 table of qcow2: its entry at offset {place} names compressed data at {offset}, past the end \
                     of the file at {}",
                    file.length()
                )));
            }
            return Ok(Unit::Compressed { offset, length, codec: self.codec });
        }
        if self.has_zero_flag && entry & ZERO != 0 {
            return Ok(Unit::Zero);
        }
        match entry & OFFSET_MASK {
            0 => Ok(Unit::Below),
            offset if offset.trailing_zeros() < self.cluster_bits => Err(invalid(format!(
                "an L2 table of qcow2: its entry at offset {place} names offset {offset}, which is not the start of a \
                 cluster"
            ))),
            offset => Ok(Unit::At(offset)),
        }
    }
}

impl Layout for Qcow2 {
    fn length(&self) -> u64 {
        self.length
    }

    fn unit(&self) -> u64 {
        1 << self.cluster_bits
    }

    fn units(&self, file: &dyn DiskRead, number: u64, most: u64) -> io::Result<(Unit, u64)> {
        let (first, index) = (number / self.entries(), number % self.entries());
        let table = self.l1.get(first as usize).copied().unwrap_or(0);
        if table == 0 {
            return Ok((Unit::Below, self.entries() - index));
        }
        let place = self.entry(file, table, index)?;
        let mut count = 1;
        while count < most && index + count < self.entries() {
            let next = match place {
                Unit::At(offset) => Unit::At(offset + count * self.unit()),
                Unit::Compressed { .. } => break,
                alike => alike,
            };
            // An error is reported by whoever reads that unit.
            if self.entry(file, table, index + count).ok() != Some(next) {
                break;
            }
            count += 1;
        }
        Ok((place, count))
    }
}

/// Checks the features of version 3, and returns how clusters are compressed.
fn features(file: &dyn DiskRead) -> Result<Codec> {
    let head = Structure::read(file, "the qcow2 header", 0, 104)?;
    let features = head.u64_be(72);
    if features & CORRUPT != 0 {
        return Err(head.refused("the image is marked as corrupt: repair it with `qemu-img check -r all`"));
    }
    if features & DATA_FILE != 0 {
        return Err(head.refused("its data is in another file: convert it with `qemu-img convert`, if you trust that file (`qemu-img info` names it)"));
    }
    if features & SUBCLUSTERS != 0 {
        return Err(head.refused("subclusters are not supported: convert it with `qemu-img convert`"));
    }
    if features & !READ != 0 {
        return Err(head.refused(format!("the features {:#x} are not supported", features & !READ)));
    }
    if features & COMPRESSION_TYPE == 0 || head.u32_be(100) <= 104 {
        return Ok(Codec::Deflate);
    }
    match Structure::read(file, "the qcow2 header", 0, 112)?.bytes()[104] {
        0 => Ok(Codec::Deflate),
        1 => Ok(Codec::Zstd),
        other => Err(head.refused(format!("compression of type {other} is not supported"))),
    }
}

/// Checks that a backing disk is there exactly if the image needs one.
fn check_backing(file: &dyn DiskRead, head: &Structure, has_backing: bool) -> Result<()> {
    let (offset, length) = (head.u64_be(8), head.u32_be(16) as usize);
    if offset == 0 {
        return match has_backing {
            true => Err(head.refused("the image has no backing file, but one was named")),
            false => Ok(()),
        };
    }
    if length > NAME_MAX {
        return Err(head.error(format!("the name of the backing file has {length} bytes")));
    }
    let name = Structure::read(file, "the name of the backing file", offset, length)?;
    match has_backing {
        true => Ok(()),
        false => Err(head.refused(format!(
            "the image needs its backing file \"{}\", and a name in an image is never followed: name it with \
             `--backing FILE` if you trust it",
            String::from_utf8_lossy(name.bytes()).escape_debug()
        ))),
    }
}

/// What an image says about its backing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingName {
    /// Its name, which may also be an address or a description of a block device in JSON.
    pub name: String,
    /// The name of its format, if the image states one.
    pub format: Option<String>,
}

/// The name of the backing file in a qcow2 image that [`open`](crate::open) accepts; `None` if it has none. Extensions of the header end
/// where the name begins, or where they cannot be read.
///
/// # Errors
/// `Corrupt` if the header is not what it must be; `Io`.
pub fn backing_name(file: &dyn DiskRead) -> Result<Option<BackingName>> {
    let head = Structure::read(file, "the qcow2 header", 0, 72)?;
    let (offset, length) = (head.u64_be(8), (head.u32_be(16) as usize).min(NAME_MAX));
    if offset == 0 {
        return Ok(None);
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let name = text(Structure::read(file, "the name of the backing file", offset, length)?.bytes());
    let mut at = match head.u32_be(4) {
        2 => 72,
        _ => u64::from(Structure::read(file, "the qcow2 header", 0, 104)?.u32_be(100)),
    };
    let mut format = None;
    for _ in 0..EXTENSIONS_MAX {
        let extension = Structure::read(file, "an extension of the qcow2 header", at, 8);
        let Some(extension) = extension.ok().filter(|_| at < offset) else { break };
        let (kind, length) = (extension.u32_be(0), extension.u32_be(4));
        if kind == EXTENSIONS_END || length as usize > NAME_MAX {
            break;
        }
        if kind == BACKING_FORMAT {
            let stated = Structure::read(file, "the format of the backing file", at + 8, length as usize);
            format = stated.ok().map(|stated| text(stated.bytes()));
        }
        at += 8 + u64::from(length).next_multiple_of(8);
    }
    Ok(Some(BackingName { name, format }))
}

/// Reads the table of the first level. Each table of the second level must be used once, so that the map is
/// not larger than the file.
fn read_l1(file: &dyn DiskRead, head: &Structure, cluster_bits: u32, length: u64) -> Result<Vec<u64>> {
    let (entries, offset) = (u64::from(head.u32_be(36)), head.u64_be(40));
    let covered = 1_u64 << (2 * cluster_bits - 3);
    let needed = length.div_ceil(covered);
    if needed > entries || needed > L1_ENTRIES_MAX {
        return Err(head.error(format!(
            "an L1 table of {entries} entries is invalid for a disk of {length} bytes, which needs {needed}"
        )));
    }
    let table = Structure::read(file, "the L1 table of qcow2", offset, needed as usize * 8)?;
    let tables: Vec<u64> = (0..needed as usize).map(|index| table.u64_be(index * 8) & OFFSET_MASK).collect();
    let mut used: Vec<u64> = tables.iter().copied().filter(|offset| *offset != 0).collect();
    used.sort_unstable();
    if let Some(two) = used.windows(2).find(|two| two[0] == two[1]) {
        return Err(table.error(format!("two entries name the L2 table at offset {}", two[0])));
    }
    let is_wrong =
        |at: &u64| at.trailing_zeros() < cluster_bits || at.saturating_add(1 << cluster_bits) > file.length();
    if let Some(wrong) = used.into_iter().find(is_wrong) {
        return Err(table.error(format!(
            "an entry names an L2 table at offset {wrong}, which is not a cluster of the file of {} bytes",
            file.length()
        )));
    }
    Ok(tables)
}
