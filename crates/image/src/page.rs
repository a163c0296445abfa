//! Pages: the nodes of a recipe, written and parsed here only (design: recipes, `docs/formats/recipe.md`).
//!
//! A page covers an aligned power-of-two range of the disk. A leaf says what stands there, sector by sector; a branch
//! names the pages below it. The encoding is canonical: one contents, one encoding, one name. Whatever is not
//! canonical is refused, as is whatever would lead outside the page's own range.

use crate::chunking::BLOCK_LENGTH_MAX;
use crate::{BlockId, Error, Extent, Result, SECTOR};

const MAGIC: [u8; 4] = *b"PLpg";
const FORMAT_VERSION: u8 = 1;
const HEADER_LENGTH: usize = 20;
const CHILD_LENGTH: usize = 41;

/// Most bytes of an encoded page; what is larger splits into halves of its range.
pub const PAGE_LENGTH_MAX: usize = 32 << 10;
/// A leaf covers at most 2 to this power bytes of the disk.
pub const LEAF_SPAN_LOG2: u8 = 24;
/// A branch covers at most 2 to this power times as much as a page of the level below.
pub const FANOUT_LOG2: u8 = 8;
/// Highest level of a page: with it a recipe reaches the end of all offsets.
pub const LEVEL_MAX: u8 = 5;

/// What stands in a range of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nobody can read it: never written by install, zeros on a virtual disk.
    Free,
    /// Zeros.
    Zero,
    /// Bytes of a block.
    Data {
        /// The block.
        block: BlockId,
        /// The first of its bytes that stands here: a multiple of 512.
        offset: u32,
    },
}

/// A range of the disk and what stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The range.
    pub extent: Extent,
    /// What stands there.
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

    /// Makes one entry of this one and its neighbour above, if they say one thing.
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
    /// First byte of its range: a multiple of its span.
    pub start: u64,
    /// Its range is 2 to this power bytes long.
    pub span_log2: u8,
    /// Its name.
    pub id: BlockId,
}

impl Child {
    /// Its range.
    pub fn range(&self) -> Extent {
        Extent::new(self.start, 1 << self.span_log2)
    }
}

/// What a page holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Level 0, or a page of any level all of which is zeros: entries from the start of the range, without gaps; what
    /// follows the last one is free.
    Leaf(Vec<Entry>),
    /// The pages below, ascending; what none of them covers is free.
    Branch(Vec<Child>),
}

/// Most bytes that a page of that level may cover, as a power of two, unless all of it is zeros.
pub fn span_log2_max(level: u8) -> u8 {
    (LEAF_SPAN_LOG2 + FANOUT_LOG2 * level).min(63)
}

/// Most bytes that a page of that level may cover if all of it is zeros, as a power of two: half of what the branch above
/// it covers.
pub fn zeros_span_log2_max(level: u8) -> u8 {
    span_log2_max(level + 1) - 1
}

/// Least bytes of a page of zeros of that level: what is shorter is of the level below. A leaf may be a part of one.
fn zeros_span_log2_min(level: u8) -> u8 {
    if level == 0 { 0 } else { span_log2_max(level) }
}

/// The lowest level of a page of zeros that covers so much.
pub(crate) fn zeros_level(span_log2: u8) -> u8 {
    span_log2.saturating_sub(LEAF_SPAN_LOG2) / FANOUT_LOG2
}

/// Encodes the page of that level for a range all of which is zeros: it has no items.
pub(crate) fn encode_zeros(level: u8, range: Extent) -> Vec<u8> {
    header(level, range)
}

/// Encodes the leaf for `range`: entries ascend, do not overlap, lie inside; gaps between them are free.
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

/// Parses the page that a parent names as `child`; gives its level too.
///
/// # Errors
/// `Corrupt` when it is not a canonical page for that range, saying why.
pub fn decode(child: &Child, bytes: &[u8]) -> Result<(u8, Contents)> {
    let corrupt = |what: &str| Error::corrupt(format!("recipe page {} at {}: {what}", child.id, child.start));
    if bytes.len() < HEADER_LENGTH || bytes.len() > PAGE_LENGTH_MAX {
        return Err(corrupt(&format!("{} bytes", bytes.len())));
    }
    let (head, body) = bytes.split_at(HEADER_LENGTH);
    if head[..4] != MAGIC || head[4] != FORMAT_VERSION || head[7] != 0 {
        return Err(corrupt("magic or format version"));
    }
    let (level, count) = (head[5], u32_at(head, 16));
    if head[6] != child.span_log2 || u64_at(head, 8) != child.start || child.span_log2 > 63 {
        return Err(corrupt("it is for another range"));
    }
    // Before anything is computed with it.
    if level > LEVEL_MAX {
        return Err(corrupt("a level that cannot be"));
    }
    let span_log2_max = if count == 0 { zeros_span_log2_max(level) } else { span_log2_max(level) };
    if child.span_log2 > span_log2_max || !child.start.is_multiple_of(child.range().length) {
        return Err(corrupt("a range that cannot be"));
    }
    if count == 0 {
        let zeros = Entry { extent: child.range(), state: State::Zero };
        return match body.is_empty() && child.span_log2 >= zeros_span_log2_min(level) {
            true => Ok((level, Contents::Leaf(vec![zeros]))),
            false => Err(corrupt("zeros of a level or length that cannot be")),
        };
    }
    let contents = if level == 0 {
        decode_leaf(child.range(), count, body).map(Contents::Leaf)
    } else {
        decode_branch(level, child.range(), count, body).map(Contents::Branch)
    };
    Ok((level, contents.map_err(corrupt)?))
}

/// The blocks that a page names, in order, each run of one once; none for a page that only names pages. For whoever has
/// verified it and does not know where it stands.
///
/// # Errors
/// `Corrupt` when it is no page.
pub fn named_blocks(bytes: &[u8]) -> Result<Vec<BlockId>> {
    let head = bytes.get(..HEADER_LENGTH).ok_or_else(|| Error::corrupt("that is no recipe page"))?;
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
        let head = take_varint(&mut body).ok_or("an entry's length is cut short")?;
        let length = (head >> 2) * SECTOR;
        if length == 0 || length > range.end() - position {
            return Err("an entry leads out of its range");
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
                    return Err("a block is named twice");
                }
                let block = new.or(current_block).ok_or("no block before an entry that refers to it")?;
                let offset = u64::from(take::<1>(&mut body).ok_or("an offset is cut short")?[0]) * SECTOR;
                if offset + length > BLOCK_LENGTH_MAX {
                    return Err("an entry leads out of its block");
                }
                current_block = Some(block);
                State::Data { block, offset: offset as u32 }
            }
        };
        let entry = Entry { extent: Extent::new(position, length), state };
        if entries.last().is_some_and(|last| last.join(&entry).is_some()) {
            return Err("two entries that are one");
        }
        entries.push(entry);
        position += length;
    }
    if !body.is_empty() || entries.last().is_some_and(|last| last.state == State::Free) {
        return Err("something follows the last entry");
    }
    if entries == [Entry { extent: range, state: State::Zero }] {
        return Err("zeros that need no entry");
    }
    Ok(entries)
}

fn decode_branch(level: u8, range: Extent, count: u32, mut body: &[u8]) -> Result<Vec<Child>, &'static str> {
    if body.len() != count as usize * CHILD_LENGTH {
        return Err("its length does not fit its count of children");
    }
    let mut children = Vec::with_capacity(count as usize);
    let mut position = range.offset;
    for _ in 0..count {
        let start = u64::from_le_bytes(take::<8>(&mut body).ok_or("cut short")?);
        let [span_log2] = take::<1>(&mut body).ok_or("cut short")?;
        let id = BlockId(take::<32>(&mut body).ok_or("cut short")?);
        if span_log2 > zeros_span_log2_max(level - 1) || start < position {
            return Err("children out of order, or too large");
        }
        let child = Child { start, span_log2, id };
        if child.range().end() > range.end() || !start.is_multiple_of(child.range().length) {
            return Err("a child leads out of its range");
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

/// A varint of at most four bytes, in its shortest form.
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

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
