//! A segment: an immutable file of sorted entries, with fences and a filter (`docs/formats/index.md`).
//!
//! - `format`: the header page and the pages of entries
//! - `filter`: which ids a segment may have
//! - `reader`: lookups, and reading in order
//! - `writer`: writes a segment from sorted entries

mod filter;
mod format;
mod reader;
mod writer;

pub(crate) use format::SegmentId;
pub use format::{SegmentHead, decode_page};
pub(crate) use reader::{InOrder, Segment};
pub(crate) use writer::SegmentWriter;
