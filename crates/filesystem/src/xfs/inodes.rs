//! Inodes: what kind of file they are, and where their forks name blocks.

use platter_image::{Error, Result};

use super::volume::{Volume, is_checksum_correct};
use crate::fields::{be16, be32, be64, has};

const FORMAT_INSIDE: u8 = 1;
const FORMAT_LIST: u8 = 2;
const FORMAT_TREE: u8 = 3;
const FLAG_REALTIME: u16 = 1;
const FLAG2_WIDE_COUNTS: u64 = 0x10;

/// How a fork names its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fork<'b> {
    /// It has none, or is a device.
    Nothing,
    /// Its bytes, which are in the inode.
    Inside(&'b [u8]),
    /// A list of that many extents.
    List(&'b [u8], u64),
    /// The root of a tree of extents.
    Tree(&'b [u8]),
}

/// An inode in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inode<'b> {
    pub(super) is_regular: bool,
    pub(super) data: Fork<'b>,
    pub(super) attributes: Fork<'b>,
}

impl<'b> Inode<'b> {
    /// Decodes an inode in use.
    ///
    /// # Errors
    /// `Corrupt` if it is not what it must be.
    pub(super) fn parse(volume: &Volume<'_>, number: u64, bytes: &'b [u8]) -> Result<Self> {
        let superblock = &volume.superblock;
        let version = bytes[4];
        let has_known_version =
            if superblock.has_checksums { version == 3 } else { matches!(version, 1 | 2) };
        if !has(bytes, 0, b"IN") || !has_known_version {
            return Err(Error::corrupt(format!("it has a wrong magic number, or version {version}")));
        }
        if superblock.has_checksums && (!is_checksum_correct(bytes, 100) || be64(bytes, 152) != number) {
            return Err(Error::corrupt("it has a wrong checksum, or the number of another inode"));
        }
        if be16(bytes, 90) & FLAG_REALTIME != 0 {
            return Err(Error::corrupt("its contents are in a realtime section"));
        }
        let kind = be16(bytes, 2) >> 12;
        if !matches!(kind, 0x1 | 0x2 | 0x4 | 0x6 | 0x8 | 0xa | 0xc) {
            return Err(Error::corrupt(format!("it is in use, but has the unknown type {kind:#x}")));
        }
        let start = if version == 3 { 176 } else { 100 };
        let is_wide = superblock.has_wide_counts && version == 3 && be64(bytes, 120) & FLAG2_WIDE_COUNTS != 0;
        let counts = match is_wide {
            true => [be64(bytes, 24), be32(bytes, 76).into()],
            false => [be32(bytes, 76).into(), be16(bytes, 80).into()],
        };
        let room = &bytes[start..];
        let split = usize::from(bytes[82]) * 8;
        if split > room.len() {
            return Err(Error::corrupt(format!("its attributes begin {split} bytes into {}", room.len())));
        }
        let (data, attributes) =
            if split == 0 { (room, None) } else { (&room[..split], Some(&room[split..])) };
        Ok(Self {
            is_regular: kind == 8,
            data: fork(data, bytes[5], counts[0])?,
            attributes: attributes.map_or(Ok(Fork::Nothing), |area| fork(area, bytes[83], counts[1]))?,
        })
    }
}

fn fork(area: &[u8], format: u8, count: u64) -> Result<Fork<'_>> {
    Ok(match format {
        // Devices, and the unused form for an UUID.
        0 | 4 => Fork::Nothing,
        FORMAT_INSIDE => Fork::Inside(area),
        FORMAT_LIST => Fork::List(area, count),
        FORMAT_TREE => Fork::Tree(area),
        _ => return Err(Error::corrupt(format!("one of its forks has the unknown format {format}"))),
    })
}
