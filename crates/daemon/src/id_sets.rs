//! The ids of the blocks and pages of a recipe, which decide what a token may read. Keeps the recently used sets. A
//! cache: everything in it can be recomputed from the store.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, Error, Extent, Kind, Result, Score};

/// Most pages of a recipe that are walked: a dense disk of 16 TiB. A hostile recipe can have very many pages, which compress well.
const PAGES_MAX: usize = 1 << 20;
/// Most entries of a recipe that are walked.
const ENTRIES_MAX: usize = 1 << 28;

/// The ids in a recipe.
#[derive(Debug, Default)]
pub(crate) struct IdSet {
    /// Sorted.
    data: Vec<BlockId>,
    /// Sorted.
    pages: Vec<BlockId>,
}

impl IdSet {
    /// Collects the ids of a recipe.
    ///
    /// # Errors
    /// `Missing` or `Corrupt`, with the page's id; `Refused` when the recipe is too large.
    pub(crate) fn of<P: PageSource>(recipe: &Recipe<P>) -> Result<Self> {
        let mut set = Self::default();
        walk(recipe, &mut |kind, id| {
            let ids = set.ids_mut(kind);
            // Pieces of one block are consecutive.
            if ids.last() == Some(id) {
                return Ok(());
            }
            // A hostile recipe can name few blocks very often.
            if ids.len() == ids.capacity() {
                ids.sort_unstable();
                ids.dedup();
                let is_still_full = ids.len() > ids.capacity() / 2;
                ids.reserve(if is_still_full { ids.capacity() } else { 1 });
            }
            ids.push(*id);
            Ok(())
        })?;
        for ids in [&mut set.data, &mut set.pages] {
            ids.sort_unstable();
            ids.dedup();
            ids.shrink_to_fit();
        }
        Ok(set)
    }

    /// Whether the recipe contains this block or page.
    pub(crate) fn contains(&self, kind: Kind, id: &BlockId) -> bool {
        match kind {
            Kind::Data => self.data.binary_search(id).is_ok(),
            Kind::Page => self.pages.binary_search(id).is_ok(),
            Kind::Version | Kind::BootSet | Kind::Change => false,
        }
    }

    /// Whether the recipe contains this id as a block or as a page. The kinds are hashed differently, so an id has only
    /// one kind.
    pub(crate) fn contains_any(&self, id: &BlockId) -> bool {
        self.contains(Kind::Data, id) || self.contains(Kind::Page, id)
    }

    fn ids_mut(&mut self, kind: Kind) -> &mut Vec<BlockId> {
        if kind == Kind::Page { &mut self.pages } else { &mut self.data }
    }

    fn bytes(&self) -> usize {
        (self.data.len() + self.pages.len()) * BlockId::LEN
    }
}

/// Calls `visit` for every page of a recipe, then for every piece of a block.
///
/// # Errors
/// `Missing` or `Corrupt`, with the page's id; `Refused` when the recipe is too large; the errors of `visit`.
pub(crate) fn walk<P: PageSource>(
    recipe: &Recipe<P>,
    visit: &mut dyn FnMut(Kind, &BlockId) -> Result<()>,
) -> Result<()> {
    let whole = Extent::new(0, recipe.root().disk_length);
    let too_large = || Error::refused(format!("the recipe of {} is too large to be walked", recipe.score()));
    let mut pages = 0;
    recipe.visit_pages(whole, &mut |id| {
        pages += 1;
        if pages > PAGES_MAX {
            return Err(too_large());
        }
        visit(Kind::Page, id)
    })?;
    for (n, entry) in recipe.entries(whole).enumerate() {
        if n == ENTRIES_MAX {
            return Err(too_large());
        }
        if let State::Data { block, .. } = entry?.state {
            visit(Kind::Data, &block)?;
        }
    }
    Ok(())
}

/// Sets of ids, up to a limit of bytes.
#[derive(Debug)]
pub(crate) struct IdSets {
    bytes_max: usize,
    kept: Mutex<CachedSets>,
}

#[derive(Debug, Default)]
struct CachedSets {
    sets: HashMap<Score, (Arc<IdSet>, u64)>,
    bytes: usize,
    uses: u64,
}

impl IdSets {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, kept: Mutex::default() }
    }

    /// Returns the ids of a recipe.
    ///
    /// # Errors
    /// As [`IdSet::of`].
    pub(crate) fn get(&self, score: Score, pages: &impl PageSource) -> Result<Arc<IdSet>> {
        {
            let mut kept = self.kept();
            kept.uses += 1;
            let now = kept.uses;
            if let Some((set, used)) = kept.sets.get_mut(&score) {
                *used = now;
                return Ok(Arc::clone(set));
            }
        }
        let set = Arc::new(IdSet::of(&Recipe::open(score, pages)?)?);
        self.keep(score, &set);
        Ok(set)
    }

    /// Returns the bytes of all sets.
    pub(crate) fn bytes(&self) -> usize {
        self.kept().bytes
    }

    fn keep(&self, score: Score, set: &Arc<IdSet>) {
        let bytes = set.bytes();
        if bytes > self.bytes_max {
            return;
        }
        let mut kept = self.kept();
        let now = kept.uses;
        if kept.sets.insert(score, (Arc::clone(set), now)).is_none() {
            kept.bytes += bytes;
        }
        while kept.bytes > self.bytes_max {
            let oldest = kept.sets.iter().min_by_key(|(_, (_, used))| *used).map(|(score, _)| *score);
            let Some((old, _)) = oldest.and_then(|score| kept.sets.remove(&score)) else { break };
            kept.bytes -= old.bytes();
        }
    }

    fn kept(&self) -> MutexGuard<'_, CachedSets> {
        self.kept.lock()
    }
}

#[cfg(test)]
mod tests {
    use platter_image::Domain;
    use platter_image::page::Entry;
    use platter_image::recipe::{CutPolicy, RecipeBuilder};

    use super::*;

    /// Pages of disks, with a count of reads.
    #[derive(Default)]
    struct Pages(Mutex<(HashMap<BlockId, Vec<u8>>, usize)>);

    impl PageSource for Pages {
        fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
            let mut pages = self.0.lock();
            pages.1 += 1;
            pages.0.get(id).cloned().ok_or_else(|| Error::missing(id.to_string()))
        }
    }

    impl Pages {
        /// Adds a disk with `blocks` blocks, whose contents derive from `byte`.
        fn add(&self, byte: u8, blocks: u64) -> Score {
            let sink = |id, bytes: &[u8]| {
                self.0.lock().0.insert(id, bytes.to_vec());
                Ok(())
            };
            let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
            let mut recipe = RecipeBuilder::new(blocks << 16, 512, policy, Domain::SHARED, sink);
            for n in 0..blocks {
                let state = State::Data { block: block(byte, n), offset: 0 };
                recipe.push(Entry { extent: Extent::new(n << 16, 1 << 16), state }).unwrap();
            }
            recipe.finish().unwrap().0
        }

        fn reads(&self) -> usize {
            std::mem::take(&mut self.0.lock().1)
        }
    }

    fn block(byte: u8, n: u64) -> BlockId {
        BlockId::of(Kind::Data, &[&[byte][..], &n.to_le_bytes()].concat())
    }

    #[test]
    fn a_set_contains_the_ids_of_the_recipe() {
        let pages = Pages::default();
        let (score, other) = (pages.add(1, 1000), pages.add(2, 10));
        let set = IdSets::new(1 << 20).get(score, &pages).unwrap();
        assert!((0..1000).all(|n| set.contains(Kind::Data, &block(1, n))));
        assert!((0..10).all(|n| !set.contains_any(&block(2, n))));
        assert!(set.contains(Kind::Page, &score.0) && !set.contains(Kind::Data, &score.0));
        assert!(!set.contains_any(&other.0) && !set.contains(Kind::Page, &block(1, 0)));
        assert!(!set.contains(Kind::Version, &score.0));
    }

    #[test]
    fn the_recently_used_sets_are_kept_up_to_the_limit() {
        let pages = Pages::default();
        let scores: Vec<Score> = (0..3).map(|byte| pages.add(byte, 100)).collect();
        let sets = IdSets::new(7000);
        let get = |at: usize| {
            sets.get(scores[at], &pages).unwrap();
            pages.reads() > 0
        };
        assert_eq!((get(0), get(1), get(0)), (true, true, false));
        assert_eq!((get(2), get(0), get(1)), (true, false, true));
        assert!(sets.bytes() <= 7000);
        let large = pages.add(9, 1000);
        assert!(sets.get(large, &pages).is_ok() && pages.reads() > 0);
        assert!(!get(1), "a set above the limit evicts nothing");
    }
}
