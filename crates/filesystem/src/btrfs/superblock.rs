//! The superblock: the roots of the first trees, sizes and features. All numbers are little-endian.

use platter_image::{Error, Result, SECTOR};

use super::checksums::Checksum;
use crate::fields::{has, le16, le32, le64, text, uuid};
use crate::reader;

/// Where the superblock and its copies are on the device.
pub(super) const PLACES: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
pub(super) const LENGTH: usize = 4096;

/// The chunks that are needed to read the chunk tree.
const SYSTEM_CHUNKS: usize = 811;
const SYSTEM_CHUNKS_LENGTH: usize = 2048;

const FLAG_ERROR: u64 = 1 << 2;
/// Written, and relocated.
const FLAGS_KNOWN: u64 = 1 | 2;
const FLAG_SEED: u64 = 1 << 32;

const INCOMPAT_METADATA_UUID: u64 = 0x400;
const INCOMPAT_ZONED: u64 = 0x1000;
/// Known incompatible features: those up to bit 11 (RAID1 with three and four copies), and simple quotas. Zoned mode, raid
/// stripe trees and others are missing.
const INCOMPAT_KNOWN: u64 = 0xfff | 0x1_0000;
const READ_ONLY_BLOCK_GROUP_TREE: u64 = 8;
/// Known read-only compatible features: the free space tree and its valid flag, fs-verity, the block group tree.
const READ_ONLY_KNOWN: u64 = 0xf;

/// The root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) address: u64,
    pub(super) level: u8,
    pub(super) generation: u64,
}

/// The fields of a superblock that the reader uses.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub(super) checksum: Checksum,
    pub(super) sector_size: u32,
    pub(super) node_size: u32,
    pub(super) root_tree: Root,
    pub(super) chunk_tree: Root,
    pub(super) has_log: bool,
    /// Allocated bytes, each counted once.
    pub(super) bytes_used: u64,
    pub(super) device: u64,
    /// Bytes of the device that belong to the filesystem.
    pub(super) length: u64,
    /// The chunks that are needed to read the chunk tree, as stored.
    pub(super) system_chunks: Vec<u8>,
    pub(super) has_block_group_tree: bool,
    /// The UUID in tree blocks.
    pub(super) metadata_uuid: [u8; 16],
    /// Why it is not read, although it may be consistent.
    pub(super) unsupported: Option<String>,
    pub(super) has_errors: bool,
    pub(super) label: Option<String>,
    pub(super) uuid: Option<String>,
}

impl Superblock {
    /// Decodes and checks a superblock.
    ///
    /// # Errors
    /// `Corrupt` if it is not a superblock, its checksum is wrong, or its numbers are impossible; [`reader::unsupported`] if its
    /// checksum is of an unknown kind.
    pub(super) fn parse(bytes: &[u8; LENGTH]) -> Result<Self> {
        let wrong = |what: String| Error::corrupt(format!("the superblock at offset {} {what}", PLACES[0]));
        if !has(bytes, 64, b"_BHRfS_M") || le64(bytes, 48) != PLACES[0] {
            return Err(wrong("has a wrong magic number or offset".to_owned()));
        }
        let number = le16(bytes, 196);
        let checksum = Checksum::from_number(number).ok_or_else(|| {
            reader::unsupported(format!("its superblock has checksums of type {number}, which are not read"))
        })?;
        if !checksum.is_correct(bytes) {
            return Err(wrong("has a wrong checksum".to_owned()));
        }
        let incompat = le64(bytes, 188);
        let mut metadata_uuid = [0; 16];
        let uuid_at = if incompat & INCOMPAT_METADATA_UUID == 0 { 32 } else { 571 };
        metadata_uuid.copy_from_slice(&bytes[uuid_at..uuid_at + 16]);
        let stored = le32(bytes, 160) as usize;
        let superblock = Self {
            checksum,
            sector_size: le32(bytes, 144),
            node_size: le32(bytes, 148),
            root_tree: Root { address: le64(bytes, 80), level: bytes[198], generation: le64(bytes, 72) },
            chunk_tree: Root { address: le64(bytes, 88), level: bytes[199], generation: le64(bytes, 164) },
            has_log: le64(bytes, 96) != 0,
            bytes_used: le64(bytes, 120),
            device: le64(bytes, 201),
            length: le64(bytes, 209),
            system_chunks: bytes[SYSTEM_CHUNKS..][..stored.min(SYSTEM_CHUNKS_LENGTH)].to_vec(),
            has_block_group_tree: le64(bytes, 180) & READ_ONLY_BLOCK_GROUP_TREE != 0,
            metadata_uuid,
            unsupported: unsupported(bytes, incompat),
            has_errors: le64(bytes, 56) & FLAG_ERROR != 0,
            label: text(&bytes[0x12b..0x12b + 256]),
            uuid: uuid(bytes, 32),
        };
        let is_size = |size: u32| (4096..=65536).contains(&size) && size.is_power_of_two();
        if !is_size(superblock.sector_size)
            || !is_size(superblock.node_size)
            || superblock.node_size < superblock.sector_size
        {
            return Err(wrong(format!(
                "has the impossible sector size {} or node size {}",
                superblock.sector_size, superblock.node_size
            )));
        }
        if stored > SYSTEM_CHUNKS_LENGTH || !superblock.length.is_multiple_of(SECTOR) {
            return Err(wrong(format!(
                "has {stored} bytes of system chunks, and a device of {} bytes",
                superblock.length
            )));
        }
        Ok(superblock)
    }
}

/// The first thing that the reader does not know.
fn unsupported(bytes: &[u8], incompat: u64) -> Option<String> {
    let (flags, read_only) = (le64(bytes, 56), le64(bytes, 180));
    if incompat & INCOMPAT_ZONED != 0 {
        return Some("it is zoned".to_owned());
    }
    if le64(bytes, 136) != 1 {
        return Some(format!("it has {} devices, of which this is one", le64(bytes, 136)));
    }
    if flags & FLAG_SEED != 0 {
        return Some("it is a seed of other filesystems".to_owned());
    }
    let unknown = [
        ("flags", flags & !(FLAGS_KNOWN | FLAG_ERROR)),
        ("incompatible features", incompat & !INCOMPAT_KNOWN),
        ("read-only compatible features", read_only & !READ_ONLY_KNOWN),
    ];
    unknown
        .iter()
        .find(|(_, bits)| *bits != 0)
        .map(|(what, bits)| format!("it has unknown {what}: {bits:#x}"))
}
