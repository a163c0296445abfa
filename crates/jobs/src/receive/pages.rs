//! The received pages of a segment's recipe.
//!
//! Owns their limit: a sender announces how many chunks a recipe has, and nothing proves a page before all have arrived, so
//! the pages of a hostile sender must not fill the memory.

use std::collections::HashMap;

use platter_image::recipe::PageSource;
use platter_image::{BlockId, Error, Result};

/// Most bytes of a segment's pages in memory. 64 GiB of data in blocks of 4 KiB, each with a range of zeros or free space
/// after it, have 640 MiB of pages; usual blocks of 32 KiB have a tenth of that.
const PAGES_BYTES_MAX: usize = 1 << 30;

/// Received pages; only those reachable from the score are ever used.
pub(super) struct Pages {
    bytes: HashMap<BlockId, Vec<u8>>,
    /// Bytes that further pages may have.
    room: usize,
}

impl Default for Pages {
    fn default() -> Self {
        Self::with_room(PAGES_BYTES_MAX)
    }
}

impl Pages {
    fn with_room(room: usize) -> Self {
        Self { bytes: HashMap::new(), room }
    }

    /// Adds verified pages.
    ///
    /// # Errors
    /// `Refused` if all pages together exceed the limit.
    pub(super) fn add(&mut self, pages: Vec<(BlockId, Vec<u8>)>) -> Result<()> {
        for (id, page) in pages {
            // Short pages have an overhead, too.
            let length = page.len() + size_of::<(BlockId, Vec<u8>)>();
            if self.bytes.insert(id, page).is_some() {
                continue;
            }
            self.room = self.room.checked_sub(length).ok_or_else(|| {
                Error::refused(format!(
                    "the recipe of a segment has more than {PAGES_BYTES_MAX} bytes of pages: cast it in smaller segments"
                ))
            })?;
        }
        Ok(())
    }
}

impl PageSource for Pages {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.bytes
            .get(id)
            .cloned()
            .ok_or_else(|| Error::missing(format!("page {id} is missing in the recipe")))
    }
}

#[cfg(test)]
mod tests {
    use platter_image::ErrorKind;

    use super::*;

    #[test]
    fn all_pages_of_a_segment_are_limited() {
        let mut pages = Pages::with_room(2000);
        let page = |number: u8| (BlockId([number; 32]), vec![number; 800]);
        pages.add(vec![page(1)]).unwrap();
        pages.add(vec![page(1), page(2)]).unwrap();
        assert_eq!(pages.page(&page(2).0).unwrap(), page(2).1, "the same page counts once");
        assert_eq!(pages.add(vec![page(3)]).unwrap_err().kind(), ErrorKind::Refused);
        let mut short = Pages::with_room(2000);
        let empty = (0..100).map(|number| (BlockId([number; 32]), Vec::new())).collect();
        assert_eq!(short.add(empty).unwrap_err().kind(), ErrorKind::Refused);
    }
}
