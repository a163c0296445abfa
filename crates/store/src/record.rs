//! The version record: what is known of one version, kept in a pack as a block of kind version
//! (`docs/formats/version-record.md`). The catalog holds a copy; this is the truth, and what `rebuild` reads.

use std::collections::BTreeMap;

use platter_image::chunking::BLOCK_LENGTH_MAX;
use platter_image::{Error, Result, Score};
use serde::{Deserialize, Serialize};

use crate::name::{ImageName, VersionName};

const MAGIC: [u8; 4] = *b"PLvr";
const FORMAT_VERSION: u16 = 1;
/// Magic, format version, reserved, length of the text.
const HEADER_LENGTH: usize = 12;
/// Most bytes of a record: it is one block.
pub(crate) const RECORD_LENGTH_MAX: usize = BLOCK_LENGTH_MAX as usize;

/// Bytes that a draft leaves free for the names of other versions: a rename or a clone may add two and lengthen one.
const OTHER_NAMES_LENGTH: usize = 2048;

/// In what state the disk was when it was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Consistency {
    /// Every filesystem was unmounted cleanly, or holds nothing to recover.
    #[default]
    Clean,
    /// As after a power cut: its filesystems recover when they are mounted.
    Crash,
    /// Nobody knows: contents that no filesystem explains.
    Unknown,
    /// Written while it was captured: what was read first is older than what was read last.
    Torn,
}

/// One filesystem on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemRecord {
    /// Number of the partition, from 1; 0 when the filesystem is the whole disk.
    pub partition: u32,
    /// Its kind, such as `ext4`.
    pub kind: String,
    /// Its label; empty when it has none.
    pub label: String,
    /// Its UUID or serial as its own tools write it; empty when it has none.
    pub uuid: String,
    /// First byte on the disk.
    pub offset: u64,
    /// Bytes on the disk.
    pub length: u64,
    /// Bytes of it that somebody can read.
    pub allocated: u64,
}

/// What of the disk could not be read, and is zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableRecord {
    /// First byte on the disk.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// A file that has some of it: number of the partition, colon, path; empty if that is not known.
    pub file: String,
}

/// Ranges that could not be read and are not listed one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableOmitted {
    /// How many ranges.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The version that came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Its number, of the same image.
    pub number: u64,
    /// Its score.
    #[serde(with = "score_text")]
    pub score: Score,
}

/// What is known of one version, before it is published ([`VersionRecord::draft`]) and after. The order of the fields is
/// the order in the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRecord {
    /// The image.
    pub image: ImageName,
    /// The version's number, from 1.
    pub number: u64,
    /// The score of its recipe.
    #[serde(with = "score_text")]
    pub score: Score,
    /// The version before.
    pub parent: Option<Parent>,
    /// The version whose disk this is, when it was cloned; of this image or another.
    pub cloned_from: Option<VersionName>,
    /// The version that this one was first published as, when its image has got another name since. Then everything
    /// but the name is as it was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<VersionName>,
    /// Number of the edit token that it was published under.
    pub token: Option<u64>,
    /// When it was published: milliseconds since 1970 UTC.
    pub time_unix_ms: i64,
    /// Where it was captured from, as the user named it.
    pub source: String,
    /// How the disk was cut into blocks.
    pub cut_policy: u16,
    /// Bytes of the disk.
    pub disk_length: u64,
    /// Logical sector size of the disk in bytes.
    pub sector_size: u32,
    /// Bytes of the disk that somebody can read.
    pub allocated_bytes: u64,
    /// Bytes in no partition that were left out because the user said so.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_gap_bytes: u64,
    /// Bytes of blocks that the store did not have, before compression.
    pub new_raw_bytes: u64,
    /// Bytes of their frames as stored.
    pub new_stored_bytes: u64,
    /// The filesystems on the disk.
    pub filesystems: Vec<FilesystemRecord>,
    /// Words of the user's, such as `team=lab`.
    pub labels: BTreeMap<String, String>,
    /// In what state the disk was.
    pub consistency: Consistency,
    /// An origin took it from whoever uploaded it: it has looked at the recipe, but source, filesystems, consistency and what
    /// was left out or could not be read are only what the writer said.
    #[serde(default, skip_serializing_if = "is_false")]
    pub claimed: bool,
    /// What could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
    /// What could not be read besides: the record has no room to list it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable_omitted: Option<UnreadableOmitted>,
    /// A sentence of the user's.
    pub notes: String,
    /// What made it, such as `platter 0.1.0`.
    pub tool_version: String,
}

impl VersionRecord {
    /// A record to be published, saying only what must be said; the rest is empty, to be filled in. Number, parent,
    /// token and new bytes are the store's to set: until then the number is 0, which no published record has.
    pub fn draft(image: ImageName, score: Score, time_unix_ms: i64) -> Self {
        Self {
            image,
            number: 0,
            score,
            parent: None,
            cloned_from: None,
            renamed_from: None,
            token: None,
            time_unix_ms,
            source: String::new(),
            cut_policy: 0,
            disk_length: 0,
            sector_size: 512,
            allocated_bytes: 0,
            skipped_gap_bytes: 0,
            new_raw_bytes: 0,
            new_stored_bytes: 0,
            filesystems: Vec::new(),
            labels: BTreeMap::new(),
            consistency: Consistency::Clean,
            claimed: false,
            unreadable: Vec::new(),
            unreadable_omitted: None,
            notes: String::new(),
            tool_version: String::new(),
        }
    }

    /// The version's name.
    pub fn name(&self) -> VersionName {
        VersionName { image: self.image.clone(), number: self.number }
    }

    /// The draft with everything that publishing sets at its longest. A draft fits when this does.
    pub(crate) fn longest(&self) -> Self {
        let largest = i64::MAX as u64;
        Self {
            number: largest,
            parent: Some(Parent { number: largest, score: self.score }),
            token: Some(largest),
            new_raw_bytes: u64::MAX,
            new_stored_bytes: u64::MAX,
            claimed: true,
            ..self.clone()
        }
    }

    /// Bytes of text that may be added to this draft. Some room is left for a rename and a clone.
    ///
    /// # Errors
    /// `Refused` when the draft is too long already.
    pub fn room(&self) -> Result<usize> {
        let length = self.longest().encode()?.len();
        Ok(RECORD_LENGTH_MAX.saturating_sub(length + OTHER_NAMES_LENGTH))
    }

    /// Its bytes: the block whose id names the record.
    ///
    /// # Errors
    /// `Refused` when it would be longer than a block.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let text = self.to_json()?;
        let length = HEADER_LENGTH + text.len();
        if length > RECORD_LENGTH_MAX {
            return Err(Error::refused(format!(
                "the record of {} would have {length} bytes, {RECORD_LENGTH_MAX} are allowed: shorten labels and notes",
                self.name()
            )));
        }
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
        Ok(out)
    }

    /// Parses a record's bytes.
    ///
    /// # Errors
    /// `Corrupt` when they are none; `Refused` when a newer Platter wrote them.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| Error::corrupt(format!("version record: {what}"));
        let (head, text) = bytes.split_at_checked(HEADER_LENGTH).ok_or_else(|| corrupt("too short"))?;
        if head[..4] != MAGIC {
            return Err(corrupt("no magic"));
        }
        let version = u16::from_le_bytes([head[4], head[5]]);
        if version != FORMAT_VERSION {
            return Err(Error::refused(format!(
                "version record of format {version}: this Platter knows {FORMAT_VERSION}, use a newer one"
            )));
        }
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if head[6..8] != [0; 2] || length as usize != text.len() || bytes.len() > RECORD_LENGTH_MAX {
            return Err(corrupt("its length is wrong"));
        }
        let text = std::str::from_utf8(text).map_err(|error| corrupt("not UTF-8").with_source(error))?;
        Self::from_json(text)
    }

    /// Its text alone.
    pub(crate) fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::bug("a version record without a text").with_source(error))
    }

    /// Parses its text alone.
    pub(crate) fn from_json(text: &str) -> Result<Self> {
        let record: Self = serde_json::from_str(text).map_err(|error| {
            Error::corrupt("version record: its text says nothing known").with_source(error)
        })?;
        let origin = record.cloned_from.as_ref().map(|origin| origin.number);
        let before = record.renamed_from.as_ref().map(|before| before.number);
        for number in [Some(record.number), origin, before, record.token].into_iter().flatten() {
            if number == 0 || number > i64::MAX as u64 {
                return Err(Error::corrupt(format!("version record: number {number}")));
            }
        }
        Ok(record)
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(crate) mod score_text {
    //! A score as 64 hexadecimal digits.

    use platter_image::Score;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(score: &Score, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(score)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Score, D::Error> {
        let text = String::deserialize(deserializer)?;
        Score::from_hex(&text).ok_or_else(|| D::Error::custom("a score has 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::{BlockId, ErrorKind};

    fn record() -> VersionRecord {
        let image = "lab/debian12".parse().unwrap();
        let mut record = VersionRecord::draft(image, Score(BlockId([7; 32])), 1_700_000_000_123);
        record.number = 7;
        record.parent = Some(Parent { number: 6, score: Score(BlockId([6; 32])) });
        record.cloned_from = Some(VersionName { image: "lab/base".parse().unwrap(), number: 2 });
        record.token = Some(4);
        (record.new_raw_bytes, record.new_stored_bytes) = (10, 5);
        record.labels.insert("team".into(), "lab".into());
        record.filesystems.push(FilesystemRecord { partition: 1, kind: "ext4".into(), ..Default::default() });
        record
    }

    /// Golden vector: these bytes are frozen.
    #[test]
    fn bytes_are_frozen() {
        let bytes = record().encode().unwrap();
        assert_eq!(bytes, include_bytes!("../golden/version-record-v1.bin"));
        assert_eq!(VersionRecord::decode(&bytes).unwrap(), record());
    }

    #[test]
    fn hostile_bytes_are_refused() {
        let good = record().encode().unwrap();
        for length in 0..good.len() {
            assert!(VersionRecord::decode(&good[..length]).is_err());
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x80;
            assert!(VersionRecord::decode(&bad).is_err(), "byte {at}");
        }
        let mut newer = good;
        newer[4] = 2;
        assert_eq!(VersionRecord::decode(&newer).unwrap_err().kind(), ErrorKind::Refused);
    }

    /// Numbers count from 1 and fit SQLite's; a draft's 0 is none.
    #[test]
    fn numbers_that_none_can_have_are_refused() {
        let image: ImageName = "a".parse().unwrap();
        for bad in [0, u64::MAX] {
            let spoiled = [
                VersionRecord { number: bad, ..record() },
                VersionRecord { token: Some(bad), ..record() },
                VersionRecord {
                    cloned_from: Some(VersionName { image: image.clone(), number: bad }),
                    ..record()
                },
            ];
            for record in spoiled {
                let error = VersionRecord::decode(&record.encode().unwrap()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt);
            }
        }
    }

    #[test]
    fn a_record_is_one_block() {
        let mut record = record();
        record.notes = "x".repeat(RECORD_LENGTH_MAX);
        let error = record.encode().unwrap_err();
        assert!(error.to_string().contains("shorten labels and notes"), "{error}");
    }
}
