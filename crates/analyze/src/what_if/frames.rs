//! Compresses blocks together in frames, as a store does, and keeps only the lengths.

use platter_image::{Error, Result};
use zstd_safe::{CCtx, CParameter};

use super::plan::Compression;

/// Bytes that a store needs for each block beside its contents: its id and its length.
pub(super) const BLOCK_OVERHEAD: u64 = 36;
/// Bytes that a store needs for each frame beside its blocks: its header, and its row in the list of the pack.
pub(super) const FRAME_OVERHEAD: u64 = 56 + 24;

/// The frame that is being filled, and the length of those before it.
pub(super) struct Frames {
    frame_bytes: usize,
    blocks: u64,
    raw: Vec<u8>,
    compressed: Vec<u8>,
    /// `None`: nothing is compressed.
    context: Option<CCtx<'static>>,
    stored_bytes: u64,
}

impl Frames {
    pub(super) fn new(compression: Compression, frame_bytes: usize) -> Result<Self> {
        let context = match compression {
            Compression::None => None,
            Compression::Zstd(level) => {
                let context = CCtx::try_create();
                let mut context = context.ok_or_else(|| Error::bug("zstd has no memory for a context"))?;
                context.set_parameter(CParameter::CompressionLevel(level)).map_err(zstd_failed)?;
                Some(context)
            }
        };
        let (raw, compressed) = (Vec::new(), Vec::new());
        Ok(Self { frame_bytes, blocks: 0, raw, compressed, context, stored_bytes: 0 })
    }

    /// Adds a block to the frame, or to the next one if this one is full.
    pub(super) fn push(&mut self, block: &[u8]) -> Result<()> {
        if self.blocks > 0 && self.raw.len() + block.len() > self.frame_bytes {
            self.finish()?;
        }
        self.blocks += 1;
        self.raw.extend_from_slice(block);
        Ok(())
    }

    /// Ends the frame.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.blocks == 0 {
            return Ok(());
        }
        let mut length = self.raw.len();
        if let Some(context) = &mut self.context {
            self.compressed.clear();
            self.compressed.reserve(zstd_safe::compress_bound(length));
            let compressed = context.compress2(&mut self.compressed, &self.raw).map_err(zstd_failed)?;
            // A store keeps what compression makes hardly smaller as it is.
            if compressed + length / 64 < length {
                length = compressed;
            }
        }
        self.stored_bytes += length as u64 + self.blocks * BLOCK_OVERHEAD + FRAME_OVERHEAD;
        self.blocks = 0;
        self.raw.clear();
        Ok(())
    }

    /// The length of all finished frames since the last call.
    pub(super) fn take_stored_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.stored_bytes)
    }
}

fn zstd_failed(code: usize) -> Error {
    Error::bug(format!("zstd: {}", zstd_safe::get_error_name(code)))
}

#[cfg(test)]
mod tests {
    use platter_image::frame::{Compressor, FrameBuilder};
    use platter_image::{BlockId, Domain, Kind};

    use super::*;

    /// A frame has the length that a frame of a store has, but for its row in the list of the pack.
    #[test]
    fn frames_are_as_long_as_those_of_a_store() {
        for (number, repeated) in [(1_u32, 7_usize), (2, 1), (5, 50)] {
            let block: Vec<u8> = (0..16_384_u32)
                .map(|at| (at / repeated as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3])
                .collect();
            let mut builder = FrameBuilder::new(Kind::Data, Domain::SHARED, 128 << 10);
            let mut frames = Frames::new(Compression::Zstd(3), 128 << 10).unwrap();
            for _ in 0..number {
                builder.push(BlockId::of(Kind::Data, &block), &block);
                frames.push(&block).unwrap();
            }
            frames.finish().unwrap();
            let stored = builder.encode(&mut Compressor::new(3).unwrap()).unwrap().stored.len();
            assert_eq!(frames.take_stored_bytes(), stored as u64 + 24, "{number} blocks");
        }
    }

    #[test]
    fn frames_are_filled() {
        let mut frames = Frames::new(Compression::None, 1000).unwrap();
        for length in [400, 400, 400, 5000, 1] {
            frames.push(&vec![1; length]).unwrap();
        }
        frames.finish().unwrap();
        // 400 and 400; 400; 5000; 1.
        assert_eq!(frames.take_stored_bytes(), 6201 + 5 * BLOCK_OVERHEAD + 4 * FRAME_OVERHEAD);
        assert_eq!(frames.take_stored_bytes(), 0);
    }
}
