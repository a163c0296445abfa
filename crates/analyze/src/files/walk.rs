//! Every regular file of a filesystem, each once. Loops of directories and deep trees end.

use std::collections::HashSet;

use platter_filesystem::{FileInode, FileKind, FileTree, Listing};
use platter_image::{Error, Result};

use super::digest::ContentsDigest;
use crate::tally::Digest;

/// Directories deeper than this are not entered.
const DEPTH_MAX: usize = 4096;

/// Called with the digest of a file's contents and their length without zeros, or the reason why something cannot be read.
type Visit<'v> = &'v mut dyn FnMut(Result<(Digest, u64)>);

/// Visits the contents of all files that are not empty.
///
/// # Errors
/// Errors that are no damage.
pub(super) fn visit_files(files: &mut dyn FileTree, visit: Visit<'_>) -> Result<()> {
    let root = files.root();
    let mut seen = HashSet::from([root]);
    let mut stack: Vec<(Listing, usize)> = Vec::new();
    let opened = files.inode(root).and_then(|root| open(files, &root));
    stack.extend(told(opened, visit)?.map(|listing| (listing, 0)));
    while let Some((listing, next)) = stack.last_mut() {
        let Some((_, number)) = listing.get(*next) else {
            stack.pop();
            continue;
        };
        *next += 1;
        if !seen.insert(number) {
            continue;
        }
        let Some(inode) = told(files.inode(number), visit)? else { continue };
        match inode.metadata().kind {
            FileKind::Directory if stack.len() < DEPTH_MAX => {
                let opened = open(files, &inode);
                stack.extend(told(opened, visit)?.map(|listing| (listing, 0)));
            }
            FileKind::Directory => {
                visit(Err(Error::refused(format!("deeper than {DEPTH_MAX} directories"))));
            }
            FileKind::Regular => {
                let digest = digest_of(files, &inode);
                if let Some(Some(digest)) = told(digest, visit)? {
                    visit(Ok(digest));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn open(files: &mut dyn FileTree, directory: &FileInode) -> Result<Listing> {
    files.renew();
    files.list(directory)
}

fn digest_of(files: &mut dyn FileTree, inode: &FileInode) -> Result<Option<(Digest, u64)>> {
    files.renew();
    let mut digest = ContentsDigest::new();
    files.visit_contents(inode, &mut |offset, piece| digest.add(offset, piece))?;
    Ok(digest.finish())
}

/// Visits damage, and files that are encrypted; returns other errors.
fn told<T>(result: Result<T>, visit: Visit<'_>) -> Result<Option<T>> {
    use platter_image::ErrorKind::{Bug, Transient};
    match result {
        Err(error) if matches!(error.kind(), Transient | Bug) => Err(error),
        Err(error) => {
            visit(Err(error));
            Ok(None)
        }
        Ok(found) => Ok(Some(found)),
    }
}
