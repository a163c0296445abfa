//! What a cast carries: the table of chunks, as the sender describes it and every receiver learns it.
//!
//! Owns the numbering. On the wire the directory (the byte length of every content chunk, little-endian `u32` each)
//! comes first as chunks `0..D`, then the recipe's chunks, then the data chunks. Callers never see the directory:
//! they count *content chunks* from 0, recipe first. Must never trust a length it was told: every table is checked.

use std::fmt;
use std::ops::Range;

use platter_image::{Error, Result, Score};

/// Bytes of one symbol: 22 × 64, as the code wants multiples of 64, and a datagram with it fits IPv6 in an Ethernet
/// frame (DESIGN D17).
pub const SYMBOL_BYTES: usize = 1408;
/// Most source symbols of a chunk (DESIGN D16).
pub const SYMBOLS_MAX: usize = 1024;
/// Most bytes of a chunk: 1,441,792.
pub const CHUNK_BYTES_MAX: usize = SYMBOLS_MAX * SYMBOL_BYTES;
/// Most content chunks of one cast: 4 TiB of frames in chunks of 1 MiB, and a directory of 16 MiB.
pub const CHUNKS_MAX: u32 = 4 << 20;
/// Most bytes of an image's name in a cast.
pub const NAME_BYTES_MAX: usize = 255;

/// 128 random bits that name one cast.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// What stands in each datagram's header: the first four bytes, little-endian. It keeps sessions apart that share
    /// a group; it proves nothing.
    pub fn short(&self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_le_bytes([a, b, c, d])
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What is cast: an image and the lengths of its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDescription {
    /// The recipe's root.
    pub score: Score,
    /// What people call it; receivers can ask for it. At most [`NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// How many of the content chunks, the first ones, hold the recipe.
    pub recipe_chunks: u32,
    /// Byte length of each content chunk, recipe first: 1 to [`CHUNK_BYTES_MAX`].
    pub chunk_lengths: Vec<u32>,
}

impl SessionDescription {
    /// Checks every limit.
    ///
    /// # Errors
    /// `Refused`, with the value that is out of bounds.
    pub fn check(&self) -> Result<()> {
        let chunks = self.chunk_lengths.len();
        if self.name.len() > NAME_BYTES_MAX {
            return Err(Error::refused(format!(
                "the name has {} bytes, the limit is {NAME_BYTES_MAX}",
                self.name.len()
            )));
        }
        if chunks == 0 || chunks > CHUNKS_MAX as usize {
            return Err(Error::refused(format!("{chunks} chunks cannot be cast: 1 to {CHUNKS_MAX} can")));
        }
        if self.recipe_chunks as usize > chunks {
            return Err(Error::refused(format!("{} recipe chunks of {chunks}", self.recipe_chunks)));
        }
        let bad = self.chunk_lengths.iter().position(|length| !is_chunk_length(*length));
        match bad {
            Some(index) => Err(Error::refused(format!(
                "chunk {index} has {} bytes: 1 to {CHUNK_BYTES_MAX} are allowed",
                self.chunk_lengths[index]
            ))),
            None => Ok(()),
        }
    }

    /// All content chunks.
    pub fn all_chunks(&self) -> Range<u32> {
        0..self.chunk_lengths.len() as u32
    }

    /// Bytes of all content chunks.
    pub fn total_bytes(&self) -> u64 {
        self.chunk_lengths.iter().map(|length| u64::from(*length)).sum()
    }

    /// The directory as it goes over the wire.
    pub(crate) fn directory(&self) -> Vec<u8> {
        self.chunk_lengths.iter().flat_map(|length| length.to_le_bytes()).collect()
    }
}

fn is_chunk_length(length: u32) -> bool {
    length > 0 && length as usize <= CHUNK_BYTES_MAX
}

/// Source symbols of a chunk of that many bytes.
pub(crate) fn symbols_of(length: u32) -> usize {
    (length as usize).div_ceil(SYMBOL_BYTES)
}

/// Wire numbering of a session: directory chunks, then content chunks.
#[derive(Clone, Debug)]
pub(crate) struct ChunkTable {
    /// Length of each chunk by wire number; before the directory is known, of directory chunks only.
    lengths: Vec<u32>,
    directory_chunks: u32,
    total: u32,
}

impl ChunkTable {
    /// The table before the directory is known.
    pub(crate) fn of_directory(directory_bytes: u32) -> Self {
        let mut lengths = Vec::new();
        let mut left = directory_bytes;
        while left > 0 {
            let length = left.min(CHUNK_BYTES_MAX as u32);
            lengths.push(length);
            left -= length;
        }
        let directory_chunks = lengths.len() as u32;
        Self { lengths, directory_chunks, total: directory_chunks + directory_bytes / 4 }
    }

    /// The table of a description.
    pub(crate) fn of_description(description: &SessionDescription) -> Self {
        let mut table = Self::of_directory(description.chunk_lengths.len() as u32 * 4);
        table.lengths.extend_from_slice(&description.chunk_lengths);
        table
    }

    /// Adds the content chunks from a received directory.
    ///
    /// # Errors
    /// `Corrupt` when a length is out of bounds or their number is not the announced one.
    pub(crate) fn add_directory(&mut self, directory: &[u8]) -> Result<()> {
        let lengths: Vec<u32> = directory
            .chunks_exact(4)
            .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect();
        if lengths.len() as u32 != self.total - self.directory_chunks
            || !lengths.iter().all(|length| is_chunk_length(*length))
        {
            return Err(Error::corrupt(format!(
                "a directory of {} bytes with impossible lengths",
                directory.len()
            )));
        }
        self.lengths.truncate(self.directory_chunks as usize);
        self.lengths.extend_from_slice(&lengths);
        Ok(())
    }

    /// Whether content chunks are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.lengths.len() == self.total as usize
    }

    /// Byte length of a chunk, if it exists and is known.
    pub(crate) fn length(&self, chunk: u32) -> Option<u32> {
        self.lengths.get(chunk as usize).copied()
    }

    /// Number of chunks, directory included.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Number of directory chunks, which is the wire number of content chunk 0.
    pub(crate) fn directory_chunks(&self) -> u32 {
        self.directory_chunks
    }

    /// Lengths of the known content chunks.
    pub(crate) fn content_lengths(&self) -> &[u32] {
        &self.lengths[self.directory_chunks as usize..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::BlockId;

    fn description(chunk_lengths: Vec<u32>) -> SessionDescription {
        SessionDescription {
            score: Score(BlockId([7; 32])),
            name: "a".into(),
            recipe_chunks: 1,
            chunk_lengths,
        }
    }

    #[test]
    fn a_received_directory_gives_the_senders_table() {
        let sent = description((1..400_000).map(|index| index % CHUNK_BYTES_MAX as u32 + 1).collect());
        sent.check().unwrap();
        let directory = sent.directory();
        let mut table = ChunkTable::of_directory(directory.len() as u32);
        assert_eq!(table.directory_chunks(), 2);
        assert!(!table.is_complete());
        table.add_directory(&directory).unwrap();
        assert!(table.is_complete());
        assert_eq!(table.lengths, ChunkTable::of_description(&sent).lengths);
    }

    #[test]
    fn impossible_tables_are_refused() {
        assert!(description(vec![0]).check().is_err());
        assert!(description(vec![CHUNK_BYTES_MAX as u32 + 1]).check().is_err());
        assert!(description(vec![]).check().is_err());
        let mut table = ChunkTable::of_directory(8);
        assert!(table.add_directory(&[0; 8]).is_err());
        assert!(table.add_directory(&[1, 0, 0, 0]).is_err());
        assert!(table.add_directory(&[1, 0, 0, 0, 2, 0, 0, 0]).is_ok());
    }
}
