//! The superblock of version 1: little-endian. Lengths are in sectors of 512 bytes.

use platter_image::{Error, Extent, Result, SECTOR};

use crate::fields::{has, le16, le32, le64};

/// The bitmap of areas that are being written: it says nothing about a member that was stopped in order.
const FEATURE_BITMAP: u32 = 1;
/// The length of the superblock without the roles of members.
const LENGTH: usize = 256;
/// The most members for which there are roles.
const MEMBERS_MAX: u32 = 1920;

/// See [`super::Parse`].
pub(super) fn parse(bytes: &[u8], offset: u64) -> Result<Extent> {
    if !has(bytes, 0, b"\xfc\x4e\x2b\xa9") || le32(bytes, 4) != 1 {
        return Err(Error::corrupt("its superblock has another version than 1"));
    }
    let members = le32(bytes, 220);
    if members > MEMBERS_MAX || checksum(&bytes[..LENGTH + 2 * members as usize]) != le32(bytes, 216) {
        return Err(Error::corrupt("the checksum of its superblock is wrong"));
    }
    if le64(bytes, 144).checked_mul(SECTOR) != Some(offset) {
        return Err(Error::corrupt("its superblock belongs to another place"));
    }
    let level = le32(bytes, 72).cast_signed();
    if level != 1 {
        return Err(Error::corrupt(format!(
            "it is a member of a RAID of level {level}, of which only 1 is read"
        )));
    }
    let features = le32(bytes, 8);
    if features & !FEATURE_BITMAP != 0 {
        return Err(Error::corrupt(format!(
            "its array is being changed, or has features that are not read ({features:#x})"
        )));
    }
    if le64(bytes, 208) != u64::MAX {
        return Err(Error::corrupt("its array was not stopped, or not synchronized"));
    }
    let (number, active) = (le32(bytes, 160), le32(bytes, 92));
    let role = match number < members {
        true => le16(bytes, LENGTH + 2 * number as usize),
        false => u16::MAX,
    };
    if u32::from(role) >= active {
        return Err(Error::corrupt("it is a spare, or was removed from its array"));
    }
    let (start, length, used) = (le64(bytes, 128), le64(bytes, 136), le64(bytes, 80));
    if used > length || start.checked_add(length).and_then(|end| end.checked_mul(SECTOR)).is_none() {
        return Err(Error::corrupt("its superblock states an impossible length"));
    }
    let data = Extent::new(start * SECTOR, used * SECTOR);
    if features & FEATURE_BITMAP != 0 {
        let distance = i64::from(le32(bytes, 96).cast_signed()) * SECTOR.cast_signed();
        let bitmap = offset.checked_add_signed(distance);
        if bitmap.is_none_or(|bitmap| (data.offset..data.end()).contains(&bitmap)) {
            return Err(Error::corrupt("the place of its bitmap is not outside of its data"));
        }
    }
    Ok(data)
}

/// The sum of all words except the checksum itself; the carry is added once.
fn checksum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(4).enumerate().filter(|(at, _)| *at != 216 / 4);
    let sum: u64 = words
        .map(|(_, word)| if word.len() == 4 { le32(word, 0) } else { le16(word, 0).into() })
        .map(u64::from)
        .sum();
    (sum as u32).wrapping_add((sum >> 32) as u32)
}
