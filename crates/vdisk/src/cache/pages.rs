//! Decoded recipe pages in memory, by their ids. Clones and versions of a disk share most of them.

use std::sync::Arc;

use platter_image::page::{self, Child, Contents, Entry};
use platter_image::{BlockId, Error, Extent, Result};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::counters::Count;
use crate::source::{Source, retried};

/// Bytes that a page takes in addition to its entries.
const OVERHEAD: u64 = 256;
/// The usual length of a decoded page in bytes; it sets the initial size of the tables.
const USUAL_LENGTH: u64 = 16 << 10;

/// A decoded page.
pub(crate) struct Page {
    level: u8,
    range: Extent,
    contents: Contents,
}

impl Page {
    /// Its entries or children, sorted by offset.
    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<BlockId, Arc<Page>> for Weight {
    fn weight(&self, _: &BlockId, page: &Arc<Page>) -> u64 {
        let bytes = match &page.contents {
            Contents::Leaf(entries) => entries.capacity() * size_of::<Entry>(),
            Contents::Branch(children) => children.capacity() * size_of::<Child>(),
        };
        bytes as u64 + OVERHEAD
    }
}

/// The pages in memory.
pub(crate) struct PageCache {
    cache: Cache<BlockId, Arc<Page>, Weight>,
    decoded: Count,
}

impl PageCache {
    /// A cache for `bytes_max` bytes, overhead included.
    pub(super) fn new(bytes_max: u64) -> Result<Self> {
        let options = OptionsBuilder::new()
            .weight_capacity(bytes_max)
            .estimated_items_capacity((bytes_max / USUAL_LENGTH) as usize)
            .build()
            .map_err(|error| Error::bug("options of the page cache").with_source(error))?;
        let cache =
            Cache::with_options(options, Weight, DefaultHashBuilder::default(), DefaultLifecycle::default());
        Ok(Self { cache, decoded: Count::default() })
    }

    /// The page that a parent names as `child`, at that level. Concurrent requests read it once.
    ///
    /// # Errors
    /// `Missing` or `Corrupt`, naming the page; errors of the source.
    pub(crate) fn page(&self, source: &dyn Source, level: u8, child: &Child) -> Result<Arc<Page>> {
        let page = self.cache.get_or_insert_with(&child.id, || self.read(source, child))?;
        // The page may be cached for another recipe, while this one names it in the wrong place.
        if page.level != level || page.range != child.range() {
            return Err(Error::corrupt(format!(
                "recipe page {} is of level {} for offset {}, not of level {level} for {}",
                child.id, page.level, page.range.offset, child.start
            )));
        }
        Ok(page)
    }

    /// Whether a page is in memory.
    pub(crate) fn holds(&self, id: &BlockId) -> bool {
        self.cache.peek(id).is_some()
    }

    fn read(&self, source: &dyn Source, child: &Child) -> Result<Arc<Page>> {
        let bytes = retried(|| source.page(&child.id))?;
        let (level, mut contents) = page::decode(child, &bytes)?;
        match &mut contents {
            Contents::Leaf(entries) => entries.shrink_to_fit(),
            Contents::Branch(children) => children.shrink_to_fit(),
        }
        self.decoded.add(1);
        Ok(Arc::new(Page { level, range: child.range(), contents }))
    }

    /// Pages decoded so far.
    pub(super) fn decoded(&self) -> u64 {
        self.decoded.get()
    }

    /// Bytes that pages take, overhead included.
    pub(super) fn bytes_held(&self) -> u64 {
        self.cache.weight()
    }
}
