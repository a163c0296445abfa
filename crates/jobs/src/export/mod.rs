//! Writes versions as files: completely, or the readable parts of a damaged version.
//!
//! - `image`: the whole disk in the format of another program, or to a pipe
//! - `raw`: the whole disk, or nothing
//! - `holes`: the readable parts, and a list of the others
//! - `files`: the files of ext filesystems in unreadable ranges
//! - `request`: which version it is

mod files;
mod holes;
mod image;
mod raw;
mod request;

pub use files::LostFile;
pub use holes::{ExportHolesReport, LostRange, export_holes};
pub use image::{ExportOptions, check_format, export_image, export_stream, is_raw};
pub use raw::export;
pub use request::ExportRequest;
