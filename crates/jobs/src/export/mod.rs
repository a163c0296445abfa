//! Writes versions as raw files: whole, or of a damaged version what is readable.
//!
//! - `raw`: the whole disk, or nothing
//! - `holes`: what can be read, and a list of what cannot
//! - `files`: which files of ext filesystems lie in what cannot

mod files;
mod holes;
mod raw;

pub use files::LostFile;
pub use holes::{ExportHolesReport, LostRange, export_holes};
pub use raw::export;
