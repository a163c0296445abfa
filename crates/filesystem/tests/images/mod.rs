//! Images of filesystems made by their own programs, and copies that contain only what a reader keeps.
#![allow(dead_code, unreachable_pub, reason = "every test uses another part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use platter_filesystem::{Contents, ExamineOptions, Owners, Trust, examine};
use platter_image::{Extent, Result};

pub const MIB: u64 = 1 << 20;
/// Bytes that no file contains; a copy has them where nothing was kept.
pub const STALE: u8 = 0xa7;

/// Runs a program with options that let mkfs.xfs make small filesystems; its output, or `None` if it failed or is missing.
pub fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", path).env("LC_ALL", "C");
    let output = command.env("TEST_DIR", "1").env("TEST_DEV", "1").env("QA_CHECK_FS", "1").output().ok()?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output.status.success().then_some(text)
}

/// A file of stale bytes.
pub fn stale(path: &Path, length: u64) {
    fs::write(path, vec![STALE; length as usize]).unwrap();
}

/// Some files: small, large, nested.
pub fn tree(directory: &Path) -> PathBuf {
    let tree = directory.join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    let contents: Vec<u8> = (0..3_000_001_u32).map(|at| (at / 5 % 251) as u8).collect();
    fs::write(tree.join("large"), contents).unwrap();
    fs::write(tree.join("small"), [7; 5000]).unwrap();
    fs::write(tree.join("below/tiny"), "tiny").unwrap();
    tree
}

/// Examines a whole image.
pub fn read(disk: &Vec<u8>, force: bool) -> Result<Contents> {
    let extent = Extent::new(0, disk.len() as u64);
    let owners = Owners::find(disk, extent).unwrap();
    let contents = examine(disk, extent, &owners, Trust::Sole, ExamineOptions { force, all: false })?;
    contents.clone().into_region(extent).check().unwrap();
    Ok(contents)
}

/// Checks that all of a disk is kept, for a reason.
pub fn assert_whole(disk: &Vec<u8>, reason: &str) {
    let contents = read(disk, false).unwrap();
    assert_eq!(contents.allocated.total(), disk.len() as u64, "{reason}");
    assert!(contents.notes.iter().any(|note| note.contains(reason)), "{reason}: {:?}", contents.notes);
}

/// Writes a copy with nothing but what is kept.
pub fn copy(disk: &[u8], contents: &Contents, path: &Path) {
    let mut copy = vec![STALE; disk.len()];
    for extent in &contents.allocated {
        let range = extent.offset as usize..extent.end() as usize;
        copy[range.clone()].copy_from_slice(&disk[range]);
    }
    fs::write(path, copy).unwrap();
}

/// The bytes of all runs of files.
pub fn bytes_of_files(disk: &[u8], contents: &Contents) -> Vec<u8> {
    let runs = contents.files.iter().map(platter_image::chunking::FileRun::extent);
    runs.flat_map(|run| disk[run.offset as usize..run.end() as usize].to_vec()).collect()
}

/// Numbers from a fixed seed.
pub fn random() -> impl FnMut() -> u64 {
    let mut state = 0x1234_5678_9abc_def0_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Damages some bytes of a disk, at offsets that `offset` chooses.
pub fn damage(disk: &mut [u8], random: &mut dyn FnMut() -> u64, offset: &dyn Fn(u64) -> u64) {
    for _ in 0..1 + random() % 6 {
        let at = offset(random()) as usize;
        disk[at] = [0, 0xff, random() as u8, disk[at] ^ 1 << (random() % 8)][random() as usize % 4];
    }
}
