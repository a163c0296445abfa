//! The analysis: finds the images, reads their recipes on all processors, and puts the report together.

use std::collections::HashMap;

use parking_lot::Mutex;
use platter_disk::survey::read_table;
use platter_fetch::{OpenStore, StoreLocation, memory_cache};
use platter_image::recipe::Recipe;
use platter_image::{Error, Extent, Result, Score};
use platter_vdisk::{DiskView, RecipeDisk};

use crate::files::{ImageFiles, count_files};
use crate::parallel::for_each;
use crate::pieces::Pieces;
use crate::progress::Progress;
use crate::recipe::{Contents, read_contents};
use crate::report::{
    AnalyzeReport, FilesOfImage, FilesReport, ImageReport, PredictedImage, PredictedTotal, Prediction,
    TotalFiles, TotalReport, ratio,
};
use crate::similarity::{ImageShare, MATRIX_IMAGES_MAX, Similarity};
use crate::stored::{Stored, stored};
use crate::tally::Tally;
use crate::what_if::{Counted, Plan, Subject, WhatIf, predict};

/// Memory for decoded blocks of a partition table, in bytes.
const TABLE_CACHE_BYTES: usize = 16 << 20;

/// The request for an analysis.
#[derive(Clone, Debug)]
pub struct AnalyzeRequest {
    /// The store.
    pub store: StoreLocation,
    /// The images to analyze; if empty, the newest version of every image.
    pub images: Vec<ImageChoice>,
    /// Also compare files by their contents.
    pub files: bool,
    /// What else to predict.
    pub what_if: WhatIf,
    /// About how much memory the counts may take, in bytes. With more blocks, a sample of them is counted.
    pub memory_bytes: u64,
    /// Number of threads.
    pub threads: usize,
}

/// A version, or a partition of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageChoice {
    /// `NAME`, `NAME@NUMBER` or a score.
    pub version: String,
    /// The number of the partition; `None` for the whole disk.
    pub part: Option<u32>,
}

/// An image that was found.
#[derive(Clone, Debug)]
struct Chosen {
    name: String,
    score: Score,
    /// Length of the disk, as the catalog has it.
    disk_bytes: u64,
    range: Option<Extent>,
}

/// Analyzes images.
///
/// # Errors
/// `Missing` if there is no such image or partition, or none at all; `Refused` without the key of an encrypted store; the store's
/// errors. Damage is no error: it is in the report.
pub fn analyze(request: &AnalyzeRequest, progress: &dyn Progress) -> Result<AnalyzeReport> {
    let store = OpenStore::open_reader(&request.store)?;
    let images = find_images(&store, &request.images)?;
    progress.begin("reading recipes", images.iter().map(Chosen::length).sum());
    let (tally, contents) = read_all(&store, &images, request, progress)?;
    let similarity = Similarity::of(&tally, request.threads);
    let pages = contents.iter().flat_map(|contents| &contents.pages).map(|page| (*page, 0)).collect();
    let stored = stored(&store, &tally, pages)?;
    let mut report = report(&images, &contents, &tally, similarity, stored);
    drop(tally);
    if request.files {
        progress.begin("reading files", report.total.data_bytes);
        read_files(&mut report, &store, &images, request, progress)?;
    }
    if !request.what_if.plans.is_empty() {
        add_predictions(&mut report, &store, &images, request, progress)?;
    }
    Ok(report)
}

fn add_predictions(
    report: &mut AnalyzeReport,
    store: &OpenStore,
    images: &[Chosen],
    request: &AnalyzeRequest,
    progress: &dyn Progress,
) -> Result<()> {
    let subject = |(image, row): (&Chosen, &ImageReport)| Subject {
        name: image.name.clone(),
        score: image.score,
        range: image.range,
        data_bytes: row.data_bytes,
    };
    let subjects: Vec<Subject> = images.iter().zip(&report.images).map(subject).collect();
    let resources = (request.memory_bytes, request.threads);
    let predicted = predict(store, &subjects, &request.what_if, resources, progress)?;
    report.damage.extend(predicted.damage);
    report.notes.extend(request.what_if.note.map(str::to_owned));
    let counted = request.what_if.plans.iter().zip(&predicted.plans);
    report.what_if =
        counted.map(|(plan, counted)| prediction(*plan, counted, images, request.threads)).collect();
    Ok(())
}

fn prediction(plan: Plan, counted: &Counted, images: &[Chosen], threads: usize) -> Prediction {
    let similarity = Similarity::of(&counted.tally, threads);
    let rows = images.iter().zip(&counted.images).zip(&similarity.images);
    let data_bytes: u64 = counted.images.iter().map(|image| image.data_bytes).sum();
    let stored_bytes: u64 = counted.images.iter().map(|image| image.stored_bytes).sum();
    Prediction {
        cut: plan.cut,
        block_bytes: plan.block_bytes,
        compressor: plan.compression,
        frame_bytes: plan.frame_bytes,
        images: rows
            .map(|((image, grown), share)| PredictedImage {
                image: image.name.clone(),
                data_bytes: grown.data_bytes,
                blocks: share.pieces,
                distinct_bytes: share.bytes,
                shared_bytes: share.shared_bytes,
                unique_bytes: share.bytes.saturating_sub(share.shared_bytes),
                added_bytes: grown.stored_bytes,
                added_recipe_bytes: grown.recipe_bytes,
            })
            .collect(),
        total: PredictedTotal {
            data_bytes,
            blocks: similarity.pieces,
            distinct_bytes: similarity.bytes,
            stored_bytes,
            recipe_bytes: counted.images.iter().map(|image| image.recipe_bytes).sum(),
            dedup_ratio: ratio(data_bytes, similarity.bytes),
            compression_ratio: ratio(similarity.bytes, stored_bytes),
            combined_ratio: ratio(data_bytes, stored_bytes),
            cross_similarity: similarity.cross_similarity,
        },
        overlap_bytes: similarity.overlap_bytes,
        sampled: counted.tally.sample().factor(),
    }
}

impl Chosen {
    fn length(&self) -> u64 {
        self.range.map_or(self.disk_bytes, |range| range.length)
    }
}

fn find_images(store: &OpenStore, choices: &[ImageChoice]) -> Result<Vec<Chosen>> {
    if choices.is_empty() {
        let images = store.images()?;
        if images.is_empty() {
            return Err(Error::missing("the store has no images"));
        }
        let chosen = images.iter().map(|version| Chosen {
            name: version.name.to_string(),
            score: version.record.score,
            disk_bytes: version.record.disk_length,
            range: None,
        });
        return Ok(chosen.collect());
    }
    choices.iter().map(|choice| find_image(store, choice)).collect()
}

fn find_image(store: &OpenStore, choice: &ImageChoice) -> Result<Chosen> {
    let resolved = store.resolve(&choice.version)?;
    let name = match &resolved.version {
        Some(version) => version.name.to_string(),
        None => resolved.score.to_string().chars().take(16).collect(),
    };
    let disk_bytes = resolved.version.map_or(0, |version| version.record.disk_length);
    let chosen = Chosen { name, score: resolved.score, disk_bytes, range: None };
    let Some(number) = choice.part else { return Ok(chosen) };
    let source = store.source(chosen.score, Default::default());
    let root = *Recipe::open(chosen.score, &*source)?.root();
    let disk = RecipeDisk::open(chosen.score, source, memory_cache(TABLE_CACHE_BYTES)?)?;
    let view = DiskView { device: &disk, sector_size: root.sector_size };
    let range = read_table(&view)?.range_of(number, root.disk_length);
    let range = range.map_err(|error| error.within(&chosen.name))?;
    Ok(Chosen { name: format!("{}:{number}", chosen.name), range: Some(range), ..chosen })
}

/// Reads all recipes. The results are in the order of the images, without their blocks, which are in the tally.
fn read_all(
    store: &OpenStore,
    images: &[Chosen],
    request: &AnalyzeRequest,
    progress: &dyn Progress,
) -> Result<(Tally, Vec<Contents>)> {
    let (tally_bytes, own_bytes) = memory_of_each(images, request);
    let tally = Mutex::new(Tally::new(images.len(), tally_bytes));
    let contents = for_each(images, request.threads, |number, image: &Chosen| {
        let source = store.source(image.score, Default::default());
        let advance = |bytes| progress.advance(bytes);
        let read = read_contents(image.score, image.range, source, own_bytes, &advance);
        let mut contents = match read {
            Err(error) if error.is_data_loss() => Contents::unreadable(image.length(), &error),
            read => read.map_err(|error| error.within(&image.name))?,
        };
        tally.lock().set(number, contents.sample, std::mem::take(&mut contents.blocks));
        Ok(contents)
    })?;
    Ok((tally.into_inner(), contents))
}

/// How much memory a tally may take, and each of the images that are being read: together as much as was requested, in bytes.
fn memory_of_each(images: &[Chosen], request: &AnalyzeRequest) -> (u64, u64) {
    let threads = request.threads.clamp(1, images.len().max(1)) as u64;
    (request.memory_bytes / 2, request.memory_bytes / 2 / threads)
}

/// Counts the files of all images.
fn read_files(
    report: &mut AnalyzeReport,
    store: &OpenStore,
    images: &[Chosen],
    request: &AnalyzeRequest,
    progress: &dyn Progress,
) -> Result<()> {
    let (tally_bytes, own_bytes) = memory_of_each(images, request);
    let tally = Mutex::new(Tally::new(images.len(), tally_bytes));
    let files = for_each(images, request.threads, |number, image: &Chosen| {
        let mut pieces = Pieces::new(own_bytes);
        let advance = |bytes| progress.advance(bytes);
        let counted = count_files(store, (image.score, image.range), &mut pieces, &advance);
        let counted = counted.map_err(|error| error.within(&image.name))?;
        tally.lock().set(number, pieces.sample(), pieces.into_found());
        Ok(counted)
    })?;
    for (image, files) in images.iter().zip(&files) {
        report.notes.extend(files.notes.iter().map(|note| format!("{}: {note}", image.name)));
    }
    report.files = Some(files_report(images, files, &tally.into_inner(), request.threads));
    Ok(())
}

fn files_report(images: &[Chosen], files: Vec<ImageFiles>, tally: &Tally, threads: usize) -> FilesReport {
    let similarity = Similarity::of(tally, threads);
    let bytes = files.iter().map(|files| files.bytes).sum();
    let total = TotalFiles {
        files: files.iter().map(|files| files.files).sum(),
        bytes,
        distinct_files: similarity.pieces,
        distinct_bytes: similarity.bytes,
        dedup_ratio: ratio(bytes, similarity.bytes),
        cross_similarity: similarity.cross_similarity,
        unreadable: files.iter().map(|files| files.unreadable).sum(),
    };
    let rows = images.iter().zip(files).zip(&similarity.images).map(|((image, files), share)| FilesOfImage {
        image: image.name.clone(),
        filesystems: files.filesystems,
        files: files.files,
        bytes: files.bytes,
        distinct_files: share.pieces,
        distinct_bytes: share.bytes,
        shared_bytes: share.shared_bytes,
        unique_bytes: share.bytes.saturating_sub(share.shared_bytes),
        unreadable: files.unreadable,
        damage: files.damage,
    });
    let images = rows.collect();
    FilesReport { images, total, overlap_bytes: similarity.overlap_bytes, sampled: tally.sample().factor() }
}

/// What is left out of the figures.
fn notes(images: usize, knows_packs: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if !knows_packs {
        notes.push(
            "an origin does not show its packs: what data takes in the store, and compression, are known only on its own machine".into(),
        );
    }
    if images > MATRIX_IMAGES_MAX {
        notes.push(format!("{images} images: matrices have at most {MATRIX_IMAGES_MAX}"));
    }
    notes
}

/// Puts the figures together.
fn report(
    images: &[Chosen],
    contents: &[Contents],
    tally: &Tally,
    similarity: Similarity,
    stored: Option<Stored>,
) -> AnalyzeReport {
    let figures = Figures { tally, owners: tally.owners(), stored: stored.as_ref() };
    let rows = images.iter().zip(contents).zip(tally.images()).zip(&similarity.images);
    let rows =
        rows.map(|(((image, contents), pieces), share)| figures.of_image(image, contents, pieces, *share));
    let mut images: Vec<ImageReport> = rows.collect();
    for (image, added_bytes) in images.iter_mut().zip(figures.growth(contents)) {
        image.added_bytes = Some(added_bytes);
    }
    let notes = notes(images.len(), stored.is_some());
    AnalyzeReport {
        total: figures.total(&images, &similarity),
        images,
        overlap_bytes: similarity.overlap_bytes,
        sampled: tally.sample().factor(),
        files: None,
        what_if: Vec::new(),
        notes,
        damage: stored.map_or_else(Vec::new, |stored| stored.damage),
    }
}

/// What the figures are computed from.
struct Figures<'a> {
    tally: &'a Tally,
    /// The number of images that have each piece.
    owners: Vec<u32>,
    stored: Option<&'a Stored>,
}

impl Figures<'_> {
    fn of_image(
        &self,
        image: &Chosen,
        contents: &Contents,
        pieces: &[u32],
        share: ImageShare,
    ) -> ImageReport {
        // What pieces take in the store, summed; only those that this many images have.
        let stored_sum = |owners_max: u32| {
            let wanted = pieces.iter().map(|number| *number as usize);
            let wanted =
                wanted.filter(|number| self.owners.get(*number).is_some_and(|own| *own <= owners_max));
            let sum = |stored: &Stored| wanted.filter_map(|number| stored.blocks.get(number)).sum::<u64>();
            self.stored.map(|stored| sum(stored) * self.tally.sample().factor())
        };
        let recipe = |stored: &Stored| contents.pages.iter().filter_map(|page| stored.pages.get(page)).sum();
        let is_missing = |stored: &Stored, number: u32| stored.blocks.get(number as usize) == Some(&0);
        let missing = |stored| pieces.iter().filter(|number| is_missing(stored, **number)).count() as u64;
        ImageReport {
            image: image.name.clone(),
            score: image.score.to_string(),
            disk_bytes: contents.disk_bytes,
            allocated_bytes: contents.data_bytes + contents.zero_bytes,
            data_bytes: contents.data_bytes,
            blocks: share.pieces,
            distinct_bytes: share.bytes,
            shared_bytes: share.shared_bytes,
            unique_bytes: share.bytes.saturating_sub(share.shared_bytes),
            stored_bytes: stored_sum(u32::MAX),
            unique_stored_bytes: stored_sum(1),
            recipe_bytes: self.stored.map(recipe),
            added_bytes: None,
            missing_blocks: self.stored.map(|stored| missing(stored) * self.tally.sample().factor()),
            unreadable_bytes: contents.unreadable_bytes,
            damage: contents.damage.clone(),
        }
    }

    /// What each image adds in the store to those before it; nothing if that is not known.
    fn growth(&self, contents: &[Contents]) -> Vec<u64> {
        let Some(stored) = self.stored else { return Vec::new() };
        let mut left = stored.blocks.clone();
        let mut pages = stored.pages.clone();
        let images = self.tally.images().iter().zip(contents);
        let added = images.map(|(pieces, contents)| {
            let mut take = |number: &u32| left.get_mut(*number as usize).map_or(0, std::mem::take);
            let blocks: u64 = pieces.iter().map(&mut take).sum();
            let recipe: u64 = contents.pages.iter().filter_map(|page| pages.remove(page)).sum();
            blocks * self.tally.sample().factor() + recipe
        });
        added.collect()
    }

    fn total(&self, images: &[ImageReport], similarity: &Similarity) -> TotalReport {
        let factor = self.tally.sample().factor();
        let sum = |of: fn(&ImageReport) -> u64| images.iter().map(of).sum::<u64>();
        let sizes = self.owners.iter().zip(self.tally.sizes());
        let shared: u64 = sizes.filter(|(owners, _)| **owners > 1).map(|(_, size)| size).sum();
        let missing = |stored: &Stored| stored.blocks.iter().filter(|bytes| **bytes == 0).count() as u64;
        let data_bytes = sum(|image| image.data_bytes);
        let stored_bytes = self.stored.map(|stored| stored.blocks.iter().sum::<u64>() * factor);
        TotalReport {
            disk_bytes: sum(|image| image.disk_bytes),
            allocated_bytes: sum(|image| image.allocated_bytes),
            data_bytes,
            blocks: similarity.pieces,
            distinct_bytes: similarity.bytes,
            shared_bytes: shared * factor,
            stored_bytes,
            recipe_bytes: self.stored.map(|stored| stored.pages.values().sum()),
            dedup_ratio: ratio(data_bytes, similarity.bytes),
            compression_ratio: stored_bytes.and_then(|stored| ratio(similarity.bytes, stored)),
            combined_ratio: stored_bytes.and_then(|stored| ratio(data_bytes, stored)),
            cross_similarity: similarity.cross_similarity,
            missing_blocks: self.stored.map(|stored| missing(stored) * factor),
            unreadable_bytes: sum(|image| image.unreadable_bytes),
        }
    }
}

impl Contents {
    /// Of an image of which nothing can be read.
    fn unreadable(disk_bytes: u64, error: &Error) -> Self {
        Self {
            sample: Default::default(),
            blocks: HashMap::new(),
            pages: Default::default(),
            disk_bytes,
            data_bytes: 0,
            zero_bytes: 0,
            unreadable_bytes: disk_bytes,
            damage: Some(error.with_causes()),
        }
    }
}
