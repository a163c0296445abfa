//! Keeps pages of a recipe that is walked twice: once to check that every block exists, once to write the disk.
//!
//! A page is read by decoding its whole frame, so the second walk would cost as much as the first. Pages are kept until
//! they are requested again, up to [`KEPT_BYTES`]; the rest of a larger recipe is read twice.

use parking_lot::Mutex;
use std::collections::HashMap;

use platter_image::recipe::PageSource;
use platter_image::{BlockId, Result};

/// Most bytes of kept pages: those of about 60 GB of data.
const KEPT_BYTES: usize = 16 << 20;

/// Pages of another source, each kept from its first request to the second.
pub(crate) struct KeptPages<'a, P: ?Sized> {
    pages: &'a P,
    kept: Mutex<PageBuffer>,
}

#[derive(Default)]
struct PageBuffer {
    pages: HashMap<BlockId, Vec<u8>>,
    bytes: usize,
}

impl<'a, P: PageSource + ?Sized> KeptPages<'a, P> {
    /// Creates an empty cache above this source.
    pub(crate) fn of(pages: &'a P) -> Self {
        Self { pages, kept: Mutex::default() }
    }
}

impl<P: PageSource + ?Sized> PageSource for KeptPages<'_, P> {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        let mut kept = self.kept.lock();
        if let Some(page) = kept.pages.remove(id) {
            kept.bytes -= page.len();
            return Ok(page);
        }
        drop(kept);
        let page = self.pages.page(id)?;
        let mut kept = self.kept.lock();
        if kept.bytes + page.len() <= KEPT_BYTES {
            let other = kept.pages.insert(*id, page.clone());
            kept.bytes += page.len() - other.map_or(0, |other| other.len());
        }
        Ok(page)
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        self.pages.will_need_pages(ids);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Counted(AtomicUsize);

    impl PageSource for Counted {
        fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(id.0.repeat(KEPT_BYTES / 64))
        }
    }

    #[test]
    fn a_page_is_read_once_for_two_walks_and_memory_is_bounded() {
        let below = Counted(AtomicUsize::new(0));
        let pages = KeptPages::of(&below);
        let ids: Vec<BlockId> = (0..3).map(|byte| BlockId([byte; 32])).collect();
        for walk in 0..2 {
            for id in &ids {
                assert_eq!(pages.page(id).unwrap()[..32], id.0, "walk {walk}");
                assert!(pages.kept.lock().bytes <= KEPT_BYTES);
            }
        }
        // Two of the three fit: the last one was read in each walk.
        assert_eq!(below.0.load(Ordering::Relaxed), 4);
        assert_eq!(pages.kept.lock().bytes, KEPT_BYTES / 2);
    }
}
