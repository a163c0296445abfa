//! The answer to who asks for blocks by id: which frames, in which order, and what is left out of them.
//!
//! Owns the promise that a token gets nothing it may not read: only ids of the recipe it named are looked up, and of a frame that
//! holds anything else, only what was asked for is sent, in a frame made anew. So is a frame little of which was asked for, if
//! the request wants nothing else. A frame is sent as it lies after its checksums were compared; whoever takes it verifies
//! its blocks.

use std::sync::Arc;

use platter_image::frame::FrameHeader;
use platter_image::frame::stream::{FramesRequest, write_end, write_failure, write_frame, write_head};
use platter_image::{BlockId, BlockPlace, Error, FrameSource, Kind, Result};

use crate::config::ANSWER_BATCH;
use crate::id_sets::IdSet;
use crate::remake::{Remaking, RemakingTools};

/// Of who wants nothing but what he names, a frame is sent as it lies when so many parts of it are wanted, of so many.
const WANTED_PART: (u64, u64) = (3, 4);

/// An answer on its way.
pub(crate) struct FramesAnswer {
    kind: Kind,
    exact: bool,
    /// What may be sent; everything when it is `None`.
    allowed: Option<Arc<IdSet>>,
    /// What was asked for, in the order of the packs, each once; what stands before `next` is sent, or waits in `remaking`.
    places: Vec<BlockPlace>,
    next: usize,
    /// Sorted.
    asked: Vec<BlockId>,
    not_found: Vec<BlockId>,
    remaking: Remaking,
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
        let (mut places, mut not_found) = (Vec::new(), Vec::new());
        for id in &request.ids {
            let may_read = allowed.as_ref().is_none_or(|set| set.contains(request.kind, id));
            match if may_read { source.locate(id)? } else { None } {
                Some(place) => places.push(place),
                None => not_found.push(*id),
            }
        }
        places.sort_unstable();
        places.dedup();
        let mut asked = request.ids.clone();
        asked.sort_unstable();
        Ok(Self {
            kind: request.kind,
            exact: request.exact,
            allowed,
            places,
            next: 0,
            asked,
            not_found,
            remaking: Remaking::new(request.kind),
            state: State::Head,
        })
    }

    /// How many of the ids are not here.
    pub(crate) fn not_found(&self) -> usize {
        self.not_found.len()
    }

    /// The next part of the stream, about [`ANSWER_BATCH`] bytes; `None` after the last. What goes wrong is said in the
    /// stream.
    pub(crate) fn next_part(
        &mut self,
        source: &impl FrameSource,
        tools: &RemakingTools,
    ) -> Option<(Vec<u8>, Sent)> {
        if self.state == State::Ended {
            return None;
        }
        let (mut out, mut sent) = (Vec::with_capacity(ANSWER_BATCH), Sent::default());
        if self.state == State::Head {
            write_head(&mut out);
            self.state = State::Frames;
        }
        let mut stored = Vec::new();
        while out.len() < ANSWER_BATCH && self.state == State::Frames {
            let added = match self.next < self.places.len() {
                true => self.add(source, tools, &mut stored, &mut out, &mut sent),
                false => self.end(tools, &mut out, &mut sent),
            };
            if let Err(error) = added {
                write_failure(&error, &mut out);
                sent.failed += 1;
                self.state = State::Ended;
            }
        }
        Some((out, sent))
    }

    /// Adds what was asked for of the next frame: all of it, or those blocks to the frame that is being made.
    fn add(
        &mut self,
        source: &impl FrameSource,
        tools: &RemakingTools,
        stored: &mut Vec<u8>,
        out: &mut Vec<u8>,
        sent: &mut Sent,
    ) -> Result<()> {
        let rest = &self.places[self.next..];
        let address = rest[0].frame;
        let rest = &rest[..rest.partition_point(|place| place.frame == address)];
        self.next += rest.len();
        source.read_frame(address, stored)?;
        let header = FrameHeader::parse(stored)?;
        header.payload(stored)?;
        if header.kind != self.kind {
            // The id is that of a thing of another kind: there is none of the kind that was said.
            let ids = header.blocks.iter().map(|block| block.id);
            self.not_found.extend(ids.filter(|id| self.asked.binary_search(id).is_ok()));
            return Ok(());
        }
        let may_be_sent = |id: &BlockId| self.allowed.as_ref().is_none_or(|set| set.contains(self.kind, id));
        let mut wanted = vec![false; header.blocks.len()];
        for place in rest {
            let block = header.blocks.get(place.slot as usize).map(|block| &block.id);
            if !block.is_some_and(|id| self.asked.binary_search(id).is_ok() && may_be_sent(id)) {
                return Err(Error::corrupt("a frame has none of the blocks that the index says"));
            }
            wanted[place.slot as usize] = true;
        }
        if self.goes_as_it_lies(&header, &wanted) && header.blocks.iter().all(|block| may_be_sent(&block.id))
        {
            sent.frames += 1;
            write_frame(stored, out);
            return Ok(());
        }
        let made = self.remaking.add(tools, &header, stored, &wanted, out)?;
        sent.count_made(made);
        Ok(())
    }

    /// Whether enough of a frame is wanted, if that matters.
    fn goes_as_it_lies(&self, header: &FrameHeader, wanted: &[bool]) -> bool {
        let (parts, of) = WANTED_PART;
        let lengths = header.blocks.iter().zip(wanted).filter(|(_, wanted)| **wanted);
        let wanted: u64 = lengths.map(|(block, _)| u64::from(block.length)).sum();
        !self.exact || wanted * of >= u64::from(header.raw_length) * parts
    }

    fn end(&mut self, tools: &RemakingTools, out: &mut Vec<u8>, sent: &mut Sent) -> Result<()> {
        sent.count_made(self.remaking.finish(tools, out)?);
        write_end(&self.not_found, out);
        self.state = State::Ended;
        Ok(())
    }
}

impl Sent {
    fn count_made(&mut self, frames: u64) {
        self.frames += frames;
        self.rebuilt += frames;
    }
}
