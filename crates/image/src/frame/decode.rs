//! Decodes stored frames within their stated lengths, and verifies them.

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::Cipher;
use super::format::{Codec, FrameHeader, RAW_LENGTH_MAX, ids_mut};
use crate::{BlockId, Domain, Error, Kind, Result, SECTOR};

/// How much of a frame is verified (design: verify).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Hash every block and compare with its id: for frames from a device, an object store or the network. Checks the checksum of encrypted
    /// frames, too: whoever has no key of them relies on it.
    Hashes,
    /// Check only the checksum: for frames whose blocks this machine has hashed before. Encrypted frames are hashed all the
    /// same.
    Checksum,
}

/// A zstd context and buffers for one frame, reused from frame to frame.
pub struct FrameDecoder {
    context: DCtx<'static>,
    raw: Vec<u8>,
    /// The decrypted payload.
    opened: Vec<u8>,
}

impl FrameDecoder {
    /// Creates a decoder.
    ///
    /// # Errors
    /// `Bug` when zstd cannot allocate memory.
    pub fn new() -> Result<Self> {
        let mut context = DCtx::try_create().ok_or_else(|| Error::bug("zstd has no memory for a context"))?;
        context
            .set_parameter(DParameter::WindowLogMax(RAW_LENGTH_MAX.ilog2()))
            .map_err(|code| Error::bug(format!("zstd: {}", zstd_safe::get_error_name(code))))?;
        Ok(Self { context, raw: Vec::new(), opened: Vec::new() })
    }

    /// Decodes and verifies a whole frame. Returns its header and the contents of its blocks, concatenated.
    ///
    /// # Errors
    /// `Corrupt`, naming the failed check and the block.
    pub fn decode(&mut self, stored: &[u8], verify: Verify) -> Result<(FrameHeader, &[u8])> {
        let header = FrameHeader::parse(stored)?;
        if verify == Verify::Hashes {
            check_checksum(&header, stored)?;
        }
        self.decode_upto(&header, stored, header.raw_length as usize)?;
        if verify == Verify::Hashes || header.cipher != Cipher::None {
            let mut start = 0;
            for block in &header.blocks {
                let end = start + block.length as usize;
                check(header.domain, header.kind, block.id, &self.raw[start..end])?;
                start = end;
            }
        }
        Ok((header, &self.raw))
    }

    /// Decodes up to the block at `slot`, and returns that block, verified by its hash.
    ///
    /// # Errors
    /// `Corrupt` when the frame is damaged, has no such slot, or has another block or kind there.
    pub fn decode_block(&mut self, stored: &[u8], kind: Kind, slot: u32, id: &BlockId) -> Result<&[u8]> {
        let header = FrameHeader::parse(stored)?;
        let block = header.blocks.get(slot as usize);
        if header.kind != kind || block.is_none_or(|block| block.id != *id) {
            return Err(Error::corrupt(format!("frame: slot {slot} does not contain {kind:?} {id}")));
        }
        let lengths = header.blocks.iter().map(|block| block.length as usize);
        let end: usize = lengths.take(slot as usize + 1).sum();
        let start = end - header.blocks[slot as usize].length as usize;
        self.decode_upto(&header, stored, end)?;
        let contents = &self.raw[start..end];
        check(header.domain, kind, *id, contents)?;
        Ok(contents)
    }

    /// Decodes up to the block at `last`, or to the end if there are fewer blocks. The caller verifies each
    /// returned block, so one bad block does not make the others unusable.
    ///
    /// # Errors
    /// `Corrupt` when the frame is damaged or of another kind.
    pub fn decode_start(&mut self, stored: &[u8], kind: Kind, last: usize) -> Result<UnverifiedBlocks<'_>> {
        let header = FrameHeader::parse(stored)?;
        if header.kind != kind {
            return Err(Error::corrupt(format!("frame: its kind is {:?}, not {kind:?}", header.kind)));
        }
        let wanted =
            header.blocks.iter().take(last.saturating_add(1)).map(|block| block.length as usize).sum();
        self.decode_upto(&header, stored, wanted)?;
        Ok(UnverifiedBlocks { header, raw: &self.raw })
    }

    /// Computes the block ids of a frame by hashing its contents, and writes them into its list. The header's
    /// checksum, which covers the ids, then proves that the whole frame is correct, as decoding with
    /// [`Verify::Hashes`] would.
    ///
    /// # Errors
    /// `Corrupt`, naming the failed check; the contents of `stored` are then unspecified.
    pub fn name_blocks(&mut self, stored: &mut [u8]) -> Result<FrameHeader> {
        let (length, _) = FrameHeader::peek_lengths(stored)?;
        let header = stored.get(..length).ok_or_else(|| Error::corrupt("frame: its list is truncated"))?;
        let header = FrameHeader::parse_fields(header)?;
        check_checksum(&header, stored)?;
        self.decode_upto(&header, stored, header.raw_length as usize)?;
        let mut rest = &self.raw[..];
        for (block, id) in header.blocks.iter().zip(ids_mut(stored, header.blocks.len())) {
            let (contents, after) = rest.split_at(block.length as usize);
            rest = after;
            let name = header.domain.id_of(header.kind, contents)?;
            check_end(header.kind, name, contents)?;
            id.copy_from_slice(&name.0);
        }
        FrameHeader::parse(stored)
    }

    /// Returns the decoded contents and leaves an empty buffer.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.raw)
    }

    /// Sets the buffer to decode into; it will be cleared.
    pub fn reuse(&mut self, buffer: Vec<u8>) {
        self.raw = buffer;
    }

    /// Fills `self.raw` with the first `wanted` bytes of the blocks.
    fn decode_upto(&mut self, header: &FrameHeader, stored: &[u8], wanted: usize) -> Result<()> {
        let payload = header.unverified_payload(stored)?;
        if header.cipher == Cipher::None {
            header.check_payload(payload)?;
            return self.decompress(header, payload, wanted);
        }
        let keys = header.domain.keys()?;
        // The tag proves more than the checksum, which then only tells damage from a wrong key.
        let open = |opened: &mut Vec<u8>| {
            let opened = keys.open(header.cipher, &header.binding(), payload, opened);
            opened.map_err(|error| header.check_payload(payload).err().unwrap_or(error))
        };
        if header.codec == Codec::Raw {
            open(&mut self.raw)?;
            self.raw.truncate(wanted);
            return Ok(());
        }
        let mut opened = std::mem::take(&mut self.opened);
        let done = open(&mut opened).and_then(|()| self.decompress(header, &opened, wanted));
        self.opened = opened;
        done
    }

    fn decompress(&mut self, header: &FrameHeader, payload: &[u8], wanted: usize) -> Result<()> {
        if header.codec == Codec::Raw {
            self.raw.clear();
            self.raw.extend_from_slice(&payload[..wanted]);
            return Ok(());
        }
        let failed = |code| Error::corrupt(format!("frame: zstd: {}", zstd_safe::get_error_name(code)));
        self.context.reset(zstd_safe::ResetDirective::SessionOnly).map_err(failed)?;
        // The buffer is the limit: zstd cannot write past its end, and a frame that does not have its stated
        // length is refused.
        self.raw.clear();
        self.raw.reserve(wanted);
        let made = if wanted == header.raw_length as usize {
            self.context.decompress(&mut self.raw, payload).map_err(failed)?
        } else {
            let mut out = OutBuffer::around(&mut self.raw);
            let mut input = InBuffer::around(payload);
            while out.pos() < wanted {
                let before = (out.pos(), input.pos);
                self.context.decompress_stream(&mut out, &mut input).map_err(failed)?;
                if (out.pos(), input.pos) == before {
                    break;
                }
            }
            out.pos().min(wanted)
        };
        self.raw.truncate(wanted);
        if made != wanted {
            return Err(Error::corrupt(format!("frame: {made} bytes decoded, {wanted} expected")));
        }
        Ok(())
    }
}

/// Blocks decoded from the start of a frame but not hashed yet.
pub struct UnverifiedBlocks<'a> {
    header: FrameHeader,
    raw: &'a [u8],
}

impl UnverifiedBlocks<'_> {
    /// Bytes that were decoded.
    pub fn decoded_length(&self) -> usize {
        self.raw.len()
    }

    /// The blocks, in the order of the frame.
    pub fn iter(&self) -> impl Iterator<Item = UnverifiedBlock<'_>> {
        let mut rest = self.raw;
        self.header.blocks.iter().map_while(move |block| {
            let (contents, after) = rest.split_at_checked(block.length as usize)?;
            rest = after;
            let (domain, kind) = (self.header.domain, self.header.kind);
            Some(UnverifiedBlock { domain, kind, id: block.id, contents })
        })
    }
}

/// A block that was decoded but not hashed yet.
pub struct UnverifiedBlock<'a> {
    domain: Domain,
    kind: Kind,
    id: BlockId,
    contents: &'a [u8],
}

impl<'a> UnverifiedBlock<'a> {
    /// The id under which the frame lists it.
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// Hashes the contents and returns them.
    ///
    /// # Errors
    /// `Corrupt` when the hash does not match the id.
    pub fn verify(self) -> Result<&'a [u8]> {
        check(self.domain, self.kind, self.id, self.contents)?;
        Ok(self.contents)
    }
}

/// Checks the payload's checksum where decrypting does not.
fn check_checksum(header: &FrameHeader, stored: &[u8]) -> Result<()> {
    match header.cipher {
        Cipher::None => Ok(()),
        _ => header.check_payload(header.unverified_payload(stored)?),
    }
}

fn check(domain: Domain, kind: Kind, id: BlockId, contents: &[u8]) -> Result<()> {
    if domain.id_of(kind, contents)? != id {
        return Err(Error::corrupt(format!("{kind:?} {id}: the contents do not match the hash")));
    }
    check_end(kind, id, contents)
}

/// Checks that a data block does not end in a zero sector.
fn check_end(kind: Kind, id: BlockId, contents: &[u8]) -> Result<()> {
    let sector = SECTOR as usize;
    if kind == Kind::Data && contents[contents.len() - sector..].iter().all(|byte| *byte == 0) {
        return Err(Error::corrupt(format!("block {id} ends in a zero sector")));
    }
    Ok(())
}
