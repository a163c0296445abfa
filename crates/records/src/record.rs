//! The version record: the metadata of one version, stored in a pack as a block of kind version
//! (`docs/formats/version-record.md`). Records of clones and renamed
//! versions are in no pack of their own: the catalog and its log hold them.

use std::collections::BTreeMap;

use platter_image::chunking::BLOCK_LENGTH_MAX;
use platter_image::{BlockId, Error, Kind, Result, Score};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{ImageName, VersionName};
use crate::signature::{SIGNATURE_LENGTH_MAX, SIGNATURES_MAX, Signature};

const MAGIC: [u8; 4] = *b"PLvr";
const FORMAT_VERSION: u16 = 1;
/// Bytes of the header: magic, format version, reserved bytes, length of the text.
const HEADER_LENGTH: usize = 12;
/// Maximum length of a record in bytes: it is stored as one block.
pub const RECORD_LENGTH_MAX: usize = BLOCK_LENGTH_MAX as usize;

/// Bytes that a draft reserves for what later changes add. A rename or a clone may add two names and lengthen one; each signature
/// has a text, with its line ends escaped, and a store.
const LATER_LENGTH: usize = 2048 + SIGNATURES_MAX * (SIGNATURE_LENGTH_MAX + 96);

/// The state of the disk when it was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Consistency {
    /// Every filesystem was unmounted cleanly, or has nothing to recover.
    #[default]
    Clean,
    /// As after a power failure: its filesystems run recovery when they are mounted.
    Crash,
    /// Unknown: the disk has contents that belong to no known filesystem.
    Unknown,
    /// The disk was written during the capture: different parts of it date from different times.
    Torn,
}

/// One filesystem on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FilesystemRecord {
    /// Partition number, from 1; 0 when the filesystem fills the whole disk.
    pub partition: u32,
    /// Type, such as `ext4`.
    pub kind: String,
    /// Label; empty when it has none.
    pub label: String,
    /// UUID or serial number, formatted as the filesystem's own tools do; empty when it has none.
    pub uuid: String,
    /// Byte offset on the disk.
    pub offset: u64,
    /// Length on the disk in bytes.
    pub length: u64,
    /// Allocated bytes.
    pub allocated: u64,
}

/// A range of the disk that could not be read. The recipe has zeros there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadableRecord {
    /// Byte offset on the disk.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// A file with data in this range, as `PARTITION:PATH`; empty if unknown.
    pub file: String,
}

/// Totals of the unreadable ranges that the record does not list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadableOmitted {
    /// Number of ranges.
    pub ranges: u64,
    /// Their total length in bytes.
    pub bytes: u64,
}

/// The previous version of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parent {
    /// Its number. It has the same image.
    pub number: u64,
    /// Its score.
    #[serde(with = "score_text")]
    #[schemars(schema_with = "crate::schema::id")]
    pub score: Score,
}

/// The metadata of one version, as a draft before it is published ([`VersionRecord::draft`]) and as a record afterwards.
/// Fields are serialized in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VersionRecord {
    /// The image.
    pub image: ImageName,
    /// The version's number, from 1.
    pub number: u64,
    /// The score of its recipe.
    #[serde(with = "score_text")]
    #[schemars(schema_with = "crate::schema::id")]
    pub score: Score,
    /// The previous version.
    pub parent: Option<Parent>,
    /// The version from which this one was cloned, of this image or another; it has the same score.
    pub cloned_from: Option<VersionName>,
    /// The name under which this version was first published, if its image was renamed later. All fields except the name still
    /// have the values from publishing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<VersionName>,
    /// Number of the edit lock under which it was published.
    pub edit_lock: Option<u64>,
    /// Time of publishing, in milliseconds since 1970 UTC.
    pub time_unix_ms: i64,
    /// What it was captured from, as the user named it.
    pub source: String,
    /// Id of the policy by which the disk was cut into blocks.
    pub cut_policy: u16,
    /// Length of the disk in bytes.
    pub disk_length: u64,
    /// Logical sector size in bytes.
    pub sector_size: u32,
    /// Allocated bytes of the disk.
    pub allocated_bytes: u64,
    /// Bytes outside all partitions that the user chose to leave out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_gap_bytes: u64,
    /// Bytes of the blocks that were new to the store, before compression.
    pub new_raw_bytes: u64,
    /// Bytes of the frames that hold the new blocks, as stored.
    pub new_stored_bytes: u64,
    /// The filesystems on the disk.
    pub filesystems: Vec<FilesystemRecord>,
    /// Labels that the user chose, such as `team=lab`.
    pub labels: BTreeMap<String, String>,
    /// State of the disk when it was captured.
    pub consistency: Consistency,
    /// The record was uploaded to an origin. The origin has verified the recipe; source, filesystems, consistency, skipped and
    /// unreadable ranges are claims of the uploader.
    #[serde(default, skip_serializing_if = "is_false")]
    pub claimed: bool,
    /// Ranges that could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
    /// Totals of further unreadable ranges, for which the record has no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable_omitted: Option<UnreadableOmitted>,
    /// Notes that the user wrote.
    pub notes: String,
    /// Name and version of the program that made the record, such as `platter 0.1.0`.
    pub tool_version: String,
    /// Signatures that were added after publishing. Nothing here has verified them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<Signature>,
}

impl VersionRecord {
    /// Makes a draft with the required fields; the caller fills in the others. The store sets number, parent, edit lock and new bytes
    /// when it publishes. A draft has number 0, which no published record has.
    pub fn draft(image: ImageName, score: Score, time_unix_ms: i64) -> Self {
        Self {
            image,
            number: 0,
            score,
            parent: None,
            cloned_from: None,
            renamed_from: None,
            edit_lock: None,
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
            signatures: Vec::new(),
        }
    }

    /// Returns the version's name.
    pub fn name(&self) -> VersionName {
        VersionName { image: self.image.clone(), number: self.number }
    }

    /// Returns whether a record of the same name is of the same version. A restricted access token does not see all of a record, and
    /// signatures are added later, so other fields may differ.
    pub fn is_same_version(&self, other: &Self) -> bool {
        (self.score, self.time_unix_ms) == (other.score, other.time_unix_ms)
    }

    /// Returns whether `later` is this record after renames and further signatures, which change nothing else.
    pub fn is_earlier_form_of(&self, later: &Self) -> bool {
        let first = |record: &Self| record.renamed_from.clone().unwrap_or_else(|| record.name());
        let undone = Self {
            image: self.image.clone(),
            renamed_from: self.renamed_from.clone(),
            signatures: self.signatures.clone(),
            ..later.clone()
        };
        undone == *self && first(self) == first(later) && later.signatures.starts_with(&self.signatures)
    }

    /// Returns the record in its earlier form that has this id: under its first name or the present one, with the signatures that it
    /// had then. `None` if there is no such form.
    ///
    /// # Errors
    /// `Refused` when a form is longer than a block.
    pub fn form_with_id(&self, id: &BlockId) -> Result<Option<Self>> {
        let first = self.renamed_from.clone().map(|name| Self {
            image: name.image,
            renamed_from: None,
            ..self.clone()
        });
        for mut form in [Some(self.clone()), first].into_iter().flatten() {
            loop {
                if BlockId::of(Kind::Version, &form.encode()?) == *id {
                    return Ok(Some(form));
                }
                // Signatures are only added, at the end.
                if form.signatures.pop().is_none() {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Returns the draft with the longest possible value in every field that publishing sets. If this fits in a block, the draft
    /// fits.
    pub fn longest(&self) -> Self {
        let largest = i64::MAX as u64;
        Self {
            number: largest,
            parent: Some(Parent { number: largest, score: self.score }),
            edit_lock: Some(largest),
            new_raw_bytes: u64::MAX,
            new_stored_bytes: u64::MAX,
            claimed: true,
            ..self.clone()
        }
    }

    /// Returns how many bytes of text can be added to this draft. Space for a later rename, a later clone and signatures is
    /// excluded.
    ///
    /// # Errors
    /// `Refused` when the draft is already too long.
    pub fn room(&self) -> Result<usize> {
        let length = self.longest().encode()?.len();
        Ok(RECORD_LENGTH_MAX.saturating_sub(length + LATER_LENGTH))
    }

    /// Serializes the record. The id of the resulting block names the record.
    ///
    /// # Errors
    /// `Refused` when the result is longer than a block.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let text = self.to_json()?;
        let length = HEADER_LENGTH + text.len();
        if length > RECORD_LENGTH_MAX {
            return Err(Error::refused(format!(
                "the record of {} has {length} bytes, but at most {RECORD_LENGTH_MAX} are allowed: shorten labels and notes",
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

    /// Parses a serialized record.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a version record; `Refused` when a newer Platter wrote them.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| Error::corrupt(format!("version record: {what}"));
        let (head, text) = bytes.split_at_checked(HEADER_LENGTH).ok_or_else(|| corrupt("too short"))?;
        if head[..4] != MAGIC {
            return Err(corrupt("wrong magic number"));
        }
        let version = u16::from_le_bytes([head[4], head[5]]);
        if version != FORMAT_VERSION {
            return Err(Error::refused(format!(
                "version record of format {version}: this Platter supports format {FORMAT_VERSION}, use a newer Platter"
            )));
        }
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if head[6..8] != [0; 2] || length as usize != text.len() || bytes.len() > RECORD_LENGTH_MAX {
            return Err(corrupt("inconsistent header"));
        }
        let text = std::str::from_utf8(text).map_err(|error| corrupt("not UTF-8").with_source(error))?;
        Self::from_json(text)
    }

    /// Serializes the record as JSON, without the header.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::bug("cannot serialize a version record").with_source(error))
    }

    /// Parses a record from JSON, without the header.
    pub fn from_json(text: &str) -> Result<Self> {
        let record: Self = serde_json::from_str(text)
            .map_err(|error| Error::corrupt("version record: invalid JSON").with_source(error))?;
        match record.invalid_number() {
            Some(number) => Err(Error::corrupt(format!("version record: invalid number {number}"))),
            None => Ok(record),
        }
    }

    /// Returns a number of a version or an edit lock that no stored record may have.
    pub fn invalid_number(&self) -> Option<u64> {
        let origin = self.cloned_from.as_ref().map(|origin| origin.number);
        let before = self.renamed_from.as_ref().map(|before| before.number);
        let mut numbers = [Some(self.number), origin, before, self.edit_lock].into_iter().flatten();
        numbers.find(|number| *number == 0 || *number > i64::MAX as u64)
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(crate) mod score_text {
    //! Serializes a score as 64 hexadecimal digits.

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
        record.edit_lock = Some(4);
        (record.new_raw_bytes, record.new_stored_bytes) = (10, 5);
        record.labels.insert("team".into(), "lab".into());
        record.filesystems.push(FilesystemRecord { partition: 1, kind: "ext4".into(), ..Default::default() });
        record
    }

    /// These bytes are a golden vector: the format must not change.
    #[test]
    fn bytes_are_frozen() {
        let bytes = record().encode().unwrap();
        assert_eq!(bytes, include_bytes!("../golden/version-record-v1.bin"));
        assert_eq!(VersionRecord::decode(&bytes).unwrap(), record());
    }

    #[test]
    fn later_forms_differ_in_names_and_further_signatures_only() {
        let early = record();
        let mut later = early.clone();
        later.image = "attic/debian12".parse().unwrap();
        later.renamed_from = Some(early.name());
        let signature = |text: &str| Signature { store: crate::StoreId([1; 16]), text: text.into() };
        later.signatures.push(signature("first"));
        assert!(early.is_earlier_form_of(&early) && early.is_earlier_form_of(&later));
        let mut last = later.clone();
        last.image = "lab/other".parse().unwrap();
        last.signatures.push(signature("second"));
        assert!(later.is_earlier_form_of(&last) && early.is_earlier_form_of(&last));
        let changes: [&dyn Fn(&mut VersionRecord); 6] = [
            &|it| drop(it.labels.insert("team".into(), "other".into())),
            &|it| it.signatures[0].text = "forged".into(),
            &|it| it.signatures.clear(),
            &|it| it.renamed_from = None,
            &|it| it.number += 1,
            &|it| it.edit_lock = None,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = last.clone();
            change(&mut changed);
            assert!(!later.is_earlier_form_of(&changed), "{number}");
        }
    }

    #[test]
    fn damaged_bytes_are_refused() {
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

    /// Numbers start at 1 and fit SQLite's signed integers; 0 marks a draft.
    #[test]
    fn invalid_numbers_are_refused() {
        let image: ImageName = "a".parse().unwrap();
        for bad in [0, u64::MAX] {
            let spoiled = [
                VersionRecord { number: bad, ..record() },
                VersionRecord { edit_lock: Some(bad), ..record() },
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
    fn a_record_must_fit_in_one_block() {
        let mut record = record();
        record.notes = "x".repeat(RECORD_LENGTH_MAX);
        let error = record.encode().unwrap_err();
        assert!(error.to_string().contains("shorten labels and notes"), "{error}");
    }
}
