//! What of a disk could not be read: by file where ext tells whose it is, by range elsewhere.

use std::collections::HashSet;

use platter_disk::filesystem::ext::{FileInode, FileKind, Files};
use platter_image::{DiskRead, Extent, Extents};
use platter_store::{FilesystemRecord, UnreadableRecord};

/// Most ranges that a version keeps: its record has little room.
const RANGES_MAX: usize = 128;
/// Files and directories that are gone through to find whose a range is.
const INODES_MAX: usize = 1 << 20;
/// Most bytes of a path that is kept.
const PATH_LENGTH_MAX: usize = 200;

/// The ranges that could not be read, each with a file that has some of it. What is past [`RANGES_MAX`] is one range.
pub(crate) fn list(
    disk: &dyn DiskRead,
    filesystems: &[FilesystemRecord],
    bad: &Extents,
) -> Vec<UnreadableRecord> {
    let mut found: Vec<UnreadableRecord> = bad
        .iter()
        .map(|extent| UnreadableRecord { offset: extent.offset, length: extent.length, file: String::new() })
        .collect();
    for filesystem in filesystems.iter().filter(|filesystem| filesystem.kind.starts_with("ext")) {
        let place = Extent::new(filesystem.offset, filesystem.length);
        if bad.clip(place).next().is_some() {
            name_files(disk, place, filesystem.partition, &mut found);
        }
    }
    if let Some(last) = found.len().checked_sub(1).filter(|last| *last >= RANGES_MAX) {
        let (first, end) = (found[RANGES_MAX - 1].offset, found[last].offset + found[last].length);
        found.truncate(RANGES_MAX - 1);
        let file = "(more ranges than are listed)".to_owned();
        found.push(UnreadableRecord { offset: first, length: end - first, file });
    }
    found
}

/// What to tell of it, in a sentence.
pub(crate) fn note(unreadable: &[UnreadableRecord]) -> Option<String> {
    let first = unreadable.first()?;
    let bytes: u64 = unreadable.iter().map(|range| range.length).sum();
    let of = if first.file.is_empty() { String::new() } else { format!(" ({})", first.file) };
    Some(format!(
        "{bytes} bytes in {} places could not be read, and are zeros; the first is at {}{of}",
        unreadable.len(),
        first.offset
    ))
}

/// Sets the files of ranges. What cannot be gone through is left out: the disk is damaged.
fn name_files(disk: &dyn DiskRead, place: Extent, partition: u32, found: &mut [UnreadableRecord]) {
    let Ok(mut files) = Files::open(disk, place) else { return };
    let Ok(root) = files.inode(files.root()) else { return };
    let mut seen = HashSet::from([root.number()]);
    let mut left = vec![(root, format!("{partition}:"))];
    while let Some((inode, path)) = left.pop() {
        name_ranges(&mut files, &inode, &path, found);
        if inode.metadata().kind != FileKind::Directory {
            continue;
        }
        let Ok(names) = files.list(&inode) else { continue };
        for (name, number) in (0..names.len()).filter_map(|at| names.get(at)) {
            if seen.len() < INODES_MAX
                && seen.insert(number)
                && let Ok(inode) = files.inode(number)
            {
                left.push((inode, format!("{path}/{}", String::from_utf8_lossy(name))));
            }
        }
    }
}

fn name_ranges(files: &mut Files<'_>, inode: &FileInode, path: &str, found: &mut [UnreadableRecord]) {
    let mut places = Vec::new();
    // What is broken of it has no places.
    let _ = files.visit_places(inode, &mut |place| places.push(place));
    let places = Extents::from_unsorted(places);
    for range in found.iter_mut().filter(|range| range.file.is_empty()) {
        if places.clip(Extent::new(range.offset, range.length)).next().is_some() {
            range.file = path.chars().take(PATH_LENGTH_MAX).collect();
        }
    }
}
