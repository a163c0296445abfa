//! A version opened for looking into it: its partitions, and the names in its filesystems.

use std::collections::HashSet;

use platter_disk::survey::read_table;
use platter_fetch::{OpenStore, StoreLocation};
use platter_filesystem::{FileInode, FileKind, FileTree, Found, Listing, READABLE, label, open_files, probe};
use platter_image::recipe::Recipe;
use platter_image::{DiskRead, Error, Extent, Result};
use platter_vdisk::{BlockCache, CacheOptions, DiskView, RecipeDisk};

use crate::entry::{FileEntry, PartitionEntry};
use crate::location::FileLocation;
use crate::path::{resolve, shown};

/// Memory for decoded blocks, in bytes.
const CACHE_BYTES: u64 = 64 << 20;
/// Directories deeper than this are not entered.
pub(crate) const DEPTH_MAX: usize = 4096;

/// Opens a version as a disk, and runs `work` with it.
fn with_disk<T>(
    store: &StoreLocation,
    version: &str,
    work: impl FnOnce(&dyn DiskRead) -> Result<T>,
) -> Result<T> {
    let store = OpenStore::open_reader(store)?;
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
    work: impl FnOnce(&mut dyn FileTree, &str) -> Result<T>,
) -> Result<T> {
    with_disk(store, &location.version, |disk| {
        let extent = choose(&read_partitions(disk)?, location)?;
        let files = open_files(&probe(disk, extent)?, disk, extent);
        let mut files =
            files.ok_or_else(|| Error::bug("a filesystem is no longer readable"))?.map_err(|error| {
                error.within(format!("the filesystem at offset {} of the image", extent.offset))
            })?;
        work(&mut *files, location.path.as_deref().unwrap_or("/"))
    })
}

/// Returns the partitions of a version.
///
/// # Errors
/// `Missing` if there is no such version; those of reading.
pub fn partitions(store: &StoreLocation, version: &str) -> Result<Vec<PartitionEntry>> {
    with_disk(store, version, |disk| read_partitions(disk))
}

pub(crate) fn read_partitions(disk: &dyn DiskRead) -> Result<Vec<PartitionEntry>> {
    let table = read_table(disk)?;
    let listed = table.partitions.iter().filter(|partition| !partition.container);
    let mut places: Vec<(Option<u32>, Extent, &str)> =
        listed.map(|partition| (Some(partition.number), partition.extent, partition.type_name)).collect();
    if places.is_empty() {
        places.push((None, Extent::new(0, disk.length()), ""));
    }
    places.into_iter().map(|(number, extent, type_name)| describe(disk, number, extent, type_name)).collect()
}

fn describe(
    disk: &dyn DiskRead,
    number: Option<u32>,
    extent: Extent,
    type_name: &str,
) -> Result<PartitionEntry> {
    let is_inside = extent.end() <= disk.length();
    let found = if is_inside { probe(disk, extent)? } else { Found::Nothing };
    let (mut filesystem, label) = match &found {
        Found::Filesystem(name) => ((*name).to_owned(), label(disk, extent, name)),
        Found::Swap(_) => ("swap".to_owned(), None),
        Found::Ambiguous(names) => (names.join(" or "), None),
        Found::Nothing => (type_name.to_owned(), None),
    };
    let mut label = label;
    let opened = if is_inside { open_files(&found, disk, extent) } else { None };
    let is_readable = opened.is_some();
    if let Some(Ok(files)) = opened {
        filesystem = files.filesystem().to_owned();
        label = files.names().0.map(str::to_owned);
    }
    let (offset, length) = (extent.offset, extent.length);
    Ok(PartitionEntry { number, offset, length, filesystem, label, is_readable })
}

/// Returns the place of the filesystem that a location names.
pub(crate) fn choose(partitions: &[PartitionEntry], location: &FileLocation) -> Result<Extent> {
    let place = |found: &PartitionEntry| Extent::new(found.offset, found.length);
    let listed = || {
        let shown = partitions.iter().map(|found| {
            let number = found.number.map_or("the whole disk".into(), |number| number.to_string());
            format!("{number} ({})", if found.filesystem.is_empty() { "unknown" } else { &found.filesystem })
        });
        shown.collect::<Vec<_>>().join(", ")
    };
    let version = &location.version;
    if let Some(number) = location.partition {
        let found = partitions.iter().find(|found| found.number == Some(number));
        let found = found.ok_or_else(|| {
            Error::missing(format!("{version} has no partition {number}; it has {}", listed()))
        })?;
        if !found.is_readable {
            return Err(Error::refused(format!(
                "partition {number} of {version} contains {}: only files of {READABLE} can be read",
                if found.filesystem.is_empty() { "nothing known" } else { &found.filesystem }
            )));
        }
        return Ok(place(found));
    }
    let readable: Vec<&PartitionEntry> = partitions.iter().filter(|found| found.is_readable).collect();
    match readable[..] {
        [only] => Ok(place(only)),
        [] => Err(Error::refused(format!(
            "{version} has no filesystem whose files can be read ({READABLE}); it has {}",
            listed()
        ))),
        _ => Err(Error::refused(format!(
            "{version} has several filesystems: write {version}:NUMBER/PATH; it has {}",
            listed()
        ))),
    }
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
        let listing = open_directory(files, &inode)?;
        tell_faults(&listing, path, visit);
        for place in 0..listing.len() {
            let Some((name, number)) = listing.get(place) else { break };
            let name = shown(name);
            let child = files.inode(number).and_then(|child| entry(files, name.clone(), &child));
            visit(child.map_err(|error| error.within(name)));
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
        let base = path.trim_end_matches('/').to_owned();
        visit(Ok(entry(files, if base.is_empty() { "/".into() } else { base.clone() }, &root)?));
        let mut seen = HashSet::from([root.number()]);
        let mut stack: Vec<(String, Listing, usize)> = Vec::new();
        if root.metadata().kind == FileKind::Directory {
            let listing = open_directory(files, &root)?;
            tell_faults(&listing, &base, visit);
            stack.push((base, listing, 0));
        }
        while let Some((directory, listing, next)) = stack.last_mut() {
            let Some((name, number)) = listing.get(*next) else {
                stack.pop();
                continue;
            };
            *next += 1;
            let path = format!("{directory}/{}", shown(name));
            let found =
                files.inode(number).and_then(|inode| Ok((entry(files, path.clone(), &inode)?, inode)));
            let inode = match found {
                Ok((entry, inode)) => {
                    visit(Ok(entry));
                    inode
                }
                Err(error) => {
                    visit(Err(error.within(path)));
                    continue;
                }
            };
            if inode.metadata().kind != FileKind::Directory || !seen.insert(number) {
                continue;
            }
            let opened = match stack.len() < DEPTH_MAX {
                true => open_directory(files, &inode),
                false => Err(Error::refused(format!("deeper than {DEPTH_MAX} directories"))),
            };
            match opened {
                Ok(listing) => {
                    tell_faults(&listing, &path, visit);
                    stack.push((path, listing, 0));
                }
                Err(error) => visit(Err(error.within(path))),
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
fn tell_faults(listing: &Listing, directory: &str, visit: Visit<'_>) {
    let directory = if directory.is_empty() { "/" } else { directory };
    for fault in listing.faults() {
        visit(Err(Error::corrupt(fault.clone()).within(directory)));
    }
}

fn entry(files: &mut dyn FileTree, name: String, inode: &FileInode) -> Result<FileEntry> {
    let is_link = inode.metadata().kind == FileKind::Link && !inode.is_encrypted();
    let target = if is_link { Some(files.target(inode)?) } else { None };
    Ok(FileEntry::new(name, inode, target))
}
