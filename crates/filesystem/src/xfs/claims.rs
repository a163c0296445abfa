//! The blocks that trees and inodes claim, and the check that none of them is free.

use platter_image::{Error, Extent, Extents, Result};

use super::free_space::{BY_LENGTH, BY_PLACE, overlaps};
use super::group::{Group, HEADERS, Root};
use super::inode_tree::{self, CHUNK, Chunk, FREE_INODES, INODES};
use super::inodes::{Fork, Inode};
use super::mapping::{Mapper, Piece};
use super::short_tree::{Kind, ShortTree};
use super::volume::Volume;
use crate::file_runs::FileRuns;

const REVERSE_MAP: Kind =
    Kind { name: "reverse map", magics: [b"RMB3"; 2], key_length: 40, record_length: 24 };
const REFERENCE_COUNTS: Kind =
    Kind { name: "reference count", magics: [b"R3FC"; 2], key_length: 4, record_length: 12 };

/// A filesystem with more claims besides files is not read: they would take more than 512 MiB of memory.
const CLAIMS_MAX: usize = 1 << 25;

/// The claimed blocks. All offsets are those of the device.
pub(super) struct Claims<'v, 'd> {
    volume: &'v Volume<'d>,
    free: &'v Extents,
    /// Contents of regular files.
    pub(super) files: FileRuns,
    /// Extents of regular files that were never written.
    unwritten: Vec<Extent>,
    /// Headers, trees, inodes, directories, attributes, the log: each block has one owner.
    others: Vec<Extent>,
    /// Short runs of fragmented files.
    fragments: Vec<Extent>,
}

impl<'v, 'd> Claims<'v, 'd> {
    /// Gathers what all groups claim.
    ///
    /// # Errors
    /// `Corrupt` if something is not what it must be, or is free; errors of reading the disk.
    pub(super) fn gather(volume: &'v Volume<'d>, groups: &[Group], free: &'v Extents) -> Result<Self> {
        let (files, unwritten) = (FileRuns::default(), Vec::new());
        let mut claims = Self { volume, free, files, unwritten, others: Vec::new(), fragments: Vec::new() };
        let inodes =
            groups.iter().map(|group| group.inodes_allocated as usize).fold(0, usize::saturating_add);
        claims.files.reserve(inodes);
        let superblock = &volume.superblock;
        claims.other(volume.place(superblock.log_start, superblock.log_blocks.into()), "the log")?;
        let mut mapper = Mapper::new(volume);
        for group in groups {
            claims.add_group(group)?;
            claims.add_inodes(group, &mut mapper)?;
        }
        Ok(claims)
    }

    fn add_group(&mut self, group: &Group) -> Result<()> {
        let number = group.number;
        let headers =
            (HEADERS * u64::from(self.volume.superblock.sector_size)).div_ceil(self.volume.block_size());
        self.other(self.volume.place_in_group(number, 0, headers), "a header of a group")?;
        let trees: [(Kind, Option<Root>); 6] = [
            (BY_PLACE, Some(group.by_place)),
            (BY_LENGTH, Some(group.by_length)),
            (REVERSE_MAP, group.reverse_map),
            (REFERENCE_COUNTS, group.reference_counts),
            (INODES, Some(group.inodes)),
            (FREE_INODES, group.free_inodes),
        ];
        for (kind, root) in trees {
            let Some(root) = root else { continue };
            let name = kind.name;
            ShortTree::new(self.volume, number, kind).nodes(root, &mut |place| {
                self.other(Some(place), "a node of a tree")
                    .map_err(|error| error_within(&error, &format!("the {name} tree of group {number}")))
            })?;
        }
        Ok(())
    }

    fn add_inodes(&mut self, group: &Group, mapper: &mut Mapper<'v, 'd>) -> Result<()> {
        let superblock = &self.volume.superblock;
        let size = superblock.inode_size as usize;
        let mut buffer = vec![0; CHUNK as usize * size];
        inode_tree::for_each(self.volume, group, &mut |chunk| {
            self.add_chunk(group, chunk, &mut buffer)?;
            let bits = superblock.group_bits + superblock.block_inode_bits;
            let first = u64::from(group.number) << bits | u64::from(chunk.first);
            for (bit, bytes) in (0..).zip(buffer.chunks_exact(size)) {
                if chunk.used >> bit & 1 == 1 {
                    let number = first + bit;
                    self.add_inode(number, bytes, mapper)
                        .map_err(|error| error_within(&error, &format!("inode {number}")))?;
                }
            }
            Ok(())
        })
    }

    /// Claims and reads those inodes of a chunk that have a place on the disk.
    fn add_chunk(&mut self, group: &Group, chunk: Chunk, buffer: &mut [u8]) -> Result<()> {
        let superblock = &self.volume.superblock;
        let (size, bits) = (u64::from(superblock.inode_size), superblock.block_inode_bits);
        let mut bit = 0;
        while bit < CHUNK {
            let rest = chunk.present >> bit;
            let count = if rest & 1 == 0 { rest.trailing_zeros() } else { rest.trailing_ones() };
            let count = count.min(CHUNK - bit);
            if rest & 1 == 1 {
                let first = chunk.first + bit;
                let (start, end) = (first >> bits, (u64::from(first) + u64::from(count)).div_ceil(1 << bits));
                let place = self.volume.place_in_group(group.number, start, end - u64::from(start));
                let place = place.ok_or_else(|| {
                    Error::corrupt(format!("inode {first} of group {} is outside of the group", group.number))
                })?;
                // Blocks of 64 KiB may hold several chunks, and they follow each other.
                match self.others.last() {
                    Some(last) if last.end() == place.end() && last.offset <= place.offset => {}
                    _ => self.other(Some(place), "a chunk of inodes")?,
                }
                let skip = (u64::from(first) - (u64::from(start) << bits)) * size;
                let at = bit as usize * size as usize;
                self.volume
                    .read(place.offset + skip, &mut buffer[at..at + count as usize * size as usize])?;
            }
            bit += count;
        }
        Ok(())
    }

    fn add_inode(&mut self, number: u64, bytes: &[u8], mapper: &mut Mapper<'v, 'd>) -> Result<()> {
        let inode = Inode::parse(self.volume, number, bytes)?;
        // The filesystem reads its own files without asking whether a part was ever written.
        let is_plain = inode.is_regular && !self.volume.superblock.own_inodes.contains(&number);
        walk(mapper, inode.data, &mut |piece| match piece {
            Piece::Run { file_offset, place, is_written: true } if is_plain => {
                self.check(place, "contents of a file")?;
                self.files.add(place, file_offset);
                Ok(())
            }
            Piece::Run { place, is_written: false, .. } if is_plain => {
                self.check(place, "an unwritten extent")?;
                push(&mut self.unwritten, place)
            }
            Piece::Run { is_written: false, .. } if !inode.is_regular => {
                Err(Error::corrupt("a directory or link has an extent that was never written"))
            }
            Piece::Run { place, .. } | Piece::Node(place) => {
                self.other(Some(place), "a directory, link, tree or own file")
            }
        })?;
        let fragments = &mut self.fragments;
        let mut is_full = Ok(());
        self.files.end_file(&mut |fragment| {
            if is_full.is_ok() {
                is_full = push(fragments, fragment);
            }
        })?;
        is_full?;
        walk(mapper, inode.attributes, &mut |piece| match piece {
            Piece::Run { place, .. } | Piece::Node(place) => self.other(Some(place), "attributes"),
        })
    }

    /// Claims something that has one owner.
    fn other(&mut self, place: Option<Extent>, what: &str) -> Result<()> {
        let place = place.ok_or_else(|| Error::corrupt(format!("{what} is outside of the filesystem")))?;
        self.check(place, what)?;
        push(&mut self.others, place)
    }

    fn check(&self, place: Extent, what: &str) -> Result<()> {
        match overlaps(self.free, place) {
            true => Err(Error::corrupt(format!(
                "{what} {} is free according to the trees of free space",
                self.volume.at(place.offset)
            ))),
            false => Ok(()),
        }
    }

    /// Checks that blocks have one owner, except those of files that share them. Returns the files, sorted and without
    /// overlap, and the unwritten extents.
    ///
    /// # Errors
    /// `Corrupt` if a block has two owners.
    pub(super) fn agreed(mut self) -> Result<(FileRuns, Extents)> {
        self.files.sort();
        let is_shared = self.volume.superblock.has_reflink;
        let fragments = Extents::from_unsorted(std::mem::take(&mut self.fragments));
        let mut others = std::mem::take(&mut self.others);
        others.reserve_exact(self.unwritten.len());
        others.extend(&self.unwritten);
        others.sort_unstable();
        if let Some(pair) = others.windows(2).find(|pair| pair[0].end() > pair[1].offset) {
            return Err(self.claimed_twice(pair[1].offset));
        }
        let owned: Extents = others.into_iter().collect();
        let mut end = 0;
        for run in self.files.as_slice() {
            let run = run.extent();
            if run.offset < end && !is_shared || overlaps(&owned, run) {
                return Err(self.claimed_twice(run.offset));
            }
            end = end.max(run.end());
        }
        if let Some(fragment) = fragments.iter().find(|fragment| overlaps(&owned, **fragment)) {
            return Err(self.claimed_twice(fragment.offset));
        }
        self.files.make_disjoint();
        Ok((self.files, Extents::from_unsorted(self.unwritten)))
    }

    fn claimed_twice(&self, offset: u64) -> Error {
        Error::corrupt(format!("a block {} is claimed twice", self.volume.at(offset)))
    }
}

/// Passes everything that a fork claims to `visit`.
fn walk(
    mapper: &mut Mapper<'_, '_>,
    fork: Fork<'_>,
    visit: &mut dyn FnMut(Piece) -> Result<()>,
) -> Result<()> {
    match fork {
        Fork::Nothing | Fork::Inside(_) => Ok(()),
        Fork::List(area, count) => mapper.list(area, count, visit),
        Fork::Tree(root) => mapper.tree(root, visit),
    }
}

/// Adds an extent, joined with the last one if it continues it.
fn push(extents: &mut Vec<Extent>, extent: Extent) -> Result<()> {
    let is_full = extents.len() >= CLAIMS_MAX;
    match extents.last_mut() {
        Some(last) if last.end() == extent.offset => last.length += extent.length,
        _ if is_full => {
            return Err(Error::corrupt(format!(
                "it claims more than {CLAIMS_MAX} extents, too many to check"
            )));
        }
        _ => extents.push(extent),
    }
    Ok(())
}

/// The same error with an outer name in its text, which is all that a note shows.
fn error_within(error: &Error, name: &str) -> Error {
    Error::new(error.kind(), format!("{name}: {error}"))
}
