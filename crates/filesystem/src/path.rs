//! Paths in a filesystem: from the root to an inode, through symbolic links.

use std::collections::VecDeque;

use platter_image::{Error, Result};

use crate::file_name::escaped;
use crate::files::{FileInode, FileKind, FileTree};

/// The most symbolic links on a path, as in the kernel.
const LINKS_MAX: usize = 40;
/// The most parts of a path, counting those of links.
const PARTS_MAX: usize = 4096;

/// Returns the inode at `path`. Links are followed inside the filesystem: `/` is its root. `follow`: the last part, too.
///
/// # Errors
/// `Missing` if there is none; `Refused` for too many links, or a file that is used as a directory; those of reading.
pub fn resolve(files: &mut dyn FileTree, path: &[u8], follow: bool) -> Result<FileInode> {
    let mut parts: VecDeque<Vec<u8>> = split(path).collect();
    let shown = escaped(path);
    // The directories from the root to the present one.
    let mut trail = vec![files.inode(files.root())?];
    let (mut links, mut walked) = (0, 0);
    while let Some(part) = parts.pop_front() {
        walked += 1;
        if walked > PARTS_MAX {
            return Err(Error::refused(format!("{shown}: more than {PARTS_MAX} parts")));
        }
        if part == b".." {
            if trail.len() > 1 {
                trail.pop();
            }
            continue;
        }
        let Some(directory) = trail.last() else { return Err(Error::bug("a path without a root")) };
        if directory.metadata().kind != FileKind::Directory {
            let part = escaped(&part);
            return Err(Error::refused(format!("{shown}: what is before \"{part}\" is no directory")));
        }
        let number = files.list(directory)?.find(&part);
        let missing = || Error::missing(format!("{shown}: there is no \"{}\"", escaped(&part)));
        let number = number.ok_or_else(missing)?;
        let inode = files.inode(number)?;
        if inode.metadata().kind == FileKind::Link && (follow || !parts.is_empty()) {
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::refused(format!("{shown}: more than {LINKS_MAX} symbolic links")));
            }
            let target = files.target(&inode)?;
            if target.first() == Some(&b'/') {
                trail.truncate(1);
            }
            for part in split(&target).collect::<Vec<_>>().into_iter().rev() {
                parts.push_front(part);
            }
            continue;
        }
        trail.push(inode);
    }
    trail.pop().ok_or_else(|| Error::bug("a path without a root"))
}

fn split(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec)
}
