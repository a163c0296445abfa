//! Block maps: how ext2 and ext3 inodes name their blocks.
//!
//! The inode has twelve block numbers, then those of a block of numbers, of a block of such blocks, and of a block
//! of those. Zero is a hole.

use super::walker::{Piece, Walker};
use crate::fields::le32;
use platter_image::Result;

const DIRECT: usize = 12;
const LEVELS: u32 = 3;

/// Tells `visit` of every block that the map in `area` names. False if some of it is broken.
///
/// # Errors
/// What reading the disk says, and `Corrupt` when the filesystem claims more blocks than it has.
pub(super) fn walk(walker: &mut Walker<'_, '_>, area: &[u8], visit: &mut dyn FnMut(Piece)) -> Result<bool> {
    let per_block = u64::from(walker.block_size() / 4);
    let mut is_sound = walk_numbers(walker, &area[..DIRECT * 4], 0, 0, visit)?;
    let mut file_block = DIRECT as u64;
    for level in 1..=LEVELS {
        let at = (DIRECT + level as usize - 1) * 4;
        // A block that holds this level's one number: its numbers are of the level below.
        is_sound &= walk_numbers(walker, &area[at..at + 4], file_block, level, visit)?;
        file_block += per_block.pow(level);
    }
    Ok(is_sound)
}

/// Numbers that stand one after the other: of blocks with data at level 0, of blocks with numbers above.
fn walk_numbers(
    walker: &mut Walker<'_, '_>,
    numbers: &[u8],
    first_file_block: u64,
    level: u32,
    visit: &mut dyn FnMut(Piece),
) -> Result<bool> {
    let step = u64::from(walker.block_size() / 4).pow(level);
    let mut is_sound = true;
    let numbers = numbers.chunks_exact(4).map(|number| u64::from(le32(number, 0)));
    for (block, place) in numbers.zip(0_u64..).filter(|(block, _)| *block != 0) {
        let file_block = first_file_block + place * step;
        if level == 0 {
            is_sound &= walker.claim(Piece::Run { file_block, block, blocks: 1, is_written: true }, visit)?;
            continue;
        }
        match walker.enter(block, level as usize, visit)? {
            Some(child) => {
                is_sound &= walk_numbers(walker, &child, file_block, level - 1, visit)?;
                walker.leave(child, level as usize);
            }
            None => is_sound = false,
        }
    }
    Ok(is_sound)
}
