//! Pieces: the parts of blocks that a recipe uses. A recipe does not state the lengths of its blocks, so
//! whether a piece lies inside its block is checked against the frames' headers. Do this check before relying
//! on a recipe from someone else.

use crate::frame::FrameHeader;
use crate::page::{Entry, State};
use crate::{BlockId, BlockPlace, Error, FrameIndex, Kind, Result, header_of, locate};

/// How many pieces are checked together, in the order of their frames.
const TOGETHER: usize = 1 << 16;

/// Refuses a piece that reaches past the end of its block. `block_length` is in bytes; 0 means that it is not
/// a data block.
///
/// # Errors
/// `Corrupt`, naming the block.
pub fn check_piece(block: &BlockId, offset: u64, length: u64, block_length: u64) -> Result<()> {
    if block_length == 0 {
        return Err(Error::corrupt(format!("the recipe names {block}, which is not a data block")));
    }
    let end = offset.saturating_add(length);
    if end > block_length {
        return Err(Error::corrupt(format!(
            "block {block} has {block_length} bytes, but the recipe uses {end}"
        )));
    }
    Ok(())
}

/// Checks the pieces of a recipe against one source. Each frame's header is read once for many pieces.
#[derive(Debug)]
pub struct PieceCheck<'a, S: ?Sized> {
    source: &'a S,
    waiting: Vec<Piece>,
    head: Vec<u8>,
}

/// The first `end` bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    place: BlockPlace,
    end: u64,
    block: BlockId,
}

impl<'a, S: FrameIndex + ?Sized> PieceCheck<'a, S> {
    /// Nothing is checked yet.
    pub fn new(source: &'a S) -> Self {
        Self { source, waiting: Vec::new(), head: Vec::new() }
    }

    /// Checks an entry now, or keeps it to be checked with others.
    ///
    /// # Errors
    /// `Missing` when its block is not found; `Corrupt` when this entry or an earlier one reaches past its
    /// block.
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

    /// Checks the remaining entries.
    ///
    /// # Errors
    /// Those of [`PieceCheck::add`].
    pub fn finish(&mut self) -> Result<()> {
        let mut pieces = std::mem::take(&mut self.waiting);
        pieces.sort_unstable();
        pieces.chunk_by(|a, b| a.place.frame == b.place.frame).try_for_each(|pieces| self.check(pieces))
    }

    /// Checks the pieces of one frame. An unreadable frame is no fault of the recipe and is skipped.
    fn check(&mut self, pieces: &[Piece]) -> Result<()> {
        let Some(first) = pieces.first() else { return Ok(()) };
        let header = match header_of(self.source, first.place.frame, &mut self.head) {
            Err(error) if error.is_data_loss() => return Ok(()),
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
