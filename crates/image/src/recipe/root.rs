//! The root of a recipe: properties of the whole disk, and its top page. Encoded and decoded only here.

use crate::page::{Child, Contents, LEVEL_MAX, zeros_span_log2_max};
use crate::{BlockId, Domain, Error, Kind, Result, SECTOR, Score};

const MAGIC: [u8; 4] = *b"PLrt";
const FORMAT_VERSION: u8 = 1;
const LENGTH: usize = 84;
/// The most bytes of a disk: the largest offset in a file.
const DISK_LENGTH_MAX: u64 = i64::MAX as u64;

/// How a disk was cut into blocks. Disks with the same policy share blocks; others hardly do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CutPolicy(pub u16);

impl CutPolicy {
    /// Files at multiples of 64 KiB of their own offsets, the rest on a 32 KiB grid (design: identity).
    pub const FILE_ALIGNED_64K_GRID_32K: Self = Self(1);
    /// Files at multiples of 32 KiB of their own offsets, the rest on a 32 KiB grid; for measurements.
    pub const FILE_ALIGNED_32K_GRID_32K: Self = Self(2);

    /// Files are cut at multiples of this many bytes of their own offsets; `None` for an unknown policy.
    pub fn file_alignment(self) -> Option<u64> {
        match self {
            Self::FILE_ALIGNED_64K_GRID_32K => Some(64 << 10),
            Self::FILE_ALIGNED_32K_GRID_32K => Some(32 << 10),
            _ => None,
        }
    }
}

/// The root of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// Length of the disk in bytes: a multiple of 512.
    pub disk_length: u64,
    /// Logical sector size of the disk in bytes: 512 or 4096.
    pub sector_size: u32,
    /// How the disk was cut.
    pub cut_policy: CutPolicy,
    /// Identity domain of all ids below.
    pub domain: Domain,
    /// The top page with its level; `None` for a disk that is entirely free.
    pub top: Option<(u8, Child)>,
}

impl Root {
    /// Encodes it. The bytes are a block of kind page, and their id is the score.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LENGTH);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[FORMAT_VERSION, u8::from(self.top.is_some())]);
        out.extend_from_slice(&self.cut_policy.0.to_le_bytes());
        out.extend_from_slice(&self.disk_length.to_le_bytes());
        out.extend_from_slice(&self.sector_size.to_le_bytes());
        out.extend_from_slice(&self.domain.0);
        let none = (0, Child { start: 0, span_log2: 0, id: BlockId([0; 32]) });
        let (level, child) = self.top.unwrap_or(none);
        out.extend_from_slice(&[level, child.span_log2]);
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&child.start.to_le_bytes());
        out.extend_from_slice(&child.id.0);
        out
    }

    /// The score of this root.
    ///
    /// # Errors
    /// `Refused` when this process lacks the key of the domain.
    pub fn score(&self) -> Result<Score> {
        self.domain.id_of(Kind::Page, &self.encode()).map(Score)
    }

    /// Refuses a page with contents past the end of the disk. The page's range may reach past the end,
    /// because ranges are powers of two.
    ///
    /// # Errors
    /// `Corrupt`, naming the page.
    pub fn check_page(&self, page: &Child, contents: &Contents) -> Result<()> {
        let end = match contents {
            Contents::Leaf(entries) => entries.last().map_or(0, |last| last.extent.end()),
            Contents::Branch(children) => children.last().map_or(0, |last| last.start.saturating_add(SECTOR)),
        };
        if end > self.disk_length {
            return Err(Error::corrupt(format!(
                "recipe page {} at offset {}: it reaches to {end}, past the end of the disk at {}",
                page.id, page.start, self.disk_length
            )));
        }
        Ok(())
    }

    /// Decodes the bytes that have that score.
    ///
    /// # Errors
    /// `Corrupt` when they are not a valid root.
    pub fn decode(score: Score, bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| Error::corrupt(format!("recipe root {score}: {what}"));
        let bytes: &[u8; LENGTH] = bytes.try_into().map_err(|_| corrupt("wrong length"))?;
        if bytes[..4] != MAGIC || bytes[4] != FORMAT_VERSION {
            return Err(corrupt("wrong magic or format version"));
        }
        let u64_at = |at: usize| (0..8).fold(0, |value, i| value | u64::from(bytes[at + i]) << (8 * i));
        let mut domain = Domain::SHARED;
        domain.0.copy_from_slice(&bytes[20..36]);
        let mut id = BlockId([0; 32]);
        id.0.copy_from_slice(&bytes[52..84]);
        let (level, child) = (bytes[36], Child { start: u64_at(44), span_log2: bytes[37], id });
        let root = Self {
            disk_length: u64_at(8),
            sector_size: u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]),
            cut_policy: CutPolicy(u16::from_le_bytes([bytes[6], bytes[7]])),
            domain,
            top: (bytes[5] != 0).then_some((level, child)),
        };
        let possible = level <= LEVEL_MAX && child.span_log2 <= zeros_span_log2_max(level);
        if !possible || !root.disk_length.is_multiple_of(SECTOR) || ![512, 4096].contains(&root.sector_size) {
            return Err(corrupt("invalid level, length or sector size"));
        }
        if root.disk_length > DISK_LENGTH_MAX
            || root.top.is_some_and(|(_, top)| top.start >= root.disk_length)
        {
            return Err(corrupt("the disk is too long, or its top page starts past its end"));
        }
        if root.encode() != bytes {
            return Err(corrupt("not canonical"));
        }
        Ok(root)
    }
}
