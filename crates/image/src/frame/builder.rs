//! Collects blocks into a frame and encodes it.

use zstd_safe::CCtx;

use super::format::{Codec, FrameHeader, ListedBlock, domain_in, may_have_length};
use super::{BLOCKS_MAX, Cipher, RAW_LENGTH_MAX};
use crate::{BlockId, Domain, Error, Kind, Result};

/// Blocks being collected for one frame.
#[derive(Debug)]
pub struct FrameBuilder {
    kind: Kind,
    domain: Domain,
    target: usize,
    blocks: Vec<ListedBlock>,
    raw: Vec<u8>,
}

/// A frame as it is stored and sent.
#[derive(Clone, Debug)]
pub struct EncodedFrame {
    /// The kind of its blocks.
    pub kind: Kind,
    /// Header, list and payload.
    pub stored: Vec<u8>,
    /// Its blocks, in order.
    pub blocks: Vec<ListedBlock>,
    /// Bytes of its blocks before compression.
    pub raw_length: u32,
}

impl EncodedFrame {
    /// The identity domain that its header names.
    ///
    /// # Errors
    /// `Corrupt` when it has no header.
    pub fn domain(&self) -> Result<Domain> {
        let fixed = self.stored.first_chunk().ok_or_else(|| Error::corrupt("frame: it has no header"))?;
        Ok(domain_in(fixed))
    }
}

impl FrameBuilder {
    /// An empty frame that is full at about `target` bytes before compression.
    pub fn new(kind: Kind, domain: Domain, target: usize) -> Self {
        let target = target.clamp(1, RAW_LENGTH_MAX);
        Self { kind, domain, target, blocks: Vec::new(), raw: Vec::with_capacity(target) }
    }

    /// Whether a block of `length` bytes should go into the next frame instead.
    pub fn is_full_for(&self, length: usize) -> bool {
        let over = self.raw.len() + length > self.target || self.blocks.len() == BLOCKS_MAX;
        !self.blocks.is_empty() && over
    }

    /// Whether it contains no block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds a block. The caller has computed `id` from these contents.
    ///
    /// # Panics
    /// If [`FrameBuilder::is_full_for`] is true for the block, or its length is not allowed.
    pub fn push(&mut self, id: BlockId, contents: &[u8]) {
        assert!(may_have_length(self.kind, contents.len() as u32), "a block of {} bytes", contents.len());
        assert!(!self.is_full_for(contents.len()), "the frame is full");
        self.blocks.push(ListedBlock { id, length: contents.len() as u32 });
        self.raw.extend_from_slice(contents);
    }

    /// Returns the collected blocks and starts a new frame with the same settings.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.kind, self.domain, self.target))
    }

    /// Encodes the frame; compresses it if that makes it smaller, then encrypts it in an encrypted domain.
    ///
    /// # Errors
    /// `Bug` when the compressor fails, or its output does not decompress to the input (design: frames); `Refused` when this
    /// process lacks the key of the domain.
    pub fn encode(self, compressor: &mut Compressor) -> Result<EncodedFrame> {
        let encrypts = self.domain.encrypts(self.kind);
        let cipher = if encrypts { Cipher::of_new_frames() } else { Cipher::None };
        self.encode_with(cipher, compressor)
    }

    /// As [`FrameBuilder::encode`], with this cipher.
    pub(super) fn encode_with(self, cipher: Cipher, compressor: &mut Compressor) -> Result<EncodedFrame> {
        let mut sealed = std::mem::take(&mut compressor.sealed);
        let compressed = compressor.compress(&self.raw)?;
        let (codec, payload) = match compressed {
            Some(payload) => (Codec::Zstd, payload),
            None => (Codec::Raw, &self.raw[..]),
        };
        let mut header = FrameHeader::new(self.kind, codec, cipher, self.domain, self.blocks, payload.len());
        let payload = if cipher == Cipher::None {
            payload
        } else {
            let ids: Vec<u8> = header.blocks.iter().flat_map(|block| block.id.0).collect();
            self.domain.keys()?.seal(cipher, &header.binding(), &ids, payload, &mut sealed)?;
            &sealed
        };
        header.set_payload(payload);
        let mut stored = Vec::with_capacity(header.stored_length());
        header.write(&mut stored);
        stored.extend_from_slice(payload);
        compressor.sealed = sealed;
        Ok(EncodedFrame { kind: self.kind, stored, raw_length: header.raw_length, blocks: header.blocks })
    }
}

/// A zstd context and its buffers, reused from frame to frame: creating one costs as much as compressing a
/// frame.
pub struct Compressor {
    context: CCtx<'static>,
    compressed: Vec<u8>,
    checker: zstd_safe::DCtx<'static>,
    checked: Vec<u8>,
    /// The encrypted payload.
    sealed: Vec<u8>,
}

impl Compressor {
    /// A compressor with that zstd level, from 1 (fast) to 19 (small); 3 is the default everywhere.
    ///
    /// # Errors
    /// `Refused` for a level out of range, `Bug` when zstd cannot allocate memory.
    pub fn new(level: i32) -> Result<Self> {
        if !(1..=19).contains(&level) {
            return Err(Error::refused(format!("compression level {level}: choose 1 to 19")));
        }
        let failed = || Error::bug("zstd has no memory for a context");
        let mut context = CCtx::try_create().ok_or_else(failed)?;
        context.set_parameter(zstd_safe::CParameter::CompressionLevel(level)).map_err(zstd_failed)?;
        Ok(Self {
            context,
            compressed: Vec::with_capacity(zstd_safe::compress_bound(RAW_LENGTH_MAX)),
            checker: zstd_safe::DCtx::try_create().ok_or_else(failed)?,
            checked: Vec::with_capacity(RAW_LENGTH_MAX),
            sealed: Vec::new(),
        })
    }

    /// The compressed form of `raw`, or `None` if compression saves less than 1/64.
    fn compress(&mut self, raw: &[u8]) -> Result<Option<&[u8]>> {
        self.compressed.clear();
        self.context.compress2(&mut self.compressed, raw).map_err(zstd_failed)?;
        if self.compressed.len() + raw.len() / 64 >= raw.len() {
            return Ok(None);
        }
        self.checked.clear();
        self.checker.decompress(&mut self.checked, &self.compressed).map_err(zstd_failed)?;
        if self.checked != raw {
            return Err(Error::bug(
                "compressed data does not decompress to the original: check this machine's memory",
            ));
        }
        Ok(Some(&self.compressed))
    }
}

fn zstd_failed(code: usize) -> Error {
    Error::bug(format!("zstd: {}", zstd_safe::get_error_name(code)))
}
