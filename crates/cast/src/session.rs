//! The contents of a cast: the table of chunks, as the sender describes it and every receiver learns it.
//!
//! Owns the numbering of chunks. On the wire, the directory (the table of segments and the byte length of every content chunk)
//! comes first as chunks `0..D`. The segments follow one after another, each with the chunks of its recipe and then its data
//! chunks. Callers never see the directory: they count *content chunks* from 0. Must never trust a received length: every
//! table is checked.

use std::fmt;
use std::ops::Range;

use platter_image::{Error, Result, Score};
use zeroize::Zeroize;

/// Bytes of a symbol: 22 × 64, because the code requires multiples of 64, and a datagram with one symbol fits IPv6 in an Ethernet
/// frame (design: datagrams). Short ones serve only simulations of thousands of receivers, which would not fit into memory.
pub const SYMBOL_BYTES: usize = if cfg!(feature = "short-symbols") { 64 } else { 1408 };
/// Maximum number of source symbols of a chunk (design: code).
pub const SYMBOLS_MAX: usize = 1024;
/// Maximum length of a chunk in bytes: 1,441,792.
pub const CHUNK_BYTES_MAX: usize = SYMBOLS_MAX * SYMBOL_BYTES;
/// Maximum number of content chunks of a cast: 4 TiB of frames in chunks of 1 MiB, with a directory of 16 MiB.
pub const CHUNKS_MAX: u32 = 4 << 20;
/// Maximum number of segments of a cast.
pub const SEGMENTS_MAX: u32 = 1 << 16;
/// Bytes of a segment's entry in the directory, and of a chunk length's entry.
const SEGMENT_ENTRY_BYTES: u32 = 8;
const LENGTH_ENTRY_BYTES: u32 = 4;
/// Maximum length of an image's name in a cast, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum length of the secret of a session, in bytes.
pub const SECRET_BYTES_MAX: usize = 256;
/// Maximum length of what a cast says about signatures: it must fit into an announcement with the longest name.
pub const OFFER_BYTES_MAX: usize = 880;

/// 128 random bits that identify a cast.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// Returns the short id in each datagram's header: the first four bytes, little-endian. It tells apart sessions that share a
    /// group; it proves nothing.
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

/// Describes what is cast: an image and the lengths of its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDescription {
    /// The score of the recipe.
    pub score: Score,
    /// What receivers need to decode the contents. Sent only to receivers that have proven to have the join key; must be empty
    /// without one.
    pub secret: SessionSecret,
    /// The image's name, by which receivers can request it. At most [`NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// What receivers need to verify who signed the image, if somebody did: opaque here, at most [`OFFER_BYTES_MAX`] bytes.
    pub offer: Vec<u8>,
    /// Length of the disk range that a segment covers, in bytes; the last segment may be shorter. A receiver processes one
    /// segment at a time, so that its memory does not grow with the disk (design: order).
    pub segment_length: u64,
    /// The segments, in disk order: 1 to [`SEGMENTS_MAX`].
    pub segments: Vec<Segment>,
    /// Byte length of each content chunk, in the order of the segments: 1 to [`CHUNK_BYTES_MAX`].
    pub chunk_lengths: Vec<u32>,
}

/// The numbers of content chunks of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// All content chunks, at least one.
    pub chunks: u32,
    /// The first ones of them, which hold the recipe.
    pub recipe_chunks: u32,
}

impl Segment {
    fn is_possible(&self) -> bool {
        self.chunks > 0 && self.recipe_chunks <= self.chunks
    }
}

/// A secret of a session: opaque here, at most [`SECRET_BYTES_MAX`] bytes. Never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SessionSecret(pub Vec<u8>);

impl std::fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionSecret({} bytes)", self.0.len())
    }
}

impl Drop for SessionSecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl SessionDescription {
    /// Checks all limits.
    ///
    /// # Errors
    /// `Refused`, with the value that breaks a limit.
    pub fn check(&self) -> Result<()> {
        let chunks = self.chunk_lengths.len();
        if self.name.len() > NAME_BYTES_MAX {
            return Err(Error::refused(format!(
                "the name has {} bytes, but at most {NAME_BYTES_MAX} are allowed",
                self.name.len()
            )));
        }
        if self.offer.len() > OFFER_BYTES_MAX {
            return Err(Error::refused(format!(
                "{} bytes of signatures are more than {OFFER_BYTES_MAX}",
                self.offer.len()
            )));
        }
        if self.secret.0.len() > SECRET_BYTES_MAX {
            return Err(Error::refused(format!(
                "{} bytes of a secret are more than {SECRET_BYTES_MAX}",
                self.secret.0.len()
            )));
        }
        if chunks == 0 || chunks > CHUNKS_MAX as usize {
            return Err(Error::refused(format!("a cast has 1 to {CHUNKS_MAX} chunks, not {chunks}")));
        }
        if self.segments.len() > SEGMENTS_MAX as usize || !are_segments(&self.segments, chunks) {
            return Err(Error::refused(format!(
                "{} segments do not match {chunks} chunks, or exceed the limit of {SEGMENTS_MAX}",
                self.segments.len()
            )));
        }
        let bad = self.chunk_lengths.iter().position(|length| !is_chunk_length(*length));
        match bad {
            Some(index) => Err(Error::refused(format!(
                "chunk {index} has {} bytes, but 1 to {CHUNK_BYTES_MAX} are allowed",
                self.chunk_lengths[index]
            ))),
            None => Ok(()),
        }
    }

    /// Returns the content chunks of a segment's recipe; empty if there is no such segment.
    pub fn recipe_chunks(&self, segment: usize) -> Range<u32> {
        let chunks = self.segment_chunks(segment);
        let recipe = self.segments.get(segment).map_or(0, |segment| segment.recipe_chunks);
        chunks.start..(chunks.start + recipe).min(chunks.end)
    }

    /// Returns the content chunks of a segment's data; empty if there is no such segment.
    pub fn data_chunks(&self, segment: usize) -> Range<u32> {
        self.recipe_chunks(segment).end..self.segment_chunks(segment).end
    }

    fn segment_chunks(&self, segment: usize) -> Range<u32> {
        let before: u32 = self.segments.iter().take(segment).map(|segment| segment.chunks).sum();
        before..before + self.segments.get(segment).map_or(0, |segment| segment.chunks)
    }

    /// Returns all content chunks.
    pub fn all_chunks(&self) -> Range<u32> {
        0..self.chunk_lengths.len() as u32
    }

    /// Returns the total bytes of all content chunks.
    pub fn total_bytes(&self) -> u64 {
        self.chunk_lengths.iter().map(|length| u64::from(*length)).sum()
    }

    /// Encodes the directory.
    pub(crate) fn directory(&self) -> Vec<u8> {
        let segments = self.segments.iter().flat_map(|segment| [segment.chunks, segment.recipe_chunks]);
        segments.chain(self.chunk_lengths.iter().copied()).flat_map(u32::to_le_bytes).collect()
    }
}

/// Returns whether these segments are valid and have `chunks` chunks in total.
fn are_segments(segments: &[Segment], chunks: usize) -> bool {
    let sum: u64 = segments.iter().map(|segment| u64::from(segment.chunks)).sum();
    !segments.is_empty() && sum == chunks as u64 && segments.iter().all(Segment::is_possible)
}

fn is_chunk_length(length: u32) -> bool {
    length > 0 && length as usize <= CHUNK_BYTES_MAX
}

/// Returns the number of source symbols of a chunk of `length` bytes.
pub(crate) fn symbols_of(length: u32) -> usize {
    (length as usize).div_ceil(SYMBOL_BYTES)
}

/// The chunk table of a session by wire number: directory chunks, then content chunks.
#[derive(Clone, Debug)]
pub(crate) struct ChunkTable {
    /// Length of each chunk by wire number. Before the directory is known, only those of directory chunks.
    lengths: Vec<u32>,
    directory_chunks: u32,
    segments: u32,
    total: u32,
}

impl ChunkTable {
    /// Makes the table that is known before the directory.
    pub(crate) fn of_directory(segments: u32, content_chunks: u32) -> Self {
        let mut lengths = Vec::new();
        let mut left = segments * SEGMENT_ENTRY_BYTES + content_chunks * LENGTH_ENTRY_BYTES;
        while left > 0 {
            let length = left.min(CHUNK_BYTES_MAX as u32);
            lengths.push(length);
            left -= length;
        }
        let directory_chunks = lengths.len() as u32;
        Self { lengths, directory_chunks, segments, total: directory_chunks + content_chunks }
    }

    /// Makes the table of a description.
    pub(crate) fn of_description(description: &SessionDescription) -> Self {
        let mut table =
            Self::of_directory(description.segments.len() as u32, description.chunk_lengths.len() as u32);
        table.lengths.extend_from_slice(&description.chunk_lengths);
        table
    }

    /// Adds the content chunks of a received directory, whose hash was compared. Returns the segments.
    ///
    /// # Errors
    /// `Corrupt` when a length is invalid, or the number of chunks or segments or the first segment differs from the
    /// announcement. The table is then unchanged.
    pub(crate) fn add_directory(&mut self, directory: &[u8], first: Segment) -> Result<Vec<Segment>> {
        let numbers: Vec<u32> = directory
            .chunks_exact(4)
            .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect();
        let impossible =
            || Error::corrupt(format!("a directory of {} bytes has impossible numbers", directory.len()));
        let (segments, lengths) =
            numbers.split_at_checked(self.segments as usize * 2).ok_or_else(impossible)?;
        let segments: Vec<Segment> = segments
            .chunks_exact(2)
            .map(|numbers| Segment { chunks: numbers[0], recipe_chunks: numbers[1] })
            .collect();
        if lengths.len() as u32 != self.total - self.directory_chunks
            || !lengths.iter().all(|length| is_chunk_length(*length))
            || !are_segments(&segments, lengths.len())
            || segments[0] != first
        {
            return Err(impossible());
        }
        self.lengths.truncate(self.directory_chunks as usize);
        self.lengths.extend_from_slice(lengths);
        Ok(segments)
    }

    /// Returns whether the content chunks are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.lengths.len() == self.total as usize
    }

    /// Returns the length of a chunk in bytes, if it exists and is known.
    pub(crate) fn length(&self, chunk: u32) -> Option<u32> {
        self.lengths.get(chunk as usize).copied()
    }

    /// Returns the number of chunks, including the directory's.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Returns the number of directory chunks, which equals the wire number of content chunk 0.
    pub(crate) fn directory_chunks(&self) -> u32 {
        self.directory_chunks
    }

    /// Returns the lengths of the known content chunks.
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
            secret: SessionSecret::default(),
            score: Score(BlockId([7; 32])),
            name: "a".into(),
            offer: Vec::new(),
            segment_length: 1 << 36,
            segments: vec![Segment { chunks: chunk_lengths.len() as u32, recipe_chunks: 1 }],
            chunk_lengths,
        }
    }

    #[test]
    fn a_received_directory_yields_the_senders_table() {
        let mut sent = description((1..400_000).map(|index| index % CHUNK_BYTES_MAX as u32 + 1).collect());
        sent.segments = vec![
            Segment { chunks: 300_000, recipe_chunks: 7 },
            Segment { chunks: 1, recipe_chunks: 1 },
            Segment { chunks: 99_998, recipe_chunks: 0 },
        ];
        sent.check().unwrap();
        let directory = sent.directory();
        let mut table = ChunkTable::of_directory(3, 399_999);
        assert_eq!(table.directory_chunks(), 2);
        assert!(!table.is_complete());
        assert!(table.add_directory(&directory, sent.segments[1]).is_err() && !table.is_complete());
        assert_eq!(table.add_directory(&directory, sent.segments[0]).unwrap(), sent.segments);
        assert!(table.is_complete());
        assert_eq!(table.lengths, ChunkTable::of_description(&sent).lengths);
    }

    #[test]
    fn impossible_tables_are_refused() {
        assert!(description(vec![0]).check().is_err());
        assert!(description(vec![CHUNK_BYTES_MAX as u32 + 1]).check().is_err());
        assert!(description(vec![]).check().is_err());
        let with = |segments| SessionDescription { segments, ..description(vec![1, 2]) };
        assert!(with(vec![Segment { chunks: 1, recipe_chunks: 1 }]).check().is_err());
        assert!(with(vec![Segment { chunks: 2, recipe_chunks: 3 }]).check().is_err());
        assert!(with(vec![]).check().is_err());
        let mut table = ChunkTable::of_directory(1, 2);
        let first = Segment { chunks: 2, recipe_chunks: 1 };
        let numbers = |numbers: &[u32]| numbers.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>();
        for wrong in [&[2, 1, 0, 1][..], &[2, 1, 1], &[2, 3, 1, 2], &[1, 1, 1, 2], &[2], &[u32::MAX, 3, 1, 2]]
        {
            assert!(table.add_directory(&numbers(wrong), first).is_err(), "{wrong:?}");
        }
        assert!(table.add_directory(&numbers(&[2, 1, 1, 2]), first).is_ok());
    }

    #[test]
    fn segments_are_consecutive() {
        let mut sent = description(vec![1; 6]);
        sent.segments =
            vec![Segment { chunks: 4, recipe_chunks: 1 }, Segment { chunks: 2, recipe_chunks: 2 }];
        assert_eq!((sent.recipe_chunks(0), sent.data_chunks(0)), (0..1, 1..4));
        assert_eq!((sent.recipe_chunks(1), sent.data_chunks(1)), (4..6, 6..6));
        assert!(sent.recipe_chunks(2).is_empty() && sent.data_chunks(2).is_empty());
    }
}
