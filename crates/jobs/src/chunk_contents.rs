//! The contents of a cast's chunks: which blocks each chunk of data carries, so that a receiver that has many blocks
//! already can request only the chunks with others. Format: docs/formats/cast-wire.md, "Contents".
//!
//! It travels with the recipe, and it is only a hint: it states the beginnings of ids, and nothing proves it. A receiver that
//! lacks blocks in the end requests the remaining chunks, whatever the contents said.

use platter_image::{BlockId, Error, Result};

/// The first bytes of a chunk of contents. A frame begins with other bytes.
const MAGIC: [u8; 4] = *b"PLcc";
/// Magic, number of the first chunk that it describes, number of chunks.
const HEADER_LENGTH: usize = 12;
/// Most bytes of a chunk of contents, unless a single chunk has more blocks than fit.
const CHUNK_LENGTH: usize = 1 << 20;
/// Most bytes in memory of what a segment's chunks carry. 64 GiB of data in blocks of 4 KiB take 66 MiB.
const CONTENTS_BYTES_MAX: usize = 128 << 20;

/// The beginning of a block's id.
pub(crate) type Prefix = u32;

/// The beginning of an id.
pub(crate) fn prefix(id: &BlockId) -> Prefix {
    u32::from_le_bytes([id.0[0], id.0[1], id.0[2], id.0[3]])
}

/// Encodes what each chunk of a segment's data carries, as chunks.
pub(crate) fn encode(contents: &[Vec<Prefix>]) -> Vec<Vec<u8>> {
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    let mut described = 0;
    for (number, blocks) in contents.iter().enumerate() {
        let length = 4 + blocks.len() * 4;
        if chunks.last().is_none_or(|chunk| chunk.len() + length > CHUNK_LENGTH) {
            let mut chunk = MAGIC.to_vec();
            chunk.extend_from_slice(&(number as u32).to_le_bytes());
            chunk.extend_from_slice(&[0; 4]);
            chunks.push(chunk);
            described = 0;
        }
        let Some(chunk) = chunks.last_mut() else { continue };
        described += 1;
        chunk[8..HEADER_LENGTH].copy_from_slice(&u32::to_le_bytes(described));
        chunk.extend_from_slice(&(blocks.len() as u32).to_le_bytes());
        chunk.extend(blocks.iter().flat_map(|block| block.to_le_bytes()));
    }
    chunks
}

/// Whether these are the bytes of a chunk of contents, not of frames.
pub(crate) fn is_contents(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The contents of a segment's chunks, as far as they have arrived.
#[derive(Debug, Default)]
pub(crate) struct ChunkContents {
    /// The number of the first chunk of each part, and what it and the following ones carry.
    parts: Vec<(u32, Vec<Vec<Prefix>>)>,
    /// Bytes of that in memory.
    bytes: usize,
}

impl ChunkContents {
    /// Adds a chunk of contents.
    ///
    /// # Errors
    /// `Corrupt`; `Refused` if all chunks of contents together exceed the limit.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<()> {
        let corrupt = || Error::corrupt(format!("invalid contents of chunks, {} bytes", bytes.len()));
        let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let (first, count) = number(4).zip(number(8)).filter(|_| is_contents(bytes)).ok_or_else(corrupt)?;
        let (mut at, mut chunks) = (HEADER_LENGTH, Vec::new());
        for _ in 0..count {
            let blocks = number(at).ok_or_else(corrupt)? as usize;
            let end = blocks.checked_mul(4).and_then(|length| (at + 4).checked_add(length));
            let ids = end.and_then(|end| bytes.get(at + 4..end)).ok_or_else(corrupt)?;
            chunks.push(ids.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id)).collect());
            at += 4 + ids.len();
        }
        if at != bytes.len() {
            return Err(corrupt());
        }
        self.bytes += bytes.len() + chunks.len() * size_of::<Vec<Prefix>>();
        if self.bytes > CONTENTS_BYTES_MAX {
            return Err(Error::refused(format!(
                "the contents of a segment's chunks take more than {CONTENTS_BYTES_MAX} bytes: cast it in smaller segments"
            )));
        }
        self.parts.push((first, chunks));
        Ok(())
    }

    /// Which of a segment's chunks of data may carry a needed block: all about which nothing is known, too.
    pub(crate) fn needed(&self, chunks: u32, is_needed: impl Fn(Prefix) -> bool) -> Vec<bool> {
        let mut needed = vec![true; chunks as usize];
        for (first, contents) in &self.parts {
            let described = needed.get_mut(*first as usize..).unwrap_or_default();
            for (needed, blocks) in described.iter_mut().zip(contents) {
                *needed = blocks.iter().any(|block| is_needed(*block));
            }
        }
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_round_trip_in_several_chunks() {
        let contents: Vec<Vec<Prefix>> = (0..2000).map(|chunk| (0..chunk % 300).collect()).collect();
        let encoded = encode(&contents);
        assert!(encoded.len() > 1 && encoded.iter().all(|chunk| chunk.len() <= CHUNK_LENGTH));
        let mut decoded = ChunkContents::default();
        encoded.iter().rev().for_each(|chunk| decoded.add(chunk).unwrap());
        let needed = decoded.needed(2002, |block| block == 200);
        let expected: Vec<bool> = (0..2002).map(|chunk| chunk >= 2000 || chunk % 300 > 200).collect();
        assert_eq!(needed, expected, "the last two are not described");
    }

    #[test]
    fn all_contents_of_a_segment_are_limited() {
        // Chunks without blocks need more memory than bytes on the wire.
        let [chunk] = &encode(&vec![vec![]; 200_000])[..] else { panic!("one chunk") };
        let in_memory = 200_000 * size_of::<Vec<Prefix>>();
        let mut contents = ChunkContents::default();
        let added = (0..1000).take_while(|_| contents.add(chunk).is_ok()).count();
        assert!(added > 10 && added * in_memory <= CONTENTS_BYTES_MAX, "{added}");
        assert_eq!(contents.add(chunk).unwrap_err().kind(), platter_image::ErrorKind::Refused);
    }

    #[test]
    fn invalid_contents_are_rejected() {
        let [valid] = &encode(&[vec![1, 2], vec![]])[..] else { panic!("one chunk") };
        for length in 0..valid.len() {
            assert!(ChunkContents::default().add(&valid[..length]).is_err(), "{length} bytes");
        }
        for at in [0, 8, 12] {
            let mut wrong = valid.clone();
            wrong[at + 3] = 0xff;
            assert!(ChunkContents::default().add(&wrong).is_err(), "byte {at}");
        }
        let mut far = valid.clone();
        far[7] = 0xff;
        let mut contents = ChunkContents::default();
        contents.add(&far).unwrap();
        assert_eq!(contents.needed(2, |_| false), [true, true]);
    }
}
