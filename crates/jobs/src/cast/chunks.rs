//! The chunks of a cast: which frames they contain, and how partly wanted frames are rebuilt.
//!
//! Frames of a chunk come from one pack in pack order, so reading is sequential, and a stored frame is sent as it is,
//! after its checksum was compared. A frame of which less than half is wanted is rebuilt with the wanted blocks
//! (design: frames, order). A rebuilt frame is made twice, for its length and when it is sent, with the same bytes.

use std::collections::HashMap;
use std::sync::Arc;

use platter_image::frame::{
    Compressor, EncodedFrame, FrameBuilder, FrameDecoder, FrameHeader, RAW_LENGTH_DEFAULT, Verify,
};
use platter_image::{
    BlockId, BlockPlace, Domain, Error, FrameAddress, FrameIndex, Kind, Result, header_of, judged, locate,
};

use crate::chunk_contents::{Prefix, prefix};

/// Approximate bytes of frames in a chunk.
const CHUNK_LENGTH: usize = 1 << 20;
/// zstd level of rebuilt frames.
const REBUILT_LEVEL: i32 = 3;

/// Whether blocks that are not wanted may be sent with wanted ones, in frames as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// In frames of which at least half is wanted.
    Along,
    /// Never: not every receiver may read them.
    Never,
}

/// A part of a chunk.
#[derive(Clone, Debug)]
enum ChunkPiece {
    /// A stored frame.
    Stored(FrameAddress),
    /// A frame made of these blocks.
    Rebuilt(Vec<BlockPlace>),
}

/// The chunks that carry some blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    chunks: Vec<Vec<ChunkPiece>>,
    /// Byte length of each chunk.
    pub(super) lengths: Vec<u32>,
    /// The wanted blocks of each chunk.
    pub(super) contents: Vec<Vec<Prefix>>,
    /// Bytes of wanted blocks in frames that are sent as stored, and of unwanted blocks in these frames.
    pub(super) wanted: u64,
    pub(super) unwanted: u64,
}

impl Chunks {
    /// Plans the chunks for `places`, which are ordered.
    pub(super) fn plan(
        source: &impl FrameIndex,
        kind: Kind,
        domain: Domain,
        places: &[BlockPlace],
        others: Others,
    ) -> Result<Self> {
        let mut chunks = Self::default();
        let mut sparse: Vec<BlockPlace> = Vec::new();
        let mut sparse_ids: HashMap<BlockPlace, Prefix> = HashMap::new();
        let mut head = Vec::new();
        let mut pack = None;
        for frame in places.chunk_by(|a, b| a.frame == b.frame) {
            let address = frame[0].frame;
            let header = header_of(source, address, &mut head)?;
            let blocks =
                frame.iter().filter_map(|place| Some((place, header.blocks.get(place.slot as usize)?)));
            let wanted: u64 = blocks.clone().map(|(_, block)| u64::from(block.length)).sum();
            let ids = blocks.map(|(place, block)| (*place, prefix(&block.id)));
            let least = match others {
                Others::Along => u64::from(header.raw_length).div_ceil(2),
                Others::Never => header.raw_length.into(),
            };
            if wanted < least {
                sparse.extend_from_slice(frame);
                sparse_ids.extend(ids);
                continue;
            }
            chunks.wanted += wanted;
            chunks.unwanted += u64::from(header.raw_length) - wanted;
            chunks.add(
                ChunkPiece::Stored(address),
                address.length,
                pack != Some(address.pack),
                ids.map(|(_, id)| id),
            );
            pack = Some(address.pack);
        }
        let mut rebuilder = Rebuilder::new(source, kind, domain)?;
        let mut new_chunk = true;
        for group in rebuilder.group(&sparse)? {
            let length = rebuilder.rebuild(&group)?.stored.len() as u32;
            let ids: Vec<Prefix> = group.iter().filter_map(|place| sparse_ids.get(place)).copied().collect();
            chunks.add(ChunkPiece::Rebuilt(group), length, std::mem::take(&mut new_chunk), ids.into_iter());
        }
        Ok(chunks)
    }

    /// Plans the chunks for `wanted` in this order, without any other block. Returns the blocks of each chunk as well.
    pub(super) fn plan_exactly(
        source: &impl FrameIndex,
        kind: Kind,
        domain: Domain,
        wanted: &[BlockId],
    ) -> Result<(Self, Vec<Vec<BlockId>>)> {
        let (mut chunks, mut contents) = (Self::default(), Vec::new());
        let mut rebuilder = Rebuilder::new(source, kind, domain)?;
        let mut head = Vec::new();
        let places = wanted.iter().map(|id| locate(source, id)).collect::<Result<Vec<_>>>()?;
        let (mut sparse, mut left): (Vec<BlockPlace>, _) = (Vec::new(), wanted);
        let mut add = |piece: ChunkPiece, length: u32, count: usize| {
            chunks.add(piece, length, false, std::iter::empty());
            let (ids, rest) = left.split_at(count);
            left = rest;
            contents.resize(chunks.chunks.len(), Vec::new());
            contents.last_mut().into_iter().for_each(|chunk: &mut Vec<BlockId>| chunk.extend(ids));
        };
        // The end of the list flushes what is sparse, like a frame that is wanted as a whole.
        for frame in places.chunk_by(|a, b| a.frame == b.frame).map(Some).chain([None]) {
            let whole = match frame {
                Some(frame) if header_of(source, frame[0].frame, &mut head)?.blocks.len() != frame.len() => {
                    sparse.extend_from_slice(frame);
                    continue;
                }
                whole => whole,
            };
            for mut group in rebuilder.group(&std::mem::take(&mut sparse))? {
                group.sort_unstable();
                let length = rebuilder.rebuild(&group)?.stored.len() as u32;
                let count = group.len();
                add(ChunkPiece::Rebuilt(group), length, count);
            }
            if let Some(frame) = whole {
                add(ChunkPiece::Stored(frame[0].frame), frame[0].frame.length, frame.len());
            }
        }
        Ok((chunks, contents))
    }

    fn add(&mut self, part: ChunkPiece, length: u32, new_chunk: bool, ids: impl Iterator<Item = Prefix>) {
        match (self.chunks.last_mut(), self.lengths.last_mut()) {
            (Some(chunk), Some(total)) if !new_chunk && (*total + length) as usize <= CHUNK_LENGTH => {
                chunk.push(part);
                *total += length;
            }
            _ => {
                self.chunks.push(vec![part]);
                self.lengths.push(length);
                self.contents.push(Vec::new());
            }
        }
        if let Some(contents) = self.contents.last_mut() {
            contents.extend(ids);
        }
    }

    /// The bytes of the chunk at `index`.
    ///
    /// # Errors
    /// `Corrupt` when a stored frame is damaged: it is not sent.
    pub(super) fn read(
        &self,
        index: usize,
        source: &impl FrameIndex,
        kind: Kind,
        domain: Domain,
    ) -> Result<Arc<[u8]>> {
        let mut bytes = Vec::with_capacity(self.lengths[index] as usize);
        let mut stored = Vec::new();
        for part in &self.chunks[index] {
            match part {
                ChunkPiece::Stored(address) => {
                    source.read_frame(*address, &mut stored)?;
                    let checked =
                        FrameHeader::parse(&stored).and_then(|header| header.payload(&stored).map(drop));
                    judged(source, *address, checked).map_err(|error| {
                        error.within(format!(
                            "the frame at {} of pack number {}",
                            address.offset, address.pack
                        ))
                    })?;
                    bytes.extend_from_slice(&stored);
                }
                ChunkPiece::Rebuilt(places) => {
                    let frame = Rebuilder::new(source, kind, domain)?.rebuild(places)?;
                    bytes.extend_from_slice(&frame.stored);
                }
            }
        }
        if bytes.len() != self.lengths[index] as usize {
            return Err(Error::bug(format!(
                "chunk {index} has {} bytes instead of the planned {}",
                bytes.len(),
                self.lengths[index]
            )));
        }
        Ok(bytes.into())
    }
}

/// Rebuilds frames from wanted blocks that are stored among unwanted ones.
struct Rebuilder<'a, F> {
    source: &'a F,
    kind: Kind,
    domain: Domain,
    decoder: FrameDecoder,
    compressor: Compressor,
    stored: Vec<u8>,
}

impl<'a, F: FrameIndex> Rebuilder<'a, F> {
    fn new(source: &'a F, kind: Kind, domain: Domain) -> Result<Self> {
        let (decoder, compressor) = (FrameDecoder::new()?, Compressor::new(REBUILT_LEVEL)?);
        Ok(Self { source, kind, domain, decoder, compressor, stored: Vec::new() })
    }

    /// Divides ordered places into groups that fit into a frame.
    fn group(&mut self, places: &[BlockPlace]) -> Result<Vec<Vec<BlockPlace>>> {
        let mut groups: Vec<Vec<BlockPlace>> = Vec::new();
        let mut filled = usize::MAX;
        let mut head = Vec::new();
        for frame in places.chunk_by(|a, b| a.frame == b.frame) {
            let header = header_of(self.source, frame[0].frame, &mut head)?;
            for place in frame {
                let length = header.blocks.get(place.slot as usize).map_or(0, |block| block.length as usize);
                match groups.last_mut().filter(|_| filled.saturating_add(length) <= RAW_LENGTH_DEFAULT) {
                    Some(group) => {
                        group.push(*place);
                        filled += length;
                    }
                    None => {
                        groups.push(vec![*place]);
                        filled = length;
                    }
                }
            }
        }
        Ok(groups)
    }

    fn rebuild(&mut self, places: &[BlockPlace]) -> Result<EncodedFrame> {
        let mut builder = FrameBuilder::new(self.kind, self.domain, RAW_LENGTH_DEFAULT);
        for frame in places.chunk_by(|a, b| a.frame == b.frame) {
            self.source.read_frame(frame[0].frame, &mut self.stored)?;
            let decoded = self.decoder.decode(&self.stored, Verify::Hashes);
            let (header, raw) = judged(self.source, frame[0].frame, decoded)?;
            let mut wanted = frame.iter().peekable();
            let mut start = 0;
            for (slot, block) in header.blocks.iter().enumerate() {
                let end = start + block.length as usize;
                if wanted.next_if(|place| place.slot as usize == slot).is_some() {
                    builder.push(block.id, &raw[start..end]);
                }
                start = end;
            }
        }
        builder.encode(&mut self.compressor)
    }
}
