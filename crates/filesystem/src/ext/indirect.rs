//! Block maps: how ext2 and ext3 inodes name their blocks.
//!
//! The inode contains twelve block numbers, and the numbers of a single, a double and a triple indirect
//! block. Zero is a hole.

use super::walker::{Piece, Walker};
use crate::fields::le32;
use platter_image::Result;

const DIRECT: usize = 12;
const LEVELS: u32 = 3;

/// Passes every block that the map in `area` names to `visit`. Returns `false` if some of it is invalid.
///
/// # Errors
/// `Corrupt` when the filesystem claims more blocks than it has; errors of reading the disk.
pub(super) fn walk(walker: &mut Walker<'_, '_>, area: &[u8], visit: &mut dyn FnMut(Piece)) -> Result<bool> {
    let per_block = u64::from(walker.block_size() / 4);
    let mut is_sound = walk_numbers(walker, &area[..DIRECT * 4], 0, 0, visit)?;
    let mut file_block = DIRECT as u64;
    for level in 1..=LEVELS {
        let at = (DIRECT + level as usize - 1) * 4;
        // The number of this level's one indirect block; the numbers in it belong to the level below.
        is_sound &= walk_numbers(walker, &area[at..at + 4], file_block, level, visit)?;
        file_block += per_block.pow(level);
    }
    Ok(is_sound)
}

/// Walks consecutive block numbers: of data blocks at level 0, of indirect blocks above.
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
