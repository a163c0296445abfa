//! The messages of a cast from the cache of the answering process. After [`Question::Cast`], that process sends lines about its progress on
//! the same connection ([`CastNews`]). After the table, the sender asks for chunks by their numbers:
//!
//! ```text
//! sender                       node
//! {"cast": …}              ─▶
//!                          ◀─  {"cast": {"filling": …}}    any number of these
//!                          ◀─  {"cast": {"planned": …}}
//!                          ◀─  {"cast": {"table": […]}}    until the table is complete
//! number of a chunk, 4 B   ─▶
//!                          ◀─  length, 4 B, and so many bytes; length 0: a line with an error, and the end
//! ```
//!
//! Numbers are little-endian.
//!
//! [`Question::Cast`]: super::Question::Cast

use std::fmt;

use platter_api::FillStatus;
use platter_image::{Error, Result, Score};
use platter_jobs::{CHUNKS_MAX, SEGMENTS_MAX, Segment, SessionDescription, SessionSecret};
use serde::{Deserialize, Serialize};

/// The request to read a version for a cast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCastRequest {
    /// The version: a name, a name with a number, or a score.
    pub version: String,
    /// Most bytes of data in a segment of the disk.
    pub segment_data_max: u64,
    /// Whether only receivers with a key file can read the cast.
    pub has_key: bool,
    /// Whether everybody may read it, although the origin gives the version only to access tokens.
    pub readable: bool,
}

/// Most numbers in a line of the table, which then is shorter than the longest line of the socket.
const LINE_NUMBERS_MAX: usize = 1 << 16;
/// Numbers of the table for each segment.
const SEGMENT_NUMBERS: usize = 2;

/// What the process says before it sends chunks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CastNews {
    /// It fetches what it lacks.
    Filling(FillStatus),
    Planned(Planned),
    /// A part of the table: the chunks and the recipe's chunks of each segment, then the length of each chunk.
    Table(Vec<u32>),
    /// The sender has closed the connection.
    Ended,
}

/// The description of a cast without its table.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Planned {
    score: String,
    secret: Secret,
    name: String,
    offer: Vec<u8>,
    segment_length: u64,
    segments: u32,
    chunks: u32,
}

/// The keys of an encrypted store. Never printed.
#[derive(Serialize, Deserialize)]
struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

impl Planned {
    pub(crate) fn of(description: &SessionDescription) -> Self {
        Self {
            score: description.score.to_string(),
            secret: Secret(description.secret.0.clone()),
            name: description.name.clone(),
            offer: description.offer.clone(),
            segment_length: description.segment_length,
            segments: description.segments.len() as u32,
            chunks: description.chunk_lengths.len() as u32,
        }
    }

    /// How many numbers the table has.
    ///
    /// # Errors
    /// `Refused` if these are more than a cast can have.
    pub(crate) fn numbers(&self) -> Result<usize> {
        if self.segments > SEGMENTS_MAX || self.chunks > CHUNKS_MAX {
            return Err(Error::refused(format!(
                "{} segments and {} chunks are more than a cast can have",
                self.segments, self.chunks
            )));
        }
        Ok(self.segments as usize * SEGMENT_NUMBERS + self.chunks as usize)
    }

    /// Completes the description with the table.
    ///
    /// # Errors
    /// `Corrupt` if the parts do not match; `Refused` if it breaks a limit.
    pub(crate) fn with_table(self, table: &[u32]) -> Result<SessionDescription> {
        let corrupt = || Error::corrupt("the table of a cast does not match its description");
        let numbers = table.split_at_checked(self.segments as usize * SEGMENT_NUMBERS);
        let (segments, lengths) =
            numbers.filter(|_| table.len() == self.numbers().unwrap_or(0)).ok_or_else(corrupt)?;
        let segments = segments.as_chunks::<SEGMENT_NUMBERS>().0.iter();
        let description = SessionDescription {
            score: Score::from_hex(&self.score).ok_or_else(corrupt)?,
            secret: SessionSecret(self.secret.0),
            name: self.name,
            offer: self.offer,
            segment_length: self.segment_length,
            segments: segments
                .map(|[chunks, recipe_chunks]| Segment { chunks: *chunks, recipe_chunks: *recipe_chunks })
                .collect(),
            chunk_lengths: lengths.to_vec(),
        };
        description.check()?;
        Ok(description)
    }
}

/// The table of a cast, in parts for a line each.
pub(crate) fn table_of(description: &SessionDescription) -> Vec<Vec<u32>> {
    let segments = description.segments.iter().flat_map(|it| [it.chunks, it.recipe_chunks]);
    let numbers: Vec<u32> = segments.chain(description.chunk_lengths.iter().copied()).collect();
    numbers.chunks(LINE_NUMBERS_MAX).map(<[u32]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use platter_image::{BlockId, ErrorKind};

    use super::*;

    fn description() -> SessionDescription {
        SessionDescription {
            score: Score(BlockId([7; 32])),
            secret: SessionSecret(vec![1, 2]),
            name: "lab/disk@1".into(),
            offer: vec![3],
            segment_length: 1 << 30,
            segments: vec![
                Segment { chunks: LINE_NUMBERS_MAX as u32, recipe_chunks: 1 },
                Segment { chunks: 2, recipe_chunks: 0 },
            ],
            chunk_lengths: (0..LINE_NUMBERS_MAX as u32 + 2).map(|n| n + 1).collect(),
        }
    }

    #[test]
    fn a_description_arrives_as_it_was_sent() {
        let (sent, parts) = (description(), table_of(&description()));
        assert!(parts.len() == 2 && parts[0].len() == LINE_NUMBERS_MAX);
        let line = serde_json::to_string(&CastNews::Planned(Planned::of(&sent))).unwrap();
        let CastNews::Planned(planned) = serde_json::from_str(&line).unwrap() else { panic!("{line}") };
        assert!(!format!("{planned:?}").contains("[1, 2]"), "the secret is not printed");
        assert_eq!(planned.numbers().unwrap(), parts.concat().len());
        assert_eq!(planned.with_table(&parts.concat()).unwrap(), sent);
    }

    #[test]
    fn tables_that_do_not_match_are_rejected() {
        let table = table_of(&description()).concat();
        let planned = || Planned::of(&description());
        for wrong in [&table[1..], &table[..table.len() - 1], &[]] {
            assert_eq!(planned().with_table(wrong).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        let mut other = table.clone();
        other[0] += 1;
        assert!(planned().with_table(&other).is_err(), "segments of more chunks than there are");
        let long = Planned { chunks: CHUNKS_MAX + 1, ..planned() };
        assert_eq!(long.numbers().unwrap_err().kind(), ErrorKind::Refused);
    }
}
