//! `platter analyze`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use platter_analyze::{
    AnalyzeReport, AnalyzeRequest, Drawing, Growth, GrowthLine, HeatMap, ImageChoice, MATRIX_IMAGES_MAX,
    Prediction, Progress, analyze, draw_svg,
};
use platter_jobs::{Error, Progress as _, Result, StoreLocation};

use super::Outcome;
use crate::arguments::Analyze;
use crate::output::{EXIT_CORRUPT, Output, table};
use crate::sizes::{bytes, count};
use crate::terminal::Terminal;

/// Columns of the matrix that fit on a line of 80 characters.
const MATRIX_COLUMNS: usize = 15;
/// For more images, the matrix is only in the JSON.
const PRINTED_IMAGES_MAX: usize = 60;

pub(crate) fn run(store: &StoreLocation, options: &Analyze, output: &Output) -> Outcome {
    let images = options.images.iter();
    let request = AnalyzeRequest {
        store: store.clone(),
        images: images.map(|it| ImageChoice { version: it.version.clone(), part: it.part }).collect(),
        files: options.files,
        what_if: options.what_if()?,
        memory_bytes: u64::from(options.memory) << 20,
        threads: thread::available_parallelism().map_or(2, usize::from),
    };
    let terminal = Terminal::new(*output);
    let report = analyze(&request, &Shown(&terminal))?;
    drop(terminal);
    if let Some(path) = &options.svg {
        if report.images.len() > MATRIX_IMAGES_MAX {
            output.note(&format!(
                "{} is not written: a heat map has at most {MATRIX_IMAGES_MAX} images",
                path.display()
            ));
        } else {
            draw(&report, path)?;
        }
    }
    output.fact(&report, || text(&report));
    Ok(if report.is_damaged() { ExitCode::from(EXIT_CORRUPT) } else { ExitCode::SUCCESS })
}

/// Shows the progress of an analysis as that of a job.
struct Shown<'a>(&'a Terminal);

impl Progress for Shown<'_> {
    fn begin(&self, stage: &str, total: u64) {
        self.0.begin(stage, total);
    }

    fn advance(&self, bytes: u64) {
        self.0.advance(bytes);
    }
}

fn text(report: &AnalyzeReport) -> String {
    let mut parts = vec![table(&image_rows(report)), ratios(report)];
    parts.extend(matrix("data", &report.overlap_bytes));
    parts.extend(files(report));
    parts.extend(predictions(report));
    parts.extend(notes(report));
    parts.extend(damage(report));
    parts.join("\n\n")
}

fn image_rows(report: &AnalyzeReport) -> Vec<Vec<String>> {
    let head = ["#", "IMAGE", "DISK", "IN USE", "DISTINCT", "SHARED", "STORED", "UNIQUE", "ADDED"];
    let mut rows = vec![head.map(String::from).to_vec()];
    let stored = |stored: Option<u64>| stored.map_or("-".into(), bytes);
    for (number, image) in (1..).zip(&report.images) {
        rows.push(vec![
            u64::to_string(&number),
            image.image.clone(),
            bytes(image.disk_bytes),
            bytes(image.allocated_bytes),
            bytes(image.distinct_bytes),
            bytes(image.shared_bytes),
            stored(image.stored_bytes),
            stored(image.unique_stored_bytes),
            stored(image.added_bytes),
        ]);
    }
    let total = &report.total;
    let unique = report.images.iter().map(|image| image.unique_stored_bytes).sum();
    let added = report.images.iter().map(|image| image.added_bytes).sum();
    rows.push(vec![
        String::new(),
        "all".into(),
        bytes(total.disk_bytes),
        bytes(total.allocated_bytes),
        bytes(total.distinct_bytes),
        bytes(total.shared_bytes),
        stored(total.stored_bytes),
        stored(unique),
        stored(added),
    ]);
    rows
}

fn ratios(report: &AnalyzeReport) -> String {
    let total = &report.total;
    let shown = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
    let mut lines = vec![format!(
        "{} of data in {}: dedup {}, compression {}, combined {}",
        bytes(total.data_bytes),
        count(report.images.len() as u64, "image"),
        shown(total.dedup_ratio),
        shown(total.compression_ratio),
        shown(total.combined_ratio),
    )];
    if let Some(similarity) = total.cross_similarity {
        lines.push(format!(
            "cross-similarity {similarity:.3}: this share of the images' data is in several of them"
        ));
    }
    lines.extend(total.recipe_bytes.map(|recipes| format!("the recipes take {}", bytes(recipes))));
    if report.sampled > 1 {
        let sampled = report.sampled;
        lines.push(format!("counted from one of {sampled} blocks: more with --memory"));
    }
    lines.join("\n")
}

/// A matrix of overlaps, in groups of columns.
fn matrix(what: &str, overlap_bytes: &[Vec<u64>]) -> Option<String> {
    let images = overlap_bytes.len();
    if images < 2 {
        return None;
    }
    if images > PRINTED_IMAGES_MAX {
        return Some(format!(
            "The matrix of {images} images is printed with --json, and drawn with --svg; name fewer images to see theirs."
        ));
    }
    let groups: Vec<Vec<usize>> =
        (0..images).collect::<Vec<_>>().chunks(MATRIX_COLUMNS).map(<[usize]>::to_vec).collect();
    let group = |columns: &Vec<usize>| {
        let number = |image: usize| (image + 1).to_string();
        let head = std::iter::once("#".to_owned()).chain(columns.iter().copied().map(number));
        let row = |(a, row): (usize, &Vec<u64>)| {
            let own = row.get(a).copied().unwrap_or(0);
            let cells = columns.iter().filter_map(|b| row.get(*b)).map(|common| percent(*common, own));
            std::iter::once(number(a)).chain(cells).collect::<Vec<_>>()
        };
        let rows = overlap_bytes.iter().enumerate().map(row);
        table(&std::iter::once(head.collect()).chain(rows).collect::<Vec<_>>())
    };
    let title = format!("How much of the row's {what} the column's image has, in percent:");
    Some(format!("{title}\n{}", groups.iter().map(group).collect::<Vec<_>>().join("\n\n")))
}

/// The files of the images: a table, and a matrix.
fn files(report: &AnalyzeReport) -> Vec<String> {
    let Some(files) = &report.files else { return Vec::new() };
    let head = ["#", "FILESYSTEMS", "FILES", "CONTENTS", "DISTINCT", "SHARED", "UNIQUE", "UNREADABLE"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for (number, image) in (1..).zip(&files.images) {
        let filesystems = image.filesystems.join(", ");
        rows.push(vec![
            u64::to_string(&number),
            if filesystems.is_empty() { "none".into() } else { filesystems },
            image.files.to_string(),
            bytes(image.bytes),
            bytes(image.distinct_bytes),
            bytes(image.shared_bytes),
            bytes(image.unique_bytes),
            image.unreadable.to_string(),
        ]);
    }
    let total = &files.total;
    let shown =
        |ratio: Option<f64>, digits: usize| ratio.map_or("-".into(), |ratio| format!("{ratio:.digits$}"));
    let ratios = format!(
        "{} in {}, {} in different ones: dedup ratio {}, cross-similarity {}",
        bytes(total.bytes),
        count(total.files, "file"),
        bytes(total.distinct_bytes),
        shown(total.dedup_ratio, 2),
        shown(total.cross_similarity, 3)
    );
    let mut parts = vec![format!("Files by their contents:\n{}", table(&rows)), ratios];
    parts.extend(matrix("files", &files.overlap_bytes));
    parts
}

/// How the store grows with each image; `None` if that is not known.
fn growth(report: &AnalyzeReport) -> Option<Growth> {
    let mut lines = Vec::new();
    let added: Option<Vec<u64>> = report.images.iter().map(|image| image.added_bytes).collect();
    lines.extend(added.map(|added_bytes| GrowthLine { name: "as stored".into(), added_bytes }));
    let alone = report.images.iter().map(|image| Some(image.stored_bytes? + image.recipe_bytes?));
    let alone: Option<Vec<u64>> = alone.collect();
    lines.extend(
        alone.map(|added_bytes| GrowthLine { name: "as stored, each image alone".into(), added_bytes }),
    );
    lines.extend(report.what_if.iter().map(|of| GrowthLine {
        name: format!("{}, blocks of {}, {}", of.cut, block_size(of.block_bytes), of.compressor),
        added_bytes:
            of.images.iter().map(|image| image.added_bytes + image.added_recipe_bytes.unwrap_or(0)).collect(),
    }));
    let title = "What the images take in a store, as one is added after the other".into();
    (!lines.is_empty()).then_some(Growth { title, lines })
}

/// Writes matrices and growth to a new file.
fn draw(report: &AnalyzeReport, path: &Path) -> Result<()> {
    let names = || report.images.iter().map(|image| image.image.as_str()).collect();
    let map = |what: &str, overlap_bytes| HeatMap {
        title: format!("How much of the row's {what} the column's image has, in percent"),
        names: names(),
        overlap_bytes,
    };
    let mut maps = vec![map("data", &report.overlap_bytes[..])];
    maps.extend(report.files.iter().map(|files| map("files", &files.overlap_bytes[..])));
    maps.extend(report.what_if.iter().map(|of| {
        let what = format!("blocks ({}, {})", of.cut, block_size(of.block_bytes));
        map(&what, &of.overlap_bytes[..])
    }));
    let mut drawings: Vec<Drawing<'_>> = maps.into_iter().map(Drawing::HeatMap).collect();
    drawings.extend(growth(report).map(Drawing::Growth));
    let file = File::create_new(path)
        .map_err(|error| Error::io(format!("creating {}, which must not exist", path.display()), error))?;
    let mut out = BufWriter::new(file);
    draw_svg(&mut out, &drawings)
        .and_then(|()| out.flush())
        .map_err(|error| Error::io(format!("writing {}", path.display()), error))
}

/// What the images would take otherwise, a row for each prediction.
fn predictions(report: &AnalyzeReport) -> Option<String> {
    let head =
        ["CUT", "BLOCKS", "COMPRESSOR", "DISTINCT", "STORED", "DEDUP", "COMPRESSION", "COMBINED", "SIMILAR"];
    let ratio = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
    let row = |of: &Prediction| {
        vec![
            of.cut.to_string(),
            block_size(of.block_bytes),
            of.compressor.to_string(),
            bytes(of.total.distinct_bytes),
            bytes(of.total.stored_bytes),
            ratio(of.total.dedup_ratio),
            ratio(of.total.compression_ratio),
            ratio(of.total.combined_ratio),
            of.total.cross_similarity.map_or("-".into(), |similarity| format!("{similarity:.3}")),
        ]
    };
    let rows = std::iter::once(head.map(String::from).to_vec()).chain(report.what_if.iter().map(row));
    (!report.what_if.is_empty())
        .then(|| format!("What they would take:\n{}", table(&rows.collect::<Vec<_>>())))
}

/// A power of two in the unit in which it is whole.
fn block_size(bytes: u64) -> String {
    match bytes {
        0..1024 => bytes.to_string(),
        1024..0x10_0000 => format!("{}KiB", bytes >> 10),
        _ => format!("{}MiB", bytes >> 20),
    }
}

/// A part in percent: 100 only for all, 0 for less than half a percent.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".into();
    }
    let percent = (part as f64 / whole as f64 * 100.0).round() as u64;
    if part < whole { percent.min(99).to_string() } else { "100".into() }
}

fn notes(report: &AnalyzeReport) -> Option<String> {
    let lines: Vec<String> = report.notes.iter().map(|note| format!("note: {note}")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn damage(report: &AnalyzeReport) -> Option<String> {
    let mut lines: Vec<String> = report.damage.iter().map(|damage| format!("damaged: {damage}")).collect();
    for image in &report.images {
        if let Some(damage) = &image.damage {
            let unreadable = bytes(image.unreadable_bytes);
            lines.push(format!("damaged: {unreadable} of {} cannot be read: {damage}", image.image));
        }
        let found = report.files.as_ref().map_or(&[][..], |files| &files.images[..]);
        let found = found.iter().find(|found| found.image == image.image);
        if let Some((damage, files)) =
            found.and_then(|found| Some((found.damage.as_ref()?, found.unreadable)))
        {
            lines.push(format!(
                "damaged: {} of {} cannot be read: {damage}",
                count(files, "file"),
                image.image
            ));
        }
        if let Some(missing) = image.missing_blocks.filter(|missing| *missing > 0) {
            let missing = count(missing, "block");
            lines.push(format!("damaged: {missing} of {} in no pack; run `platter check`", image.image));
        }
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(0, 10), "0");
        assert_eq!(percent(9_999, 10_000), "99");
        assert_eq!(percent(10, 10), "100");
        assert_eq!(percent(1, 3), "33");
    }

    fn overlaps(images: usize) -> Vec<Vec<u64>> {
        (0..images).map(|a| (0..images).map(|b| (a * b) as u64).collect()).collect()
    }

    #[test]
    fn a_matrix_fits_on_80_columns() {
        let text = matrix("data", &overlaps(20)).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("20 ")).count(), 2, "{text}");
        assert!(matrix("data", &overlaps(1)).is_none());
        assert!(matrix("data", &overlaps(1000)).unwrap().lines().count() == 1);
    }
}
