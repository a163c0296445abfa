//! A version opened for looking into it: the names in its filesystems.

use std::collections::HashSet;

use platter_api::{FileEntry, PartitionEntry};
use platter_fetch::{OpenStore, StoreLocation};
use platter_filesystem::{FileInode, FileKind, FileTree, Listing, escaped, resolve};
use platter_image::recipe::Recipe;
use platter_image::{DiskRead, Error, Result};
use platter_vdisk::{BlockCache, CacheOptions, DiskView, RecipeDisk, advise};

use crate::entry::file_entry;
use crate::location::FileLocation;
use crate::partitions::Partitions;

/// Memory for decoded blocks, in bytes.
const CACHE_BYTES: u64 = 64 << 20;
/// Directories deeper than this are not entered.
pub(crate) const DEPTH_MAX: usize = 4096;

/// What is wrong with a directory that was met before: it is not entered again.
pub(crate) const SEVERAL_NAMES: &str = "the directory has several names";

/// Opens a version as a disk, and runs `work` with it.
fn with_disk<T>(
    store: &StoreLocation,
    version: &str,
    work: impl FnOnce(&dyn DiskRead) -> Result<T>,
) -> Result<T> {
    let store = OpenStore::open_reader(store)?;
    store.domain()?.check_open()?;
    let resolved = store.resolve(version)?;
    let source = store.source(resolved.score, Default::default());
    let cache = BlockCache::new(CacheOptions { block_bytes_max: CACHE_BYTES, ..CacheOptions::default() })?;
    let sector_size = Recipe::open(resolved.score, &*source)?.root().sector_size;
    let disk = RecipeDisk::open(resolved.score, source, cache)?;
    work(&DiskView { device: &disk, sector_size })
}

/// Opens the filesystem of a location, and runs `work` with its files and the path.
pub(crate) fn with_files<T>(
    store: &StoreLocation,
    location: &FileLocation,
    work: impl FnOnce(&mut dyn FileTree, &[u8]) -> Result<T>,
) -> Result<T> {
    with_disk(store, &location.version, |disk| {
        let partition = Partitions::read(disk, &location.version)?.choose(location)?;
        let done = partition
            .open(disk)
            .and_then(|mut files| work(&mut *files, location.path.as_deref().unwrap_or(b"/")));
        done.map_err(|error| advise(error, || partition.of(&location.version)))
    })
}

/// Returns the partitions of a version.
///
/// # Errors
/// `Missing` if there is no such version; those of reading, except that a damaged partition is an entry.
pub fn partitions(store: &StoreLocation, version: &str) -> Result<Vec<PartitionEntry>> {
    with_disk(store, version, |disk| Partitions::read(disk, version)?.describe())
}

/// Receives each file that is found, or the reason why one cannot be read.
pub type Visit<'v> = &'v mut dyn FnMut(Result<FileEntry>);

/// Calls `visit` with each name in the directory at a location, sorted; with the file itself if it is no directory.
///
/// # Errors
/// `Missing` if there is no such version or path; those of reading the directory itself.
pub fn list(store: &StoreLocation, location: &FileLocation, visit: Visit<'_>) -> Result<()> {
    with_files(store, location, |files, path| {
        let inode = resolve(files, path, true)?;
        if inode.metadata().kind != FileKind::Directory {
            visit(Ok(entry(files, path.to_owned(), &inode)?));
            return Ok(());
        }
        let listing = open_directory(files, &inode).map_err(|error| error.within(shown(path)))?;
        tell_faults(&listing, path, visit);
        for place in 0..listing.len() {
            let Some((name, number)) = listing.get(place) else { break };
            let child = files.inode(number).and_then(|child| entry(files, name.to_vec(), &child));
            visit(child.map_err(|error| error.within(escaped(name))));
        }
        Ok(())
    })
}

/// Calls `visit` with everything below a location, and the location itself first. What cannot be read is left out after `visit`
/// got the reason.
///
/// # Errors
/// `Missing` if there is no such version or path; those of reading the location itself.
pub fn find(store: &StoreLocation, location: &FileLocation, visit: Visit<'_>) -> Result<()> {
    with_files(store, location, |files, path| {
        let root = resolve(files, path, true)?;
        let length = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let base = path[..length].to_vec();
        visit(Ok(entry(files, if base.is_empty() { b"/".to_vec() } else { base.clone() }, &root)?));
        let mut seen = HashSet::from([root.number()]);
        let mut stack: Vec<(Vec<u8>, Listing, usize)> = Vec::new();
        if root.metadata().kind == FileKind::Directory {
            let listing = open_directory(files, &root).map_err(|error| error.within(shown(&base)))?;
            tell_faults(&listing, &base, visit);
            stack.push((base, listing, 0));
        }
        while let Some((directory, listing, next)) = stack.last_mut() {
            let Some((name, number)) = listing.get(*next) else {
                stack.pop();
                continue;
            };
            *next += 1;
            let path = [directory.as_slice(), b"/", name].concat();
            let found =
                files.inode(number).and_then(|inode| Ok((entry(files, path.clone(), &inode)?, inode)));
            let inode = match found {
                Ok((entry, inode)) => {
                    visit(Ok(entry));
                    inode
                }
                Err(error) => {
                    visit(Err(error.within(escaped(&path))));
                    continue;
                }
            };
            if inode.metadata().kind != FileKind::Directory {
                continue;
            }
            let opened = if !seen.insert(number) {
                Err(Error::corrupt(SEVERAL_NAMES))
            } else if stack.len() >= DEPTH_MAX {
                Err(Error::refused(format!("deeper than {DEPTH_MAX} directories")))
            } else {
                open_directory(files, &inode)
            };
            match opened {
                Ok(listing) => {
                    tell_faults(&listing, &path, visit);
                    stack.push((path, listing, 0));
                }
                Err(error) => visit(Err(error.within(escaped(&path)))),
            }
        }
        Ok(())
    })
}

/// Returns the names in a directory.
///
/// # Errors
/// `Refused` if they are encrypted; those of reading.
pub(crate) fn open_directory(files: &mut dyn FileTree, inode: &FileInode) -> Result<Listing> {
    if inode.is_encrypted() {
        return Err(Error::refused(format!(
            "the names in directory {} are encrypted, and the key is not in the image",
            inode.number()
        )));
    }
    files.list(inode)
}

/// Passes what is wrong with names in a directory, which are left out.
fn tell_faults(listing: &Listing, directory: &[u8], visit: Visit<'_>) {
    let directory = shown(directory);
    for fault in listing.faults() {
        visit(Err(Error::corrupt(fault.clone()).within(&directory)));
    }
}

/// A path in messages.
pub(crate) fn shown(path: &[u8]) -> String {
    if path.is_empty() { "/".to_owned() } else { escaped(path) }
}

pub(crate) fn entry(files: &mut dyn FileTree, name: Vec<u8>, inode: &FileInode) -> Result<FileEntry> {
    let is_link = inode.metadata().kind == FileKind::Link && !inode.is_encrypted();
    let target = if is_link { Some(files.target(inode)?) } else { None };
    Ok(file_entry(name, inode, target))
}
