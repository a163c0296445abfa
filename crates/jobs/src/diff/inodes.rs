//! Compares two inodes with the same path.

use platter_filesystem::{FileInode, FileKind};
use platter_image::{Extents, Result};

use super::contents::{Side, changed_bytes};

/// The differences: words, and bytes of contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) what: Vec<&'static str>,
    pub(super) bytes: u64,
}

/// Compares two inodes with their contents and attributes. `unmoved` has the ranges in which the disks differ, if both
/// filesystems are at the same place and have the same form of inodes; otherwise nothing is considered equal because of
/// its place.
///
/// # Errors
/// `Corrupt` when one of them is damaged; the errors of reading the disks.
pub(super) fn compare(
    (a, inode_a): (&mut Side<'_>, &FileInode),
    (b, inode_b): (&mut Side<'_>, &FileInode),
    changed: &Extents,
    is_unmoved: bool,
) -> Result<Changes> {
    if is_unmoved && inode_a.bytes() == inode_b.bytes() && is_untouched(a, inode_a, changed)? {
        return Ok(Changes::default());
    }
    let (meta_a, meta_b) = (inode_a.metadata(), inode_b.metadata());
    let mut found = Changes::default();
    if meta_a.kind != meta_b.kind {
        found.what.push("type");
        return Ok(found);
    }
    match meta_a.kind {
        FileKind::Regular => {
            found.bytes = changed_bytes((a, inode_a), (b, inode_b), changed)?;
            found.what.extend((found.bytes > 0).then_some("contents"));
        }
        FileKind::Link => {
            let differs = a.files.target(inode_a)? != b.files.target(inode_b)?;
            found.what.extend(differs.then_some("target"));
        }
        _ => {}
    }
    let attributes_differ = a.files.attributes(inode_a)? != b.files.attributes(inode_b)?;
    let is_directory = meta_a.kind == FileKind::Directory;
    let rest = [
        ("device", meta_a.device != meta_b.device),
        ("mode", meta_a.mode != meta_b.mode),
        ("owner", meta_a.owner != meta_b.owner),
        ("mtime", meta_a.mtime != meta_b.mtime),
        ("xattrs", attributes_differ),
        ("flags", meta_a.flags != meta_b.flags),
        ("project", meta_a.project != meta_b.project),
        // The link count of a directory depends on its subdirectories.
        ("links", meta_a.links != meta_b.links && !is_directory),
    ];
    found.what.extend(rest.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name));
    Ok(found)
}

/// Whether nothing differs in the ranges of an inode's contents and attributes.
fn is_untouched(side: &mut Side<'_>, inode: &FileInode, changed: &Extents) -> Result<bool> {
    let mut is_untouched = true;
    let is_sound = side.files.visit_places(inode, &mut |place| {
        is_untouched = is_untouched && changed.clip(place).next().is_none();
    })?;
    Ok(is_sound && is_untouched)
}
