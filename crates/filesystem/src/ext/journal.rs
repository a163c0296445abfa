//! The journal inside a filesystem: whether it is clean, and which of its blocks need not be kept.
//!
//! The first block of the journal's inode is the journal's superblock, big-endian: magic 0xc03b3998, block type 3 or 4, from
//! offset 12 block size, length, first log block and first sequence number, and at 28 the start of the log. The start is zero if
//! and only if there is nothing to replay. The inode is number 8, which has no name. A journal that was added while the
//! filesystem was mounted may be in a file with a name, whose contents can be read, so it is kept.

use platter_image::{Error, ErrorKind, Extent, Result};

use super::groups::Group;
use super::inodes::{self, Inode};
use super::superblock::MOUNT_OR_CHECK;
use super::volume::Volume;
use super::walker::{Piece, Walker};
use crate::fields::be32;
use crate::reader::needs_recovery;

const MAGIC: u32 = 0xc03b_3998;
/// The inode of a journal without a name.
const HIDDEN: u32 = 8;

/// The journal of a filesystem.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// All of it except its superblock.
    pub(super) body: Vec<Extent>,
    /// Why its body is kept, if it is.
    pub(super) note: Option<String>,
}

/// Examines the journal, if there is one inside the filesystem.
///
/// # Errors
/// `Refused` if there is something to replay; `Corrupt`; errors of reading the disk.
pub(super) fn read(volume: &Volume<'_>, groups: &[Group]) -> Result<Journal> {
    let number = volume.superblock.journal_inode;
    if number == 0 {
        return Ok(Journal::default());
    }
    let bytes = inodes::read_one(volume, groups, number)?;
    let mut first = None;
    let mut body = Vec::new();
    let is_sound = Walker::new(volume).walk(Inode::new(number, &bytes), &mut |piece| {
        let Piece::Run { file_block, block, blocks, .. } = piece else { return };
        let own = u64::from(file_block == 0);
        if own == 1 {
            first = Some(block);
        }
        body.push(volume.place(block + own, blocks - own));
    });
    let is_sound = is_sound.map_err(|error| match error.kind() {
        ErrorKind::Corrupt => Error::corrupt(format!("its journal: {error}")),
        _ => error,
    })?;
    let kept = |reason: &str| Journal {
        body: Vec::new(),
        note: Some(format!("its journal is stored in full: {reason}")),
    };
    let Some(first) = first.filter(|_| is_sound) else {
        return Ok(kept("its inode does not name its blocks"));
    };
    let mut superblock = vec![0; volume.superblock.block_size as usize];
    volume.read(first, &mut superblock)?;
    if be32(&superblock, 0) != MAGIC || !matches!(be32(&superblock, 4), 3 | 4) {
        return Ok(kept("it has no superblock"));
    }
    if be32(&superblock, 28) != 0 {
        let reason = "its journal contains changes that were not applied yet";
        return Err(needs_recovery(reason, MOUNT_OR_CHECK));
    }
    if number != HIDDEN {
        return Ok(kept("it is in a file"));
    }
    if be32(&superblock, 12) != volume.superblock.block_size {
        return Ok(kept("its block size differs"));
    }
    Ok(Journal { body, note: None })
}
