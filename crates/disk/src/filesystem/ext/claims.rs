//! Who claims which blocks: files, preallocation that was never written, and all others.
//!
//! Owns the bound on the work: a filesystem cannot claim more blocks than it has, so walking ends when it does.

use platter_image::chunking::FileRun;
use platter_image::{Error, Extent, Extents, Result};

use super::groups::Group;
use super::inodes::{self, Inode, Mapping};
use super::volume::Volume;
use super::{extent_tree, indirect};

/// More file runs than this are not kept: 1 GiB of memory.
const FILE_RUNS_MAX: usize = 1 << 26;

/// Runs for which memory is set aside before they are counted.
const FILE_RUNS_RESERVED_MAX: usize = 1 << 22;

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
        match inode.mapping() {
            Mapping::None => Ok(true),
            Mapping::Extents => extent_tree::walk(self, inode.block_area(), visit),
            Mapping::Indirect => indirect::walk(self, inode.block_area(), visit),
        }
    }
}

/// What all inodes claim.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Contents of regular files, in no order; runs of a file that continue each other are one.
    pub(super) files: Vec<FileRun>,
    /// Preallocated and never written.
    pub(super) unwritten: Vec<Extent>,
    /// Directories, links, trees, extended attributes. Only if there is anything unwritten to tell from them.
    pub(super) others: Vec<Extent>,
    /// Inodes with something broken.
    pub(super) broken: u64,
    /// There were more runs than are kept.
    pub(super) is_cut: bool,
}

/// A run that the next piece may continue.
#[derive(Clone, Copy)]
struct Open {
    file_block: u64,
    block: u64,
    blocks: u64,
}

impl Claims {
    /// Walks all inodes in use.
    ///
    /// # Errors
    /// What reading the disk says, and `Corrupt` when the filesystem claims more blocks than it has.
    pub(super) fn gather(volume: &Volume<'_>, groups: &[Group]) -> Result<Self> {
        let mut claims = Self::default();
        let hint: usize = groups.iter().map(|group| group.inodes as usize).sum();
        claims.files.reserve(hint.min(FILE_RUNS_RESERVED_MAX));
        let mut walker = Walker::new(volume);
        inodes::for_each(volume, groups, |number, inode| {
            let is_own = number < volume.superblock.first_inode;
            // The journal is dealt with by itself, and the resize inode claims what descriptors may grow into.
            if is_own && inode.is_regular() {
                return Ok(());
            }
            if let Some(block) = inode.attribute_block().filter(|block| volume.holds(*block, 1)) {
                push(&mut claims.others, volume.place(block, 1));
            }
            let is_sound = if inode.is_regular() {
                claims.add_file(volume, &mut walker, inode)?
            } else {
                claims.add_other(volume, &mut walker, inode)?
            };
            claims.broken += u64::from(!is_sound);
            Ok(())
        })?;
        Ok(claims)
    }

    fn add_file(
        &mut self,
        volume: &Volume<'_>,
        walker: &mut Walker<'_, '_>,
        inode: Inode<'_>,
    ) -> Result<bool> {
        let mut open: Option<Open> = None;
        let is_sound = walker.walk(inode, &mut |piece| match piece {
            Piece::Node(block) => push(&mut self.others, volume.place(block, 1)),
            Piece::Run { block, blocks, is_written: false, .. } => {
                push(&mut self.unwritten, volume.place(block, blocks));
            }
            Piece::Run { file_block, block, blocks, .. } => match &mut open {
                Some(open)
                    if open.file_block + open.blocks == file_block && open.block + open.blocks == block =>
                {
                    open.blocks += blocks;
                }
                _ => {
                    self.add_run(volume, open);
                    open = Some(Open { file_block, block, blocks });
                }
            },
        })?;
        self.add_run(volume, open);
        Ok(is_sound)
    }

    fn add_run(&mut self, volume: &Volume<'_>, run: Option<Open>) {
        let Some(run) = run else { return };
        if self.files.len() >= FILE_RUNS_MAX {
            self.is_cut = true;
            return;
        }
        let place = volume.place(run.block, run.blocks);
        let file_offset = run.file_block * u64::from(volume.superblock.block_size);
        self.files.push(FileRun::new(place.offset, place.length, file_offset));
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
}

/// Adds an extent, to the last one if it continues it.
fn push(extents: &mut Vec<Extent>, extent: Extent) {
    match extents.last_mut() {
        Some(last) if last.end() == extent.offset => last.length += extent.length,
        _ => extents.push(extent),
    }
}

/// Sorts runs, and drops those that claim what an earlier one has. Returns how many were dropped.
pub(super) fn sort_and_part(files: &mut Vec<FileRun>) -> usize {
    files.sort_unstable();
    let before = files.len();
    let mut end = 0;
    files.retain(|run| {
        let extent = run.extent();
        let is_apart = extent.offset >= end;
        if is_apart {
            end = extent.end();
        }
        is_apart
    });
    before - files.len()
}

/// What of sorted runs, which may overlap, is not in `allocated`.
pub(super) fn missing(files: &[FileRun], allocated: &Extents) -> Vec<Extent> {
    let mut rest = Vec::new();
    let mut known = allocated.as_slice();
    for run in files.iter().map(FileRun::extent) {
        let passed = known.iter().take_while(|extent| extent.end() <= run.offset).count();
        known = &known[passed..];
        let mut start = run.offset;
        for extent in known.iter().take_while(|extent| extent.offset < run.end()) {
            if start < extent.offset {
                rest.push(Extent::between(start, extent.offset));
            }
            start = extent.end();
        }
        if start < run.end() {
            rest.push(Extent::between(start, run.end()));
        }
    }
    rest
}
