//! Frames: the unit of compression, storage, transfer and caching (design: frames, `docs/formats/frame.md`).
//!
//! A frame contains consecutive new blocks, about 128 KiB before compression, after a header that lists them.
//! It is encoded once, sent as stored, and verified at every trust boundary: checksums detect damage, block
//! hashes detect forgery.

mod builder;
mod decode;
mod format;
mod packed;
mod pool;
#[cfg(test)]
mod sealed_tests;
pub mod stream;

pub use crate::cipher::Cipher;
pub use builder::{Compressor, EncodedFrame, FrameBuilder};
pub use decode::{FrameDecoder, UnverifiedBlock, UnverifiedBlocks, Verify};
pub use format::{
    BLOCKS_MAX, Codec, FrameHeader, HEADER_LENGTH, ListedBlock, RAW_LENGTH_MAX, STORED_LENGTH_MAX, domain_in,
};
pub use packed::{PACKED_MAGIC, make_whole, packed_length, peek_packed, to_packed, whole_header_length};
pub use pool::DecoderPool;

/// The default size of a frame before compression, in bytes; `docs/benchmarks.md` has the measurements behind
/// it.
pub const RAW_LENGTH_DEFAULT: usize = 128 << 10;
