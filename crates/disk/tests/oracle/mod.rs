//! What other programs report about a filesystem: e2fsprogs as the oracle of tests, run on image files.
#![allow(dead_code, unreachable_pub, reason = "every test uses another part of it")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use platter_disk::{Source, Survey};
use platter_image::chunking::FileRun;
use platter_image::{DiskRead, Extent, Extents};

/// Bytes that no file contains; a reader of free space sees these wrong bytes.
pub const STALE: u8 = 0xa7;

/// Runs a program that must exist and succeed.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    let output = try_run(program, arguments).unwrap_or_else(|| panic!("{program} is not installed"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output));
    output
}

/// Runs a program; `None` if it does not exist.
pub fn try_run(program: &str, arguments: &[&str]) -> Option<Output> {
    Command::new(program).args(arguments).env("LC_ALL", "C").output().ok()
}

/// Those blocks of these parts that are in no inode, according to debugfs.
pub fn unowned(image: &Path, parts: &Extents, block_size: u64) -> Extents {
    let blocks: Vec<String> = parts
        .iter()
        .flat_map(|part| part.offset / block_size..part.end() / block_size)
        .map(|block| block.to_string())
        .collect();
    let mut unowned = Vec::new();
    for blocks in blocks.chunks(256) {
        let output =
            run("debugfs", &["-R", &format!("icheck {}", blocks.join(" ")), image.to_str().unwrap()]);
        let listing = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = listing.lines().filter_map(|line| line.strip_suffix("\t<block not found>"));
        unowned
            .extend(found.map(|block| Extent::new(block.parse::<u64>().unwrap() * block_size, block_size)));
    }
    Extents::from_unsorted(unowned)
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whether e2fsprogs are installed; prints a message if not.
pub fn is_available() -> bool {
    let is_here = try_run("mke2fs", &["-V"]).is_some();
    if !is_here {
        eprintln!("skipped: mke2fs is not installed");
    }
    is_here
}

/// A directory for images, in memory if possible.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Creates files of many shapes; none has a block of [`STALE`] bytes.
pub fn populate(directory: &Path) {
    let pattern = |length: usize, seed: usize| -> Vec<u8> {
        (0..length).map(|at| ((at / 7 + seed * 31 + at % 251) % 160) as u8 + 1).collect()
    };
    fs::create_dir_all(directory.join("many/deeper")).unwrap();
    for number in 0..120 {
        fs::write(directory.join(format!("many/file-{number}")), pattern(number * 97 + 1, number)).unwrap();
    }
    fs::write(directory.join("empty"), b"").unwrap();
    fs::write(directory.join("big"), pattern(3_000_001, 1000)).unwrap();
    fs::write(directory.join("exact"), pattern(65536, 2000)).unwrap();
    let sparse = fs::File::create(directory.join("sparse")).unwrap();
    for (at, seed) in [(0, 1), (300_000, 2), (5_000_000, 3), (9_999_000, 4)] {
        std::os::unix::fs::FileExt::write_all_at(&sparse, &pattern(1000, 3000 + seed), at).unwrap();
    }
    std::os::unix::fs::symlink("big", directory.join("short-link")).unwrap();
    std::os::unix::fs::symlink("y".repeat(900), directory.join("long-link")).unwrap();
    fs::hard_link(directory.join("big"), directory.join("many/hard-link")).unwrap();
}

/// Makes a filesystem in a file full of [`STALE`] bytes, with the contents of `from`. `None` if this mke2fs
/// cannot.
pub fn make(image: &Path, length: u64, options: &[&str], from: Option<&Path>) -> Option<()> {
    fs::write(image, vec![STALE; length as usize]).unwrap();
    let mut arguments = vec!["-q", "-F", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"];
    arguments.extend(options);
    let from = from.map(|path| path.to_str().unwrap().to_owned());
    if let Some(from) = &from {
        arguments.extend(["-d", from]);
    }
    arguments.push(image.to_str().unwrap());
    let output = try_run("mke2fs", &arguments)?;
    if !output.status.success() {
        eprintln!("skipped: mke2fs {options:?}: {}", text(&output).trim());
        return None;
    }
    Some(())
}

/// Runs commands in debugfs with write access, one per line.
pub fn debugfs(image: &Path, commands: &str) -> String {
    let script = image.with_extension("debugfs");
    fs::write(&script, commands).unwrap();
    text(&run("debugfs", &["-w", "-f", script.to_str().unwrap(), image.to_str().unwrap()]))
}

/// The block size and the free bytes that dumpe2fs reports for the filesystem in a file.
pub fn free(image: &Path) -> (u64, Extents) {
    let output = run("dumpe2fs", &[image.to_str().unwrap()]);
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = |name: &str| -> Option<u64> {
        let line = listing.lines().find(|line| line.starts_with(name))?;
        line.rsplit(' ').next().unwrap().parse().ok()
    };
    let block_size = value("Block size:").unwrap();
    // Ranges of clusters end with the first block of the last cluster.
    let cluster_blocks = value("Cluster size:").unwrap_or(block_size) / block_size;
    let mut extents = Vec::new();
    for list in listing.lines().filter_map(|line| line.strip_prefix("  Free blocks:")) {
        for range in list.split(',').map(str::trim).filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
            extents.push(Extent::between(first * block_size, (last + cluster_blocks) * block_size));
        }
    }
    (block_size, Extents::from_unsorted(extents))
}

/// Whether the filesystem in a file has a journal.
pub fn has_journal(image: &Path) -> bool {
    text(&run("dumpe2fs", &["-h", image.to_str().unwrap()])).contains("has_journal")
}

/// Writes to `copy` what an install would write: data from `original`, zeros where the survey says zeros, and
/// other bytes everywhere else.
pub fn install(survey: &Survey, original: &Path, copy: &Path) {
    let source = Source::open(original, None).unwrap();
    let mut bytes = vec![0xff_u8; source.length() as usize];
    for part in &survey.parts {
        for extent in &part.region.allocated {
            source.read_exact_at(&mut bytes[range(extent)], extent.offset).unwrap();
        }
        for extent in &part.region.zeroed {
            bytes[range(extent)].fill(0);
        }
    }
    fs::write(copy, bytes).unwrap();
}

pub fn range(extent: &Extent) -> std::ops::Range<usize> {
    extent.offset as usize..extent.end() as usize
}

/// Checks that e2fsck finds the same in a copy as in the original, without changing them.
pub fn check(copy: &Path, original: &Path) {
    let look = |image: &Path| try_run("e2fsck", &["-fn", image.to_str().unwrap()]).unwrap();
    let output = look(copy);
    if !output.status.success() {
        let name = |image: &Path| image.to_str().unwrap().to_owned();
        assert_eq!(
            text(&output).replace(&name(copy), ""),
            text(&look(original)).replace(&name(original), "")
        );
    }
}

/// Copies all files out of the filesystem in a file.
pub fn dump(image: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let command = format!("rdump / {}", to.display());
    run("debugfs", &["-R", &command, image.to_str().unwrap()]);
}

/// All regular files below a directory, with their contents.
pub fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && entry.file_name() != "lost+found" {
                left.push(entry.path());
            } else if kind.is_file() {
                let name = entry.path().strip_prefix(directory).unwrap().to_owned();
                found.push((name, fs::read(entry.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Blocks of files: the offset in the file modulo 64 KiB, and the contents.
type Pieces = HashMap<(u64, Vec<u8>), u32>;

fn count(pieces: &mut Pieces, phase: u64, contents: &[u8]) {
    if contents.iter().any(|byte| *byte != 0) {
        *pieces.entry((phase % 65536, contents.to_vec())).or_default() += 1;
    }
}

/// The non-zero blocks of files, from the files' contents.
pub fn pieces_of_files(files: &[(PathBuf, Vec<u8>)], block_size: u64) -> Pieces {
    let mut pieces = Pieces::new();
    for (_, contents) in files {
        for (offset, piece) in (0..).step_by(block_size as usize).zip(contents.chunks(block_size as usize)) {
            let mut piece = piece.to_vec();
            piece.resize(block_size as usize, 0);
            count(&mut pieces, offset, &piece);
        }
    }
    pieces
}

/// The non-zero blocks of files, from the places that the survey reports.
pub fn pieces_of_runs(runs: &[FileRun], disk: &dyn DiskRead, block_size: u64) -> Pieces {
    let mut pieces = Pieces::new();
    let mut piece = vec![0; block_size as usize];
    for run in runs {
        for at in (0..run.extent().length).step_by(block_size as usize) {
            disk.read_exact_at(&mut piece, run.extent().offset + at).unwrap();
            count(&mut pieces, run.phase() + at, &piece);
        }
    }
    pieces
}
