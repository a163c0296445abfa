//! The blocks that inodes claim, and the inodes that exist. The bitmaps must agree with both.

use platter_image::{Error, ErrorKind, Extent, Result};

use super::features;
use super::groups::Group;
use super::inode_set::InodeSet;
use super::inodes::{self, Inode, Mapping};
use super::volume::Volume;
use super::walker::{Piece, Walker};
use super::{attributes, directory};
use crate::file_runs::FileRuns;

/// The inode whose contents are bad blocks.
const BAD_BLOCKS: u32 = 1;
/// The inode with blocks reserved for growing the group descriptors.
const RESIZE: u32 = 7;

/// A filesystem with more claims besides files is not checked: they would take more than 512 MiB of memory.
const CLAIMS_MAX: usize = 1 << 25;

/// The claims of all inodes.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Contents of regular files, unordered; consecutive runs of a file are joined.
    pub(super) files: FileRuns,
    /// Parts of regular files that were preallocated and never written.
    pub(super) unwritten: Vec<Extent>,
    /// Directories, links, trees and the filesystem's own files; each block has one owner.
    pub(super) others: Vec<Extent>,
    /// Blocks of extended attributes, which inodes may share.
    pub(super) attributes: Vec<Extent>,
    /// Bad blocks, and space for group descriptors; may lie in the metadata of groups.
    pub(super) reserved: Vec<Extent>,
    /// The blocks of directories.
    pub(super) directories: Vec<Extent>,
    /// The inodes in use.
    pub(super) in_use: InodeSet,
    /// Inodes that are named in others, and by the superblock.
    pub(super) named: Vec<u32>,
}

impl Claims {
    /// Walks all inodes in use.
    ///
    /// # Errors
    /// `Corrupt` when an inode names invalid blocks, or the filesystem claims more blocks than it has; errors
    /// of reading the disk.
    pub(super) fn gather(volume: &Volume<'_>, groups: &[Group]) -> Result<Self> {
        let superblock = &volume.superblock;
        let mut claims = Self { in_use: InodeSet::new(superblock.inodes()), ..Self::default() };
        let hint: usize = groups.iter().map(|group| group.inodes as usize).sum();
        claims.files.reserve(hint);
        claims.named.extend(superblock.own_inodes.iter().filter(|number| **number != 0));
        claims.named.push(inodes::ROOT);
        if superblock.mmp_block != 0 {
            claims.add_block(volume, superblock.mmp_block)?;
        }
        let mut walker = Walker::new(volume);
        inodes::for_each(volume, groups, |number, inode| {
            let is_sound = if number == BAD_BLOCKS {
                claims.add_reserved(volume, &mut walker, Mapping::Indirect, inode)
            } else if inode.is_in_use() {
                claims.in_use.insert(number);
                claims.add_inode(volume, &mut walker, number, inode)
            } else {
                Ok(true)
            };
            match is_sound {
                Ok(true) => claims.check_count(),
                Ok(false) => Err(Error::corrupt(format!("inode {number} names invalid blocks"))),
                // The text of this error is all that a note shows.
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    Err(Error::corrupt(format!("inode {number}: {error}")))
                }
                Err(error) => Err(error.within(format!("inode {number}"))),
            }
        })?;
        Ok(claims)
    }

    fn check_count(&self) -> Result<()> {
        let lists = [&self.unwritten, &self.others, &self.attributes, &self.reserved, &self.directories];
        let count = lists.iter().map(|list| list.len()).sum::<usize>() + self.named.len();
        match count <= CLAIMS_MAX {
            true => Ok(()),
            false => {
                Err(Error::corrupt(format!("it claims more than {CLAIMS_MAX} extents, too many to check")))
            }
        }
    }

    fn add_inode(
        &mut self,
        volume: &Volume<'_>,
        walker: &mut Walker<'_, '_>,
        number: u32,
        inode: Inode<'_>,
    ) -> Result<bool> {
        self.add_attributes(volume, inode)?;
        if inode.is_directory() {
            return self.add_directory(volume, walker, inode);
        }
        let superblock = &volume.superblock;
        // The filesystem reads its own files without asking whether a part was ever written.
        let is_own = number < superblock.first_inode
            || superblock.own_inodes.contains(&number)
            || inode.has_attribute_value();
        match (inode.is_regular(), is_own) {
            (true, true) if number == RESIZE => self.add_reserved(volume, walker, inode.mapping(), inode),
            (true, false) => self.add_file(volume, walker, inode),
            _ => self.add_other(volume, walker, inode),
        }
    }

    /// The block of an inode's attributes, and the inodes that hold values of those inside it.
    fn add_attributes(&mut self, volume: &Volume<'_>, inode: Inode<'_>) -> Result<()> {
        let features = volume.superblock.features;
        if let Some(block) = inode.attribute_block(features.incompat(features::INCOMPAT_64BIT)) {
            if !volume.holds(block, 1) {
                return Err(Error::corrupt(format!(
                    "its attributes are in block {block}, which does not exist"
                )));
            }
            push(&mut self.attributes, volume.place(block, 1));
        }
        // The attributes in that block are checked once for all inodes that share it.
        if !features.incompat(features::INCOMPAT_EA_INODE) {
            return Ok(());
        }
        let named = &mut self.named;
        attributes::in_inode(inode.bytes(), &mut |_, _, value| {
            if let attributes::Value::Inode(number, _) = value {
                named.push(number);
            }
            Ok(())
        })
    }

    fn add_directory(
        &mut self,
        volume: &Volume<'_>,
        walker: &mut Walker<'_, '_>,
        inode: Inode<'_>,
    ) -> Result<bool> {
        if inode.has_inline_data() {
            self.add_inline_directory(inode)?;
            return Ok(true);
        }
        let is_wide = volume.superblock.features.incompat(features::INCOMPAT_LARGEDIR);
        let blocks_used = inode.size(is_wide).div_ceil(u64::from(volume.superblock.block_size));
        walker.walk(inode, &mut |piece| match piece {
            Piece::Node(block) => push(&mut self.others, volume.place(block, 1)),
            Piece::Run { file_block, block, blocks, .. } => {
                push(&mut self.others, volume.place(block, blocks));
                let inside = blocks_used.saturating_sub(file_block).min(blocks);
                if inside > 0 {
                    push(&mut self.directories, volume.place(block, inside));
                }
            }
        })
    }

    /// A directory inside its inode: the parent's number, then entries; the rest is in an attribute.
    fn add_inline_directory(&mut self, inode: Inode<'_>) -> Result<()> {
        let named = &mut self.named;
        let mut add = |block: &[u8]| {
            directory::entries(block).try_for_each(|entry| {
                named.extend(entry.map(|(number, _)| number).map(|number| (number != 0).then_some(number))?);
                Ok(())
            })
        };
        add(&inode.block_area()[4..])?;
        attributes::in_inode(inode.bytes(), &mut |index, name, value| match value {
            attributes::Value::Here(value) if attributes::is_inline_data(index, name) => add(value),
            _ => Ok(()),
        })
    }

    fn add_file(
        &mut self,
        volume: &Volume<'_>,
        walker: &mut Walker<'_, '_>,
        inode: Inode<'_>,
    ) -> Result<bool> {
        let block_size = u64::from(volume.superblock.block_size);
        let is_sound = walker.walk(inode, &mut |piece| match piece {
            Piece::Node(block) => push(&mut self.others, volume.place(block, 1)),
            Piece::Run { block, blocks, is_written: false, .. } => {
                push(&mut self.unwritten, volume.place(block, blocks));
            }
            Piece::Run { file_block, block, blocks, .. } => {
                self.files.add(volume.place(block, blocks), file_block * block_size);
            }
        })?;
        self.files.end_file(&mut |fragment| push(&mut self.others, fragment))?;
        Ok(is_sound)
    }

    fn add_other(
        &mut self,
        volume: &Volume<'_>,
        walker: &mut Walker<'_, '_>,
        inode: Inode<'_>,
    ) -> Result<bool> {
        walker.walk(inode, &mut |piece| match piece {
            Piece::Node(block) => push(&mut self.others, volume.place(block, 1)),
            Piece::Run { block, blocks, .. } => push(&mut self.others, volume.place(block, blocks)),
        })
    }

    fn add_reserved(
        &mut self,
        volume: &Volume<'_>,
        walker: &mut Walker<'_, '_>,
        mapping: Mapping,
        inode: Inode<'_>,
    ) -> Result<bool> {
        walker.walk_as(mapping, inode, &mut |piece| match piece {
            Piece::Node(block) => push(&mut self.reserved, volume.place(block, 1)),
            Piece::Run { block, blocks, .. } => push(&mut self.reserved, volume.place(block, blocks)),
        })
    }

    fn add_block(&mut self, volume: &Volume<'_>, block: u64) -> Result<()> {
        if !volume.holds(block, 1) {
            return Err(Error::corrupt(format!("its superblock names block {block}, which does not exist")));
        }
        push(&mut self.others, volume.place(block, 1));
        Ok(())
    }
}

/// Adds an extent, joined with the last one if it continues it.
fn push(extents: &mut Vec<Extent>, extent: Extent) {
    match extents.last_mut() {
        Some(last) if last.end() == extent.offset => last.length += extent.length,
        _ => extents.push(extent),
    }
}
