//! The answer to who asks for blocks by id: which frames, in which order, and what is left out of them.
//!
//! Owns the promise that a token gets nothing it may not read: only ids of the recipe it named are looked up, and a frame that
//! holds anything else is made anew of what belongs there. A frame is sent as it lies after its checksums were
//! compared; whoever takes it verifies its blocks.

use std::sync::Arc;

use platter_image::frame::stream::{FramesRequest, write_end, write_failure, write_frame, write_head};
use platter_image::frame::{Compressor, FrameBuilder, FrameDecoder, FrameHeader, RAW_LENGTH_MAX, Verify};
use platter_image::{BlockId, Error, FrameAddress, FrameSource, Kind, Result};

use crate::config::ANSWER_BATCH;
use crate::id_sets::IdSet;

/// zstd level of frames that are made anew.
const REBUILT_LEVEL: i32 = 3;

/// An answer on its way.
pub(crate) struct FramesAnswer {
    kind: Kind,
    /// What may be sent; everything when it is `None`.
    allowed: Option<Arc<IdSet>>,
    /// In the order of the packs, each once; those before `next` are sent.
    frames: Vec<FrameAddress>,
    next: usize,
    /// Sorted.
    asked: Vec<BlockId>,
    not_found: Vec<BlockId>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Frames,
    Ended,
}

/// What a part of an answer holds, for the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) frames: u64,
    pub(crate) rebuilt: u64,
    pub(crate) failed: u64,
}

impl FramesAnswer {
    /// Looks up what is asked for.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub(crate) fn plan(
        source: &impl FrameSource,
        request: &FramesRequest,
        allowed: Option<Arc<IdSet>>,
    ) -> Result<Self> {
        let (mut frames, mut not_found) = (Vec::new(), Vec::new());
        for id in &request.ids {
            let may_read = allowed.as_ref().is_none_or(|set| set.contains(request.kind, id));
            match if may_read { source.locate(id)? } else { None } {
                Some(place) => frames.push(place.frame),
                None => not_found.push(*id),
            }
        }
        frames.sort_unstable();
        frames.dedup();
        let mut asked = request.ids.clone();
        asked.sort_unstable();
        Ok(Self { kind: request.kind, allowed, frames, next: 0, asked, not_found, state: State::Head })
    }

    /// How many of the ids are not here.
    pub(crate) fn not_found(&self) -> usize {
        self.not_found.len()
    }

    /// The next part of the stream, about [`ANSWER_BATCH`] bytes; `None` after the last. What goes wrong is said in the
    /// stream.
    pub(crate) fn next_part(&mut self, source: &impl FrameSource) -> Option<(Vec<u8>, Sent)> {
        if self.state == State::Ended {
            return None;
        }
        let (mut out, mut sent) = (Vec::with_capacity(ANSWER_BATCH), Sent::default());
        if self.state == State::Head {
            write_head(&mut out);
            self.state = State::Frames;
        }
        let mut stored = Vec::new();
        while out.len() < ANSWER_BATCH {
            let Some(address) = self.frames.get(self.next).copied() else {
                write_end(&self.not_found, &mut out);
                self.state = State::Ended;
                break;
            };
            self.next += 1;
            if let Err(error) = self.add(source, address, &mut stored, &mut out, &mut sent) {
                write_failure(&error, &mut out);
                sent.failed += 1;
                self.state = State::Ended;
                break;
            }
        }
        Some((out, sent))
    }

    fn add(
        &mut self,
        source: &impl FrameSource,
        address: FrameAddress,
        stored: &mut Vec<u8>,
        out: &mut Vec<u8>,
        sent: &mut Sent,
    ) -> Result<()> {
        source.read_frame(address, stored)?;
        let header = FrameHeader::parse(stored)?;
        header.payload(stored)?;
        if header.kind != self.kind {
            // The id is that of a thing of another kind: there is none of the kind that was said.
            let ids = header.blocks.iter().map(|block| block.id);
            self.not_found.extend(ids.filter(|id| self.asked.binary_search(id).is_ok()));
            return Ok(());
        }
        sent.frames += 1;
        match &self.allowed {
            Some(set) if !header.blocks.iter().all(|block| set.contains(self.kind, &block.id)) => {
                sent.rebuilt += 1;
                write_frame(&rebuild(stored, set)?, out);
            }
            _ => write_frame(stored, out),
        }
        Ok(())
    }
}

/// The frame without the blocks that do not belong to the set.
fn rebuild(stored: &[u8], set: &IdSet) -> Result<Vec<u8>> {
    let mut decoder = FrameDecoder::new()?;
    let (header, raw) = decoder.decode(stored, Verify::Hashes)?;
    let mut builder = FrameBuilder::new(header.kind, header.domain, RAW_LENGTH_MAX);
    let mut start = 0;
    for block in &header.blocks {
        let end = start + block.length as usize;
        if set.contains(header.kind, &block.id) {
            builder.push(block.id, &raw[start..end]);
        }
        start = end;
    }
    if builder.is_empty() {
        return Err(Error::corrupt("a frame has none of the blocks that the index says"));
    }
    Ok(builder.encode(&mut Compressor::new(REBUILT_LEVEL)?)?.stored)
}
