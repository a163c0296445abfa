//! Recipe pages out of the frames that hold them.

use parking_lot::Mutex;
use platter_image::frame::FrameDecoder;
use platter_image::{BlockId, Error, FoundBlock, Kind, Result, read_found};

/// Decoders kept between pages.
const DECODERS_KEPT_MAX: usize = 4;

/// Decodes pages, for many threads at once.
#[derive(Default)]
pub(crate) struct PageReader(Mutex<Vec<FrameDecoder>>);

impl PageReader {
    /// The page of that name, which `find` finds.
    ///
    /// # Errors
    /// `Missing` when nobody has it; what `find` says.
    pub(crate) fn page(
        &self,
        id: &BlockId,
        find: impl Fn() -> Result<Option<FoundBlock>>,
    ) -> Result<Vec<u8>> {
        let found = find()?.ok_or_else(|| Error::missing(format!("nobody has recipe page {id}")))?;
        read_found(found, find, |found| self.decode(id, found))
    }

    fn decode(&self, id: &BlockId, found: &FoundBlock) -> Result<Vec<u8>> {
        let mut stored = Vec::new();
        found.frame.read(&mut stored)?;
        let kept = self.0.lock().pop();
        let mut decoder = kept.map_or_else(FrameDecoder::new, Ok)?;
        let page = decoder.decode_block(&stored, Kind::Page, found.slot, id).map(<[u8]>::to_vec);
        let mut kept = self.0.lock();
        if kept.len() < DECODERS_KEPT_MAX {
            kept.push(decoder);
        }
        found.frame.judged(page)
    }
}
