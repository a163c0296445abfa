//! The superblock of version 0.90: 1024 words in the order of the machine that wrote them, of which only little-endian is read.

use platter_image::{Error, Extent, Result};

use crate::fields::{has, le32};

/// The states of an array that do not matter: stopped in order, and with a bitmap.
const STATE_CLEAN: u32 = 1;
const STATE_BITMAP: u32 = 1 << 8;
/// The states of a member: in use and synchronized; and that it prefers other members to be read.
const MEMBER_USED: u32 = 1 << 1 | 1 << 2;
const MEMBER_WRITE_MOSTLY: u32 = 1 << 9;

/// See [`super::Parse`].
pub(super) fn parse(bytes: &[u8], offset: u64) -> Result<Extent> {
    let word = |index: usize| le32(bytes, index * 4);
    if !has(bytes, 0, b"\xfc\x4e\x2b\xa9") || word(1) != 0 {
        return Err(Error::corrupt(
            "its superblock has another version than 0.90, or the byte order of another machine",
        ));
    }
    let sum: u64 = (0..1024).filter(|index| *index != 38).map(|index| u64::from(word(index))).sum();
    if (sum as u32).wrapping_add((sum >> 32) as u32) != word(38) {
        return Err(Error::corrupt("the checksum of its superblock is wrong"));
    }
    if word(2) != 90 || word(12) != 0 {
        return Err(Error::corrupt(
            "its array is being changed, or its superblock has another version than 0.90",
        ));
    }
    let level = word(7).cast_signed();
    if level != 1 {
        return Err(Error::corrupt(format!(
            "it is a member of a RAID of level {level}, of which only 1 is read"
        )));
    }
    if word(33) & !STATE_BITMAP != STATE_CLEAN {
        return Err(Error::corrupt("its array was not stopped, or has errors"));
    }
    // The last 32 words describe this member.
    let (state, role) = (word(992 + 4), word(992 + 3));
    if state & !MEMBER_WRITE_MOSTLY != MEMBER_USED || role >= word(10) {
        return Err(Error::corrupt("it is a spare, or was removed from its array"));
    }
    let length = u64::from(word(8)) << 10;
    match length > offset {
        true => Err(Error::corrupt("its superblock states an impossible length")),
        false => Ok(Extent::new(0, length)),
    }
}
