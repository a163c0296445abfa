//! Walks what an inode names: runs of contents, and the blocks of trees that name them.
//!
//! Owns the bound on the work: a filesystem cannot claim more blocks than it has, so walking ends when it does.

use platter_image::{Error, Result};

use super::inodes::{Inode, Mapping};
use super::volume::Volume;
use super::{extent_tree, indirect};

/// Levels of trees below an inode.
const LEVELS_MAX: usize = 5;

/// Something that an inode claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Contents from `file_block` on stand in `blocks` blocks from `block` on.
    Run { file_block: u64, block: u64, blocks: u64, is_written: bool },
    /// A block of the tree that names the contents.
    Node(u64),
}

/// Walks what inodes claim, within what the filesystem has.
pub(super) struct Walker<'v, 'd> {
    volume: &'v Volume<'d>,
    /// Blocks that may still be claimed.
    budget: u64,
    /// A block of memory for each level, while it is not in use.
    buffers: [Vec<u8>; LEVELS_MAX + 1],
}

impl<'v, 'd> Walker<'v, 'd> {
    pub(super) fn new(volume: &'v Volume<'d>) -> Self {
        Self::with_budget(volume, volume.superblock.blocks)
    }

    /// For walking inode by inode: the budget is what an earlier walk has left ([`Walker::budget`]).
    pub(super) fn with_budget(volume: &'v Volume<'d>, budget: u64) -> Self {
        Self { volume, budget, buffers: Default::default() }
    }

    pub(super) fn budget(&self) -> u64 {
        self.budget
    }

    pub(super) fn block_size(&self) -> u32 {
        self.volume.superblock.block_size
    }

    fn spend(&mut self, blocks: u64) -> Result<()> {
        self.budget = self.budget.checked_sub(blocks).ok_or_else(|| {
            Error::corrupt("its files claim more blocks than it has; e2fsck would tell which")
        })?;
        Ok(())
    }

    /// Tells `visit` of a run, if it lies in the filesystem.
    pub(super) fn claim(&mut self, piece: Piece, visit: &mut dyn FnMut(Piece)) -> Result<bool> {
        let Piece::Run { block, blocks, .. } = piece else { return Ok(false) };
        // What is broken costs, too: there may be any number of it.
        self.spend(blocks.max(1))?;
        let is_sound = blocks > 0 && self.volume.holds(block, blocks);
        if is_sound {
            visit(piece);
        }
        Ok(is_sound)
    }

    /// The contents of a tree's block on some level; give them back with [`Walker::leave`].
    pub(super) fn enter(
        &mut self,
        block: u64,
        level: usize,
        visit: &mut dyn FnMut(Piece),
    ) -> Result<Option<Vec<u8>>> {
        self.spend(1)?;
        if !self.volume.holds(block, 1) {
            return Ok(None);
        }
        visit(Piece::Node(block));
        let mut buffer = std::mem::take(&mut self.buffers[level]);
        buffer.resize(self.block_size() as usize, 0);
        self.volume.read(block, &mut buffer)?;
        Ok(Some(buffer))
    }

    /// Takes the memory of a tree's block back.
    pub(super) fn leave(&mut self, buffer: Vec<u8>, level: usize) {
        self.buffers[level] = buffer;
    }

    /// Tells `visit` of everything that an inode claims for its contents. False if some of it is broken.
    pub(super) fn walk(&mut self, inode: Inode<'_>, visit: &mut dyn FnMut(Piece)) -> Result<bool> {
        self.walk_as(inode.mapping(), inode, visit)
    }

    /// The same, for an inode that does not say itself how it names its blocks.
    pub(super) fn walk_as(
        &mut self,
        mapping: Mapping,
        inode: Inode<'_>,
        visit: &mut dyn FnMut(Piece),
    ) -> Result<bool> {
        match mapping {
            Mapping::None => Ok(true),
            Mapping::Extents => extent_tree::walk(self, inode.block_area(), visit),
            Mapping::Indirect => indirect::walk(self, inode.block_area(), visit),
        }
    }
}
