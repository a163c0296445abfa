//! Follows the pointers of an inode: to the fragments of its contents, and to the blocks that contain pointers.

use platter_image::{Error, Result};

use super::inode::Inode;
use super::superblock::Version;
use super::volume::Volume;
use crate::fields::{le32, le64};

/// Fragments that an inode owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) fragment: u64,
    pub(super) count: u64,
    /// Where they lie in the contents, in bytes; `None` for pointers and attributes.
    pub(super) file_offset: Option<u64>,
}

/// Visits all fragments that `inode` owns; those of its contents in the order of the file.
///
/// # Errors
/// `Corrupt` if there are pointers after its end, or pointers that cannot be read; errors of reading the disk, and those of
/// `visit`. As long as `visit` refuses fragments that it has seen before, there are no more steps than fragments.
pub(super) fn follow(
    volume: &Volume<'_>,
    inode: &Inode,
    visit: &mut dyn FnMut(Piece) -> Result<()>,
) -> Result<()> {
    let superblock = &volume.superblock;
    attributes(volume, inode, visit)?;
    if !inode.has_pointers(superblock) {
        return Ok(());
    }
    let mut walk = Walk { volume, length: inode.length, next: 0, is_short: false, visit };
    walk.is_short = inode.length <= inode.direct.len() as u64 * superblock.block_size;
    for pointer in inode.direct {
        walk.block(pointer, 0)?;
    }
    walk.is_short = false;
    for (pointer, depth) in inode.indirect.into_iter().zip(1..) {
        walk.block(pointer, depth)?;
    }
    match inode.length.div_ceil(superblock.block_size) <= walk.next {
        true => Ok(()),
        false => Err(Error::corrupt(format!("it has {} bytes, more than are possible", inode.length))),
    }
}

fn attributes(volume: &Volume<'_>, inode: &Inode, visit: &mut dyn FnMut(Piece) -> Result<()>) -> Result<()> {
    let superblock = &volume.superblock;
    let mut left = inode.attributes_length;
    for fragment in inode.attributes {
        let length = left.min(superblock.block_size);
        left -= length;
        match (fragment, superblock.fragments_of(length)) {
            (0, 0) => {}
            (0, _) | (_, 0) => return Err(Error::corrupt("its extended attributes have another length")),
            (fragment, count) => visit(Piece { fragment, count, file_offset: None })?,
        }
    }
    match left {
        0 => Ok(()),
        _ => Err(Error::corrupt("its extended attributes are too long")),
    }
}

struct Walk<'w, 'd> {
    volume: &'w Volume<'d>,
    /// Of the contents, in bytes.
    length: u64,
    /// The next block of the contents.
    next: u64,
    /// The last block has only as many fragments as it needs.
    is_short: bool,
    visit: &'w mut dyn FnMut(Piece) -> Result<()>,
}

impl Walk<'_, '_> {
    /// A pointer to a block of the contents, or to pointers of that depth.
    fn block(&mut self, fragment: u64, depth: u32) -> Result<()> {
        let superblock = &self.volume.superblock;
        let (size, pointer) = (superblock.block_size, superblock.pointer_length());
        let blocks = (size / pointer).saturating_pow(depth);
        if fragment == 0 {
            self.next = self.next.saturating_add(blocks);
            return Ok(());
        }
        let start = self.next.saturating_mul(size);
        if start >= self.length {
            return Err(Error::corrupt(format!("it has fragment {fragment} after its end")));
        }
        if depth == 0 {
            let length = if self.is_short { (self.length - start).min(size) } else { size };
            self.next += 1;
            let count = superblock.fragments_of(length);
            return (self.visit)(Piece { fragment, count, file_offset: Some(start) });
        }
        (self.visit)(Piece { fragment, count: superblock.block_fragments, file_offset: None })?;
        let mut bytes = vec![0; size as usize];
        self.volume.read(fragment, &mut bytes)?;
        for field in bytes.chunks_exact(pointer as usize) {
            let fragment = match superblock.version {
                Version::One => le32(field, 0).into(),
                Version::Two => le64(field, 0),
            };
            self.block(fragment, depth - 1)?;
        }
        Ok(())
    }
}
