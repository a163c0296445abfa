//! The result of an analysis, as it is printed. Its names are stable: `--json` prints this structure.

use serde::Serialize;

use crate::what_if::{Compression, Cut};

/// What images share.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AnalyzeReport {
    /// The images, in the order of the rows of `overlap_bytes`.
    pub images: Vec<ImageReport>,
    /// All images together.
    pub total: TotalReport,
    /// For every two images the bytes of the blocks that both have; on the diagonal the distinct bytes of one image.
    /// Empty for more than [`MATRIX_IMAGES_MAX`](crate::MATRIX_IMAGES_MAX) images.
    pub overlap_bytes: Vec<Vec<u64>>,
    /// 1: all blocks were counted; N: one of N, because there were too many for the memory.
    pub sampled: u64,
    /// The files of the images by their contents; `null` if that was not asked for.
    pub files: Option<FilesReport>,
    /// What the images would take if they were cut and compressed otherwise, in the order in which that was asked for.
    pub what_if: Vec<Prediction>,
    /// What was left out or is not known, and why, in sentences.
    pub notes: Vec<String>,
    /// What cannot be read, in sentences. Damage of the recipe of one image is in `images`.
    pub damage: Vec<String>,
}

/// One image. All sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImageReport {
    /// The version, and the partition if only that was analyzed.
    pub image: String,
    /// The score of the whole disk.
    pub score: String,
    /// Length of the disk.
    pub disk_bytes: u64,
    /// In use: data, and zeros in space that is in use.
    pub allocated_bytes: u64,
    /// Data in use, counted at each place.
    pub data_bytes: u64,
    /// Number of its distinct blocks.
    pub blocks: u64,
    /// Their data.
    pub distinct_bytes: u64,
    /// The data of those that other images of the analysis have, too.
    pub shared_bytes: u64,
    /// The data of those that no other image of the analysis has.
    pub unique_bytes: u64,
    /// What its blocks take in the store, compressed. `null` behind an origin.
    pub stored_bytes: Option<u64>,
    /// What those that no other image of the analysis has take in the store.
    pub unique_stored_bytes: Option<u64>,
    /// What the pages of its recipe take in the store.
    pub recipe_bytes: Option<u64>,
    /// What its blocks and pages take in the store that no image before it in this list has: they sum up to what all take.
    pub added_bytes: Option<u64>,
    /// Blocks that are in no pack of the store.
    pub missing_blocks: Option<u64>,
    /// Bytes of the disk whose recipe cannot be read; they are counted nowhere else.
    pub unreadable_bytes: u64,
    /// Why, for the first of them.
    pub damage: Option<String>,
}

/// All images together. All sizes are in bytes; what several images have is counted once, unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TotalReport {
    /// Lengths of the disks, summed.
    pub disk_bytes: u64,
    /// Space in use, summed.
    pub allocated_bytes: u64,
    /// Data in use, summed.
    pub data_bytes: u64,
    /// Number of distinct blocks.
    pub blocks: u64,
    /// Their data.
    pub distinct_bytes: u64,
    /// The data of those that at least two images have.
    pub shared_bytes: u64,
    /// What the blocks take in the store, compressed.
    pub stored_bytes: Option<u64>,
    /// What the pages of all recipes take in the store.
    pub recipe_bytes: Option<u64>,
    /// Data in use against distinct data.
    pub dedup_ratio: Option<f64>,
    /// Distinct data against stored bytes.
    pub compression_ratio: Option<f64>,
    /// Data in use against stored bytes: the product of both.
    pub combined_ratio: Option<f64>,
    /// The share of the distinct data of all images, summed, that at least two images have: 0 to 1.
    pub cross_similarity: Option<f64>,
    /// Blocks that are in no pack of the store.
    pub missing_blocks: Option<u64>,
    /// Bytes of disks whose recipes cannot be read, summed.
    pub unreadable_bytes: u64,
}

/// What the images would take in a store of their own, to which they are added in their order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// How data is cut.
    pub cut: Cut,
    /// Bytes of a block; their mean if contents decide.
    pub block_bytes: u64,
    /// How frames are compressed.
    pub compressor: Compression,
    /// Bytes of a frame before compression.
    pub frame_bytes: usize,
    /// The images.
    pub images: Vec<PredictedImage>,
    /// All images together.
    pub total: PredictedTotal,
    /// As [`AnalyzeReport::overlap_bytes`].
    pub overlap_bytes: Vec<Vec<u64>>,
    /// As [`AnalyzeReport::sampled`].
    pub sampled: u64,
}

/// One image of a prediction. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictedImage {
    /// The version, and the partition if only that was analyzed.
    pub image: String,
    /// Data, counted at each place.
    pub data_bytes: u64,
    /// Number of its distinct blocks.
    pub blocks: u64,
    /// Their data.
    pub distinct_bytes: u64,
    /// The data of those that other images have, too.
    pub shared_bytes: u64,
    /// The data of those that no other image has.
    pub unique_bytes: u64,
    /// What the blocks take that the images before it do not have, compressed.
    pub added_bytes: u64,
    /// What its recipe adds; `null` if it is not known for this cut.
    pub added_recipe_bytes: Option<u64>,
}

/// All images of a prediction. All sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictedTotal {
    /// Data of all images, summed.
    pub data_bytes: u64,
    /// Number of distinct blocks.
    pub blocks: u64,
    /// Their data.
    pub distinct_bytes: u64,
    /// What the blocks take, compressed, with ids and headers.
    pub stored_bytes: u64,
    /// What the recipes take; `null` if it is not known for this cut.
    pub recipe_bytes: Option<u64>,
    /// As [`TotalReport::dedup_ratio`].
    pub dedup_ratio: Option<f64>,
    /// As [`TotalReport::compression_ratio`].
    pub compression_ratio: Option<f64>,
    /// As [`TotalReport::combined_ratio`].
    pub combined_ratio: Option<f64>,
    /// As [`TotalReport::cross_similarity`].
    pub cross_similarity: Option<f64>,
}

/// What images share by the contents of files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FilesReport {
    /// The images.
    pub images: Vec<FilesOfImage>,
    /// All images together.
    pub total: TotalFiles,
    /// For every two images the bytes of the files that both have.
    pub overlap_bytes: Vec<Vec<u64>>,
    /// As [`AnalyzeReport::sampled`].
    pub sampled: u64,
}

/// The regular files of one image. Sizes are in bytes, without pages of zeros.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FilesOfImage {
    /// The version, and the partition if only that was analyzed.
    pub image: String,
    /// Filesystems whose files were read.
    pub filesystems: Vec<String>,
    /// Number of files that are not empty; one with several names counts once.
    pub files: u64,
    /// Their contents, without holes and pages of zeros.
    pub bytes: u64,
    /// Number of different contents.
    pub distinct_files: u64,
    /// These contents.
    pub distinct_bytes: u64,
    /// The contents that other images have, too.
    pub shared_bytes: u64,
    /// The contents that no other image has.
    pub unique_bytes: u64,
    /// Files, directories and filesystems that cannot be read.
    pub unreadable: u64,
    /// Why, for the first of them.
    pub damage: Option<String>,
}

/// The regular files of all images.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TotalFiles {
    /// Their number.
    pub files: u64,
    /// Their contents.
    pub bytes: u64,
    /// Number of different contents.
    pub distinct_files: u64,
    /// These contents.
    pub distinct_bytes: u64,
    /// All contents against different ones.
    pub dedup_ratio: Option<f64>,
    /// As [`TotalReport::cross_similarity`].
    pub cross_similarity: Option<f64>,
    /// Files, directories and filesystems that cannot be read.
    pub unreadable: u64,
}

impl AnalyzeReport {
    /// Whether something could not be read.
    pub fn is_damaged(&self) -> bool {
        let is_missing = self.total.missing_blocks.is_some_and(|missing| missing > 0);
        let is_unreadable = self.images.iter().any(|image| image.damage.is_some());
        let is_lost = self.files.as_ref().is_some_and(|files| files.total.unreadable > 0);
        is_missing || is_unreadable || is_lost || !self.damage.is_empty()
    }
}

/// `a / b`, if there is anything.
pub(crate) fn ratio(a: u64, b: u64) -> Option<f64> {
    (b > 0).then(|| a as f64 / b as f64)
}
