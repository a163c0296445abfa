//! The unreadable parts of a disk: by file in filesystems that are understood, by range elsewhere.
//!
//! Decides which of them a version lists. The list fits into the free room of the version's record, whatever the files'
//! names; listed ranges are exact, and omitted ones are counted.

use std::collections::HashSet;

use platter_filesystem::{FileInode, FileKind, FileTree, open_files, probe};
use platter_image::{DiskRead, Extent, Extents};
use platter_records::{FilesystemRecord, UnreadableOmitted, UnreadableRecord, VersionRecord};

/// Most ranges that a version lists.
const RANGES_MAX: usize = 128;
/// Most files and directories that are visited to find the owner of a range.
const INODES_MAX: usize = 1 << 20;
/// Most bytes of a path in the record's encoding.
const PATH_LENGTH_MAX: usize = 400;
/// The end of a shortened path.
const CUT: &str = "…";
/// Bytes of the list in the record besides its ranges: names of fields, and the longest numbers of omitted ranges.
const LIST_OVERHEAD: usize = 128;

/// The unreadable ranges.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    /// Listed ranges, each with one of its files.
    pub(crate) listed: Vec<UnreadableRecord>,
    /// The omitted ranges.
    pub(crate) omitted: Option<UnreadableOmitted>,
}

/// Lists the unreadable ranges in at most `room` bytes of a record.
pub(crate) fn find(
    disk: &dyn DiskRead,
    filesystems: &[FilesystemRecord],
    bad: &Extents,
    room: usize,
) -> Unreadable {
    let mut listed: Vec<UnreadableRecord> = bad.iter().take(RANGES_MAX).map(unnamed).collect();
    for filesystem in filesystems {
        let place = Extent::new(filesystem.offset, filesystem.length);
        if bad.clip(place).next().is_some() {
            name_files(disk, place, filesystem.partition, &mut listed);
        }
    }
    let mut left = room.saturating_sub(LIST_OVERHEAD);
    let fit = listed.iter().take_while(|range| {
        let length = record_length(range);
        let fits = length <= left;
        left = left.saturating_sub(length);
        fits
    });
    listed.truncate(fit.count());
    let rest = &bad.as_slice()[listed.len()..];
    let bytes = rest.iter().map(|extent| extent.length).sum();
    let omitted = UnreadableOmitted { ranges: rest.len() as u64, bytes };
    Unreadable { listed, omitted: (!rest.is_empty()).then_some(omitted) }
}

/// Returns a notice about them, in a sentence.
pub(crate) fn note(record: &VersionRecord) -> Option<String> {
    let omitted = record.unreadable_omitted.unwrap_or_default();
    // Saturates: lengths in records come from clients.
    let listed = record.unreadable.iter().fold(0_u64, |sum, range| sum.saturating_add(range.length));
    let bytes = listed.saturating_add(omitted.bytes);
    let places = omitted.ranges.saturating_add(record.unreadable.len() as u64);
    let first = record.unreadable.first().map(|first| {
        let of = if first.file.is_empty() { String::new() } else { format!(" ({})", first.file) };
        format!("; the first is at {}{of}", first.offset)
    });
    (places > 0).then(|| {
        let first = first.unwrap_or_default();
        format!("{bytes} bytes in {places} places could not be read, and are zeros{first}")
    })
}

fn unnamed(extent: &Extent) -> UnreadableRecord {
    UnreadableRecord { offset: extent.offset, length: extent.length, file: String::new() }
}

/// Bytes of a range in the record's text, including a comma.
fn record_length(range: &UnreadableRecord) -> usize {
    // If this cannot be serialized, the record is refused later.
    serde_json::to_string(range).map_or(usize::MAX, |text| text.len() + 1)
}

/// Returns a path, shortened to [`PATH_LENGTH_MAX`] bytes in the record's text.
fn cut(mut path: String) -> String {
    let mut length = 0;
    let end = path.char_indices().find_map(|(at, char)| {
        length += spelled_length(char);
        (length + CUT.len() > PATH_LENGTH_MAX).then_some(at)
    });
    if let Some(end) = end {
        path.truncate(end);
        path.push_str(CUT);
    }
    path
}

/// Bytes of a character in JSON text (RFC 8259, section 7); short escapes are counted as long ones.
fn spelled_length(char: char) -> usize {
    match char {
        '"' | '\\' => 2,
        control if control < ' ' => 6,
        _ => char.len_utf8(),
    }
}

/// Sets the files of ranges. Unreadable directories are skipped, because the disk is damaged.
fn name_files(disk: &dyn DiskRead, place: Extent, partition: u32, found: &mut [UnreadableRecord]) {
    let opened = probe(disk, place).ok().and_then(|found| open_files(&found, disk, place));
    let Some(Ok(mut files)) = opened else { return };
    let Ok(root) = files.inode(files.root()) else { return };
    let mut seen = HashSet::from([root.number()]);
    let mut directories = vec![(root, format!("{partition}:"))];
    while let Some((directory, path)) = directories.pop() {
        name_ranges(&mut *files, &directory, &path, found);
        let Ok(names) = files.list(&directory) else { continue };
        for (name, number) in (0..names.len()).filter_map(|at| names.get(at)) {
            if seen.len() >= INODES_MAX || !seen.insert(number) {
                continue;
            }
            let Ok(inode) = files.inode(number) else { continue };
            let path = cut(format!("{path}/{}", String::from_utf8_lossy(name)));
            if inode.metadata().kind == FileKind::Directory {
                directories.push((inode, path));
            } else {
                name_ranges(&mut *files, &inode, &path, found);
            }
        }
    }
}

/// Sets a file as the owner of all ranges that it is in. `found` is in disk order.
fn name_ranges(files: &mut dyn FileTree, inode: &FileInode, path: &str, found: &mut [UnreadableRecord]) {
    // Damaged parts of a file have no places.
    let _ = files.visit_places(inode, &mut |place| {
        let first = found.partition_point(|range| range.offset + range.length <= place.offset);
        let inside = found[first..].iter_mut().take_while(|range| range.offset < place.end());
        for range in inside.filter(|range| range.file.is_empty()) {
            path.clone_into(&mut range.file);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::{BlockId, Score};

    struct NoDisk;

    impl DiskRead for NoDisk {
        fn length(&self) -> u64 {
            0
        }

        fn read_exact_at(&self, _buffer: &mut [u8], _offset: u64) -> std::io::Result<()> {
            Err(std::io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn bad(count: u64) -> Extents {
        (0..count).map(|at| Extent::new(at << 30, 512)).collect()
    }

    #[test]
    fn omitted_ranges_are_counted_exactly() {
        let found = find(&NoDisk, &[], &bad(1000), 1 << 16);
        assert_eq!(found.listed.len(), RANGES_MAX);
        assert!(found.listed.iter().all(|range| range.length == 512));
        assert_eq!(found.omitted, Some(UnreadableOmitted { ranges: 872, bytes: 872 * 512 }));
        let draft = VersionRecord::draft("a".parse().unwrap(), Score(BlockId([0; 32])), 0);
        let record = VersionRecord { unreadable: found.listed, unreadable_omitted: found.omitted, ..draft };
        let note = note(&record).unwrap();
        assert!(note.starts_with("512000 bytes in 1000 places could not be read"), "{note}");
        assert_eq!(find(&NoDisk, &[], &bad(128), 1 << 16).omitted, None);
    }

    /// A record that is nearly full of the user's notes still lists as many ranges as fit.
    #[test]
    fn the_list_fits_into_the_free_room_of_the_record() {
        for notes in (0..64_000).step_by(1999) {
            let draft = VersionRecord {
                notes: "n".repeat(notes),
                ..VersionRecord::draft("a".parse().unwrap(), Score(BlockId([0; 32])), 0)
            };
            let Ok(room) = draft.room() else { continue };
            let found = find(&NoDisk, &[], &bad(300), room);
            let record =
                VersionRecord { unreadable: found.listed, unreadable_omitted: found.omitted, ..draft };
            record.encode().unwrap();
            let counted = record.unreadable.len() as u64 + record.unreadable_omitted.unwrap().ranges;
            assert_eq!(counted, 300, "{notes} bytes of notes");
        }
    }

    #[test]
    fn a_path_is_shortened_by_its_bytes_in_the_record() {
        for (name, kept) in [("x", 397), ("字", 132), ("\u{1}", 66), ("\"", 198), ("\u{10348}", 99)] {
            let path = cut(name.repeat(1000));
            assert_eq!(path, format!("{}{CUT}", name.repeat(kept)));
            let text = serde_json::to_string(&path).unwrap();
            assert!(text.len() <= PATH_LENGTH_MAX + 2, "{} bytes", text.len());
        }
        assert_eq!(cut("/etc/passwd".into()), "/etc/passwd");
    }
}
