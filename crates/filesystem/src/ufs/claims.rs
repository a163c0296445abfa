//! Everything that inodes claim: each fragment has one owner.

use platter_image::{Error, ErrorKind, Extent, Result};

use super::directory::{self, SECTION_LENGTH};
use super::group::Group;
use super::inode::{Inode, Kind};
use super::pointers::{self, Piece};
use super::volume::Volume;
use crate::clusters::ClusterSet;
use crate::file_runs::FileRuns;

/// Inodes that are marked as used and never exist.
const RESERVED_INODES: u64 = 2;
/// The inode of the root directory.
const ROOT: u64 = 2;
/// Bytes of inodes that are read at once, approximately.
const PIECE_LENGTH: u64 = 1 << 20;
/// A longer directory is not read.
const DIRECTORY_LENGTH_MAX: u64 = 1 << 30;

/// The claims so far.
pub(super) struct Claims<'v, 'd> {
    volume: &'v Volume<'d>,
    pub(super) claimed: ClusterSet,
    pub(super) files: FileRuns,
    /// Inodes in use, and inodes that directories name.
    pub(super) in_use: ClusterSet,
    pub(super) named: ClusterSet,
}

impl<'v, 'd> Claims<'v, 'd> {
    /// Nothing is claimed yet; the root directory is named.
    pub(super) fn new(volume: &'v Volume<'d>) -> Self {
        let inodes = volume.superblock.inodes();
        let mut named = ClusterSet::new(inodes);
        named.insert(ROOT);
        Self {
            volume,
            claimed: ClusterSet::new(volume.superblock.fragments),
            files: FileRuns::default(),
            in_use: ClusterSet::new(inodes),
            named,
        }
    }

    /// Claims what all groups have before their data, and the counters of groups.
    ///
    /// # Errors
    /// `Corrupt` if these fragments do not exist or have two owners.
    pub(super) fn metadata(&mut self) -> Result<()> {
        let superblock = &self.volume.superblock;
        for number in 0..superblock.groups {
            let start = superblock.metadata_start(number);
            let from = if number == 0 { 0 } else { superblock.copy };
            self.claim(start + from, superblock.data - from)
                .map_err(|error| error.within(format!("the metadata of group {number}")))?;
        }
        let (summary, count) = superblock.summary;
        self.claim(summary, count).map_err(|error| error.within("the counters of groups".to_owned()))
    }

    /// Reads the inodes of a group, and claims everything that they have. Returns the number of directories.
    ///
    /// # Errors
    /// `Corrupt` if anything contradicts anything else; errors of reading the disk.
    pub(super) fn group(&mut self, number: u64, group: &Group) -> Result<u64> {
        let superblock = &self.volume.superblock;
        let table = superblock.metadata_start(number) + superblock.inode_table;
        let length = superblock.inode_length();
        let per_fragment = superblock.fragment_size / length;
        let step = (PIECE_LENGTH / superblock.fragment_size).max(1);
        let mut directories = 0;
        let mut index = 0;
        while index < group.written_inodes {
            let fragments = (group.written_inodes - index).div_ceil(per_fragment).min(step);
            let mut bytes = vec![0; (fragments * superblock.fragment_size) as usize];
            self.volume.read(table + index / per_fragment, &mut bytes)?;
            for bytes in bytes.chunks_exact(length as usize) {
                if index < group.written_inodes {
                    let inode = number * superblock.group_inodes + index;
                    directories += self
                        .inode(inode, bytes, group.is_in_use(index))
                        .map_err(|error| within_inode(error, inode))?;
                }
                index += 1;
            }
        }
        match (group.written_inodes..superblock.group_inodes).find(|index| group.is_in_use(*index)) {
            None => Ok(directories),
            Some(index) => Err(Error::corrupt(format!(
                "inode {} is marked as used, but was never written",
                number * superblock.group_inodes + index
            ))),
        }
    }

    /// Returns 1 for a directory.
    fn inode(&mut self, number: u64, bytes: &[u8], is_marked: bool) -> Result<u64> {
        let inode = match (Inode::parse(bytes, &self.volume.superblock)?, is_marked) {
            (None, false) => return Ok(0),
            (None, true) if number < RESERVED_INODES => return Ok(0),
            (Some(inode), true) => inode,
            (Some(_), false) => return Err(Error::corrupt("it is in use, but marked as free")),
            (None, true) => return Err(Error::corrupt("it is free, but marked as used")),
        };
        self.in_use.insert(number);
        if inode.kind == Kind::Directory && inode.length > DIRECTORY_LENGTH_MAX {
            return Err(Error::corrupt(format!("it is a directory of {} bytes", inode.length)));
        }
        let mut pieces = Vec::new();
        let mut fragments = 0;
        let volume = self.volume;
        pointers::follow(volume, &inode, &mut |piece| {
            self.claim(piece.fragment, piece.count)?;
            fragments += piece.count;
            match (inode.kind, piece.file_offset) {
                (Kind::File, Some(offset)) => self.files.add(self.place(piece), offset),
                (Kind::Directory, Some(_)) => pieces.push(piece),
                _ => {}
            }
            Ok(())
        })?;
        self.files.end_file(&mut |_| {})?;
        let sectors = fragments * (volume.superblock.fragment_size / 512);
        if sectors != inode.sectors {
            return Err(Error::corrupt(format!("it has {sectors} sectors, but says {}", inode.sectors)));
        }
        if inode.kind != Kind::Directory {
            return Ok(0);
        }
        self.directory(&inode, &pieces)?;
        Ok(1)
    }

    fn directory(&mut self, inode: &Inode, pieces: &[Piece]) -> Result<()> {
        let block_size = self.volume.superblock.block_size;
        let is_whole = inode.length.is_multiple_of(SECTION_LENGTH as u64);
        let has_holes = pieces.len() as u64 != inode.length.div_ceil(block_size);
        if !is_whole || has_holes {
            return Err(Error::corrupt(format!("it is a directory of {} bytes", inode.length)));
        }
        for (piece, start) in pieces.iter().zip((0..).step_by(block_size as usize)) {
            let mut bytes = vec![0; (inode.length - start).min(block_size) as usize];
            self.volume.read(piece.fragment, &mut bytes)?;
            directory::for_each_inode(&bytes, &mut |inode| {
                let exists = inode < self.volume.superblock.inodes();
                self.named.insert(inode);
                if exists { Ok(()) } else { Err(Error::corrupt(format!("it names inode {inode}"))) }
            })?;
        }
        Ok(())
    }

    fn place(&self, piece: Piece) -> Extent {
        self.volume.fragments.at(piece.fragment, piece.count)
    }

    fn claim(&mut self, fragment: u64, count: u64) -> Result<()> {
        if !self.volume.fragments.hold(fragment, count) {
            return Err(Error::corrupt(format!("fragment {fragment} does not exist")));
        }
        match (fragment..fragment + count).find(|fragment| !self.claimed.insert(*fragment)) {
            None => Ok(()),
            Some(twice) => Err(Error::corrupt(format!("fragment {twice} has two owners"))),
        }
    }
}

fn within_inode(error: Error, inode: u64) -> Error {
    match error.kind() {
        ErrorKind::Corrupt => Error::corrupt(format!("inode {inode}: {error}")),
        _ => error.within(format!("inode {inode}")),
    }
}
