//! Frames: the unit of compression, storage, transfer and caching (design: frames, `docs/formats/frame.md`).
//!
//! A frame holds consecutive new blocks, about 128 KiB before compression, behind a header that lists them. It is
//! written once, sent as it lies, and verified whenever it crosses a trust boundary: its checksums tell damage, the
//! hashes of its blocks tell lies.

mod builder;
mod decode;
mod format;
mod packed;
pub mod stream;

pub use builder::{Compressor, EncodedFrame, FrameBuilder};
pub use decode::{FrameDecoder, UnverifiedBlock, UnverifiedBlocks, Verify};
pub use format::{
    BLOCKS_MAX, Codec, FrameHeader, HEADER_LENGTH, ListedBlock, RAW_LENGTH_MAX, STORED_LENGTH_MAX,
};
pub use packed::{PACKED_MAGIC, make_whole, packed_length, peek_packed, to_packed, whole_header_length};

/// Default bytes of blocks in a frame before compression: `docs/benchmarks.md` has the sweep behind it.
pub const RAW_LENGTH_DEFAULT: usize = 128 << 10;
