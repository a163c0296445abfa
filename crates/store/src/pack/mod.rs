//! Packs: append-only files of frames, with a footer that lists the ids of their blocks (`docs/formats/pack.md`).
//!
//! In a pack, frames lack these ids. This module adds them when it reads a frame, so that other code only sees whole frames.
//!
//! A pack is written once, from start to end, and never changes after it was sealed. If a crash left a pack without a footer, or
//! with a hole where a write did not reach the disk, [`scan`] reads it: each frame can be verified by itself.
//!
//! - `format`: the byte layout of header, footer and trailer
//! - `writer`: appends frames and seals the pack
//! - `reader`: reads the directory of a sealed pack, and frames
//! - `mend`: writes a footer for a pack that was not sealed, or whose footer is damaged
//! - `scan`: finds the frames of any pack, with or without a footer

mod format;
mod mend;
mod reader;
mod scan;
mod writer;

pub use format::PackDirectory;
pub(crate) use format::{
    FrameRow, HEADER_LENGTH, PACK_BLOCKS_MAX, PACK_FRAMES_MAX, encode_end, encode_header, end_length,
};
pub(crate) use mend::mend;
pub use reader::read_directory;
pub(crate) use reader::{lay_ids, read_frame, read_header, read_row, read_row_header};
pub(crate) use scan::{Scanned, scan};
pub(crate) use writer::{PackWriter, SealedPack, write_frame};
