//! A recipe's tree as a virtual disk walks it: from any offset, over cached decoded pages.
//!
//! It finds entries, not contents. [`platter_image::recipe::Recipe`] serves a single pass over a disk; here
//! the same few pages are looked up thousands of times a second, so they stay decoded and are searched.

use std::sync::Arc;

use platter_image::page::{Child, Contents, Entry, State};
use platter_image::recipe::{Recipe, Root};
use platter_image::{BlockId, Domain, Extent, Result, Score};

use crate::cache::PageCache;
use crate::source::{Source, retried};

/// Called for each entry; returns whether to go on.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(Entry) -> Result<bool>;

/// One recipe and the source of its pages.
pub(crate) struct Tree {
    root: Root,
    source: Arc<dyn Source>,
}

impl Tree {
    /// Opens the recipe with that score.
    ///
    /// # Errors
    /// `Missing` or `Corrupt`; errors of the source.
    pub(crate) fn open(score: Score, source: Arc<dyn Source>) -> Result<Self> {
        let root = *retried(|| Recipe::open(score, &*source))?.root();
        Ok(Self { root, source })
    }

    /// Length of the disk in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.root.disk_length
    }

    /// The identity domain of its blocks.
    pub(crate) fn domain(&self) -> Domain {
        self.root.domain
    }

    /// The source of pages and frames.
    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Visits the data and zero entries inside `range` in ascending order, clipped to it. `range` must lie
    /// inside the disk; gaps between entries are free space. Returns `false` if `visit` did.
    ///
    /// # Errors
    /// `Missing` or `Corrupt`, naming the page; errors of the source and of `visit`.
    pub(crate) fn walk(&self, pages: &PageCache, range: Extent, visit: Visit<'_>) -> Result<bool> {
        self.walk_within(pages, &|_| true, range, visit)
    }

    /// Like [`Tree::walk`], but stops with `false` before the first page that would have to be fetched from a
    /// far source.
    ///
    /// # Errors
    /// Those of [`Tree::walk`].
    pub(crate) fn walk_near(&self, pages: &PageCache, range: Extent, visit: Visit<'_>) -> Result<bool> {
        self.walk_within(pages, &|id| pages.holds(id) || self.source.is_near(id), range, visit)
    }

    fn walk_within(
        &self,
        pages: &PageCache,
        goes_to: &dyn Fn(&BlockId) -> bool,
        range: Extent,
        visit: Visit<'_>,
    ) -> Result<bool> {
        match &self.root.top {
            Some((level, child)) if child.range().intersect(&range).is_some() => {
                self.walk_page(pages, goes_to, *level, child, range, visit)
            }
            _ => Ok(true),
        }
    }

    /// Each step down is one level lower, so the recursion is at most [`platter_image::page::LEVEL_MAX`]
    /// deep.
    fn walk_page(
        &self,
        pages: &PageCache,
        goes_to: &dyn Fn(&BlockId) -> bool,
        level: u8,
        child: &Child,
        range: Extent,
        visit: Visit<'_>,
    ) -> Result<bool> {
        if !goes_to(&child.id) {
            return Ok(false);
        }
        let page = pages.page(&*self.source, level, child)?;
        self.root.check_page(child, page.contents())?;
        match page.contents() {
            Contents::Branch(children) => {
                let first = children.partition_point(|child| child.range().end() <= range.offset);
                for child in children[first..].iter().take_while(|child| child.start < range.end()) {
                    if !self.walk_page(pages, goes_to, level - 1, child, range, visit)? {
                        return Ok(false);
                    }
                }
            }
            Contents::Leaf(entries) => {
                let first = entries.partition_point(|entry| entry.extent.end() <= range.offset);
                for entry in entries[first..].iter().map_while(|entry| entry.clip(range)) {
                    if entry.state != State::Free && !visit(entry)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}
