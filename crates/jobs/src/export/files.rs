//! Finds the files of filesystems in unreadable ranges of a disk.
//!
//! Nothing unreadable counts as intact: a directory or inode that cannot be read is listed itself, and a note says that
//! more may be below it.

use std::collections::HashSet;

use platter_filesystem::{FileInode, FileKind, FileTree, open_files, probe};
use platter_image::{DiskRead, Extent, Extents, Result};
use platter_records::FilesystemRecord;
use serde::Serialize;

use crate::diff::displayed;

/// Most listed files; further ones are only counted.
const FILES_MAX: usize = 10_000;
/// Directories deeper than this are not entered.
const DEPTH_MAX: usize = 4096;

/// A file that is partly or completely in unreadable ranges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostFile {
    /// The partition, from 1; 0 when the filesystem is the whole disk.
    pub partition: u32,
    /// Its path in the filesystem; one of them, if it has several names.
    pub path: String,
    /// Its bytes in lost ranges of the disk.
    pub lost_bytes: u64,
    /// The lost part: `contents`, `directory` (its entries are unknown) or `inode`.
    pub what: &'static str,
}

/// Returns the files of these filesystems in `lost`, and notes.
pub(super) fn lost_files(
    disk: &dyn DiskRead,
    filesystems: &[FilesystemRecord],
    lost: &Extents,
) -> (Vec<LostFile>, Vec<String>) {
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    for filesystem in filesystems {
        let extent = Extent::new(filesystem.offset, filesystem.length);
        let inside: Extents = lost.clip(extent).collect();
        if inside.is_empty() {
            continue;
        }
        let place = match filesystem.partition {
            0 => "the disk".to_owned(),
            number => format!("partition {number}"),
        };
        let opened = match probe(disk, extent) {
            Ok(found) => open_files(&found, disk, extent),
            Err(error) => Some(Err(error)),
        };
        let Some(opened) = opened else {
            notes.push(format!("{place}: files of {} are not supported", filesystem.kind));
            continue;
        };
        match opened {
            Ok(files) => {
                let room = FILES_MAX.saturating_sub(found.len());
                let mut walk = Walk::new(files, &inside, filesystem.partition, room);
                walk.run();
                if walk.omitted > 0 {
                    notes.push(format!("{place}: {} more files are not listed", walk.omitted));
                }
                found.extend(walk.found);
            }
            Err(error) => notes.push(format!("{place}: its files cannot be listed: {error}")),
        }
    }
    if found.iter().any(|file| file.what != "contents") {
        notes.push("files below a lost directory or inode are unknown".into());
    }
    (found, notes)
}

/// A walk over all directories of a filesystem.
struct Walk<'a> {
    files: Box<dyn FileTree + 'a>,
    lost: &'a Extents,
    partition: u32,
    /// Inodes that were visited, under any name.
    seen: HashSet<u64>,
    found: Vec<LostFile>,
    /// Most listed files; further ones are only counted.
    room: usize,
    omitted: usize,
}

impl<'a> Walk<'a> {
    fn new(files: Box<dyn FileTree + 'a>, lost: &'a Extents, partition: u32, room: usize) -> Self {
        Self { files, lost, partition, seen: HashSet::new(), found: Vec::new(), room, omitted: 0 }
    }

    fn run(&mut self) {
        let mut directories = vec![(self.files.root(), String::new())];
        while let Some((number, path)) = directories.pop() {
            if let Err(what) = self.directory(number, &path, &mut directories) {
                let path = if path.is_empty() { "/".to_owned() } else { path };
                self.tell(path, 0, what);
            }
        }
    }

    /// Visits the entries of a directory, and returns what of it is lost.
    fn directory(
        &mut self,
        number: u64,
        path: &str,
        directories: &mut Vec<(u64, String)>,
    ) -> Result<(), &'static str> {
        let inode = self.files.inode(number).map_err(|_| "inode")?;
        self.seen.insert(number);
        let listing = self.files.list(&inode).map_err(|_| "directory")?;
        if !listing.faults().is_empty() {
            self.tell(path.to_owned(), 0, "directory");
        }
        for at in 0..listing.len() {
            let Some((name, number)) = listing.get(at) else { continue };
            if !self.seen.insert(number) {
                continue;
            }
            let path = format!("{path}/{}", displayed(name, inode.is_encrypted()));
            match self.files.inode(number) {
                Err(_) => self.tell(path, 0, "inode"),
                Ok(inode) if inode.metadata().kind == FileKind::Directory => {
                    if path.matches('/').count() < DEPTH_MAX {
                        directories.push((number, path));
                    }
                }
                Ok(inode) => match self.lost_bytes(&inode) {
                    Ok(0) => {}
                    Ok(bytes) => self.tell(path, bytes, "contents"),
                    Err(_) => self.tell(path, 0, "contents"),
                },
            }
        }
        Ok(())
    }

    fn lost_bytes(&mut self, inode: &FileInode) -> Result<u64> {
        let (mut bytes, lost) = (0, self.lost);
        self.files.visit_places(inode, &mut |place| {
            bytes += lost.clip(place).map(|extent| extent.length).sum::<u64>();
        })?;
        Ok(bytes)
    }

    fn tell(&mut self, path: String, lost_bytes: u64, what: &'static str) {
        if self.found.len() >= self.room {
            self.omitted += 1;
            return;
        }
        self.found.push(LostFile { partition: self.partition, path, lost_bytes, what });
    }
}
