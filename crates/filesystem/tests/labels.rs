//! Labels of NTFS and exFAT volumes with clusters of all lengths.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

mod images;

use std::fs;

use images::{MIB, read, run};
use platter_filesystem::label;
use platter_image::Extent;

const LABEL: &str = "Volume 1";

#[test]
fn labels_are_read_whatever_the_length_of_clusters() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let path = image.to_str().unwrap();
    let mut made = [0, 0];
    for (name, cluster) in [
        ("ntfs", "512"),
        ("ntfs", "65536"),
        ("ntfs", "131072"),
        ("ntfs", "2097152"),
        ("exfat", "4096"),
        ("exfat", "1048576"),
    ] {
        images::stale(&image, 64 * MIB);
        let output = match name {
            "ntfs" => run("mkntfs", &["-Q", "-F", "-q", "-c", cluster, "-L", LABEL, path]),
            _ => run("mkfs.exfat", &["-c", cluster, "-L", LABEL, path]),
        };
        if output.is_none() {
            continue;
        }
        made[usize::from(name == "exfat")] += 1;
        let disk = fs::read(&image).unwrap();
        let found = label(&disk, Extent::new(0, disk.len() as u64), name);
        assert_eq!(found.as_deref(), Some(LABEL), "{name}, clusters of {cluster} bytes");
        let contents = read(&disk, false).unwrap();
        assert_eq!(contents.label.as_deref(), Some(LABEL), "{name}, clusters of {cluster} bytes");
    }
    // All that their program can make, or none if it is not installed.
    assert!(matches!(made, [0 | 4, 0 | 2]), "{made:?}");
    if made == [0, 0] {
        eprintln!("skipped: neither mkntfs nor mkfs.exfat is installed");
    }
}
