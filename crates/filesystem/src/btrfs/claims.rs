//! The extents that trees and files claim, and the check that the extent tree lists all of them.

use std::collections::BTreeMap;

use platter_image::chunking::FileRun;
use platter_image::{Error, Extent, Extents, Result};

use super::chunks::Chunks;
use super::extents::Allocated;
use super::node::Key;
use super::superblock::Root;
use super::swap_files::SwapFiles;
use super::volume::Volume;
use super::walk::Walker;
use crate::fields::le64;
use crate::file_runs::FileRuns;

pub(super) const ROOT_ITEM: u8 = 132;
pub(super) const EXTENT_DATA: u8 = 108;
const INODE_ITEM: u8 = 1;

/// The shortest root item: up to its level.
const ROOT_ITEM_LENGTH: usize = 239;
/// The part of an extent's item that names its place.
pub(super) const EXTENT_DATA_LENGTH: usize = 53;

pub(super) const INLINE: u8 = 0;
pub(super) const WRITTEN: u8 = 1;
pub(super) const UNWRITTEN: u8 = 2;

/// More trees are not read.
const TREES_MAX: usize = 1 << 20;

/// The trees that the root tree names.
#[derive(Debug, Default)]
pub(super) struct Trees {
    roots: BTreeMap<(u64, u64), Root>,
}

impl Trees {
    /// Reads the root tree.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be trusted; errors of reading the disk.
    pub(super) fn read(
        volume: &Volume<'_>,
        walker: &mut Walker<'_, '_>,
        files: &mut Files<'_>,
    ) -> Result<Self> {
        let mut trees = Self::default();
        walker.walk("root", volume.superblock.root_tree, &mut |key, item| {
            if key.kind == ROOT_ITEM {
                return trees.add(key, item);
            }
            // The cache of free space has files in the root tree.
            files.add(key, item)
        })?;
        files.end()?;
        Ok(trees)
    }

    fn add(&mut self, key: Key, item: &[u8]) -> Result<()> {
        if self.roots.len() >= TREES_MAX {
            return Err(Error::corrupt(format!("it has more than {TREES_MAX} trees")));
        }
        self.roots.extend(root_of_item(key, item)?.map(|root| ((key.object, key.offset), root)));
        Ok(())
    }

    /// The tree with that number.
    ///
    /// # Errors
    /// `Corrupt` if there is none.
    pub(super) fn get(&self, number: u64) -> Result<Root> {
        let found = self.roots.range((number, 0)..=(number, u64::MAX)).next();
        found.map(|(_, root)| *root).ok_or_else(|| Error::corrupt(format!("it has no tree {number}")))
    }

    /// All trees.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, Root)> {
        self.roots.iter().map(|((number, _), root)| (*number, *root))
    }
}

/// The root of a tree in its item; `None` if nobody can read the tree.
///
/// # Errors
/// `Corrupt` if the item is cut off.
pub(super) fn root_of_item(key: Key, item: &[u8]) -> Result<Option<Root>> {
    if item.len() < ROOT_ITEM_LENGTH {
        return Err(Error::corrupt(format!("the root of tree {} is cut off", key.object)));
    }
    // A subvolume that is being deleted still has pointers to blocks that are already free. What is left of it is in the extent
    // tree, and nobody can read it.
    let is_being_deleted = item[216..220] == [0; 4] || Key::parse(&item[220..]) != Key::default();
    let (address, generation) = (le64(item, 176), le64(item, 160));
    Ok((!is_being_deleted && address != 0).then_some(Root { address, level: item[238], generation }))
}

/// A filesystem with more separate extents of files is not read: they would take more than 512 MiB of memory.
const ADDRESSES_MAX: usize = 1 << 25;

/// Ranges of addresses, in any order and with repetitions.
#[derive(Debug, Default)]
struct Addresses {
    list: Vec<Extent>,
}

impl Addresses {
    fn add(&mut self, extent: Extent) -> Result<()> {
        match self.list.last_mut() {
            Some(last) if *last == extent => return Ok(()),
            Some(last) if last.end() == extent.offset => {
                last.length += extent.length;
                return Ok(());
            }
            _ => {}
        }
        if self.list.len() >= ADDRESSES_MAX {
            self.list = self.take().iter().copied().collect();
        }
        if self.list.len() >= ADDRESSES_MAX / 2 {
            let what = format!("its files have more than {} extents, too many to check", ADDRESSES_MAX / 2);
            return Err(Error::corrupt(what));
        }
        self.list.push(extent);
        Ok(())
    }

    fn take(&mut self) -> Extents {
        Extents::from_unsorted(std::mem::take(&mut self.list))
    }
}

/// Where files lie, and which extents they name.
pub(super) struct Files<'v> {
    volume_offset: u64,
    chunks: &'v Chunks,
    /// The runs in the first and in the second copy of chunks.
    runs: [FileRuns; 2],
    /// The extents that were named, to be checked when the extent tree was read.
    named: Addresses,
    /// The parts of them that a file reads, and those that a file knows as unwritten.
    written: Addresses,
    unwritten: Addresses,
    /// The files that may be swap files.
    pub(super) swap_files: SwapFiles,
    /// The current inode.
    inode: Option<u64>,
}

impl<'v> Files<'v> {
    pub(super) fn new(volume: &Volume<'_>, chunks: &'v Chunks) -> Self {
        let runs = [FileRuns::default(), FileRuns::default()];
        let [named, written, unwritten] = Default::default();
        let swap_files = SwapFiles::default();
        let volume_offset = volume.extent.offset;
        Self { volume_offset, chunks, runs, named, written, unwritten, swap_files, inode: None }
    }

    /// Adds an item of a tree; items of other kinds are ignored.
    ///
    /// # Errors
    /// `Corrupt` if it is impossible.
    pub(super) fn add(&mut self, key: Key, item: &[u8]) -> Result<()> {
        if key.kind == INODE_ITEM {
            self.swap_files.begin(item);
        }
        if key.kind != EXTENT_DATA {
            return Ok(());
        }
        if self.inode != Some(key.object) {
            self.end()?;
            self.inode = Some(key.object);
        }
        let wrong =
            |what: &str| Error::corrupt(format!("inode {}, offset {}: {what}", key.object, key.offset));
        let Some(kind) = item.get(20) else { return Err(wrong("its extent is cut off")) };
        match *kind {
            INLINE => return Ok(()),
            WRITTEN | UNWRITTEN if item.len() >= EXTENT_DATA_LENGTH => {}
            kind => return Err(wrong(&format!("its extent is cut off or has the unknown type {kind}"))),
        }
        let (address, length) = (le64(item, 21), le64(item, 29));
        if address == 0 {
            return Ok(());
        }
        self.name(address, length).map_err(|error| wrong(&error.to_string()))?;
        let (offset, used) = (le64(item, 37), le64(item, 45));
        let is_plain = item[16] == 0 && item[17] == 0 && item[18..20] == [0, 0];
        if *kind == WRITTEN && !is_plain {
            // Compressed or encrypted extents are alike wherever their bytes are, so each counts as a file.
            self.end()?;
            self.run(Extent::new(address, length), 0).map_err(|error| wrong(&error.to_string()))?;
            return self.end();
        }
        let is_inside = offset.checked_add(used).is_some_and(|end| end <= length) && used > 0;
        let is_aligned = (offset | used | key.offset).is_multiple_of(4096);
        if !is_inside || !is_aligned || !is_plain {
            return Err(wrong(&format!(
                "it uses {used} bytes from {offset} on of an extent of {length} bytes"
            )));
        }
        let place = Extent::new(address + offset, used);
        self.swap_files.add(key.offset, place, *kind == WRITTEN)?;
        match *kind {
            UNWRITTEN => self.unwritten.add(place),
            _ => self.run(place, key.offset).map_err(|error| wrong(&error.to_string())),
        }
    }

    fn name(&mut self, address: u64, length: u64) -> Result<()> {
        let is_impossible = length == 0 || address.checked_add(length).is_none();
        if is_impossible || !(address | length).is_multiple_of(4096) {
            return Err(Error::corrupt(format!(
                "its extent of {length} bytes at address {address} is impossible"
            )));
        }
        self.named.add(Extent::new(address, length))
    }

    fn run(&mut self, addresses: Extent, file_offset: u64) -> Result<()> {
        let Extent { offset: address, length } = addresses;
        let chunk = self.chunks.find(address, length).ok_or_else(|| {
            Error::corrupt(format!("its extent of {length} bytes at address {address} is in no chunk"))
        })?;
        for (copy, runs) in (0..chunk.places().len()).zip(&mut self.runs) {
            let place = Chunks::place(chunk, copy, address, length);
            runs.add(Extent::new(self.volume_offset + place.offset, place.length), file_offset);
        }
        self.written.add(addresses)
    }

    /// Ends the current file.
    ///
    /// # Errors
    /// `Corrupt` if there are too many runs.
    pub(super) fn end(&mut self) -> Result<()> {
        self.runs.iter_mut().try_for_each(|runs| runs.end_file(&mut |_| ()))
    }

    /// Checks that everything that was named is allocated for data. Returns where files lie, and the addresses that no file
    /// has written.
    ///
    /// # Errors
    /// `Corrupt` if something is not allocated.
    pub(super) fn agreed(mut self, allocated: &Allocated) -> Result<(Vec<FileRun>, Extents)> {
        let named = self.named.take();
        let free = named.subtract(&allocated.data);
        if let Some(free) = free.as_slice().first() {
            return Err(Error::corrupt(format!(
                "a file names {} bytes at address {}, which is free according to the extent tree",
                free.length, free.offset
            )));
        }
        let unwritten = self.unwritten.take().subtract(&self.written.take());
        let [mut runs, others] = std::mem::take(&mut self.runs);
        runs.append(others);
        runs.sort();
        runs.make_disjoint();
        Ok((runs.into_vec(), unwritten))
    }
}
