//! Directories: every file of an ext filesystem, as `platter diff` walks it. The input is one byte of choices and a list of
//! edits to a small real one.

#![no_main]

use std::collections::HashSet;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use platter_filesystem::ext::Files;
use platter_filesystem::{FileContents, FileKind};
use platter_fuzz::{BaseDisk, bug_free};
use platter_image::{DiskRead, Extent};

static BASES: LazyLock<[BaseDisk; 4]> = LazyLock::new(|| {
    [
        BaseDisk::unpack(include_bytes!("../images/ext2.zst")),
        BaseDisk::unpack(include_bytes!("../images/ext4.zst")),
        BaseDisk::unpack(include_bytes!("../images/ext4-checksums.zst")),
        BaseDisk::unpack(include_bytes!("../images/ext4-journal.zst")),
    ]
});

fuzz_target!(|input: &[u8]| {
    let Some((choices, edits)) = input.split_first() else { return };
    let disk = BASES[usize::from(choices & 3)].edited(edits);
    let extent = Extent::new(0, disk.length());
    let Some(mut files) = bug_free(Files::open(&disk, extent)) else { return };
    let (mut waiting, mut entered) = (vec![files.root()], HashSet::new());
    while let Some(number) = waiting.pop() {
        let Some(inode) = bug_free(files.inode(number)) else { continue };
        bug_free(files.attributes(&inode));
        bug_free(files.visit_places(&inode, &mut |place| assert!(place.end() <= extent.end())));
        match inode.metadata().kind {
            FileKind::Link => drop(bug_free(files.target(&inode))),
            FileKind::Directory if entered.insert(number) => {
                let Some(listing) = bug_free(files.list(&inode)) else { continue };
                let names: Vec<_> = (0..listing.len()).filter_map(|place| listing.get(place)).collect();
                assert!(names.windows(2).all(|pair| pair[0].0 < pair[1].0), "names are not in order");
                waiting.extend(names.iter().map(|(_, inode)| *inode));
            }
            FileKind::Regular => {
                if let Some(FileContents::Runs(runs)) = bug_free(files.contents(&inode)) {
                    let overlap = |pair: &[platter_filesystem::Run]| {
                        pair[0].file_offset + pair[0].place.length > pair[1].file_offset
                    };
                    assert!(!runs.windows(2).any(overlap), "one place of a file is in two pieces");
                }
            }
            _ => {}
        }
    }
});
