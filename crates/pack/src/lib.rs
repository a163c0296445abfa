//! Packs: append-only files of frames, with a footer that lists the ids of their blocks (`docs/formats/pack.md`).
//!
//! In a pack, frames lack these ids. This module adds them when it reads a frame, so that other code only sees whole frames.
//!
//! A pack is written once, from start to end, and never changes after it was sealed. If a crash left a pack without a footer, or
//! with a hole where a write did not reach the disk, [`scan`] reads it: each frame can be verified by itself.
//!
//! - `format`: the byte layout of header, footer and trailer
//! - `health`: the byte layout of files with observations about packs
//! - `reader`: reads the directory of a sealed pack, and frames
//! - `scan`: finds the frames of any pack, with or without a footer
//! - `writing`: writes one frame
//!
//! A crate of its own because stores and the caches of nodes keep their frames in the same format, and a cache needs no
//! database. Must never read a length that it did not check, and never write a byte that it was not given.

mod format;
mod health;
mod id_hash;
mod reader;
mod scan;
mod writing;

pub use format::{
    FrameRow, HEADER_LENGTH, PACK_BLOCKS_MAX, PACK_FRAMES_MAX, PACK_LENGTH_MAX, PackDirectory, encode_end,
    encode_header, end_length,
};
pub use health::{
    Condition, HEALTH_LENGTH_MAX, OBSERVATIONS_MAX, Observation, Observations, decode_health, encode_health,
};
pub use id_hash::IdHash;
pub use reader::{
    ids, lay_ids, read_directory, read_frame, read_header, read_listed, read_row, read_row_header, read_rows,
};
pub use scan::{Scanned, begins_encrypted, begins_locked, scan, scanned_directory};
pub use writing::write_frame;
