//! Marks that a magic number alone does not identify: it is too short, missing, or anywhere in a large area.
//!
//! Each test checks only as much as it needs to distinguish the mark from boot code and from an ext
//! superblock; rejecting a real mark would cost data. Each returns the mark's offset in the extent.

use platter_image::Result;

use crate::boot_record;
use crate::fields::{be16, be32, has, le16, le32, le64};
use crate::place::ProbedExtent;

const SECTOR: u64 = 512;

/// Checks the last sector and returns its offset if `is_one` holds.
fn last_sector(place: &ProbedExtent<'_>, is_one: impl FnOnce(&[u8]) -> bool) -> Result<Option<u64>> {
    let Some(offset) = place.length().checked_sub(SECTOR) else { return Ok(None) };
    Ok(is_one(&place.bytes(offset, SECTOR as usize)?).then_some(offset))
}

fn sum16(bytes: &[u8]) -> u16 {
    bytes.chunks_exact(2).fold(0, |sum: u16, pair| sum.wrapping_add(u16::from_le_bytes([pair[0], pair[1]])))
}

/// VIA: the magic, and a checksum of the first 50 bytes.
pub(crate) fn via_raid(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    last_sector(place, |sector| {
        let sum = sector[..50].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        has(sector, 0, b"\x55\xaa") && sector[2] <= 2 && sum == sector[50]
    })
}

/// Silicon Image: a magic with three zero bytes, and a checksum of the words before it.
pub(crate) fn silicon_raid(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    last_sector(place, |sector| {
        let sum = sum16(&sector[..0x13e]).wrapping_neg();
        has(sector, 0x60, b"\0\0\0\x2f") && sector[0x116] < 8 && sum == le16(sector, 0x13e)
    })
}

/// JMicron: all words add up to 0 or 1, and the RAID level is valid.
pub(crate) fn jmicron_raid(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    last_sector(place, |sector| has(sector, 0, b"JM") && sum16(&sector[..128]) <= 1 && sector[0x30] <= 5)
}

/// LVM1: the version is 1 or 2.
pub(crate) fn lvm1(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    let head = place.head();
    Ok((has(head, 0, b"HM") && matches!(le16(head, 2), 1 | 2)).then_some(0))
}

/// A physical volume of Apple's Core Storage, version 1.
pub(crate) fn core_storage(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    let head = place.head();
    Ok((has(head, 88, b"CS") && le16(head, 8) == 1 && le32(head, 90) == 1).then_some(0))
}

/// ZFS: four labels of 256 KiB, two at each end. 16 KiB into each is a list of names and values in XDR; 128
/// KiB into each is a ring of uberblocks. Each of these may be all that is left.
pub(crate) fn zfs(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    const LABEL: u64 = 256 << 10;
    const RING: u64 = 128 << 10;
    const RING_STEP: usize = 1 << 10;
    let end = place.length() / LABEL * LABEL;
    let labels = [Some(0), Some(LABEL), end.checked_sub(2 * LABEL), end.checked_sub(LABEL)];
    for label in labels.into_iter().flatten().filter(|label| label + LABEL <= place.length()) {
        let list = place.bytes(label + (16 << 10), 16)?;
        let is_list = has(&list, 4, b"\0\0\0\0\0\0\0\x01") && list[0] == 1 && list[1] <= 1;
        if is_list && be32(&list, 12) != 0 {
            return Ok(Some(label));
        }
        let ring = place.bytes(label + RING, RING as usize)?;
        let is_uberblock = |at: &[u8]| {
            at.starts_with(b"\x0c\xb1\xba\0\0\0\0\0") || at.starts_with(b"\0\0\0\0\0\xba\xb1\x0c")
        };
        if ring.chunks_exact(RING_STEP).any(is_uberblock) {
            return Ok(Some(label));
        }
    }
    Ok(None)
}

/// BitLocker To Go: looks like FAT, and names the place of its metadata.
pub(crate) fn bitlocker_to_go(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    const MAGIC: &[u8] = b"-FVE-FS-";
    let (head, length) = (place.head(), MAGIC.len() as u64);
    let at = le64(head, 440);
    if !has(head, 0, b"\xeb\x58\x90MSWIN4.1") || at == 0 || at > place.length().saturating_sub(length) {
        return Ok(None);
    }
    Ok((place.bytes(at, MAGIC.len())? == MAGIC).then_some(0))
}

/// FAT without a name: valid parameters.
pub(crate) fn unnamed_fat(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    let head = place.head();
    if !has(head, 510, b"\x55\xaa") {
        return Ok(None);
    }
    let (sector, cluster, media) = (le16(head, 11), head[13], head[21]);
    let is_one = sector.is_power_of_two()
        && (512..=4096).contains(&sector)
        && cluster.is_power_of_two()
        && le16(head, 14) != 0
        && head[16] != 0
        && (media == 0xf0 || media >= 0xf8);
    Ok(is_one.then_some(0))
}

/// XFS: a record of an external log, in any of the first 512 sectors.
pub(crate) fn xfs_log(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    const SECTORS: usize = 512;
    let is_record = |sector: &[u8]| {
        let (version, length, format) = (be32(sector, 8), be32(sector, 12), be32(sector, 300));
        has(sector, 0, b"\xfe\xed\xba\xbe")
            && (1..=3).contains(&version)
            && (1..=i32::MAX as u32).contains(&length)
            && (1..=3).contains(&format)
    };
    let found = place.head().chunks_exact(SECTOR as usize).take(SECTORS).position(is_record);
    Ok(found.map(|number| number as u64 * SECTOR))
}

/// UDF: a sequence of descriptors from 32 KiB on, 2 KiB apart, or 4 KiB with large blocks.
pub(crate) fn udf(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    const START: u64 = 32 << 10;
    const DESCRIPTORS: u64 = 64;
    const NAMES: [&[u8]; 6] = [b"BEA01", b"NSR02", b"NSR03", b"BOOT2", b"CDW02", b"TEA01"];
    for step in [2048, 4096] {
        for number in 0..DESCRIPTORS {
            let offset = START + number * step;
            if place.has_one_of(offset + 1, &NAMES)? {
                return Ok(Some(offset));
            }
            if !place.has_one_of(offset + 1, &[b"CD001"])? {
                break;
            }
        }
    }
    Ok(None)
}

/// HFS: allocation blocks are whole sectors.
pub(crate) fn hfs(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    let head = place.head();
    let block = be32(head, 1024 + 20);
    Ok((has(head, 1024, b"BD") && block > 0 && block.is_multiple_of(512)).then_some(1024))
}

/// HFS+: version 4 or 5.
pub(crate) fn hfs_plus(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    let head = place.head();
    let is_named = has(head, 1024, b"H+") || has(head, 1024, b"HX");
    Ok((is_named && matches!(be16(head, 1026), 4 | 5)).then_some(1024))
}

/// Minix: the maps of inodes and zones are large enough. In an ext superblock, the magic's place holds a
/// count of inodes.
pub(crate) fn minix(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    const MAP_BITS: u64 = 1024 * 8;
    let Some(superblock) = place.head().get(1024..1024 + 64) else { return Ok(None) };
    if has(superblock, 0x38, b"\x53\xef") || has(superblock, 0, b"\xe2\xe1\xf5\xe0") {
        return Ok(None);
    }
    let is_sound = |inodes: u64, zones: u64, maps: [u16; 2], first: u16| {
        let [inode_map, zone_map] = maps.map(|blocks| u64::from(blocks) * MAP_BITS);
        let data = zones.checked_sub(u64::from(first));
        inodes > 0 && inode_map > inodes && data.is_some_and(|data| zone_map > data)
    };
    for (read16, read32) in [(le16 as fn(&[u8], usize) -> u16, le32 as fn(&[u8], usize) -> u32), (be16, be32)]
    {
        let word = |at| read16(superblock, at);
        let long = |at| u64::from(read32(superblock, at));
        let sound = match (word(0x10), word(0x18)) {
            (0x137f | 0x138f, _) => is_sound(word(0).into(), word(2).into(), [word(4), word(6)], word(8)),
            (0x2468 | 0x2478, _) => is_sound(word(0).into(), long(20), [word(4), word(6)], word(8)),
            (_, 0x4d5a) => is_sound(long(0), long(20), [word(6), word(8)], word(10)),
            _ => false,
        };
        if sound {
            return Ok(Some(1024));
        }
    }
    Ok(None)
}

/// Sun label: its words XORed together give zero.
pub(crate) fn sun_label(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    let head = place.head();
    let Some(sector) = head.get(..512) else { return Ok(None) };
    let parity = sector.chunks_exact(2).fold(0, |sum, pair| sum ^ be16(pair, 0));
    Ok((has(sector, 508, b"\xda\xbe") && parity == 0).then_some(0))
}

/// Macintosh: a driver descriptor, and the first entry of the map one block later.
pub(crate) fn mac_table(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    let head = place.head();
    if !has(head, 0, b"ER") {
        return Ok(None);
    }
    let is_entry = |at: usize| has(head, at, b"PM\0") || has(head, at, b"TS");
    Ok([512, 1024, 2048, 4096].into_iter().any(is_entry).then_some(0))
}

/// Atari: one of four entries exists, has a name of three letters or digits, and lies inside.
pub(crate) fn atari_table(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    let head = place.head();
    let sectors = place.length() / SECTOR;
    let is_entry = |number: usize| {
        let at = 0x1c6 + number * 12;
        let (start, length) = (u64::from(be32(head, at + 4)), u64::from(be32(head, at + 8)));
        let name = head.get(at + 1..at + 4).is_some_and(|name| name.iter().all(u8::is_ascii_alphanumeric));
        name && head[at] & 1 != 0 && start > 0 && length > 0 && start + length <= sectors
    };
    Ok((0..4).any(is_entry).then_some(0))
}

/// A boot record with its own partitions, as Minix and others have inside a partition.
pub(crate) fn nested_record(place: &ProbedExtent<'_>) -> Result<Option<u64>> {
    let sectors = place.disk_length() / SECTOR;
    let is_table = place.head().get(..512).is_some_and(|sector| boot_record::could_be_table(sector, sectors));
    Ok(is_table.then_some(0))
}
