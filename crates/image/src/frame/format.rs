//! The format of a frame's header, encoded and decoded only here. `docs/formats/frame.md` has the layout.

use std::hash::Hasher;
use std::ops::Range;

use twox_hash::XxHash3_64;

use super::packed::packed_length;
use crate::chunking::BLOCK_LENGTH_MAX;
use crate::cipher::Cipher;
use crate::domain::SEAL_LENGTH;
use crate::fields::{u32_at, u64_at};
use crate::{BlockId, Domain, Error, Kind, Result, SECTOR};

/// The first bytes of every frame.
pub(super) const MAGIC: [u8; 4] = *b"PLfr";
const FORMAT_VERSION: u8 = 1;
/// Bytes per listed block: id and length.
pub(super) const LISTED_LENGTH: usize = BlockId::LEN + 4;

/// Bytes of the fixed part of the header, before the list of blocks.
pub const HEADER_LENGTH: usize = 56;
/// The most bytes of blocks in one frame, before compression.
pub const RAW_LENGTH_MAX: usize = 256 << 10;
/// The most blocks in one frame.
pub const BLOCKS_MAX: usize = RAW_LENGTH_MAX / SECTOR as usize;
/// The most bytes of one stored frame.
pub const STORED_LENGTH_MAX: usize =
    HEADER_LENGTH + BLOCKS_MAX * LISTED_LENGTH + RAW_LENGTH_MAX + SEAL_LENGTH;

/// How the payload is encoded. The values are stored in headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// Not compressed.
    Raw = 0,
    /// One zstd frame (RFC 8878).
    Zstd = 1,
}

/// Bytes by which a cipher makes a payload longer.
fn overhead(cipher: Cipher) -> u32 {
    if cipher == Cipher::None { 0 } else { SEAL_LENGTH as u32 }
}

/// A block as listed in its frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedBlock {
    /// Its id.
    pub id: BlockId,
    /// Its length in bytes.
    pub length: u32,
}

/// A decoded header: every field is within its limits, and the header's checksum was correct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The kind of the blocks.
    pub kind: Kind,
    /// How the payload is encoded.
    pub codec: Codec,
    /// How it is encrypted, after it was encoded.
    pub cipher: Cipher,
    /// Identity domain of the ids.
    pub domain: Domain,
    /// Total bytes of all blocks; at most [`RAW_LENGTH_MAX`].
    pub raw_length: u32,
    /// Bytes of the stored payload; without the overhead of encryption at most `raw_length`.
    pub payload_length: u32,
    /// Checksum of the stored payload.
    pub(super) payload_checksum: u64,
    /// The blocks, in the order of the payload.
    pub blocks: Vec<ListedBlock>,
}

impl FrameHeader {
    /// The header of a frame whose payload will have that length after encoding, before encryption. Its checksum is set by
    /// [`FrameHeader::set_payload`].
    pub(super) fn new(
        kind: Kind,
        codec: Codec,
        cipher: Cipher,
        domain: Domain,
        blocks: Vec<ListedBlock>,
        encoded_length: usize,
    ) -> Self {
        Self {
            kind,
            codec,
            cipher,
            domain,
            raw_length: blocks.iter().map(|block| block.length).sum(),
            payload_length: encoded_length as u32 + overhead(cipher),
            payload_checksum: 0,
            blocks,
        }
    }

    /// Sets the checksum of the payload as stored.
    pub(super) fn set_payload(&mut self, payload: &[u8]) {
        self.payload_checksum = checksum(&[payload]);
    }

    /// What encryption authenticates with the payload: all fields of the header before the checksums, and the lengths of the
    /// blocks. The ids are not part of it, because a pack without a footer does not have them. They are keyed hashes of
    /// the contents, and every block of an encrypted frame is hashed when it is decoded.
    pub(super) fn binding(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(40 + 4 * self.blocks.len());
        self.write_fields(&mut out);
        self.blocks.iter().for_each(|block| out.extend_from_slice(&block.length.to_le_bytes()));
        out
    }

    /// Bytes of the header, including the list.
    pub fn length(&self) -> usize {
        HEADER_LENGTH + self.blocks.len() * LISTED_LENGTH
    }

    /// Bytes of the whole stored frame.
    pub fn stored_length(&self) -> usize {
        self.length() + self.payload_length as usize
    }

    /// Bytes of the frame in a pack.
    pub fn packed_length(&self) -> usize {
        packed_length(self.stored_length(), self.blocks.len())
    }

    /// Returns where the block of that slot is in the payload, if the payload is stored as it is.
    pub fn raw_block(&self, slot: u32) -> Option<Range<usize>> {
        let block = self.blocks.get(slot as usize)?;
        let start: usize = self.blocks.iter().take(slot as usize).map(|block| block.length as usize).sum();
        let is_raw = self.codec == Codec::Raw && self.cipher == Cipher::None;
        is_raw.then_some(start..start + block.length as usize)
    }

    /// Appends the encoded header to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.write_fields(out);
        out.extend_from_slice(&self.payload_checksum.to_le_bytes());
        let checksum_at = out.len();
        out.extend_from_slice(&[0; 8]);
        for block in &self.blocks {
            out.extend_from_slice(&block.id.0);
            out.extend_from_slice(&block.length.to_le_bytes());
        }
        let sum = checksum(&[&out[start..checksum_at], &out[checksum_at + 8..]]);
        out[checksum_at..checksum_at + 8].copy_from_slice(&sum.to_le_bytes());
    }

    /// Appends the fields before the checksums.
    fn write_fields(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[FORMAT_VERSION, self.kind as u8, self.codec as u8, self.cipher as u8]);
        out.extend_from_slice(&self.raw_length.to_le_bytes());
        out.extend_from_slice(&self.payload_length.to_le_bytes());
        out.extend_from_slice(&(self.blocks.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.domain.0);
    }

    /// From the fixed part alone: the length of header and list, needed before [`FrameHeader::parse`], and
    /// the length of the whole frame.
    ///
    /// # Errors
    /// `Corrupt` when it is not a frame, or a length exceeds its limit.
    pub fn peek_lengths(fixed: &[u8]) -> Result<(usize, usize)> {
        let (blocks, payload_length) = peek(fixed, MAGIC)?;
        let length = HEADER_LENGTH + blocks * LISTED_LENGTH;
        Ok((length, length + payload_length))
    }

    /// Decodes the header at the start of `stored`; the payload may follow.
    ///
    /// # Errors
    /// `Corrupt` when the checksum is wrong or a field is invalid.
    pub fn parse(stored: &[u8]) -> Result<Self> {
        let corrupt = |what: String| Error::corrupt(format!("frame header: {what}"));
        let (length, _) = Self::peek_lengths(stored)?;
        let header = stored.get(..length).ok_or_else(|| corrupt("its list is truncated".into()))?;
        let sum = checksum(&[&header[..48], &header[HEADER_LENGTH..]]);
        if sum != u64_at(header, 48) {
            return Err(corrupt("checksum mismatch".into()));
        }
        Self::parse_fields(header)
    }

    /// Decodes a header without checking its checksum, which may not be set yet. `header` has the length from
    /// [`FrameHeader::peek_lengths`].
    pub(super) fn parse_fields(header: &[u8]) -> Result<Self> {
        let corrupt = |what: String| Error::corrupt(format!("frame header: {what}"));
        let kind = Kind::from_u8(header[5]).ok_or_else(|| corrupt(format!("unknown kind {}", header[5])))?;
        let codec = match header[6] {
            0 => Codec::Raw,
            1 => Codec::Zstd,
            other => return Err(corrupt(format!("unknown codec {other}"))),
        };
        let cipher = cipher_of(header)?;
        let (raw_length, payload_length) = (u32_at(header, 8), u32_at(header, 12));
        let encoded_length = payload_length.saturating_sub(overhead(cipher));
        if codec == Codec::Raw && raw_length != encoded_length {
            return Err(corrupt(format!(
                "{raw_length} raw bytes, but {encoded_length} stored without compression"
            )));
        }
        let blocks: Vec<ListedBlock> =
            header[HEADER_LENGTH..].chunks_exact(LISTED_LENGTH).map(listed).collect();
        let total: u64 = blocks.iter().map(|block| u64::from(block.length)).sum();
        if total != u64::from(raw_length) || !blocks.iter().all(|block| may_have_length(kind, block.length)) {
            return Err(corrupt(format!(
                "invalid block lengths: {total} bytes in total, {raw_length} stated"
            )));
        }
        let mut domain = Domain::SHARED;
        domain.0.copy_from_slice(&header[24..40]);
        Ok(Self {
            kind,
            codec,
            cipher,
            domain,
            raw_length,
            payload_length,
            payload_checksum: u64_at(header, 40),
            blocks,
        })
    }

    /// The payload after the header in `stored`, with its checksum verified.
    ///
    /// # Errors
    /// `Corrupt` when it is truncated or the checksum is wrong.
    pub fn payload<'a>(&self, stored: &'a [u8]) -> Result<&'a [u8]> {
        let payload = self.unverified_payload(stored)?;
        self.check_payload(payload)?;
        Ok(payload)
    }

    /// As [`FrameHeader::payload`], without verifying anything.
    pub(super) fn unverified_payload<'a>(&self, stored: &'a [u8]) -> Result<&'a [u8]> {
        stored.get(self.length()..self.stored_length()).ok_or_else(|| {
            Error::corrupt(format!(
                "frame: the payload is truncated: the frame has only {} bytes",
                stored.len()
            ))
        })
    }

    /// Verifies the checksum of the payload.
    pub(super) fn check_payload(&self, payload: &[u8]) -> Result<()> {
        match checksum(&[payload]) == self.payload_checksum {
            true => Ok(()),
            false => Err(Error::corrupt("frame: payload checksum mismatch")),
        }
    }
}

/// Number of blocks and payload length from the fixed part of a header; both are within their limits.
pub(super) fn peek(fixed: &[u8], magic: [u8; 4]) -> Result<(usize, usize)> {
    let corrupt = |what: String| Error::corrupt(format!("frame header: {what}"));
    if fixed.len() < HEADER_LENGTH {
        return Err(corrupt(format!("{} bytes, at least {HEADER_LENGTH} expected", fixed.len())));
    }
    if fixed[..4] != magic {
        return Err(corrupt(format!("wrong magic {:02x?}", &fixed[..4])));
    }
    if fixed[4] != FORMAT_VERSION {
        return Err(corrupt(format!("format version {}, supported is {FORMAT_VERSION}", fixed[4])));
    }
    let (raw_length, payload_length, blocks) = (u32_at(fixed, 8), u32_at(fixed, 12), u32_at(fixed, 16));
    let overhead = overhead(cipher_of(fixed)?);
    let fits = raw_length as usize <= RAW_LENGTH_MAX
        && (overhead..=raw_length.saturating_add(overhead)).contains(&payload_length);
    if !fits || blocks as usize > BLOCKS_MAX {
        return Err(corrupt(format!(
            "lengths out of bounds: {raw_length} raw, {payload_length} stored, {blocks} blocks"
        )));
    }
    Ok((blocks as usize, payload_length as usize))
}

/// The cipher that a header of at least [`HEADER_LENGTH`] bytes names.
fn cipher_of(header: &[u8]) -> Result<Cipher> {
    match header[7] {
        0 => Ok(Cipher::None),
        1 => Ok(Cipher::XChaCha20Poly1305),
        2 => Ok(Cipher::XAes256Gcm),
        other => Err(Error::corrupt(format!("frame header: unknown cipher {other}"))),
    }
}

/// The identity domain in the fixed part of a header, of a whole frame or one in a pack. Nothing is verified.
pub fn domain_in(fixed: &[u8; HEADER_LENGTH]) -> Domain {
    let mut domain = Domain::SHARED;
    domain.0.copy_from_slice(&fixed[24..40]);
    domain
}

/// The ids in a whole frame's list, for writing.
pub(super) fn ids_mut(stored: &mut [u8], blocks: usize) -> impl Iterator<Item = &mut [u8]> {
    let list = stored[HEADER_LENGTH..].chunks_exact_mut(LISTED_LENGTH).take(blocks);
    list.map(|listed| &mut listed[..BlockId::LEN])
}

fn listed(bytes: &[u8]) -> ListedBlock {
    let mut id = BlockId([0; 32]);
    id.0.copy_from_slice(&bytes[..32]);
    ListedBlock { id, length: u32_at(bytes, 32) }
}

/// Whether a block of that kind may have that length.
pub(super) fn may_have_length(kind: Kind, length: u32) -> bool {
    let sectors = kind != Kind::Data || u64::from(length).is_multiple_of(SECTOR);
    length > 0 && u64::from(length) <= BLOCK_LENGTH_MAX && sectors
}

fn checksum(parts: &[&[u8]]) -> u64 {
    match parts {
        [whole] => XxHash3_64::oneshot(whole),
        parts => {
            let mut hasher = XxHash3_64::new();
            parts.iter().for_each(|part| hasher.write(part));
            hasher.finish()
        }
    }
}
