//! Packs: append-only files of frames, with a footer that has the ids of their blocks (`docs/formats/pack.md`).
//!
//! A frame stands in a pack without these ids. All that goes out of here is whole again, so nobody else knows of it.
//!
//! A pack is written once, from start to end, and never changed after it was sealed. One that a crash left without a
//! footer, or with a hole where a write did not reach the disk, is read by [`scan`]: every frame proves itself.
//!
//! - `format`: the bytes of header, footer and trailer
//! - `writer`: appends frames, seals
//! - `reader`: reads the directory of a sealed pack, and frames
//! - `mend`: gives a pack that was not sealed, or lost its footer, a footer in its place
//! - `scan`: finds the frames of any pack, footer or not

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
