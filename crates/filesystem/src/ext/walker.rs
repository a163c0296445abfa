//! Walks everything that an inode claims: runs of contents, and the tree blocks that name them.
//!
//! It limits the work: a filesystem cannot claim more blocks than it has, and a tree block has one parent, so the walk stops when that is
//! not so. Hence it passes no more pieces than there are entries in all inodes and tree blocks.

use std::collections::HashSet;

use platter_image::{Error, Result};

use super::inodes::{Inode, Mapping};
use super::superblock::Superblock;
use super::volume::Volume;
use super::{extent_tree, indirect};

/// The most tree levels below an inode.
const LEVELS_MAX: usize = 5;

/// Something that an inode claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Contents starting at block `file_block` of the file lie in `blocks` blocks starting at `block`.
    Run { file_block: u64, block: u64, blocks: u64, is_written: bool },
    /// A block of the tree that names the contents.
    Node(u64),
}

/// Walks what inodes claim, within a budget of blocks.
pub(super) struct Walker<'v, 'd> {
    volume: &'v Volume<'d>,
    /// Blocks that may still be claimed.
    budget: u64,
    /// The tree blocks that were read.
    nodes: HashSet<u64>,
    /// One buffer per level, while it is not in use.
    buffers: [Vec<u8>; LEVELS_MAX + 1],
}

impl<'v, 'd> Walker<'v, 'd> {
    pub(super) fn new(volume: &'v Volume<'d>) -> Self {
        Self::with_budget(volume, volume.superblock.blocks)
    }

    /// For walking inode by inode: `budget` is what the last walk left ([`Walker::budget`]).
    pub(super) fn with_budget(volume: &'v Volume<'d>, budget: u64) -> Self {
        Self { volume, budget, nodes: HashSet::new(), buffers: Default::default() }
    }

    pub(super) fn budget(&self) -> u64 {
        self.budget
    }

    pub(super) fn superblock(&self) -> &'v Superblock {
        &self.volume.superblock
    }

    pub(super) fn block_size(&self) -> u32 {
        self.volume.superblock.block_size
    }

    fn spend(&mut self, blocks: u64) -> Result<()> {
        self.budget = self.budget.checked_sub(blocks).ok_or_else(|| {
            Error::corrupt("its files claim more blocks than it has; e2fsck can tell which")
        })?;
        Ok(())
    }

    /// Passes a run to `visit` if it lies in the filesystem. Returns whether it does.
    pub(super) fn claim(&mut self, piece: Piece, visit: &mut dyn FnMut(Piece)) -> Result<bool> {
        let Piece::Run { block, blocks, .. } = piece else { return Ok(false) };
        // Charge invalid runs as well: there may be any number of them.
        self.spend(blocks.max(1))?;
        let is_sound = blocks > 0 && self.volume.holds(block, blocks);
        if is_sound {
            visit(piece);
        }
        Ok(is_sound)
    }

    /// Reads a tree block on some level. Return the buffer with [`Walker::leave`].
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
        if !self.nodes.insert(block) {
            return Err(Error::corrupt(format!("block {block} is claimed twice, as a block of a tree")));
        }
        visit(Piece::Node(block));
        let mut buffer = std::mem::take(&mut self.buffers[level]);
        buffer.resize(self.block_size() as usize, 0);
        self.volume.read(block, &mut buffer)?;
        Ok(Some(buffer))
    }

    /// Takes back the buffer of a tree block.
    pub(super) fn leave(&mut self, buffer: Vec<u8>, level: usize) {
        self.buffers[level] = buffer;
    }

    /// Passes everything that an inode claims for its contents to `visit`. Returns `false` if some of it is
    /// invalid.
    pub(super) fn walk(&mut self, inode: Inode<'_>, visit: &mut dyn FnMut(Piece)) -> Result<bool> {
        self.walk_as(inode.mapping(), inode, visit)
    }

    /// Like [`Walker::walk`], with the mapping given, for an inode that does not state it.
    pub(super) fn walk_as(
        &mut self,
        mapping: Mapping,
        inode: Inode<'_>,
        visit: &mut dyn FnMut(Piece),
    ) -> Result<bool> {
        match mapping {
            Mapping::None => Ok(true),
            Mapping::Extents => extent_tree::walk(self, inode, visit),
            Mapping::Indirect => indirect::walk(self, inode.block_area(), visit),
        }
    }
}
