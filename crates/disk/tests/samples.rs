//! Checks every sample in `PLATTER_SAMPLES`, a directory with a `manifest.tsv`: the allocated space against
//! the manifest, and the files of a copy that contains nothing else. Part of `make test-full`; skipped if the
//! variable is not set.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test")]

mod oracle;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use platter_disk::{Source, Survey, SurveyOptions, survey};
use platter_image::{DiskRead, ErrorKind, Extent, Extents};

/// A row of the manifest.
struct Row {
    image: String,
    part: String,
    extent: Extent,
    filesystem: String,
    allocated: Option<u64>,
    note: String,
}

fn rows(directory: &Path) -> Vec<Row> {
    let manifest = fs::read_to_string(directory.join("manifest.tsv")).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        Row {
            image: fields[0].to_owned(),
            part: fields[1].to_owned(),
            extent: Extent::new(fields[2].parse().unwrap(), fields[3].parse().unwrap()),
            filesystem: fields[4].to_owned(),
            allocated: fields[6].parse().ok(),
            note: fields[11].to_owned(),
        }
    };
    manifest.lines().skip(1).map(row).collect()
}

/// The list of free space beside a sample, shifted by the filesystem's offset.
fn free_list(directory: &Path, row: &Row) -> Option<Extents> {
    let name = if row.part == "0" { row.image.clone() } else { format!("{}.p{}", row.image, row.part) };
    let list = fs::read_to_string(directory.join(format!("{name}.free"))).ok()?;
    let extent = |line: &str| {
        let (offset, length) = line.split_once(' ').unwrap();
        Extent::new(offset.parse::<u64>().unwrap() + row.extent.offset, length.parse().unwrap())
    };
    Some(list.lines().map(extent).collect())
}

fn check_ext(directory: &Path, row: &Row, source: &Source, survey: &Survey, copy: &Path) {
    let name = format!("{} {}", row.image, row.part);
    let part = survey.parts.iter().find(|part| part.region.extent == row.extent).expect("a part there");
    assert_eq!(part.filesystem, row.filesystem, "{name}");
    assert_eq!(part.notes, Vec::<String>::new(), "{name}");
    let allocated = row.allocated.unwrap();
    assert!(part.used as f64 <= allocated as f64 * 1.02, "{name}: {} of {allocated} bytes", part.used);
    if !row.note.contains("clusters") {
        let free = free_list(directory, row).unwrap();
        let lost = free.complement(row.extent).subtract(&part.region.allocated);
        // Only preallocated space may be missing; the samples have 1 MiB of it.
        assert!(lost.total() <= 1 << 20, "{name}: {} bytes in use are not kept", lost.total());
        assert!(
            part.region.allocated.subtract(&free.complement(row.extent)).is_empty(),
            "{name}: free space is kept"
        );
    }
    let ext = copy.with_extension("part");
    let bytes = fs::read(copy).unwrap();
    fs::write(&ext, &bytes[oracle::range(&row.extent)]).unwrap();
    let checked = Command::new("e2fsck").arg("-fn").arg(&ext).output().unwrap();
    assert!(checked.status.success(), "{name}: {}", oracle::text(&checked));

    let sums = if row.part == "0" { row.image.clone() } else { format!("{}.p{}", row.image, row.part) };
    let sums = fs::canonicalize(directory.join(format!("{sums}.sha256"))).unwrap();
    let dumped = copy.with_extension("dumped");
    oracle::dump(&ext, &dumped);
    if row.note.contains("inline_data") {
        // debugfs does not read all of these files correctly, so compare with what it reads from the
        // original.
        let mut original = vec![0; row.extent.length as usize];
        source.read_exact_at(&mut original, row.extent.offset).unwrap();
        let (image, from_original) = (copy.with_extension("original"), copy.with_extension("from-original"));
        fs::write(&image, original).unwrap();
        oracle::dump(&image, &from_original);
        assert!(oracle::files(&dumped) == oracle::files(&from_original), "{name}");
        fs::remove_dir_all(&from_original).unwrap();
    } else {
        let summed = Command::new("sha256sum")
            .args(["-c", "--quiet"])
            .arg(&sums)
            .current_dir(&dumped)
            .output()
            .unwrap();
        assert!(summed.status.success(), "{name}: {}", oracle::text(&summed));
    }
    fs::remove_dir_all(&dumped).unwrap();
}

#[test]
fn every_sample_survives_a_copy() {
    let Some(directory) = std::env::var_os("PLATTER_SAMPLES").map(PathBuf::from) else {
        eprintln!("skipped: PLATTER_SAMPLES does not say where the samples are");
        return;
    };
    let mut images: HashMap<String, Vec<Row>> = HashMap::new();
    for row in rows(&directory) {
        images.entry(row.image.clone()).or_default().push(row);
    }
    assert!(images.len() >= 20, "the manifest has only {} images", images.len());
    let scratch = oracle::directory();
    for (image, rows) in images {
        let path = directory.join(format!("{image}.img"));
        let source = Source::open(&path, None).unwrap();
        let data = source.data_extents().unwrap();
        let options = SurveyOptions::default();
        let surveyed = survey(&source, data.as_ref(), &options);
        if image == "ext4-unclean" {
            assert_eq!(surveyed.unwrap_err().kind(), ErrorKind::Refused, "{image}");
            let insisted = survey(&source, None, &SurveyOptions { force: true, ..options.clone() }).unwrap();
            assert_eq!(insisted.used(), source.length());
            continue;
        }
        let surveyed = surveyed.unwrap();
        let copy = scratch.path().join("copy");
        oracle::install(&surveyed, &path, &copy);
        for row in &rows {
            match row.filesystem.as_str() {
                // Volumes in a volume group are stored with it.
                "ext2" | "ext3" | "ext4" if !row.part.contains('.') => {
                    check_ext(&directory, row, &source, &surveyed, &copy);
                }
                "swap" => {
                    let part = surveyed.parts.iter().find(|part| part.region.extent == row.extent).unwrap();
                    assert_eq!((part.filesystem.as_str(), part.used), ("swap", 4096), "{image}");
                }
                _ => {
                    let kept: u64 = surveyed
                        .parts
                        .iter()
                        .flat_map(|part| part.region.allocated.clip(row.extent))
                        .map(|one| one.length)
                        .sum();
                    assert_eq!(
                        kept, row.extent.length,
                        "{image} {}: not understood, so kept in full",
                        row.part
                    );
                }
            }
        }
        let tables = |path: &Path| {
            oracle::try_run("sfdisk", &["-d", path.to_str().unwrap()]).map(|output| output.stdout)
        };
        let name = |path: &Path| path.to_str().unwrap().as_bytes().to_vec();
        let plain = |path: &Path| {
            tables(path).map(|table| {
                String::from_utf8_lossy(&table).replace(&*String::from_utf8_lossy(&name(path)), "")
            })
        };
        if image.starts_with("disk-") && image != "disk-raw-ext4" {
            assert_eq!(plain(&path), plain(&copy), "{image}: its partition table");
            assert!(plain(&path).is_some_and(|table| table.contains("start=")), "{image} has one");
        }
    }
}
