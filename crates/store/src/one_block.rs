//! Reads one block of a frame.
//!
//! Pages do not compress, so their frames are usually stored raw, and a reader of a few files needs pages of many frames: then only the
//! header and the page itself are read. Must never return bytes whose hash was not compared with their name; whatever is unusual
//! about a frame is left to the reader of whole frames, which also reports damage.

use platter_image::{BlockId, BlockPlace, Error, FrameIndex, IoContext, Kind, Result, header_of, judged};

use crate::store::Shared;

impl Shared {
    /// Reads a block from `source`, which is this store or one of its sessions, and verifies its hash.
    pub(crate) fn read_block(&self, source: &dyn FrameIndex, kind: Kind, id: &BlockId) -> Result<Vec<u8>> {
        let place = source.locate(id)?;
        let place = place.ok_or_else(|| Error::missing(format!("{kind:?} {id} is not in the store")))?;
        if kind == Kind::Page
            && let Ok(Some(page)) = self.read_raw(source, kind, id, place)
        {
            return Ok(page);
        }
        let mut stored = Vec::new();
        source.read_frame(place.frame, &mut stored)?;
        let decoded = self
            .decoders
            .with(|decoder| decoder.decode_block(&stored, kind, place.slot, id).map(<[u8]>::to_vec));
        judged(source, place.frame, decoded).map_err(|error| {
            let pack = self.packs.get(place.frame.pack).map(|pack| pack.id.to_string()).unwrap_or_default();
            error.within(format!("{kind:?} {id} in pack {pack}, frame at offset {}", place.frame.offset))
        })
    }

    /// Reads a block that is stored raw, without the rest of its frame. `None`, or an error: the whole frame must be read.
    fn read_raw(
        &self,
        source: &dyn FrameIndex,
        kind: Kind,
        id: &BlockId,
        BlockPlace { frame, slot }: BlockPlace,
    ) -> Result<Option<Vec<u8>>> {
        let header = header_of(source, frame, &mut Vec::new())?;
        let is_listed = header.blocks.get(slot as usize).is_some_and(|block| block.id == *id);
        let Some(range) = header.raw_block(slot).filter(|_| is_listed && header.kind == kind) else {
            return Ok(None);
        };
        let mut contents = vec![0; range.len()];
        let payload_at = header.packed_length() - header.payload_length as usize;
        let offset = frame.offset + (payload_at + range.start) as u64;
        let file = self.packs.file(frame.pack)?;
        file.read_exact_at(&mut contents, offset).context(|| "reading a block".into())?;
        Ok((header.domain.id_of(kind, &contents)? == *id).then_some(contents))
    }
}
