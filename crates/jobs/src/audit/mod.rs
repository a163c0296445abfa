//! Compares the kept data of a capture with what other programs consider used.
//!
//! Owns the rules of the comparison. Everything must be kept, except free blocks of an ext file system in which
//! `e2fsck` finds no errors, extents that `debugfs` reports as unwritten, blocks of clusters that it finds in no inode, and swap after its header. FAT, exFAT, NTFS, XFS, UFS
//! and btrfs are not compared, and neither are volumes of LVM and members of RAID. Data that no program knows must be kept in full. Uses neither this project's partition tables
//! nor its file system readers; the recipe alone shows what was kept.

mod tools;

use std::path::Path;

use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{Extent, Extents, Result};
use serde::Serialize;

use tools::{Superblock, Tools};

/// Bytes of swap that must be kept.
const SWAP_HEADER_LENGTH: u64 = 4096;
/// File systems and volumes that have free space, which no widespread program lists for what is in them.
const UNLISTED: [&str; 8] =
    ["vfat", "exfat", "ntfs", "xfs", "btrfs", "ufs", "LVM2_member", "linux_raid_member"];
/// Most reported ranges of one part.
const RANGES_TOLD_MAX: usize = 16;

/// The result of an audit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AuditReport {
    /// The compared parts.
    pub compared: Vec<AuditedPart>,
    /// Ranges that other programs consider used but that were not kept.
    pub disagreements: Vec<AuditDisagreement>,
    /// Parts that could not be compared, in sentences.
    pub not_compared: Vec<String>,
    /// Programs that are not installed.
    pub missing_tools: Vec<String>,
}

/// A part of the disk that was compared.
#[derive(Clone, Debug, Serialize)]
pub struct AuditedPart {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Its kind according to `blkid`; empty if unknown, `unpartitioned` outside of partitions.
    pub kind: String,
    /// Bytes that other programs consider used.
    pub used_bytes: u64,
    /// Bytes of it that were kept.
    pub kept_bytes: u64,
}

/// A range that should have been kept.
#[derive(Clone, Debug, Serialize)]
pub struct AuditDisagreement {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The program that considers it used, in a sentence.
    pub reason: String,
}

/// The input of an audit.
pub(crate) struct Audit<'a> {
    /// The disk that was captured.
    pub(crate) disk: &'a Path,
    pub(crate) sector_size: u32,
    /// Whether the user skips space outside of partitions.
    pub(crate) skips_gaps: bool,
}

impl Audit<'_> {
    /// Compares the disk with its recipe.
    ///
    /// # Errors
    /// Reading the recipe; `Io` when an installed program cannot be run.
    pub(crate) fn run<P: PageSource>(&self, recipe: &Recipe<P>) -> Result<AuditReport> {
        let all = Extent::new(0, recipe.root().disk_length);
        let kept = kept(recipe, all)?;
        let mut comparison =
            Comparison { tools: Tools::new(self.disk), kept, report: AuditReport::default() };
        comparison.disk(all, self)?;
        let Comparison { tools, mut report, .. } = comparison;
        report.missing_tools = tools.missing.iter().map(|tool| (*tool).to_owned()).collect();
        Ok(report)
    }
}

fn kept<P: PageSource>(recipe: &Recipe<P>, all: Extent) -> Result<Extents> {
    let mut kept = Extents::new();
    for entry in recipe.entries(all) {
        let entry = entry?;
        if entry.state != State::Free {
            kept.push(entry.extent);
        }
    }
    Ok(kept)
}

struct Comparison {
    tools: Tools,
    kept: Extents,
    report: AuditReport,
}

impl Comparison {
    fn disk(&mut self, all: Extent, audit: &Audit<'_>) -> Result<()> {
        let Some(partitions) = self.tools.partitions(audit.sector_size)? else {
            self.report
                .not_compared
                .push("partx is not installed, so the partitions cannot be compared".to_owned());
            return Ok(());
        };
        let partitions: Vec<Extent> =
            partitions.iter().filter_map(|partition| partition.intersect(&all)).collect();
        let whole = self.tools.superblock(all)?;
        let is_file_system = matches!(whole, Some(Superblock::One(_) | Superblock::Ambiguous));
        if partitions.is_empty() || is_file_system {
            // Despite the table, a file system of the whole disk may own everything.
            return match partitions.is_empty() {
                true => self.part(all),
                false => {
                    let reason = "blkid finds a file system of the whole disk under its partitions";
                    self.compare(
                        all,
                        "a whole disk with partitions",
                        &Extents::from_unsorted(vec![all]),
                        reason,
                    )
                }
            };
        }
        for partition in &partitions {
            self.part(*partition)?;
        }
        let gaps = Extents::from_unsorted(partitions).complement(all);
        if audit.skips_gaps {
            let length = gaps.total();
            self.report
                .not_compared
                .push(format!("{length} bytes outside of partitions, which were skipped"));
            return Ok(());
        }
        gaps.iter().try_for_each(|gap| {
            self.compare(
                *gap,
                "unpartitioned",
                &Extents::from_unsorted(vec![*gap]),
                "it is outside of partitions",
            )
        })
    }

    /// Compares a partition, or a disk without partitions.
    fn part(&mut self, place: Extent) -> Result<()> {
        let whole = Extents::from_unsorted(vec![place]);
        match self.tools.superblock(place)? {
            None => {
                self.report
                    .not_compared
                    .push(format!("the part at {}: blkid is not installed", place.offset));
                Ok(())
            }
            Some(Superblock::One(kind)) if matches!(kind.as_str(), "ext2" | "ext3" | "ext4") => {
                self.ext(place, &kind)
            }
            Some(Superblock::One(kind)) if kind == "swap" => {
                let header = Extent::new(place.offset, SWAP_HEADER_LENGTH.min(place.length));
                self.compare(place, &kind, &Extents::from_unsorted(vec![header]), "it is the header of swap")
            }
            Some(Superblock::One(kind)) if UNLISTED.contains(&kind.as_str()) => {
                let what = format!("the {kind} at {}: no program lists its free space", place.offset);
                self.report.not_compared.push(what);
                Ok(())
            }
            Some(Superblock::One(kind)) => {
                self.compare(place, &kind, &whole, &format!("blkid finds {kind}, which must be kept in full"))
            }
            Some(Superblock::Ambiguous) => self.compare(
                place,
                "ambiguous",
                &whole,
                "blkid finds several superblocks, so everything must be kept",
            ),
            Some(Superblock::Nothing) => {
                self.compare(place, "", &whole, "blkid finds nothing known, so everything must be kept")
            }
        }
    }

    fn ext(&mut self, place: Extent, kind: &str) -> Result<()> {
        let whole = Extents::from_unsorted(vec![place]);
        let blocks = match self.tools.ext_blocks(place)? {
            None => {
                let what = format!("the {kind} at {}: e2fsck or dumpe2fs is not installed", place.offset);
                self.report.not_compared.push(what);
                return Ok(());
            }
            Some(Err(reason)) => return self.compare(place, kind, &whole, &reason),
            Some(Ok(blocks)) => blocks,
        };
        let used = whole.subtract(&blocks.free);
        let dropped = used.subtract(&self.kept);
        // Only where bitmaps count clusters, a block may be in use because of its neighbours.
        let unowned = match blocks.has_clusters {
            true => self.tools.unowned(place, &dropped, blocks.block_size)?,
            false => Extents::new(),
        };
        let dropped = dropped.subtract(&unowned);
        let unwritten = match dropped.is_empty() {
            true => Extents::new(),
            false => self.tools.unwritten(place, &dropped, blocks.block_size)?,
        };
        self.compare(
            place,
            kind,
            &used.subtract(&unowned).subtract(&unwritten),
            "dumpe2fs reports it as used, and debugfs not as unwritten",
        )
    }

    /// Reports a part, and the ranges of `used` that were not kept.
    fn compare(&mut self, place: Extent, kind: &str, used: &Extents, reason: &str) -> Result<()> {
        self.report.compared.push(AuditedPart {
            offset: place.offset,
            length: place.length,
            kind: kind.to_owned(),
            used_bytes: used.total(),
            kept_bytes: self.kept.clip(place).map(|extent| extent.length).sum(),
        });
        let lost = used.subtract(&self.kept);
        let told = lost.iter().take(RANGES_TOLD_MAX).map(|extent| AuditDisagreement {
            offset: extent.offset,
            length: extent.length,
            reason: reason.to_owned(),
        });
        self.report.disagreements.extend(told);
        if let Some(more) = lost.as_slice().get(RANGES_TOLD_MAX..).filter(|more| !more.is_empty()) {
            self.report.disagreements.push(AuditDisagreement {
                offset: more[0].offset,
                length: more.iter().map(|extent| extent.length).sum(),
                reason: format!("{reason}: {} more ranges", more.len()),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::collections::HashMap;
    use std::process::Command;

    use platter_image::page::Entry;
    use platter_image::recipe::{CutPolicy, RecipeBuilder};
    use platter_image::{BlockId, Domain, Error};

    use super::*;

    #[derive(Default)]
    struct Pages(Mutex<HashMap<BlockId, Vec<u8>>>);

    impl PageSource for Pages {
        fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
            self.0.lock().get(id).cloned().ok_or_else(|| Error::missing(id.to_string()))
        }
    }

    /// Audits a capture of this disk that kept these extents.
    fn audit(disk: &Path, length: u64, kept: &Extents, skips_gaps: bool) -> AuditReport {
        let pages = Pages::default();
        let sink = |id, bytes: &[u8]| {
            pages.0.lock().insert(id, bytes.to_vec());
            Ok(())
        };
        let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
        let mut builder = RecipeBuilder::new(length, 512, policy, Domain::SHARED, sink);
        for extent in kept {
            builder.push(Entry { extent: *extent, state: State::Zero }).unwrap();
        }
        let (score, _) = builder.finish().unwrap();
        let recipe = Recipe::open(score, &pages).unwrap();
        Audit { disk, sector_size: 512, skips_gaps }.run(&recipe).unwrap()
    }

    /// Reports that a test cannot run. Tests as root, as in CI, require all tools.
    #[allow(clippy::print_stderr, reason = "a test tells why it does not run")]
    fn skip<T: std::fmt::Debug>(missing: &[T]) {
        assert!(!rustix::process::getuid().is_root(), "not installed: {missing:?}");
        eprintln!("skipped: not installed: {missing:?}");
    }

    fn runs(program: &str, arguments: &[&str]) -> bool {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    }

    #[test]
    fn data_that_other_programs_consider_used_must_be_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let name = path.to_str().unwrap();
        let length = 16_u64 << 20;
        std::fs::File::create(&path).unwrap().set_len(length).unwrap();
        if !runs("/sbin/mke2fs", &["-q", "-t", "ext4", "-b", "1024", name]) {
            skip(&["mke2fs"]);
            return;
        }
        let all = Extents::from_unsorted(vec![Extent::new(0, length)]);
        let report = audit(&path, length, &all, false);
        if !report.missing_tools.is_empty() {
            skip(&report.missing_tools);
            return;
        }
        assert!(report.disagreements.is_empty() && report.compared.len() == 1, "{report:?}");
        let used = report.compared[0].used_bytes;
        assert!(used > 1 << 20 && used < 8 << 20, "{report:?}");

        let free = Tools::new(&path).ext_blocks(Extent::new(0, length)).unwrap().unwrap();
        let used = all.subtract(&free.unwrap_or_else(|reason| panic!("{reason}")).free);
        assert!(audit(&path, length, &used, false).disagreements.is_empty());
        let lost = Extent::new(used.as_slice()[0].offset + 5 * 1024, 1024);
        let less = used.subtract(&Extents::from_unsorted(vec![lost]));
        let report = audit(&path, length, &less, false);
        assert_eq!(report.disagreements.len(), 1, "{report:?}");
        assert_eq!((report.disagreements[0].offset, report.disagreements[0].length), (lost.offset, 1024));

        // Preallocated, unwritten space need not be kept.
        runs("/sbin/debugfs", &["-w", "-R", "write /etc/passwd file", name]);
        runs("/sbin/debugfs", &["-w", "-R", "fallocate file 100 199", name]);
        let report = audit(&path, length, &used, false);
        let told: u64 = report.disagreements.iter().map(|one| one.length).sum();
        assert!(told < 50 << 10, "the file itself is new, and its 100 KiB are not told: {report:?}");

        // Bitmaps of a file system with errors are no proof.
        std::fs::File::options().write(true).open(&path).unwrap();
        runs("/sbin/debugfs", &["-w", "-R", "clri <2>", name]);
        assert!(!audit(&path, length, &used, false).disagreements.is_empty());
        assert!(audit(&path, length, &all, false).disagreements.is_empty());
    }

    #[test]
    fn unknown_data_must_be_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let length = 4_u64 << 20;
        let mut bytes = vec![7; length as usize];
        bytes[440..512].fill(0);
        bytes[450] = 0x83;
        bytes[454..462].copy_from_slice(&[0, 8, 0, 0, 0, 8, 0, 0]);
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        std::fs::write(&path, bytes).unwrap();
        let partition = Extents::from_unsorted(vec![Extent::new(1 << 20, 1 << 20)]);
        let report = audit(&path, length, &partition, false);
        if !report.missing_tools.is_empty() {
            skip(&report.missing_tools);
            return;
        }
        let told: Vec<u64> = report.disagreements.iter().map(|one| one.offset).collect();
        assert_eq!(told, [0, 2 << 20], "{report:?}");
        let report = audit(&path, length, &partition, true);
        assert!(report.disagreements.is_empty() && report.not_compared.len() == 1, "{report:?}");
    }
}
