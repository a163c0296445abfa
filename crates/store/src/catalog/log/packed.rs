//! Records of the change log in packs, as blocks of kind change (`docs/formats/change-log.md`): a third copy, for a store that lost
//! both its catalog and its log.
//!
//! The text of a record is cut into parts, because a block has a maximum length. Each part says which record it belongs to. A
//! text counts only if all parts were found and it has the stated hash.

use std::collections::BTreeMap;

use platter_image::chunking::BLOCK_LENGTH_MAX;
use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder, RAW_LENGTH_DEFAULT};
use platter_image::{BlockId, Domain, Error, Kind, Result};

use super::Entry;

const MAGIC: [u8; 4] = *b"PLch";
const FORMAT_VERSION: u16 = 1;
/// Magic, format version, zeros, number of the part, number of parts, hash of the whole text.
const HEADER_LENGTH: usize = 16 + BlockId::LEN;
const PART_LENGTH_MAX: usize = BLOCK_LENGTH_MAX as usize - HEADER_LENGTH;
/// Maximum number of parts of one text: a text has at most 256 MiB.
const PARTS_MAX: u32 = 1 << 13;
/// zstd level.
const LEVEL: i32 = 3;

/// Encodes the text of a record as blocks.
pub(crate) fn blocks(text: &str) -> Vec<(BlockId, Vec<u8>)> {
    let hash = BlockId::of(Kind::Change, text.as_bytes());
    let count = text.len().div_ceil(PART_LENGTH_MAX) as u32;
    let parts = text.as_bytes().chunks(PART_LENGTH_MAX).zip(0_u32..);
    let block = |(part, number): (&[u8], u32)| {
        let mut block = Vec::with_capacity(HEADER_LENGTH + part.len());
        block.extend_from_slice(&MAGIC);
        block.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        block.extend_from_slice(&[0; 2]);
        block.extend_from_slice(&number.to_le_bytes());
        block.extend_from_slice(&count.to_le_bytes());
        block.extend_from_slice(&hash.0);
        block.extend_from_slice(part);
        (BlockId::of(Kind::Change, &block), block)
    };
    parts.map(block).collect()
}

/// Encodes such blocks as frames.
pub(crate) fn encode_frames(blocks: &[(BlockId, Vec<u8>)]) -> Result<Vec<EncodedFrame>> {
    let mut compressor = Compressor::new(LEVEL)?;
    let mut frames = Vec::new();
    let mut frame = FrameBuilder::new(Kind::Change, Domain::SHARED, RAW_LENGTH_DEFAULT);
    for (id, block) in blocks {
        if frame.is_full_for(block.len()) {
            frames.push(frame.take().encode(&mut compressor)?);
        }
        frame.push(*id, block);
    }
    if !frame.is_empty() {
        frames.push(frame.encode(&mut compressor)?);
    }
    Ok(frames)
}

/// Parts of records that were found in packs: by the hash of the whole and the number of its parts.
#[derive(Debug, Default)]
pub(crate) struct PackedChanges(BTreeMap<(BlockId, u32), BTreeMap<u32, Vec<u8>>>);

impl PackedChanges {
    /// Adds a block of kind change. Ignores blocks that are invalid.
    ///
    /// # Errors
    /// `Refused` when a newer Platter wrote it.
    pub(crate) fn add(&mut self, block: &[u8]) -> Result<()> {
        let Some((header, part)) = block.split_at_checked(HEADER_LENGTH) else { return Ok(()) };
        if header[..4] != MAGIC {
            return Ok(());
        }
        if header[4..8] != [FORMAT_VERSION.to_le_bytes(), [0; 2]].concat() {
            return Err(Error::refused("a pack has change records of another format: use a newer Platter"));
        }
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| header[at + index]));
        let (number, count) = (word(8), word(12));
        let hash = BlockId(std::array::from_fn(|index| header[16 + index]));
        if count == 0 || count > PARTS_MAX || number >= count {
            return Ok(());
        }
        self.0.entry((hash, count)).or_default().insert(number, part.to_vec());
        Ok(())
    }

    /// Adds the parts of other packs.
    pub(crate) fn merge(&mut self, other: Self) {
        for (whole, parts) in other.0 {
            self.0.entry(whole).or_default().extend(parts);
        }
    }

    /// Returns the number of the last complete entry; 0 if there is none.
    pub(crate) fn last_number(&self) -> u64 {
        let texts = self.texts();
        let entries = texts.iter().filter_map(|text| Entry::from_text(text).ok());
        entries.map(|entry| entry.change.number).max().unwrap_or_default()
    }

    /// Returns the complete texts.
    pub(crate) fn texts(&self) -> Vec<String> {
        let complete = self.0.iter().filter(|((_, count), parts)| parts.len() == *count as usize);
        let whole = complete.filter_map(|((hash, _), parts)| {
            let bytes: Vec<u8> = parts.values().flatten().copied().collect();
            (BlockId::of(Kind::Change, &bytes) == *hash).then_some(bytes)
        });
        whole.filter_map(|bytes| String::from_utf8(bytes).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use platter_image::frame::{FrameDecoder, Verify};

    use super::*;

    /// Encodes, and reads back from the frames.
    fn stored(texts: &[String]) -> Vec<Vec<u8>> {
        let blocks: Vec<_> = texts.iter().flat_map(|text| blocks(text)).collect();
        let mut stored = Vec::new();
        for frame in encode_frames(&blocks).unwrap() {
            let mut decoder = FrameDecoder::new().unwrap();
            let (header, mut contents) = decoder.decode(&frame.stored, Verify::Hashes).unwrap();
            for block in &header.blocks {
                let (bytes, rest) = contents.split_at(block.length as usize);
                stored.push(bytes.to_vec());
                contents = rest;
            }
        }
        stored
    }

    #[test]
    fn texts_of_any_length_come_back_and_incomplete_ones_do_not() {
        let texts = ["short".to_owned(), "x".repeat(PART_LENGTH_MAX), "longer ".repeat(50_000)];
        let blocks = stored(&texts);
        assert_eq!(blocks.len(), 1 + 1 + 6);
        let found = |blocks: &[Vec<u8>]| {
            let mut found = PackedChanges::default();
            blocks.iter().for_each(|block| found.add(block).unwrap());
            let mut texts = found.texts();
            texts.sort_by_key(String::len);
            texts
        };
        assert_eq!(found(&blocks), texts);
        let reversed: Vec<Vec<u8>> = blocks.iter().rev().cloned().collect();
        assert_eq!(found(&reversed), texts);
        assert_eq!(found(&blocks[..7]), texts[..2]);
        let mut bad = blocks;
        bad[0][HEADER_LENGTH] ^= 1;
        bad[2].truncate(HEADER_LENGTH - 1);
        assert_eq!(found(&bad), texts[1..2]);
    }
}
