//! The manifest that a cast of the hoard sends first: the members of a revision, and the blocks of each chunk. With it a node
//! requests only what it lacks (`docs/formats/hoard-cast.md`). It is sent as blocks of kind boot set; the name of the top
//! block verifies all of them.

use std::collections::HashMap;

use platter_image::chunking::BLOCK_LENGTH_MAX;
use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder, RAW_LENGTH_DEFAULT, stream};
use platter_image::{BlockId, Domain, Error, Kind, Result, Score};

use platter_records::HoardSnapshot;

const TOP_MAGIC: [u8; 4] = *b"PLht";
const LIST_MAGIC: [u8; 4] = *b"PLhl";
const FORMAT_VERSION: u16 = 1;
/// Bytes of the top's header: magic, format version, zeros, length of the list.
const TOP_HEADER_LENGTH: usize = 16;
/// Bytes of the list's header: magic, format version, zeros, length of the text, number of chunks.
const LIST_HEADER_LENGTH: usize = 16;
const PIECE_LENGTH: usize = BLOCK_LENGTH_MAX as usize;
/// Maximum number of pieces: their names must fit in the top block.
const PIECES_MAX: usize = (PIECE_LENGTH - TOP_HEADER_LENGTH) / BlockId::LEN;
/// zstd level of its frames.
const LEVEL: i32 = 3;

/// The contents of a cast of the hoard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoardManifest {
    /// The revision and its members.
    pub snapshot: HoardSnapshot,
    /// The blocks of each data chunk, in order.
    pub chunks: Vec<Vec<BlockId>>,
}

impl HoardManifest {
    /// Returns the manifest's name, and the frames that carry it. The first block of the first frame is the top.
    ///
    /// # Errors
    /// `Refused` when the manifest would be too large.
    pub fn frames(&self) -> Result<(Score, Vec<EncodedFrame>)> {
        let list = self.list()?;
        let pieces: Vec<&[u8]> = list.chunks(PIECE_LENGTH).collect();
        if pieces.len() > PIECES_MAX {
            return Err(Error::refused(format!(
                "the manifest of the hoard has {} bytes: the hoard is too large to be cast",
                list.len()
            )));
        }
        let mut top = Vec::with_capacity(TOP_HEADER_LENGTH + pieces.len() * BlockId::LEN);
        top.extend_from_slice(&TOP_MAGIC);
        top.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        top.extend_from_slice(&[0; 2]);
        top.extend_from_slice(&(list.len() as u64).to_le_bytes());
        let name = |bytes: &[u8]| BlockId::of(Kind::BootSet, bytes);
        pieces.iter().for_each(|piece| top.extend_from_slice(&name(piece).0));
        let mut compressor = Compressor::new(LEVEL)?;
        let mut frame = FrameBuilder::new(Kind::BootSet, Domain::SHARED, RAW_LENGTH_DEFAULT);
        let mut frames = Vec::new();
        for bytes in std::iter::once(&top[..]).chain(pieces) {
            if frame.is_full_for(bytes.len()) {
                frames.push(frame.take().encode(&mut compressor)?);
            }
            frame.push(name(bytes), bytes);
        }
        frames.push(frame.encode(&mut compressor)?);
        Ok((Score(name(&top)), frames))
    }

    fn list(&self) -> Result<Vec<u8>> {
        let text = serde_json::to_vec(&self.snapshot)
            .map_err(|error| Error::bug("cannot serialize a hoard").with_source(error))?;
        let mut out = Vec::new();
        out.extend_from_slice(&LIST_MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.chunks.len() as u32).to_le_bytes());
        out.extend_from_slice(&text);
        for chunk in &self.chunks {
            out.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
            chunk.iter().for_each(|id| out.extend_from_slice(&id.0));
        }
        Ok(out)
    }

    /// Assembles a manifest from received blocks. The caller has checked the blocks against their names.
    ///
    /// # Errors
    /// `Missing` when a block was not received; `Corrupt` when the blocks are not a manifest; `Refused` when a newer Platter made
    /// it.
    pub fn assemble(name: Score, blocks: &HashMap<BlockId, Vec<u8>>) -> Result<Self> {
        let block = |id: &BlockId| {
            blocks
                .get(id)
                .ok_or_else(|| Error::missing(format!("the manifest's block {id} was not received")))
        };
        let top = block(&name.0)?;
        let (head, names) = split(top, TOP_HEADER_LENGTH, TOP_MAGIC)?;
        let mut list = Vec::new();
        for id in stream::ids(names)? {
            list.extend_from_slice(block(&id)?);
        }
        if number(head, 8, 8) != list.len() as u64 {
            return Err(corrupt("wrong length"));
        }
        Self::parse(&list)
    }

    fn parse(list: &[u8]) -> Result<Self> {
        let (head, rest) = split(list, LIST_HEADER_LENGTH, LIST_MAGIC)?;
        let cut = || corrupt("truncated");
        let (text, mut rest) = rest.split_at_checked(number(head, 8, 4) as usize).ok_or_else(cut)?;
        let snapshot =
            serde_json::from_slice(text).map_err(|error| corrupt("invalid JSON").with_source(error))?;
        let mut chunks = Vec::new();
        for _ in 0..number(head, 12, 4) {
            let (count, after) = rest.split_at_checked(4).ok_or_else(cut)?;
            let length = (number(count, 0, 4) as usize).checked_mul(BlockId::LEN).ok_or_else(cut)?;
            let (ids, after) = after.split_at_checked(length).ok_or_else(cut)?;
            chunks.push(stream::ids(ids)?);
            rest = after;
        }
        if !rest.is_empty() {
            return Err(corrupt("trailing bytes"));
        }
        Ok(Self { snapshot, chunks })
    }
}

fn split(bytes: &[u8], length: usize, magic: [u8; 4]) -> Result<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_at_checked(length).ok_or_else(|| corrupt("too short"))?;
    if head[..4] != magic {
        return Err(corrupt("wrong magic number"));
    }
    match number(head, 4, 2) {
        version if version == u64::from(FORMAT_VERSION) => Ok((head, rest)),
        version => Err(Error::refused(format!(
            "manifest of format {version}: this Platter supports format {FORMAT_VERSION}, use a newer Platter"
        ))),
    }
}

/// Reads a little-endian number of `length` bytes at `at`. The range must exist.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn corrupt(what: &str) -> Error {
    Error::corrupt(format!("hoard manifest: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::ErrorKind;
    use platter_image::frame::{FrameDecoder, Verify};

    fn manifest(blocks: u32) -> HoardManifest {
        let ids = |chunk: u32| {
            (0..blocks).map(move |n| BlockId::of(Kind::Data, &[chunk, n].map(u32::to_le_bytes).concat()))
        };
        let snapshot = HoardSnapshot { epoch: "ab".into(), revision: 7, members: Vec::new() };
        HoardManifest { snapshot, chunks: (0..3).map(|chunk| ids(chunk).collect()).collect() }
    }

    fn blocks_of(frames: &[EncodedFrame]) -> HashMap<BlockId, Vec<u8>> {
        let mut blocks = HashMap::new();
        for frame in frames {
            let mut decoder = FrameDecoder::new().unwrap();
            let (header, mut rest) = decoder.decode(&frame.stored, Verify::Hashes).unwrap();
            for block in &header.blocks {
                let (bytes, after) = rest.split_at(block.length as usize);
                blocks.insert(block.id, bytes.to_vec());
                rest = after;
            }
        }
        blocks
    }

    #[test]
    fn a_manifest_is_assembled_only_if_all_blocks_arrived() {
        for count in [0, 5, 3000] {
            let manifest = manifest(count);
            let (name, frames) = manifest.frames().unwrap();
            let blocks = blocks_of(&frames);
            assert_eq!(HoardManifest::assemble(name, &blocks).unwrap(), manifest);
            for id in blocks.keys() {
                let mut less = blocks.clone();
                less.remove(id);
                assert_eq!(HoardManifest::assemble(name, &less).unwrap_err().kind(), ErrorKind::Missing);
            }
        }
    }

    #[test]
    fn damaged_lists_are_refused() {
        let good = manifest(4).list().unwrap();
        assert_eq!(HoardManifest::parse(&good).unwrap(), manifest(4));
        for length in 0..good.len() {
            assert!(HoardManifest::parse(&good[..length]).is_err());
        }
        for at in [0, 4, 8, 11, 12, 15] {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            assert!(HoardManifest::parse(&bad).is_err(), "byte {at}");
        }
    }
}
