//! The files of small images of every filesystem: their names and contents, and damaged copies of the images, which must cause
//! neither panics nor endless work.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod images;
#[allow(unreachable_pub, reason = "the fuzz targets use it from another crate")]
#[path = "../../../fuzz/src/walk.rs"]
mod walk;

use images::{damage, random};
use platter_filesystem::{FileKind, FileTree, Found, open_files};
use platter_image::{DiskRead, Extent};

/// The images that the fuzz targets start from.
const IMAGES: [(&str, &[u8]); 11] = [
    ("ext2", include_bytes!("../../../fuzz/images/ext2.zst")),
    ("ext4", include_bytes!("../../../fuzz/images/ext4.zst")),
    ("ext4 with checksums", include_bytes!("../../../fuzz/images/ext4-checksums.zst")),
    ("xfs", include_bytes!("../../../fuzz/images/xfs.zst")),
    ("xfs with checksums", include_bytes!("../../../fuzz/images/xfs-checksums.zst")),
    ("btrfs", include_bytes!("../../../fuzz/images/btrfs.zst")),
    ("fat12", include_bytes!("../../../fuzz/images/fat12.zst")),
    ("fat16", include_bytes!("../../../fuzz/images/fat16.zst")),
    ("fat32", include_bytes!("../../../fuzz/images/fat32.zst")),
    ("exfat", include_bytes!("../../../fuzz/images/exfat.zst")),
    ("ntfs", include_bytes!("../../../fuzz/images/ntfs.zst")),
];

fn unpack(packed: &[u8]) -> Vec<u8> {
    let length = zstd_safe::get_frame_content_size(packed).unwrap().unwrap();
    let mut bytes = Vec::with_capacity(length as usize);
    zstd_safe::decompress(&mut bytes, packed).unwrap();
    bytes
}

/// All names below a directory, with the number of bytes of each regular file.
fn names(files: &mut dyn FileTree, number: u64, path: &str, found: &mut Vec<(String, u64)>) {
    let inode = files.inode(number).unwrap();
    if inode.metadata().kind != FileKind::Directory {
        let mut length = 0;
        if inode.metadata().kind == FileKind::Regular {
            files
                .visit_contents(&inode, &mut |_, piece| {
                    length += match piece {
                        platter_filesystem::Piece::Zeros(length) => length,
                        platter_filesystem::Piece::Bytes(bytes) => bytes.len() as u64,
                    };
                    Ok(())
                })
                .unwrap();
        }
        found.push((path.to_owned(), length));
        return;
    }
    let listing = files.list(&inode).unwrap().complete().unwrap();
    for at in 0..listing.len() {
        let (name, number) = listing.get(at).unwrap();
        let path = format!("{path}/{}", String::from_utf8(name.to_vec()).unwrap());
        names(files, number, &path, found);
    }
}

#[test]
fn every_image_has_files() {
    for (name, packed) in IMAGES {
        let disk = unpack(packed);
        let extent = Extent::new(0, disk.length());
        // Small images may have marks of several kinds.
        let kind = ["ext", "xfs", "btrfs", "ntfs", "vfat", "exfat"].into_iter().find(|kind| {
            open_files(&Found::Filesystem(kind), &disk, extent).is_some_and(|opened| opened.is_ok())
        });
        let kind = Found::Filesystem(kind.expect(name));
        let mut files =
            open_files(&kind, &disk, extent).expect(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut found = Vec::new();
        let root = files.root();
        names(&mut *files, root, "", &mut found);
        let total: u64 = found.iter().map(|(_, length)| length).sum();
        assert!(!found.is_empty() && total > 0, "{name}: {found:?}");
    }
}

#[test]
fn damaged_images_cause_errors_only() {
    let mut random = random();
    for (_, packed) in IMAGES {
        let disk = unpack(packed);
        let live: Vec<u64> = (0..disk.len() as u64 / 512)
            .filter(|sector| disk[*sector as usize * 512..][..512].iter().any(|byte| *byte != 0))
            .collect();
        for _ in 0..300 {
            let mut damaged = disk.clone();
            damage(&mut damaged, &mut random, &|choice| {
                live[(choice >> 16) as usize % live.len()] * 512 + choice % 512
            });
            walk::walk(&damaged);
        }
    }
}
