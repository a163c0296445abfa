//! The byte layout of a pack around its frames, written and parsed only here: `docs/formats/pack.md`.
//!
//! Parsing accepts hostile bytes. It allocates only in proportion to the bytes at hand, and refuses anything that does not add
//! up to the exact length of the file.

use std::hash::Hasher;

use platter_image::fields::{array_at, u32_at, u64_at};
use platter_image::frame::{
    BLOCKS_MAX, RAW_LENGTH_MAX, STORED_LENGTH_MAX, packed_length, whole_header_length,
};
use platter_image::{BlockId, Error, FrameAddress, Kind, Result};
use twox_hash::XxHash3_64;

use platter_records::{PackId, StoreId};

const HEADER_MAGIC: [u8; 4] = *b"PLpk";
const FOOTER_MAGIC: [u8; 4] = *b"PLpf";
const TRAILER_MAGIC: [u8; 4] = *b"PLpt";
const FORMAT_VERSION: u16 = 1;

/// Length of the header, before the first frame.
pub const HEADER_LENGTH: u64 = 64;
/// Length of the trailer, at the very end of a sealed pack.
pub(crate) const TRAILER_LENGTH: u64 = 64;
const FOOTER_HEAD_LENGTH: u64 = 16;
const FRAME_ROW_LENGTH: u64 = 24;
const BLOCK_ROW_LENGTH: u64 = BlockId::LEN as u64;

/// Number of rows of a footer that are written at once.
const END_PIECE_ROWS: usize = 16 << 10;

/// Maximum length of a pack's file in bytes. Writers seal a pack at 256 MiB at most, with a footer of at most 22 MiB. What is longer
/// is not read any further.
pub const PACK_LENGTH_MAX: u64 = 320 << 20;
/// Maximum number of frames in a pack.
pub const PACK_FRAMES_MAX: usize = 1 << 18;
/// Maximum number of blocks in a pack. A writer needs 32 bytes of memory for each.
pub const PACK_BLOCKS_MAX: usize = 1 << 19;

/// The entry of one frame in a pack's footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRow {
    /// Byte offset of the frame in the pack.
    pub offset: u64,
    /// Bytes of the frame in the pack, where it lacks the ids of its blocks.
    pub packed_length: u32,
    /// Total bytes of its blocks before compression.
    pub raw_length: u32,
    /// The kind of its blocks.
    pub kind: Kind,
    /// The number of its blocks.
    pub blocks: u32,
}

impl FrameRow {
    /// Returns the length of the whole frame, including the ids of its blocks.
    pub fn whole_length(&self) -> usize {
        self.packed_length as usize + self.blocks as usize * BlockId::LEN
    }

    /// Returns its address, given the number of the pack.
    pub fn address(&self, pack: u32) -> FrameAddress {
        FrameAddress { pack, offset: self.offset, length: self.whole_length() as u32 }
    }

    /// Returns the offset of the first byte after it.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.packed_length)
    }
}

/// The contents of a pack: its frames, and the ids of all blocks in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackDirectory {
    /// The frames, in the order in which they stand.
    pub frames: Vec<FrameRow>,
    /// The ids of all blocks, frame by frame.
    pub ids: Vec<BlockId>,
    /// Whether the footer was written after all frames had been proven and synced.
    pub is_proven: bool,
}

impl PackDirectory {
    /// Number of frames.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.ids.len()
    }

    /// Returns the end of the last frame.
    pub fn end(&self) -> u64 {
        self.frames.last().map_or(HEADER_LENGTH, FrameRow::end)
    }

    /// Drops all frames after the first `frames`.
    pub fn truncate(&mut self, frames: usize) {
        self.frames.truncate(frames);
        self.ids.truncate(self.frames.iter().map(|row| row.blocks as usize).sum());
    }

    /// Appends a frame with the ids of its blocks.
    pub fn push(&mut self, row: FrameRow, ids: impl Iterator<Item = BlockId>) {
        self.frames.push(row);
        self.ids.extend(ids);
    }

    /// Returns the frames, each with the ids of its blocks.
    pub fn iter(&self) -> impl Iterator<Item = (&FrameRow, &[BlockId])> {
        let mut start = 0;
        self.frames.iter().map(move |row| {
            let ids = &self.ids[start..start + row.blocks as usize];
            start += row.blocks as usize;
            (row, ids)
        })
    }
}

/// Encodes a pack's header.
pub fn encode_header(pack: PackId, store: StoreId) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LENGTH as usize);
    out.extend_from_slice(&HEADER_MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 10]);
    out.extend_from_slice(&pack.0);
    out.extend_from_slice(&store.0);
    out.extend_from_slice(&[0; 8]);
    put_checksum(&mut out);
    out
}

/// Parses a pack's header. Returns the ids of pack and store.
pub(crate) fn decode_header(bytes: &[u8; HEADER_LENGTH as usize]) -> Result<(PackId, StoreId)> {
    check_fixed("header", HEADER_MAGIC, bytes)?;
    Ok((PackId(array_at(bytes, 16)), StoreId(array_at(bytes, 32))))
}

/// Encodes footer and trailer of a pack whose frames end at `footer_offset`. Calls `write` piece by piece, because a footer can
/// be long.
pub fn encode_end(
    pack: PackId,
    footer_offset: u64,
    directory: &PackDirectory,
    mut write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let (frames, blocks) = (directory.frames.len() as u32, directory.ids.len() as u32);
    let mut hasher = XxHash3_64::new();
    let mut write_hashed = |piece: &mut Vec<u8>| {
        hasher.write(piece);
        let written = write(piece);
        piece.clear();
        written
    };
    let mut piece = Vec::with_capacity(END_PIECE_ROWS * BLOCK_ROW_LENGTH as usize);
    piece.extend_from_slice(&FOOTER_MAGIC);
    piece.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    piece.extend_from_slice(&[0; 2]);
    piece.extend_from_slice(&frames.to_le_bytes());
    piece.extend_from_slice(&blocks.to_le_bytes());
    write_hashed(&mut piece)?;
    for rows in directory.frames.chunks(END_PIECE_ROWS) {
        for row in rows {
            piece.extend_from_slice(&row.offset.to_le_bytes());
            piece.extend_from_slice(&row.packed_length.to_le_bytes());
            piece.extend_from_slice(&row.raw_length.to_le_bytes());
            piece.extend_from_slice(&row.blocks.to_le_bytes());
            piece.extend_from_slice(&[row.kind as u8, 0, 0, 0]);
        }
        write_hashed(&mut piece)?;
    }
    for rows in directory.ids.chunks(END_PIECE_ROWS) {
        rows.iter().for_each(|id| piece.extend_from_slice(&id.0));
        write_hashed(&mut piece)?;
    }
    let mut trailer = piece;
    trailer.extend_from_slice(&TRAILER_MAGIC);
    trailer.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    trailer.extend_from_slice(&[u8::from(directory.is_proven), 0]);
    trailer.extend_from_slice(&footer_offset.to_le_bytes());
    trailer.extend_from_slice(&footer_length(frames, blocks).to_le_bytes());
    trailer.extend_from_slice(&frames.to_le_bytes());
    trailer.extend_from_slice(&blocks.to_le_bytes());
    trailer.extend_from_slice(&hasher.finish().to_le_bytes());
    trailer.extend_from_slice(&pack.0);
    put_checksum(&mut trailer);
    write(&trailer)
}

/// The contents of a trailer: where the footer is, and its counts and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) footer_offset: u64,
    pub(crate) footer_length: u64,
    frames: u32,
    blocks: u32,
    footer_checksum: u64,
    is_proven: bool,
}

impl Trailer {
    /// Returns the length of the part of the footer that lists the frames; the ids of their blocks follow.
    pub(crate) fn rows_length(&self) -> u64 {
        footer_length(self.frames, 0)
    }
}

/// Parses the trailer of a pack of `pack_length` bytes. Its values must add up to exactly that length.
pub(crate) fn decode_trailer(
    bytes: &[u8; TRAILER_LENGTH as usize],
    pack: PackId,
    pack_length: u64,
) -> Result<Trailer> {
    check_fixed("trailer", TRAILER_MAGIC, bytes)?;
    let trailer = Trailer {
        footer_offset: u64_at(bytes, 8),
        footer_length: u64_at(bytes, 16),
        frames: u32_at(bytes, 24),
        blocks: u32_at(bytes, 28),
        footer_checksum: u64_at(bytes, 32),
        is_proven: bytes[6] == 1,
    };
    if array_at(bytes, 40) != pack.0 {
        return Err(Error::corrupt("pack trailer: it belongs to another pack"));
    }
    let end = trailer.footer_offset.checked_add(trailer.footer_length);
    if trailer.frames as usize > PACK_FRAMES_MAX
        || trailer.blocks as usize > PACK_BLOCKS_MAX
        || trailer.footer_length != footer_length(trailer.frames, trailer.blocks)
        || end.and_then(|end| end.checked_add(TRAILER_LENGTH)) != Some(pack_length)
    {
        return Err(Error::corrupt(format!(
            "pack trailer: inconsistent in a file of {pack_length} bytes: {trailer:?}"
        )));
    }
    Ok(trailer)
}

/// Parses the footer to which the trailer points.
pub(crate) fn decode_footer(bytes: &[u8], trailer: &Trailer) -> Result<PackDirectory> {
    if bytes.len() as u64 != trailer.footer_length || XxHash3_64::oneshot(bytes) != trailer.footer_checksum {
        return Err(Error::corrupt("pack footer: checksum mismatch"));
    }
    let (rows, listed) = bytes.split_at(trailer.rows_length() as usize);
    let frames = decode_rows(rows, trailer)?;
    let ids = listed.chunks_exact(BLOCK_ROW_LENGTH as usize).map(|row| BlockId(array_at(row, 0))).collect();
    Ok(PackDirectory { frames, ids, is_proven: trailer.is_proven })
}

/// Parses the part of a footer that lists the frames. Only the checksum of the whole footer proves that it is right.
pub(crate) fn decode_rows(bytes: &[u8], trailer: &Trailer) -> Result<Vec<FrameRow>> {
    let corrupt = |what: String| Error::corrupt(format!("pack footer: {what}"));
    if bytes[..4] != FOOTER_MAGIC || u16::from_le_bytes([bytes[4], bytes[5]]) != FORMAT_VERSION {
        return Err(corrupt("wrong magic number or format version".into()));
    }
    if (u32_at(bytes, 8), u32_at(bytes, 12)) != (trailer.frames, trailer.blocks) {
        return Err(corrupt("its counts differ from the trailer's".into()));
    }
    let rows = &bytes[FOOTER_HEAD_LENGTH as usize..];
    let mut frames = Vec::with_capacity(trailer.frames as usize);
    let (mut offset, mut blocks_total) = (HEADER_LENGTH, 0_u64);
    for row in rows.chunks_exact(FRAME_ROW_LENGTH as usize) {
        let row = decode_row(row).filter(|row| row.offset == offset);
        let row = row.ok_or_else(|| corrupt(format!("the entry of frame {} is invalid", frames.len())))?;
        offset += u64::from(row.packed_length);
        blocks_total += u64::from(row.blocks);
        frames.push(row);
    }
    if offset != trailer.footer_offset || blocks_total != u64::from(trailer.blocks) {
        return Err(corrupt(format!("the lengths of its {} frames do not add up", frames.len())));
    }
    Ok(frames)
}

fn decode_row(row: &[u8]) -> Option<FrameRow> {
    let kind = Kind::from_u8(row[20])?;
    let row = FrameRow {
        offset: u64_at(row, 0),
        packed_length: u32_at(row, 8),
        raw_length: u32_at(row, 12),
        blocks: u32_at(row, 16),
        kind,
    };
    let blocks = row.blocks as usize;
    // No block is empty, and each needs its part of the header.
    let within = (1..=BLOCKS_MAX).contains(&blocks)
        && (blocks..=RAW_LENGTH_MAX).contains(&(row.raw_length as usize))
        && row.packed_length as usize >= packed_length(whole_header_length(blocks), blocks)
        && row.packed_length as usize <= packed_length(STORED_LENGTH_MAX, blocks);
    within.then_some(row)
}

/// Returns the length of footer and trailer together.
pub fn end_length(frames: usize, blocks: usize) -> u64 {
    footer_length(frames as u32, blocks as u32) + TRAILER_LENGTH
}

fn footer_length(frames: u32, blocks: u32) -> u64 {
    FOOTER_HEAD_LENGTH + u64::from(frames) * FRAME_ROW_LENGTH + u64::from(blocks) * BLOCK_ROW_LENGTH
}

/// Checks magic, checksum and format version of a header or trailer.
fn check_fixed(what: &str, magic: [u8; 4], bytes: &[u8; 64]) -> Result<()> {
    if bytes[..4] != magic {
        return Err(Error::corrupt(format!("pack {what}: wrong magic number {:02x?}", &bytes[..4])));
    }
    if XxHash3_64::oneshot(&bytes[..56]) != u64_at(bytes, 56) {
        return Err(Error::corrupt(format!("pack {what}: checksum mismatch")));
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    if version != FORMAT_VERSION {
        return Err(Error::refused(format!(
            "pack {what} of format {version}: this Platter supports format {FORMAT_VERSION}, use a newer Platter"
        )));
    }
    Ok(())
}

fn put_checksum(out: &mut Vec<u8>) {
    let mut hasher = XxHash3_64::new();
    hasher.write(out);
    out.extend_from_slice(&hasher.finish().to_le_bytes());
}
