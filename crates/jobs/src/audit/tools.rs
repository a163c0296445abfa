//! Runs other programs on a disk: `partx`, `blkid`, `e2fsck`, `dumpe2fs` and `debugfs`, read-only. Their output is
//! parsed here, without this project's own readers.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use platter_image::{Error, Extent, Extents, Result, SECTOR};

/// Blocks in one request to `debugfs`.
const BLOCKS_AT_ONCE: usize = 256;

/// The programs, on one disk.
pub(super) struct Tools {
    disk: PathBuf,
    /// Required programs that are not installed.
    pub(super) missing: BTreeSet<&'static str>,
}

/// The result of `blkid` for a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Superblock {
    Nothing,
    /// One, by its name.
    One(String),
    /// Several that contradict each other.
    Ambiguous,
}

/// The result of e2fsprogs for a filesystem.
pub(super) struct ExtBlocks {
    pub(super) block_size: u64,
    /// Its bitmaps count clusters of several blocks.
    pub(super) has_clusters: bool,
    /// Free space according to the bitmaps.
    pub(super) free: Extents,
}

impl Tools {
    pub(super) fn new(disk: &Path) -> Self {
        Self { disk: disk.to_owned(), missing: BTreeSet::new() }
    }

    /// Runs a program; `None` if it is not installed.
    fn run(&mut self, program: &'static str, arguments: &[&str]) -> Result<Option<Output>> {
        // Some of them are for root, and not in the PATH of other users.
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        path.push(":/usr/local/sbin:/usr/sbin:/sbin");
        match Command::new(program).args(arguments).env("LC_ALL", "C").env("PATH", path).output() {
            Ok(output) => Ok(Some(output)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.missing.insert(program);
                Ok(None)
            }
            Err(error) => Err(Error::io(format!("running {program}"), error)),
        }
    }

    fn disk(&self) -> String {
        self.disk.to_string_lossy().into_owned()
    }

    /// Returns the partitions that `partx` finds, without containers; `None` if it is not installed.
    pub(super) fn partitions(&mut self, sector_size: u32) -> Result<Option<Vec<Extent>>> {
        let (disk, sector_size) = (self.disk(), sector_size.to_string());
        let columns = ["--raw", "--noheadings", "--output", "START,SECTORS,TYPE"];
        // Without the dash, a partition would be looked up in the table of its disk.
        let arguments = [&columns[..], &["--sector-size", &sector_size, "-", &disk]].concat();
        let Some(output) = self.run("partx", &arguments)? else { return Ok(None) };
        Ok(Some(parse_partitions(&String::from_utf8_lossy(&output.stdout))))
    }

    /// Returns what `blkid` finds in a range; `None` if it is not installed.
    pub(super) fn superblock(&mut self, place: Extent) -> Result<Option<Superblock>> {
        let (offset, length, disk) = (place.offset.to_string(), place.length.to_string(), self.disk());
        let arguments = ["--probe", "--output", "export", "--offset", &offset, "--size", &length, &disk];
        let Some(output) = self.run("blkid", &arguments)? else { return Ok(None) };
        let text = String::from_utf8_lossy(&output.stdout);
        let kind = text.lines().find_map(|line| line.strip_prefix("TYPE="));
        Ok(Some(match (output.status.code(), kind) {
            (Some(8), _) => Superblock::Ambiguous,
            (_, Some(kind)) => Superblock::One(kind.to_owned()),
            _ => Superblock::Nothing,
        }))
    }

    /// Returns the free space of an ext filesystem according to `dumpe2fs`, if `e2fsck` finds no errors; `None` if one
    /// of them is not installed, an error text if something is wrong with the filesystem.
    pub(super) fn ext_blocks(&mut self, place: Extent) -> Result<Option<Result<ExtBlocks, String>>> {
        let disk = format!("{}?offset={}", self.disk(), place.offset);
        let Some(checked) = self.run("e2fsck", &["-f", "-n", &disk])? else { return Ok(None) };
        if checked.status.code() != Some(0) {
            return Ok(Some(Err("e2fsck finds errors in it, so its bitmaps are no proof".to_owned())));
        }
        let Some(dumped) = self.run("dumpe2fs", &[&disk])? else { return Ok(None) };
        let text = String::from_utf8_lossy(&dumped.stdout);
        let blocks = parse_free(&text, place.offset);
        Ok(Some(blocks.ok_or_else(|| "dumpe2fs does not print its free blocks".to_owned())))
    }

    /// Returns which blocks of these parts of an ext filesystem are in no inode, according to `debugfs`.
    pub(super) fn unowned(&mut self, place: Extent, parts: &Extents, block_size: u64) -> Result<Extents> {
        let disk = format!("{}?offset={}", self.disk(), place.offset);
        let starts = parts.iter().flat_map(|part| (part.offset..part.end()).step_by(block_size as usize));
        let blocks: Vec<String> =
            starts.map(|start| ((start - place.offset) / block_size).to_string()).collect();
        let mut unowned = Vec::new();
        for blocks in blocks.chunks(BLOCKS_AT_ONCE) {
            let question = format!("icheck {}", blocks.join(" "));
            let Some(answer) = self.run("debugfs", &["-R", &question, &disk])? else { break };
            let found = parse_unowned(&String::from_utf8_lossy(&answer.stdout));
            unowned
                .extend(found.iter().map(|block| Extent::new(place.offset + block * block_size, block_size)));
        }
        Ok(Extents::from_unsorted(unowned))
    }

    /// Returns which of these parts of an ext filesystem are preallocated and unwritten, according to `debugfs`.
    pub(super) fn unwritten(&mut self, place: Extent, parts: &Extents, block_size: u64) -> Result<Extents> {
        let disk = format!("{}?offset={}", self.disk(), place.offset);
        let mut left = parts.clone();
        let mut unwritten = Vec::new();
        let mut asked = BTreeSet::new();
        loop {
            let first =
                left.iter().take(BLOCKS_AT_ONCE).map(|part| (part.offset - place.offset) / block_size);
            let blocks: Vec<String> = first.map(|block| block.to_string()).collect();
            if blocks.is_empty() {
                break;
            }
            let question = format!("icheck {}", blocks.join(" "));
            let Some(answer) = self.run("debugfs", &["-R", &question, &disk])? else { break };
            let inodes = parse_inodes(&String::from_utf8_lossy(&answer.stdout));
            let new: Vec<u64> = inodes.into_iter().filter(|inode| asked.insert(*inode)).collect();
            if new.is_empty() {
                break;
            }
            for inode in new {
                let question = format!("ex <{inode}>");
                let Some(answer) = self.run("debugfs", &["-R", &question, &disk])? else { break };
                let runs = parse_unwritten(&String::from_utf8_lossy(&answer.stdout));
                unwritten.extend(runs.iter().map(|(first, last)| {
                    Extent::between(place.offset + first * block_size, place.offset + (last + 1) * block_size)
                }));
            }
            left = left.subtract(&Extents::from_unsorted(unwritten.clone()));
        }
        Ok(Extents::from_unsorted(unwritten))
    }
}

/// Parses lines of first sector, number of sectors, and type; in sectors of 512 bytes.
fn parse_partitions(text: &str) -> Vec<Extent> {
    let line = |line: &str| {
        let mut fields = line.split_whitespace();
        let (start, sectors) = (fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?);
        let (kind, extent) = (fields.next(), Extent::new(start * SECTOR, sectors * SECTOR));
        let is_extended = matches!(kind, Some("0x5" | "0xf" | "0x85"));
        (!is_extended).then_some((extent, matches!(kind, Some("0xa5" | "0xa6" | "0xa9"))))
    };
    let all: Vec<(Extent, bool)> = text.lines().filter_map(line).collect();
    let has_others = |slice: Extent| {
        all.iter().any(|(other, _)| *other != slice && slice.intersect(other) == Some(*other))
    };
    let listed = all.iter().filter(|(extent, is_slice)| !(*is_slice && has_others(*extent)));
    listed.map(|(extent, _)| *extent).collect()
}

fn parse_free(text: &str, offset: u64) -> Option<ExtBlocks> {
    let value = |name: &str| -> Option<u64> {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    let block_size = value("Block size:")?;
    // Ranges of clusters end with the first block of the last one.
    let cluster_blocks = value("Cluster size:").map_or(1, |size| size / block_size);
    let mut free = Vec::new();
    for list in text.lines().filter_map(|line| line.strip_prefix("  Free blocks:")) {
        for range in list.split(',').map(str::trim).filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            let end = last.checked_add(cluster_blocks)?.checked_mul(block_size)?;
            free.push(Extent::between(offset + first * block_size, offset + end));
        }
    }
    Some(ExtBlocks { block_size, has_clusters: cluster_blocks > 1, free: Extents::from_unsorted(free) })
}

/// Parses lines of block and inode, after a header.
fn parse_inodes(text: &str) -> Vec<u64> {
    text.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect()
}

/// Parses lines of block and `<block not found>`.
fn parse_unowned(text: &str) -> Vec<u64> {
    let lines = text.lines().filter_map(|line| line.split_once('\t'));
    lines
        .filter(|(_, inode)| inode.contains("not found"))
        .filter_map(|(block, _)| block.parse().ok())
        .collect()
}

/// Returns the first and last blocks of the extents that `debugfs` marks as unwritten: level, entry, logical range,
/// physical range, length, flags.
fn parse_unwritten(text: &str) -> Vec<(u64, u64)> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.last() != Some(&"Uninit") {
            return None;
        }
        let dash = words.iter().rposition(|word| *word == "-")?;
        Some((words.get(dash.checked_sub(1)?)?.parse().ok()?, words.get(dash + 1)?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_parsed() {
        let partitions =
            parse_partitions("2048 98304 0x83\n100352 258048 0xf\n102400 32768 0x82\nnonsense\n");
        assert_eq!(partitions, [Extent::new(1 << 20, 48 << 20), Extent::new(50 << 20, 16 << 20)]);
        let slices = parse_partitions("1000 100 0xa5\n2000 100 0xa5\n2000 50 0x7\n");
        assert_eq!(slices, [Extent::new(512_000, 51_200), Extent::new(1_024_000, 25_600)]);
        let text = "Block size:               1024\nCluster size:             4096\nGroup 0: (Blocks 0-8191)\n  Free blocks: 1000-1008, 2000\n  Free inodes: 5\n";
        let blocks = parse_free(text, 512).unwrap();
        let free = [Extent::new(512 + 1000 * 1024, 12 * 1024), Extent::new(512 + 2000 * 1024, 4096)];
        assert_eq!((blocks.block_size, blocks.free.as_slice()), (1024, &free[..]));
        assert_eq!(parse_inodes("Block\tInode number\n1000\t12\n1001\t<block not found>\n"), [12]);
        let tree = "Level Entries       Logical      Physical Length Flags\n 0/ 0   1/  2     0 -     4  9000 -  9004      5 \n 0/ 0   2/  2     5 -   304  9005 -  9304    300 Uninit\n";
        assert_eq!(parse_unwritten(tree), [(9005, 9304)]);
        let inodes = "Block\tInode number\n3256\t<block not found>\n3300\t12\n";
        assert_eq!((parse_unowned(inodes), parse_inodes(inodes)), (vec![3256], vec![12]));
    }
}
