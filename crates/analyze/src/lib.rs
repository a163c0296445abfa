//! What images share: how much of each image's data others have, and how well a set of images deduplicates and compresses.
//!
//! It counts pieces of data by their digests: the blocks that a store has for the images, which needs only their recipes, and
//! on request the blocks into which other cuts would divide their data ([`WhatIf`]), or the contents of their files. The counting
//! is pure ([`Tally`], [`Similarity`]): it sees digests and sizes, no store. Memory is bounded: past a limit, only a sample of the
//! digests is counted, the same for all images, and the results are scaled.
//!
//! It is a crate of its own because nothing else needs its counts. It only reads; damage is counted and never ends an analysis.

mod analyze;
mod files;
mod parallel;
mod pieces;
mod progress;
mod recipe;
mod report;
mod similarity;
mod stored;
mod svg;
mod tally;
mod what_if;

pub use analyze::{AnalyzeRequest, ImageChoice, analyze};
pub use progress::Progress;
pub use report::{
    AnalyzeReport, FilesOfImage, FilesReport, ImageReport, PredictedImage, PredictedTotal, Prediction,
    TotalFiles, TotalReport,
};
pub use similarity::{ImageShare, MATRIX_IMAGES_MAX, Similarity};
pub use svg::{Drawing, Growth, GrowthLine, HeatMap, draw_svg};
pub use tally::{Added, Digest, Sample, Tally};
pub use what_if::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Compression, Cut, Plan, WhatIf};
