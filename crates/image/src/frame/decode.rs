//! Decodes stored frames within stated bounds, and verifies them.

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::format::{Codec, FrameHeader, RAW_LENGTH_MAX, ids_mut};
use crate::{BlockId, Error, Kind, Result, SECTOR};

/// How far a frame is trusted (design: verify).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// It comes from a device, an object store or a wire: hash every block, compare with its name.
    Hashes,
    /// Its blocks were hashed on this machine since it came in: the checksum suffices.
    Checksum,
}

/// A zstd context and a buffer for one decoded frame, kept from frame to frame.
pub struct FrameDecoder {
    context: DCtx<'static>,
    raw: Vec<u8>,
}

impl FrameDecoder {
    /// A decoder.
    ///
    /// # Errors
    /// `Bug` when zstd has no memory.
    pub fn new() -> Result<Self> {
        let mut context = DCtx::try_create().ok_or_else(|| Error::bug("zstd has no memory for a context"))?;
        context
            .set_parameter(DParameter::WindowLogMax(RAW_LENGTH_MAX.ilog2()))
            .map_err(|code| Error::bug(format!("zstd: {}", zstd_safe::get_error_name(code))))?;
        Ok(Self { context, raw: Vec::new() })
    }

    /// Decodes and verifies a whole frame; gives its header and the contents of its blocks, one after another.
    ///
    /// # Errors
    /// `Corrupt`, saying which check failed, and at which block.
    pub fn decode(&mut self, stored: &[u8], verify: Verify) -> Result<(FrameHeader, &[u8])> {
        let header = FrameHeader::parse(stored)?;
        self.decode_upto(&header, stored, header.raw_length as usize)?;
        if verify == Verify::Hashes {
            let mut start = 0;
            for block in &header.blocks {
                let end = start + block.length as usize;
                check(header.kind, block.id, &self.raw[start..end])?;
                start = end;
            }
        }
        Ok((header, &self.raw))
    }

    /// Decodes as far as the block at `slot` and gives that block alone, verified by its hash.
    ///
    /// # Errors
    /// `Corrupt` when the frame is damaged, has no such slot, or holds another block or kind there.
    pub fn decode_block(&mut self, stored: &[u8], kind: Kind, slot: u32, id: &BlockId) -> Result<&[u8]> {
        let header = FrameHeader::parse(stored)?;
        let block = header.blocks.get(slot as usize);
        if header.kind != kind || block.is_none_or(|block| block.id != *id) {
            return Err(Error::corrupt(format!("frame: slot {slot} is not {kind:?} {id}")));
        }
        let lengths = header.blocks.iter().map(|block| block.length as usize);
        let end: usize = lengths.take(slot as usize + 1).sum();
        let start = end - header.blocks[slot as usize].length as usize;
        self.decode_upto(&header, stored, end)?;
        let contents = &self.raw[start..end];
        check(kind, *id, contents)?;
        Ok(contents)
    }

    /// Decodes as far as the block at `last` (all of them when there are fewer) and gives these blocks, each to be
    /// verified by whoever takes it: one that lies does not make the others useless.
    ///
    /// # Errors
    /// `Corrupt` when the frame is damaged, or of another kind.
    pub fn decode_start(&mut self, stored: &[u8], kind: Kind, last: usize) -> Result<UnverifiedBlocks<'_>> {
        let header = FrameHeader::parse(stored)?;
        if header.kind != kind {
            return Err(Error::corrupt(format!("frame: of kind {:?}, not {kind:?}", header.kind)));
        }
        let wanted =
            header.blocks.iter().take(last.saturating_add(1)).map(|block| block.length as usize).sum();
        self.decode_upto(&header, stored, wanted)?;
        Ok(UnverifiedBlocks { header, raw: &self.raw })
    }

    /// Puts the names of its blocks into a frame whose list has others: hashes say what they are, and the header's
    /// checksum, which covers the names, whether it is all right. The frame is then as good as one that was decoded with
    /// [`Verify::Hashes`].
    ///
    /// # Errors
    /// `Corrupt`, saying which check failed; `stored` may then be anything.
    pub fn name_blocks(&mut self, stored: &mut [u8]) -> Result<FrameHeader> {
        let (length, _) = FrameHeader::peek_lengths(stored)?;
        let header = stored.get(..length).ok_or_else(|| Error::corrupt("frame: its list is cut short"))?;
        let header = FrameHeader::parse_fields(header)?;
        self.decode_upto(&header, stored, header.raw_length as usize)?;
        let mut rest = &self.raw[..];
        for (block, id) in header.blocks.iter().zip(ids_mut(stored, header.blocks.len())) {
            let (contents, after) = rest.split_at(block.length as usize);
            rest = after;
            let name = BlockId::of(header.kind, contents);
            check_end(header.kind, name, contents)?;
            id.copy_from_slice(&name.0);
        }
        FrameHeader::parse(stored)
    }

    /// Takes the decoded contents out, leaving an empty buffer.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.raw)
    }

    /// Puts a buffer to decode into: it is cleared and used again.
    pub fn reuse(&mut self, buffer: Vec<u8>) {
        self.raw = buffer;
    }

    /// Fills `self.raw` with at least the first `wanted` bytes of the blocks (all of them when `wanted` is all).
    fn decode_upto(&mut self, header: &FrameHeader, stored: &[u8], wanted: usize) -> Result<()> {
        let payload = header.payload(stored)?;
        if header.codec == Codec::Raw {
            self.raw.clear();
            self.raw.extend_from_slice(&payload[..wanted]);
            return Ok(());
        }
        let failed = |code| Error::corrupt(format!("frame: zstd: {}", zstd_safe::get_error_name(code)));
        self.context.reset(zstd_safe::ResetDirective::SessionOnly).map_err(failed)?;
        // The buffer is the cap: zstd cannot write past its end, and what is not as long as the header states is refused.
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
            return Err(Error::corrupt(format!("frame: {made} bytes decoded, {wanted} stated")));
        }
        Ok(())
    }
}

/// Blocks that were decoded from the start of a frame and not hashed yet.
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
            Some(UnverifiedBlock { kind: self.header.kind, id: block.id, contents })
        })
    }
}

/// A block that was decoded and not hashed yet.
pub struct UnverifiedBlock<'a> {
    kind: Kind,
    id: BlockId,
    contents: &'a [u8],
}

impl<'a> UnverifiedBlock<'a> {
    /// The name that its frame gives it.
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// Its contents, after hashing them.
    ///
    /// # Errors
    /// `Corrupt` when they are not what the name says.
    pub fn verify(self) -> Result<&'a [u8]> {
        check(self.kind, self.id, self.contents)?;
        Ok(self.contents)
    }
}

fn check(kind: Kind, id: BlockId, contents: &[u8]) -> Result<()> {
    if BlockId::of(kind, contents) != id {
        return Err(Error::corrupt(format!("{kind:?} {id}: contents do not have that hash")));
    }
    check_end(kind, id, contents)
}

/// Blocks of data have no zero sector at their end.
fn check_end(kind: Kind, id: BlockId, contents: &[u8]) -> Result<()> {
    let sector = SECTOR as usize;
    if kind == Kind::Data && contents[contents.len() - sector..].iter().all(|byte| *byte == 0) {
        return Err(Error::corrupt(format!("block {id} ends in a zero sector")));
    }
    Ok(())
}
