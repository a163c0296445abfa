//! The response to a request for blocks: selects the frames, their order, and the blocks that are left out of them.
//!
//! Guarantees that a token gets nothing it may not read: only ids of the named recipe are looked up, and a frame with
//! other blocks is rebuilt without them. For an exact request, a frame of which too little was requested is rebuilt
//! with the requested blocks. Other frames are sent as stored, after their checksums were compared; the receiver
//! verifies the blocks.

use std::sync::Arc;

use platter_image::frame::FrameHeader;
use platter_image::frame::stream::{FramesRequest, write_end, write_failure, write_frame, write_head};
use platter_image::{BlockId, BlockPlace, Error, FrameIndex, Kind, Result, judged};

use crate::config::ANSWER_BATCH;
use crate::id_sets::IdSet;
use crate::remake::{Remaking, RemakingTools};

/// An exact request gets the whole stored frame when at least this share of its bytes was requested: numerator,
/// denominator.
const WANTED_PART: (u64, u64) = (3, 4);

/// A response under way.
pub(crate) struct FramesAnswer {
    kind: Kind,
    exact: bool,
    /// The ids that may be sent; `None` means everything.
    allowed: Option<Arc<IdSet>>,
    /// Places of the requested blocks, in pack order, without repetition. Those before `next` are sent, or wait in
    /// `remaking`.
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

/// Counters of a part of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) frames: u64,
    pub(crate) rebuilt: u64,
    pub(crate) failed: u64,
}

impl FramesAnswer {
    /// Looks up the requested blocks.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub(crate) fn plan(
        source: &impl FrameIndex,
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
            remaking: Remaking::new(request.kind, request.exact),
            state: State::Head,
        })
    }

    /// Returns how many ids were not found.
    pub(crate) fn not_found(&self) -> usize {
        self.not_found.len()
    }

    /// Returns the next part of the stream, about [`ANSWER_BATCH`] bytes; `None` after the last. Errors are reported in
    /// the stream.
    pub(crate) fn next_part(
        &mut self,
        source: &impl FrameIndex,
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

    /// Adds the next frame: as stored, or its wanted blocks to the frame under construction.
    fn add(
        &mut self,
        source: &impl FrameIndex,
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
        let checked = FrameHeader::parse(stored).and_then(|header| {
            header.payload(stored)?;
            Ok(header)
        });
        let header = judged(source, address, checked)?;
        if header.kind != self.kind {
            // The ids are of another kind than the requested one, which counts as not found.
            let ids = header.blocks.iter().map(|block| block.id);
            self.not_found.extend(ids.filter(|id| self.asked.binary_search(id).is_ok()));
            return Ok(());
        }
        let may_be_sent = |id: &BlockId| self.allowed.as_ref().is_none_or(|set| set.contains(self.kind, id));
        let mut wanted = vec![false; header.blocks.len()];
        for place in rest {
            let block = header.blocks.get(place.slot as usize).map(|block| &block.id);
            if !block.is_some_and(|id| self.asked.binary_search(id).is_ok() && may_be_sent(id)) {
                return Err(Error::corrupt("a frame lacks a block that the index places in it"));
            }
            wanted[place.slot as usize] = true;
        }
        if self.is_sent_as_stored(&header, &wanted)
            && header.blocks.iter().all(|block| may_be_sent(&block.id))
        {
            sent.frames += 1;
            write_frame(stored, out);
            return Ok(());
        }
        if !self.exact {
            wanted = header.blocks.iter().map(|block| may_be_sent(&block.id)).collect();
        }
        let made = self.remaking.add(tools, &header, stored, &wanted, out);
        sent.count_made(judged(source, address, made)?);
        if !self.exact {
            // One new frame for each stored frame, so each sent frame holds something that was requested.
            sent.count_made(self.remaking.finish(tools, out)?);
        }
        Ok(())
    }

    /// Whether a frame may be sent as stored: always, except for exact requests that want too little of it.
    fn is_sent_as_stored(&self, header: &FrameHeader, wanted: &[bool]) -> bool {
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use platter_image::frame::stream::FrameStreamReader;
    use platter_image::frame::{Compressor, FrameBuilder, FrameDecoder, RAW_LENGTH_DEFAULT, Verify};
    use platter_image::{Domain, FrameAddress, FrameSource, Lease, Score};

    use super::*;

    /// Bytes of a block.
    const LENGTH: usize = 16 << 10;

    /// A source of frames with eight blocks each.
    #[derive(Default)]
    struct Frames {
        stored: Vec<Vec<u8>>,
        places: HashMap<BlockId, BlockPlace>,
        ids: Vec<BlockId>,
    }

    impl Frames {
        fn new(count: u32) -> Self {
            let mut frames = Self::default();
            for frame in 0..count {
                let mut builder = FrameBuilder::new(Kind::Data, Domain::SHARED, RAW_LENGTH_DEFAULT);
                for slot in 0..8 {
                    let mut contents = vec![1; LENGTH];
                    let number = u64::from(frame * 8 + slot) << 32 | 0x9e37_79b9;
                    for (n, word) in contents.chunks_exact_mut(8).enumerate() {
                        let word: &mut [u8; 8] = word.try_into().unwrap();
                        *word = (number * (n as u64 | 1)).wrapping_mul(0x5851_f42d_4c95_7f2d).to_le_bytes();
                        word[0] |= 1;
                    }
                    let id = BlockId::of(Kind::Data, &contents);
                    builder.push(id, &contents);
                    frames.ids.push(id);
                }
                let stored = builder.encode(&mut Compressor::new(1).unwrap()).unwrap().stored;
                let address = FrameAddress { pack: 0, offset: u64::from(frame), length: stored.len() as u32 };
                for (slot, id) in frames.ids[frame as usize * 8..].iter().enumerate() {
                    frames.places.insert(*id, BlockPlace { frame: address, slot: slot as u32 });
                }
                frames.stored.push(stored);
            }
            frames
        }

        /// Requests blocks by number. Returns the block numbers in each received frame, and the counters.
        fn ask(&self, numbers: &[usize], exact: bool) -> (Vec<Vec<usize>>, Sent) {
            let ids: Vec<BlockId> = numbers.iter().map(|number| self.ids[*number]).collect();
            let score = Score(BlockId([0; 32]));
            let request = FramesRequest { score, kind: Kind::Data, exact, ids };
            let mut answer = FramesAnswer::plan(self, &request, None).unwrap();
            let (tools, mut bytes, mut all) = (RemakingTools::default(), Vec::new(), Sent::default());
            while let Some((part, sent)) = answer.next_part(self, &tools) {
                bytes.extend_from_slice(&part);
                all.frames += sent.frames;
                all.rebuilt += sent.rebuilt;
                all.failed += sent.failed;
            }
            let mut reader = FrameStreamReader::new(&bytes[..], numbers.len());
            let (mut stored, mut came) = (Vec::new(), Vec::new());
            while let Some(header) = reader.next_frame(&mut stored).unwrap() {
                FrameDecoder::new().unwrap().decode(&stored, Verify::Hashes).unwrap();
                let number = |id: &BlockId| self.ids.iter().position(|other| other == id).unwrap();
                came.push(header.blocks.iter().map(|block| number(&block.id)).collect());
            }
            (came, all)
        }
    }

    impl FrameSource for Frames {
        fn lease(&self, id: &BlockId) -> Result<Option<Lease>> {
            Ok(self.locate(id)?.map(Lease::in_place))
        }

        fn read_leased(&self, lease: &Lease, stored: &mut Vec<u8>) -> Result<()> {
            self.read_frame(lease.place.frame, stored)
        }
    }

    impl FrameIndex for Frames {
        fn locate(&self, id: &BlockId) -> Result<Option<BlockPlace>> {
            Ok(self.places.get(id).copied())
        }

        fn read_frame(&self, address: FrameAddress, stored: &mut Vec<u8>) -> Result<()> {
            stored.clone_from(&self.stored[address.offset as usize]);
            Ok(())
        }
    }

    #[test]
    fn blocks_of_sparsely_requested_frames_share_rebuilt_frames() {
        let frames = Frames::new(40);
        let sparse: Vec<usize> = (0..20).map(|n| n * 16 + 3).collect();
        let (came, sent) = frames.ask(&sparse, true);
        assert_eq!(came.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8, 4]);
        assert_eq!(came.concat(), sparse);
        assert_eq!(sent, Sent { frames: 3, rebuilt: 3, failed: 0 });
        let (came, sent) = frames.ask(&sparse, false);
        assert_eq!((came.len(), came.concat().len()), (20, 160));
        assert_eq!(sent, Sent { frames: 20, rebuilt: 0, failed: 0 });
    }

    #[test]
    fn a_mostly_requested_frame_is_sent_as_stored() {
        let frames = Frames::new(3);
        for (wanted, comes) in [(8, 8), (7, 8), (6, 8), (5, 5), (1, 1)] {
            let numbers: Vec<usize> = (8..8 + wanted).collect();
            let (came, sent) = frames.ask(&numbers, true);
            assert_eq!(came, [(8..8 + comes).collect::<Vec<_>>()], "{wanted}");
            assert_eq!(sent.rebuilt, u64::from(comes == wanted && wanted < 8));
        }
        // The frame under construction waits for further blocks.
        let (came, _) = frames.ask(&[0, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0], true);
        assert_eq!(came, [(8..16).collect::<Vec<_>>(), vec![0, 16]]);
    }

    #[test]
    fn a_damaged_frame_ends_the_response() {
        let mut frames = Frames::new(2);
        frames.stored[1].pop();
        let score = Score(BlockId([0; 32]));
        let request =
            FramesRequest { score, kind: Kind::Data, exact: true, ids: vec![frames.ids[0], frames.ids[9]] };
        let mut answer = FramesAnswer::plan(&frames, &request, None).unwrap();
        let (part, sent) = answer.next_part(&frames, &RemakingTools::default()).unwrap();
        assert_eq!(sent.failed, 1);
        assert!(FrameStreamReader::new(&part[..], 2).next_frame(&mut Vec::new()).is_err());
        assert!(answer.next_part(&frames, &RemakingTools::default()).is_none());
    }
}
