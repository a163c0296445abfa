//! Frames made anew of some of the blocks of others: what was not asked for, or must not be sent, stands beside them.
//!
//! Blocks of several frames may share a new one, in the order in which they are given. Each is hashed on its way: what is
//! compressed again here has no checksum from before.

use parking_lot::Mutex;

use platter_image::frame::stream::write_frame;
use platter_image::frame::{
    Compressor, FrameBuilder, FrameDecoder, FrameHeader, RAW_LENGTH_DEFAULT, RAW_LENGTH_MAX,
};
use platter_image::{Domain, Error, Kind, Result};

/// zstd level of frames that are made anew.
const LEVEL: i32 = 3;
/// Decoders and compressors kept between requests; about 1.5 MiB each.
const KEPT_MAX: usize = 8;

/// What frames are decoded and compressed with, kept from one request to the next.
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
    /// Lends them to a call.
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

/// The frame that is being made for one answer.
pub(crate) struct Remaking {
    kind: Kind,
    /// When a frame is full, in bytes before compression.
    target: usize,
    /// Nothing is allocated before it is needed.
    open: Option<(Domain, FrameBuilder)>,
}

impl Remaking {
    /// Of blocks of that kind. Those of one stored frame always fit one; with `shared`, frames become as large as stored ones
    /// usually are.
    pub(crate) fn new(kind: Kind, shared: bool) -> Self {
        let target = if shared { RAW_LENGTH_DEFAULT } else { RAW_LENGTH_MAX };
        Self { kind, target, open: None }
    }

    /// Adds the wanted blocks of a stored frame of the kind; frames that are full by that go to `out` as records of a stream. Gives
    /// how many.
    ///
    /// # Errors
    /// `Corrupt` when the frame is damaged; nothing of it was added then, or some of its blocks, which are good.
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

    /// Ends the frame that is being made; gives how many frames went to `out`.
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
