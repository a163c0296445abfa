//! Pages: the nodes of a recipe, encoded and decoded only here (design: recipes, `docs/formats/recipe.md`).
//!
//! A page covers an aligned range of the disk whose length is a power of two. A leaf lists what stands there,
//! sector by sector; a branch lists the pages below it. The encoding is canonical: equal contents have one
//! encoding and one id. Anything that is not canonical, or reaches outside the page's range, is refused.

use crate::chunking::BLOCK_LENGTH_MAX;
use crate::fields::{u32_at, u64_at};
use crate::{BlockId, Error, Extent, Result, SECTOR};

const MAGIC: [u8; 4] = *b"PLpg";
const FORMAT_VERSION: u8 = 1;
const HEADER_LENGTH: usize = 20;
const CHILD_LENGTH: usize = 41;

/// The most bytes of an encoded page; a larger page is split into halves of its range.
pub const PAGE_LENGTH_MAX: usize = 32 << 10;
/// A leaf covers at most 2 to this power bytes of the disk.
pub const LEAF_SPAN_LOG2: u8 = 24;
/// A branch covers at most 2 to this power times as much as a page of the level below.
pub const FANOUT_LOG2: u8 = 8;
/// The highest level of a page; enough for all 64-bit offsets.
pub const LEVEL_MAX: u8 = 5;

/// The contents of a range of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No one can read it: install never writes it, and it reads as zeros on a virtual disk.
    Free,
    /// Zeros.
    Zero,
    /// Part of a block.
    Data {
        /// The block.
        block: BlockId,
        /// Offset in the block of the first byte used here: a multiple of 512.
        offset: u32,
    },
}

/// A range of the disk and its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The range.
    pub extent: Extent,
    /// Its contents.
    pub state: State,
}

impl Entry {
    /// The part of the entry inside `bounds`.
    pub fn clip(&self, bounds: Extent) -> Option<Self> {
        let extent = self.extent.intersect(&bounds)?;
        let skipped = (extent.offset - self.extent.offset) as u32;
        let state = match self.state {
            State::Data { block, offset } => State::Data { block, offset: offset + skipped },
            state => state,
        };
        Some(Self { extent, state })
    }

    /// Joins this entry with the next one if the two continue each other.
    #[must_use]
    pub fn join(&self, next: &Self) -> Option<Self> {
        let same = match (self.state, next.state) {
            (State::Free, State::Free) | (State::Zero, State::Zero) => true,
            (State::Data { block: a, offset: at }, State::Data { block: b, offset: next_at }) => {
                a == b && u64::from(at) + self.extent.length == u64::from(next_at)
            }
            _ => false,
        };
        let adjacent = self.extent.end() == next.extent.offset;
        (same && adjacent).then(|| Self {
            extent: Extent::between(self.extent.offset, next.extent.end()),
            state: self.state,
        })
    }
}

/// A page as its parent names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Child {
    /// Start of its range: a multiple of the range's length.
    pub start: u64,
    /// Its range is 2 to this power bytes long.
    pub span_log2: u8,
    /// Its id.
    pub id: BlockId,
}

impl Child {
    /// The range that it covers.
    pub fn range(&self) -> Extent {
        Extent::new(self.start, 1 << self.span_log2)
    }
}

/// The decoded contents of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Of a page of level 0, or of a page of any level that is all zeros: entries from the start of the
    /// range, without gaps. Space after the last entry is free.
    Leaf(Vec<Entry>),
    /// The pages below, ascending; space that none of them covers is free.
    Branch(Vec<Child>),
}

/// The most bytes that a page of that level covers, as a power of two. All-zero pages may cover more.
pub fn span_log2_max(level: u8) -> u8 {
    (LEAF_SPAN_LOG2 + FANOUT_LOG2 * level).min(63)
}

/// The most bytes that an all-zero page of that level covers, as a power of two: half of what a branch of the
/// next level covers.
pub fn zeros_span_log2_max(level: u8) -> u8 {
    span_log2_max(level + 1) - 1
}

/// The fewest bytes that an all-zero page of that level covers, as a power of two; shorter ones belong to the
/// level below. A leaf may cover less, as it may be part of a split range.
fn zeros_span_log2_min(level: u8) -> u8 {
    if level == 0 { 0 } else { span_log2_max(level) }
}

/// The lowest level of an all-zero page that covers that many bytes.
pub(crate) fn zeros_level(span_log2: u8) -> u8 {
    span_log2.saturating_sub(LEAF_SPAN_LOG2) / FANOUT_LOG2
}

/// Encodes the all-zero page of that level for `range`: it has no items.
pub(crate) fn encode_zeros(level: u8, range: Extent) -> Vec<u8> {
    header(level, range)
}

/// Encodes the leaf for `range`. Entries must be ascending, inside `range` and without overlap; gaps are
/// free.
pub fn encode_leaf(range: Extent, entries: &[Entry]) -> Vec<u8> {
    if *entries == [Entry { extent: range, state: State::Zero }] {
        return encode_zeros(0, range);
    }
    let mut out = header(0, range);
    let (mut position, mut count, mut current_block) = (range.offset, 0_u32, None);
    for entry in entries.iter().filter(|entry| entry.state != State::Free) {
        if entry.extent.offset > position {
            put_varint(&mut out, ((entry.extent.offset - position) / SECTOR) << 2);
            count += 1;
        }
        let sectors = (entry.extent.length / SECTOR) << 2;
        match entry.state {
            State::Free => {}
            State::Zero => put_varint(&mut out, sectors | 1),
            State::Data { block, offset } if current_block == Some(block) => {
                put_varint(&mut out, sectors | 3);
                out.push((u64::from(offset) / SECTOR) as u8);
            }
            State::Data { block, offset } => {
                put_varint(&mut out, sectors | 2);
                out.extend_from_slice(&block.0);
                out.push((u64::from(offset) / SECTOR) as u8);
                current_block = Some(block);
            }
        }
        count += 1;
        position = entry.extent.end();
    }
    out[16..20].copy_from_slice(&count.to_le_bytes());
    out
}

/// Encodes the branch of that level for `range`.
pub fn encode_branch(level: u8, range: Extent, children: &[Child]) -> Vec<u8> {
    let mut out = header(level, range);
    out[16..20].copy_from_slice(&(children.len() as u32).to_le_bytes());
    for child in children {
        out.extend_from_slice(&child.start.to_le_bytes());
        out.push(child.span_log2);
        out.extend_from_slice(&child.id.0);
    }
    out
}

fn header(level: u8, range: Extent) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAGE_LENGTH_MAX / 2);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[FORMAT_VERSION, level, range.length.trailing_zeros() as u8, 0]);
    out.extend_from_slice(&range.offset.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out
}

/// Decodes the page that a parent names as `child`, and returns its level as well.
///
/// # Errors
/// `Corrupt` with the reason when it is not a canonical page for that range.
pub fn decode(child: &Child, bytes: &[u8]) -> Result<(u8, Contents)> {
    let corrupt =
        |what: &str| Error::corrupt(format!("recipe page {} at offset {}: {what}", child.id, child.start));
    if bytes.len() < HEADER_LENGTH || bytes.len() > PAGE_LENGTH_MAX {
        return Err(corrupt(&format!("its length of {} bytes is out of bounds", bytes.len())));
    }
    let (head, body) = bytes.split_at(HEADER_LENGTH);
    if head[..4] != MAGIC || head[4] != FORMAT_VERSION || head[7] != 0 {
        return Err(corrupt("wrong magic or format version"));
    }
    let (level, count) = (head[5], u32_at(head, 16));
    if head[6] != child.span_log2 || u64_at(head, 8) != child.start || child.span_log2 > 63 {
        return Err(corrupt("it covers another range"));
    }
    // Check this before the level is used in calculations.
    if level > LEVEL_MAX {
        return Err(corrupt("its level is too high"));
    }
    let span_log2_max = if count == 0 { zeros_span_log2_max(level) } else { span_log2_max(level) };
    if child.span_log2 > span_log2_max || !child.start.is_multiple_of(child.range().length) {
        return Err(corrupt("its range is too long or not aligned"));
    }
    if count == 0 {
        let zeros = Entry { extent: child.range(), state: State::Zero };
        return match body.is_empty() && child.span_log2 >= zeros_span_log2_min(level) {
            true => Ok((level, Contents::Leaf(vec![zeros]))),
            false => Err(corrupt("an all-zero page has a wrong level or length")),
        };
    }
    let contents = if level == 0 {
        decode_leaf(child.range(), count, body).map(Contents::Leaf)
    } else {
        decode_branch(level, child.range(), count, body).map(Contents::Branch)
    };
    Ok((level, contents.map_err(corrupt)?))
}

/// The blocks that a leaf names, in order, repeated ones once per run; empty for a branch. For a page that
/// was verified but whose position on the disk is unknown.
///
/// # Errors
/// `Corrupt` when it is not a page.
pub fn named_blocks(bytes: &[u8]) -> Result<Vec<BlockId>> {
    let head = bytes.get(..HEADER_LENGTH).ok_or_else(|| Error::corrupt("not a recipe page: too short"))?;
    let child = Child { start: u64_at(head, 8), span_log2: head[6], id: BlockId([0; BlockId::LEN]) };
    let Contents::Leaf(entries) = decode(&child, bytes)?.1 else { return Ok(Vec::new()) };
    let blocks = entries.iter().filter_map(|entry| match entry.state {
        State::Data { block, .. } => Some(block),
        _ => None,
    });
    let mut blocks: Vec<BlockId> = blocks.collect();
    blocks.dedup();
    Ok(blocks)
}

fn decode_leaf(range: Extent, count: u32, mut body: &[u8]) -> Result<Vec<Entry>, &'static str> {
    let mut entries: Vec<Entry> = Vec::with_capacity((count as usize).min(PAGE_LENGTH_MAX));
    let (mut position, mut current_block) = (range.offset, None);
    for _ in 0..count {
        let head = take_varint(&mut body).ok_or("truncated in an entry's length")?;
        let length = (head >> 2) * SECTOR;
        if length == 0 || length > range.end() - position {
            return Err("an entry is empty or reaches past the range");
        }
        let state = match head & 3 {
            0 => State::Free,
            1 => State::Zero,
            tag => {
                let new = if tag == 2 {
                    Some(BlockId(take::<32>(&mut body).ok_or("an id is cut short")?))
                } else {
                    None
                };
                if new.is_some() && new == current_block {
                    return Err("a block is named twice in a row");
                }
                let block =
                    new.or(current_block).ok_or("an entry refers to a previous block, but there is none")?;
                let offset = u64::from(take::<1>(&mut body).ok_or("truncated in an offset")?[0]) * SECTOR;
                if offset + length > BLOCK_LENGTH_MAX {
                    return Err("an entry reaches past the end of a block");
                }
                current_block = Some(block);
                State::Data { block, offset: offset as u32 }
            }
        };
        let entry = Entry { extent: Extent::new(position, length), state };
        if entries.last().is_some_and(|last| last.join(&entry).is_some()) {
            return Err("two neighbouring entries could be one");
        }
        entries.push(entry);
        position += length;
    }
    if !body.is_empty() || entries.last().is_some_and(|last| last.state == State::Free) {
        return Err("data or a free entry follows the last entry");
    }
    if entries == [Entry { extent: range, state: State::Zero }] {
        return Err("an all-zero page needs no entry");
    }
    Ok(entries)
}

fn decode_branch(level: u8, range: Extent, count: u32, mut body: &[u8]) -> Result<Vec<Child>, &'static str> {
    if body.len() != count as usize * CHILD_LENGTH {
        return Err("its length does not match the number of children");
    }
    let mut children = Vec::with_capacity(count as usize);
    let mut position = range.offset;
    for _ in 0..count {
        let start = u64::from_le_bytes(take::<8>(&mut body).ok_or("truncated")?);
        let [span_log2] = take::<1>(&mut body).ok_or("truncated")?;
        let id = BlockId(take::<32>(&mut body).ok_or("truncated")?);
        if span_log2 > zeros_span_log2_max(level - 1) || start < position {
            return Err("children are out of order or too large");
        }
        let child = Child { start, span_log2, id };
        if child.range().end() > range.end() || !start.is_multiple_of(child.range().length) {
            return Err("a child is not aligned or reaches past the range");
        }
        position = child.range().end();
        children.push(child);
    }
    Ok(children)
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads a varint of at most four bytes in its shortest form.
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in 0..4 {
        let [byte] = take::<1>(bytes)?;
        value |= u64::from(byte & 0x7f) << (7 * shift);
        if byte < 0x80 {
            return (shift == 0 || byte != 0).then_some(value);
        }
    }
    None
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = bytes.split_first_chunk::<N>()?;
    *bytes = tail;
    Some(*head)
}
