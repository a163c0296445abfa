//! Pieces: what a recipe takes of its blocks. A recipe does not say how long its blocks are, so whether a piece lies inside its
//! block is asked of the frames that hold it. Whoever takes a recipe from somebody else asks before it relies on it.

use crate::frame::FrameHeader;
use crate::page::{Entry, State};
use crate::{BlockId, BlockPlace, Error, FrameSource, Kind, Result, header_of, locate};

/// Pieces that are checked together, in the order of their frames.
const TOGETHER: usize = 1 << 16;

/// Refuses a piece that leads out of its block, which has so many bytes; 0 if it is no block of a disk's data.
///
/// # Errors
/// `Corrupt`, naming the block.
pub fn check_piece(block: &BlockId, offset: u64, length: u64, block_length: u64) -> Result<()> {
    if block_length == 0 {
        return Err(Error::corrupt(format!("{block} is no block of a disk's data, and the recipe wants it")));
    }
    let end = offset.saturating_add(length);
    if end > block_length {
        return Err(Error::corrupt(format!(
            "block {block} has {block_length} bytes, and the recipe wants {end}"
        )));
    }
    Ok(())
}

/// Checks the pieces that a recipe takes of blocks of one source. Each frame's header is read once for many pieces.
#[derive(Debug)]
pub struct PieceCheck<'a, S: ?Sized> {
    source: &'a S,
    waiting: Vec<Piece>,
    head: Vec<u8>,
}

/// Bytes up to `end` of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    place: BlockPlace,
    end: u64,
    block: BlockId,
}

impl<'a, S: FrameSource + ?Sized> PieceCheck<'a, S> {
    /// Nothing is checked yet.
    pub fn new(source: &'a S) -> Self {
        Self { source, waiting: Vec::new(), head: Vec::new() }
    }

    /// Checks an entry, or keeps it to be checked with others.
    ///
    /// # Errors
    /// `Missing` when its block is nowhere; `Corrupt` when this entry or one before leads out of its block.
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        let State::Data { block, offset } = entry.state else { return Ok(()) };
        let place = locate(self.source, &block)?;
        let end = u64::from(offset) + entry.extent.length;
        match self.waiting.last_mut() {
            Some(last) if last.place == place => last.end = last.end.max(end),
            _ => self.waiting.push(Piece { place, end, block }),
        }
        if self.waiting.len() < TOGETHER { Ok(()) } else { self.finish() }
    }

    /// Checks what was kept.
    ///
    /// # Errors
    /// As [`PieceCheck::add`].
    pub fn finish(&mut self) -> Result<()> {
        let mut pieces = std::mem::take(&mut self.waiting);
        pieces.sort_unstable();
        pieces.chunk_by(|a, b| a.place.frame == b.place.frame).try_for_each(|pieces| self.check(pieces))
    }

    /// Checks pieces of one frame. A frame that cannot be read says nothing about the recipe.
    fn check(&mut self, pieces: &[Piece]) -> Result<()> {
        let Some(first) = pieces.first() else { return Ok(()) };
        let header = match header_of(self.source, first.place.frame, &mut self.head) {
            Err(error) if error.says_that_data_are_lost() => return Ok(()),
            header => header?,
        };
        pieces.iter().try_for_each(|piece| {
            check_piece(&piece.block, 0, piece.end, data_length(&header, piece.place.slot))
        })
    }
}

fn data_length(header: &FrameHeader, slot: u32) -> u64 {
    let block = header.blocks.get(slot as usize).filter(|_| header.kind == Kind::Data);
    block.map_or(0, |block| u64::from(block.length))
}
