//! A boot set: the pages and blocks of a version that a boot reads, in the order of first use, and how they were recorded
//! (`docs/formats/boot-set.md`). Packs store it as blocks of kind boot set: one head and its parts. The head's id names it.
//!
//! Owns the byte layout of head and parts. Parsing validates every field before it is used and never allocates memory for a
//! length that the input only claims. A boot set belongs to a score: all versions with that score share it.

use std::collections::HashSet;
use std::fmt;

use platter_image::chunking::BLOCK_LENGTH_MAX;
use platter_image::frame::{Compressor, EncodedFrame, FrameBuilder, RAW_LENGTH_DEFAULT};
use platter_image::{BlockId, Domain, Error, Kind, Result, SECTOR, Score};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::VersionName;
use crate::record::score_text;

/// Maximum number of pages and blocks of a boot set together.
pub const BOOT_SET_BLOCKS_MAX: usize = 1 << 17;
/// Maximum length of a boot set in bytes, head and parts together.
pub const BOOT_SET_LENGTH_MAX: usize = BLOCK_LENGTH_MAX as usize * (1 + PARTS_MAX);

const HEAD_MAGIC: [u8; 4] = *b"PLbs";
const PART_MAGIC: [u8; 4] = *b"PLbp";
const FORMAT_VERSION: u16 = 1;
/// Bytes of the head's header: magic, format version, number of parts, length of the text.
const HEAD_LENGTH: usize = 12;
/// Bytes of a part's header: magic, format version, number of rows.
const PART_HEADER_LENGTH: usize = 8;
/// Bytes of a row: an id, and the length of its page or block in sectors.
const ROW_LENGTH: usize = BlockId::LEN + 1;
/// Rows in every part except the last.
const PART_ROWS: usize = (BLOCK_LENGTH_MAX as usize - PART_HEADER_LENGTH) / ROW_LENGTH;
const PARTS_MAX: usize = BOOT_SET_BLOCKS_MAX.div_ceil(PART_ROWS);
/// Maximum length of the head's text in bytes.
const TEXT_LENGTH_MAX: usize = 32 << 10;
/// zstd level of its frames. Ids do not compress.
const LEVEL: i32 = 1;

/// How a boot set was recorded. Fields are serialized in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BootSetRecord {
    /// The version that was booted, with the name that it had then.
    pub version: VersionName,
    /// The score of that version: the boot set is valid for every disk with this score.
    #[serde(with = "score_text")]
    #[schemars(schema_with = "crate::schema::id")]
    pub score: Score,
    /// The event that ended the recording, such as `serial:login:`.
    pub marker: String,
    /// What was booted, as a description or a command line.
    pub command: String,
    /// What executed the guest: `kvm`, `tcg`, or empty when unknown.
    pub accelerator: String,
    /// Time of the recording, in milliseconds since 1970 UTC.
    pub time_unix_ms: i64,
    /// Time from the first request to the marker, in milliseconds.
    pub duration_ms: u64,
    /// Number of read requests during the boot.
    pub requests: u64,
    /// Total bytes of these requests.
    pub bytes_read: u64,
    /// Number of pages.
    pub pages: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Total bytes of pages and blocks, by the lengths in their rows.
    pub bytes: u64,
    /// Name and version of the program that made it, such as `platter 0.1.0`.
    pub tool_version: String,
    /// Boots that nodes observed, merged in it; 0 when a person recorded it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub boots: u32,
    /// A mark of each node that observed them, which only that node recognises: whoever may read the version sees them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A page or block of a boot set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootBlock {
    /// Its id.
    pub id: BlockId,
    /// Its length in sectors of 512 bytes, rounded up. For a block, only the part that the version uses counts.
    pub sectors: u8,
}

impl BootBlock {
    /// Makes a row from an id and a length in bytes.
    pub fn new(id: BlockId, length: u64) -> Self {
        Self { id, sectors: length.div_ceil(SECTOR).clamp(1, BLOCK_LENGTH_MAX / SECTOR) as u8 }
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> u64 {
        u64::from(self.sectors) * SECTOR
    }
}

/// A boot set: see the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootSet {
    /// How it was recorded.
    pub record: BootSetRecord,
    /// Pages of the recipe in the order of first use, the root first.
    pub pages: Vec<BootBlock>,
    /// Data blocks in the order of first use.
    pub blocks: Vec<BootBlock>,
}

/// A boot set in its serialized form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedBootSet {
    /// The boot set's name: the id of its head.
    pub id: BlockId,
    head: Vec<u8>,
    parts: Vec<Vec<u8>>,
}

/// The head of a boot set, without its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootSetHead {
    /// How it was recorded.
    pub record: BootSetRecord,
    /// Names of the parts.
    pub parts: Vec<BlockId>,
    /// Length of the head in bytes.
    length: usize,
}

impl BootSet {
    /// Serializes the boot set.
    ///
    /// # Errors
    /// `Refused` when it has too many blocks or its text is too long; `Bug` when it breaks a rule that [`BootSet::decode`]
    /// checks.
    pub fn encode(&self) -> Result<EncodedBootSet> {
        let count = self.pages.len() + self.blocks.len();
        if count > BOOT_SET_BLOCKS_MAX {
            return Err(Error::refused(format!(
                "the boot set has {count} blocks, but at most {BOOT_SET_BLOCKS_MAX} are allowed: end the recording earlier"
            )));
        }
        self.check().map_err(|error| Error::bug("invalid boot set").with_source(error))?;
        let text = serde_json::to_string(&self.record)
            .map_err(|error| Error::bug("cannot serialize a boot set").with_source(error))?;
        if text.len() > TEXT_LENGTH_MAX {
            return Err(Error::refused(format!(
                "the description of the boot set has {} bytes, but at most {TEXT_LENGTH_MAX} are allowed: shorten the command",
                text.len()
            )));
        }
        let rows: Vec<&BootBlock> = self.pages.iter().chain(&self.blocks).collect();
        let parts: Vec<Vec<u8>> = rows.chunks(PART_ROWS).map(encode_part).collect();
        let mut head = Vec::with_capacity(HEAD_LENGTH + text.len() + parts.len() * BlockId::LEN);
        head.extend_from_slice(&HEAD_MAGIC);
        head.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        head.extend_from_slice(&(parts.len() as u16).to_le_bytes());
        head.extend_from_slice(&(text.len() as u32).to_le_bytes());
        head.extend_from_slice(text.as_bytes());
        parts.iter().for_each(|part| head.extend_from_slice(&BlockId::of(Kind::BootSet, part).0));
        Ok(EncodedBootSet { id: BlockId::of(Kind::BootSet, &head), head, parts })
    }

    /// Parses a head followed by its parts, and checks them against the boot set's name.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a boot set, or not the named one; `Refused` when a newer Platter wrote them.
    pub fn decode(id: &BlockId, bytes: &[u8]) -> Result<Self> {
        match Self::decode_unnamed(bytes)? {
            (found, set) if found == *id => Ok(set),
            _ => Err(corrupt("the contents do not match the name")),
        }
    }

    /// Parses a head followed by its parts without an expected name. Returns the name as well.
    ///
    /// # Errors
    /// As [`BootSet::decode`].
    pub fn decode_unnamed(bytes: &[u8]) -> Result<(BlockId, Self)> {
        let head = BootSetHead::decode(bytes)?;
        let (own, mut rest) = bytes.split_at(head.length);
        let id = BlockId::of(Kind::BootSet, own);
        let mut parts = Vec::with_capacity(head.parts.len());
        for rows in part_rows(head.count()) {
            let length = PART_HEADER_LENGTH + rows * ROW_LENGTH;
            let (part, after) = rest.split_at_checked(length).ok_or_else(|| corrupt("truncated"))?;
            rest = after;
            parts.push(part);
        }
        if !rest.is_empty() {
            return Err(corrupt("trailing bytes"));
        }
        for (part, name) in parts.iter().zip(&head.parts) {
            if BlockId::of(Kind::BootSet, part) != *name {
                return Err(corrupt("a part does not match its name"));
            }
        }
        Ok((id, head.assemble(parts.into_iter())?))
    }

    /// Returns the total bytes of its pages and blocks.
    pub fn length(&self) -> u64 {
        self.pages.iter().chain(&self.blocks).map(BootBlock::length).sum()
    }

    /// Returns an error when counts disagree, the root is missing, or a block is listed twice.
    fn check(&self) -> Result<()> {
        let counts = (self.pages.len(), self.blocks.len());
        if counts != (self.record.pages as usize, self.record.blocks as usize) {
            return Err(corrupt("the numbers of pages and blocks disagree"));
        }
        if self.length() != self.record.bytes {
            return Err(corrupt("the total length is wrong"));
        }
        if self.pages.first().is_none_or(|root| root.id != self.record.score.0) {
            return Err(corrupt("the first page is not the root of the recipe"));
        }
        let mut seen = HashSet::with_capacity(counts.0 + counts.1);
        let mut rows = self.pages.iter().chain(&self.blocks);
        let most = (BLOCK_LENGTH_MAX / SECTOR) as u8;
        if !rows.all(|row| (1..=most).contains(&row.sectors) && seen.insert(row.id)) {
            return Err(corrupt("a block is listed twice, or has an impossible length"));
        }
        if self.record.version.number == 0 || self.record.version.number > i64::MAX as u64 {
            return Err(corrupt("impossible version number"));
        }
        Ok(())
    }
}

impl EncodedBootSet {
    /// Returns the head followed by the parts, as [`BootSet::decode`] takes them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        self.parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }

    /// Encodes the frames that store it. The head's frame comes last.
    ///
    /// # Errors
    /// When compression fails.
    pub fn frames(&self) -> Result<Vec<EncodedFrame>> {
        let mut compressor = Compressor::new(LEVEL)?;
        let builder = || FrameBuilder::new(Kind::BootSet, Domain::SHARED, RAW_LENGTH_DEFAULT);
        let mut frames = Vec::new();
        let mut frame = builder();
        for part in &self.parts {
            if frame.is_full_for(part.len()) {
                frames.push(frame.take().encode(&mut compressor)?);
            }
            frame.push(BlockId::of(Kind::BootSet, part), part);
        }
        if !frame.is_empty() {
            frames.push(frame.encode(&mut compressor)?);
        }
        let mut last = builder();
        last.push(self.id, &self.head);
        frames.push(last.encode(&mut compressor)?);
        Ok(frames)
    }
}

impl BootSetHead {
    /// Parses the head at the start of `bytes`.
    ///
    /// # Errors
    /// As [`BootSet::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let (head, rest) = bytes.split_at_checked(HEAD_LENGTH).ok_or_else(|| corrupt("too short"))?;
        if head[..4] != HEAD_MAGIC {
            return Err(corrupt("wrong magic number"));
        }
        check_version(head)?;
        let parts = usize::from(u16::from_le_bytes([head[6], head[7]]));
        let text_length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        if parts > PARTS_MAX || text_length > TEXT_LENGTH_MAX {
            return Err(corrupt("impossible lengths"));
        }
        let (text, rest) = rest.split_at_checked(text_length).ok_or_else(|| corrupt("truncated"))?;
        let names = rest.get(..parts * BlockId::LEN).ok_or_else(|| corrupt("truncated"))?;
        let record: BootSetRecord =
            serde_json::from_slice(text).map_err(|error| corrupt("invalid JSON").with_source(error))?;
        let parts = platter_image::frame::stream::ids(names)?;
        let head = Self { record, length: HEAD_LENGTH + text_length + names.len(), parts };
        if head.count() > BOOT_SET_BLOCKS_MAX || head.count().div_ceil(PART_ROWS) != head.parts.len() {
            return Err(corrupt("the number of parts does not match the number of blocks"));
        }
        Ok(head)
    }

    /// Returns whether `bytes` begin with the magic of a head.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&HEAD_MAGIC)
    }

    /// Assembles the boot set from its parts. The caller has checked the parts against their names.
    ///
    /// # Errors
    /// `Corrupt` when a part is missing or invalid.
    pub fn assemble<'a>(self, parts: impl Iterator<Item = &'a [u8]>) -> Result<BootSet> {
        let mut rows = Vec::with_capacity(self.count());
        for (part, count) in parts.zip(part_rows(self.count())) {
            decode_part(part, count, &mut rows)?;
        }
        if rows.len() != self.count() {
            return Err(corrupt("a part is missing"));
        }
        let blocks = rows.split_off(self.record.pages as usize);
        let set = BootSet { record: self.record, pages: rows, blocks };
        set.check()?;
        Ok(set)
    }

    /// Returns the number of pages and blocks together.
    fn count(&self) -> usize {
        (self.record.pages as usize).saturating_add(self.record.blocks as usize)
    }
}

/// Returns the number of rows of each part.
fn part_rows(count: usize) -> impl Iterator<Item = usize> {
    (0..count.div_ceil(PART_ROWS)).map(move |part| (count - part * PART_ROWS).min(PART_ROWS))
}

fn encode_part(rows: &[&BootBlock]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PART_HEADER_LENGTH + rows.len() * ROW_LENGTH);
    out.extend_from_slice(&PART_MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&(rows.len() as u16).to_le_bytes());
    for row in rows {
        out.extend_from_slice(&row.id.0);
        out.push(row.sectors);
    }
    out
}

fn decode_part(part: &[u8], count: usize, rows: &mut Vec<BootBlock>) -> Result<()> {
    let (head, body) = part.split_at_checked(PART_HEADER_LENGTH).ok_or_else(|| corrupt("truncated"))?;
    if head[..4] != PART_MAGIC {
        return Err(corrupt("a part has a wrong magic number"));
    }
    check_version(head)?;
    if usize::from(u16::from_le_bytes([head[6], head[7]])) != count || body.len() != count * ROW_LENGTH {
        return Err(corrupt("a part has a wrong length"));
    }
    rows.extend(body.chunks_exact(ROW_LENGTH).map(|row| {
        let mut id = BlockId([0; BlockId::LEN]);
        id.0.copy_from_slice(&row[..BlockId::LEN]);
        BootBlock { id, sectors: row[BlockId::LEN] }
    }));
    Ok(())
}

fn check_version(head: &[u8]) -> Result<()> {
    match u16::from_le_bytes([head[4], head[5]]) {
        FORMAT_VERSION => Ok(()),
        version => Err(Error::refused(format!(
            "boot set of format {version}: this Platter supports format {FORMAT_VERSION}, use a newer Platter"
        ))),
    }
}

fn corrupt(what: impl fmt::Display) -> Error {
    Error::corrupt(format!("boot set: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::ErrorKind;
    use platter_image::frame::FrameDecoder;
    use proptest::prelude::*;

    fn row(number: u32) -> BootBlock {
        BootBlock::new(BlockId::of(Kind::Data, &number.to_le_bytes()), u64::from(number % 128 + 1) * 512)
    }

    fn set(pages: u32, blocks: u32) -> BootSet {
        let score = Score(row(0).id);
        let rows: Vec<BootBlock> = (0..pages + blocks).map(row).collect();
        let record = BootSetRecord {
            version: VersionName { image: "lab/debian12".parse().unwrap(), number: 7 },
            score,
            marker: "serial:login:".into(),
            command: "qemu-system-x86_64 -m 1024".into(),
            accelerator: "tcg".into(),
            time_unix_ms: 1_700_000_000_123,
            duration_ms: 61_000,
            requests: 3000,
            bytes_read: 1 << 27,
            pages,
            blocks,
            bytes: rows.iter().map(BootBlock::length).sum(),
            tool_version: "platter 0.1.0".into(),
            boots: 0,
            nodes: Vec::new(),
        };
        let (pages, blocks) = rows.split_at(pages as usize);
        BootSet { record, pages: pages.to_vec(), blocks: blocks.to_vec() }
    }

    fn kind_of(id: &BlockId, bytes: &[u8]) -> ErrorKind {
        BootSet::decode(id, bytes).unwrap_err().kind()
    }

    /// These bytes are a golden vector: the format must not change.
    #[test]
    fn bytes_are_frozen() {
        let set = set(2, 5);
        let encoded = set.encode().unwrap();
        assert_eq!(encoded.to_bytes(), include_bytes!("../golden/boot-set-v1.bin"));
        assert_eq!(BootSet::decode(&encoded.id, &encoded.to_bytes()).unwrap(), set);
        assert_eq!(set.length(), (1 + 2 + 3 + 4 + 5 + 6 + 7) * 512);
    }

    #[test]
    fn any_number_of_parts_is_decoded_in_order() {
        for blocks in [0, 1, PART_ROWS as u32 - 1, PART_ROWS as u32, 3 * PART_ROWS as u32 + 5] {
            let set = set(1, blocks);
            let encoded = set.encode().unwrap();
            let bytes = encoded.to_bytes();
            assert_eq!(BootSet::decode(&encoded.id, &bytes).unwrap(), set, "{blocks}");
            assert_eq!(kind_of(&encoded.id, &bytes[..bytes.len() - 1]), ErrorKind::Corrupt);
            assert_eq!(kind_of(&encoded.id, &[&bytes[..], &[0]].concat()), ErrorKind::Corrupt);
            assert_eq!(kind_of(&BlockId([1; 32]), &bytes), ErrorKind::Corrupt);
            let frames = encoded.frames().unwrap();
            let last = frames.last().unwrap();
            assert_eq!((last.kind, last.blocks[0].id, last.blocks.len()), (Kind::BootSet, encoded.id, 1));
            let mut decoder = FrameDecoder::new().unwrap();
            for frame in &frames {
                decoder.decode(&frame.stored, platter_image::frame::Verify::Hashes).unwrap();
            }
        }
        let error = set(1, BOOT_SET_BLOCKS_MAX as u32).encode().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let encoded = set(2, 5).encode().unwrap();
        let good = encoded.to_bytes();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x41;
            assert!(BootSet::decode(&encoded.id, &bad).is_err(), "byte {at}");
            assert!(BootSet::decode(&encoded.id, &good[..at]).is_err());
        }
        let mut newer = good;
        newer[4] = 2;
        assert_eq!(kind_of(&encoded.id, &newer), ErrorKind::Refused);
    }

    /// A list that names a block twice, lacks the root or has wrong counts is refused, even when its hash matches its name.
    #[test]
    fn invalid_boot_sets_are_neither_encoded_nor_decoded() {
        let good = set(2, 5);
        let spoiled: [fn(&mut BootSet); 6] = [
            |set| set.blocks[1] = set.blocks[0],
            |set| set.blocks[1].id = set.pages[1].id,
            |set| set.record.bytes += 512,
            |set| set.record.blocks = 6,
            |set| set.pages[0] = row(99),
            |set| set.blocks[0].sectors = 129,
        ];
        for spoil in spoiled {
            let mut bad = good.clone();
            spoil(&mut bad);
            assert_eq!(bad.encode().unwrap_err().kind(), ErrorKind::Bug);
        }
        let twice = [row(0), row(1), row(1)];
        let part = encode_part(&twice.iter().collect::<Vec<_>>());
        let head = BootSetHead {
            record: BootSetRecord { pages: 1, blocks: 2, bytes: 5 * 512, ..good.record },
            parts: vec![BlockId::of(Kind::BootSet, &part)],
            length: 0,
        };
        assert_eq!(head.assemble([&part[..]].into_iter()).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = bytes;
            let _ = BootSet::decode(&BlockId([0; 32]), &bytes);
            bytes.splice(0..0, [&HEAD_MAGIC[..], &[1, 0, 1, 0]].concat());
            let _ = BootSet::decode(&BlockId([0; 32]), &bytes);
        }
    }
}
