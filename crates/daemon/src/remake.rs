//! Rebuilds frames from some of the blocks of stored frames, because the other blocks were not requested or must not be
//! sent.
//!
//! Blocks of several stored frames may share a new frame, in the given order. Every block is hashed on the way, because
//! the new frame has no checksum from before.

use parking_lot::Mutex;

use platter_image::frame::stream::write_frame;
use platter_image::frame::{
    Compressor, FrameBuilder, FrameDecoder, FrameHeader, RAW_LENGTH_DEFAULT, RAW_LENGTH_MAX,
};
use platter_image::{Domain, Error, Kind, Result};

/// zstd level of rebuilt frames.
const LEVEL: i32 = 3;
/// Decoders and compressors kept between requests; about 1.5 MiB each.
const KEPT_MAX: usize = 8;

/// Decoders and compressors, kept between requests.
#[derive(Default)]
pub(crate) struct RemakingTools(Mutex<Vec<Tools>>);

struct Tools {
    decoder: FrameDecoder,
    compressor: Compressor,
}

impl std::fmt::Debug for RemakingTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RemakingTools")
    }
}

impl RemakingTools {
    /// Runs a call with one set of tools.
    fn with<T>(&self, call: impl FnOnce(&mut Tools) -> Result<T>) -> Result<T> {
        let kept = self.0.lock().pop();
        let mut tools = match kept {
            Some(tools) => tools,
            None => Tools { decoder: FrameDecoder::new()?, compressor: Compressor::new(LEVEL)? },
        };
        let result = call(&mut tools);
        let mut kept = self.0.lock();
        if kept.len() < KEPT_MAX {
            kept.push(tools);
        }
        result
    }
}

/// The frame under construction for one response.
pub(crate) struct Remaking {
    kind: Kind,
    /// The size at which a frame is full, in bytes before compression.
    target: usize,
    /// `None` until the first block, so that nothing is allocated before.
    open: Option<(Domain, FrameBuilder)>,
}

impl Remaking {
    /// Creates a builder for blocks of this kind. The blocks of one stored frame always fit one frame. With `shared`,
    /// frames collect blocks up to the usual size of stored frames.
    pub(crate) fn new(kind: Kind, shared: bool) -> Self {
        let target = if shared { RAW_LENGTH_DEFAULT } else { RAW_LENGTH_MAX };
        Self { kind, target, open: None }
    }

    /// Adds the wanted blocks of a stored frame of this kind. Frames that become full are appended to `out` as records
    /// of a stream. Returns how many.
    ///
    /// # Errors
    /// `Corrupt` when the frame is damaged. Blocks of it that were added before are verified and good.
    pub(crate) fn add(
        &mut self,
        tools: &RemakingTools,
        header: &FrameHeader,
        stored: &[u8],
        wanted: &[bool],
        out: &mut Vec<u8>,
    ) -> Result<u64> {
        let Some(last) = wanted.iter().rposition(|wanted| *wanted) else { return Ok(0) };
        tools.with(|tools| {
            let mut made = 0;
            let decoded = tools.decoder.decode_start(stored, self.kind, last)?;
            for (block, _) in decoded.iter().zip(wanted).filter(|(_, wanted)| **wanted) {
                let id = block.id();
                let contents = block.verify()?;
                let is_full = self.open.as_ref().is_some_and(|(domain, frame)| {
                    *domain != header.domain || frame.is_full_for(contents.len())
                });
                if is_full {
                    made += self.flush(&mut tools.compressor, out)?;
                }
                let empty = || (header.domain, FrameBuilder::new(self.kind, header.domain, self.target));
                self.open.get_or_insert_with(empty).1.push(id, contents);
            }
            Ok(made)
        })
    }

    /// Finishes the current frame. Returns how many frames were appended to `out`.
    ///
    /// # Errors
    /// `Bug` when the compressor fails.
    pub(crate) fn finish(&mut self, tools: &RemakingTools, out: &mut Vec<u8>) -> Result<u64> {
        match self.open {
            Some(_) => tools.with(|tools| self.flush(&mut tools.compressor, out)),
            None => Ok(0),
        }
    }

    fn flush(&mut self, compressor: &mut Compressor, out: &mut Vec<u8>) -> Result<u64> {
        let (_, frame) = self.open.take().ok_or_else(|| Error::bug("a frame that was begun"))?;
        write_frame(&frame.encode(compressor)?.stored, out);
        Ok(1)
    }
}
