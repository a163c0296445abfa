//! Writes versions as raw files: completely, or the readable parts of a damaged version.
//!
//! - `raw`: the whole disk, or nothing
//! - `holes`: the readable parts, and a list of the others
//! - `files`: the files of ext filesystems in unreadable ranges

mod files;
mod holes;
mod raw;

pub use files::LostFile;
pub use holes::{ExportHolesReport, LostRange, export_holes};
pub use raw::export;
