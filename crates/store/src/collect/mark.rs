//! Marking: which blocks, pages, records and boot sets the roots need. Any error ends the collection with nothing condemned.

use std::collections::{BTreeSet, HashSet};

use platter_image::page::{Child, Contents, State, decode};
use platter_image::recipe::{PageSource, Root};
use platter_image::{BlockId, Error, Kind, Result, Score};
use platter_records::BootSetHead;

use super::roots::Roots;
use crate::store::Store;

/// Duplicates are removed when this many ids were added.
const DEDUPLICATED_MIN: usize = 1 << 20;
/// Maximum number of live blocks. A collection needs 48 bytes of memory for each block of the store while it runs: 12 GiB for that
/// many. The index does not.
const LIVE_MAX: usize = 1 << 28;

/// Which blocks are counted: those whose hashes end in so many zero bits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample(u32);

impl Sample {
    /// A sample of about at most `counted_max` of that many blocks.
    pub(super) fn of(blocks: usize, counted_max: usize) -> Self {
        let parts = blocks.div_ceil(counted_max).max(1);
        Self(parts.next_power_of_two().trailing_zeros().min(32))
    }

    /// One of so many blocks is counted.
    pub(super) fn one_of(self) -> u64 {
        1 << self.0
    }

    pub(super) fn has(self, id: &BlockId) -> bool {
        let last = id.0.last_chunk().map_or(0, |last| u64::from_be_bytes(*last));
        last.is_multiple_of(self.one_of())
    }
}

/// A growing set of ids.
#[derive(Debug, Default)]
struct Ids {
    ids: Vec<BlockId>,
    sorted: usize,
    /// The number of ids for which memory was allocated at once; 0 if it grows.
    room: usize,
}

impl Ids {
    fn add(&mut self, id: BlockId) -> Result<()> {
        self.ids.push(id);
        let full = if self.room > 0 { self.room } else { DEDUPLICATED_MIN.max(2 * self.sorted) };
        if self.ids.len() >= full {
            self.sort();
            if self.ids.len() > LIVE_MAX {
                return Err(Error::refused(format!(
                    "the store has more than {LIVE_MAX} live blocks: split it"
                )));
            }
        }
        Ok(())
    }

    /// Allocates memory for this many distinct ids, and half as many repeated ones.
    fn reserve(&mut self, distinct: usize) -> Result<()> {
        let room = distinct + distinct / 2 + DEDUPLICATED_MIN;
        self.ids.try_reserve_exact(room).map_err(|error| {
            let bytes = room * BlockId::LEN;
            Error::refused(format!("a collection of {distinct} blocks needs {bytes} bytes of memory"))
                .with_source(error)
        })?;
        self.room = room;
        Ok(())
    }

    fn sort(&mut self) {
        self.ids.sort_unstable();
        self.ids.dedup();
        self.sorted = self.ids.len();
    }
}

/// The blocks marked so far.
#[derive(Debug)]
pub(super) struct Marking<'a> {
    store: &'a Store,
    ids: Ids,
    /// The pages that were walked. Versions share most of them.
    pages: HashSet<BlockId>,
    scores: BTreeSet<Score>,
    /// Version records and boot sets.
    objects: BTreeSet<BlockId>,
    /// The blocks that are marked. All, if something depends on it.
    sample: Sample,
}

/// The roots that were marked.
#[derive(Debug)]
pub(super) struct Covered {
    scores: BTreeSet<Score>,
    objects: BTreeSet<BlockId>,
}

impl Covered {
    /// Returns whether everything that these roots need was marked.
    pub(super) fn covers(&self, roots: &Roots) -> bool {
        roots.scores().is_subset(&self.scores)
            && roots.versions.iter().all(|version| self.objects.contains(&version.record_id))
            && roots.boot_sets.is_subset(&self.objects)
    }
}

/// Returns whether a disk can be a root: everything that it needs is sound, and in packs that stay.
///
/// # Errors
/// When that cannot be found out, such as for a lack of memory.
pub(crate) fn can_be_marked(store: &Store, score: Score) -> Result<bool> {
    match Marking::new(store).score(score) {
        Ok(()) => Ok(true),
        Err(error) if error.is_damage() => Ok(false),
        Err(error) => Err(error.within(format!("marking {score}, which readers or followers may need"))),
    }
}

impl<'a> Marking<'a> {
    pub(super) fn new(store: &'a Store) -> Self {
        Self {
            store,
            ids: Ids::default(),
            pages: HashSet::new(),
            scores: BTreeSet::new(),
            objects: BTreeSet::new(),
            sample: Sample::default(),
        }
    }

    /// A marking of some blocks, for counting them.
    pub(super) fn sampled(store: &'a Store, sample: Sample) -> Self {
        Self { sample, ..Self::new(store) }
    }

    /// As [`Marking::new`], with memory for all blocks of the store, which is allocated once instead of copied as it grows.
    ///
    /// # Errors
    /// `Refused` when there is not enough.
    pub(super) fn with_room(store: &'a Store) -> Result<Self> {
        let mut marking = Self::new(store);
        marking.ids.reserve(store.blocks())?;
        Ok(marking)
    }

    /// Marks everything that the roots need and that is not marked yet.
    pub(super) fn add(&mut self, roots: &Roots) -> Result<()> {
        for version in &roots.versions {
            self.version(version.record.score, version.record_id)
                .map_err(|error| error.within(format!("marking {}", version.name)))?;
        }
        for score in &roots.held {
            self.score(*score).map_err(|error| error.within(format!("marking {score}, which is in use")))?;
        }
        for id in &roots.boot_sets {
            self.boot_set(id).map_err(|error| error.within(format!("marking the boot set {id}")))?;
        }
        Ok(())
    }

    /// Returns which roots were marked.
    pub(super) fn covered(&self) -> Covered {
        Covered { scores: self.scores.clone(), objects: self.objects.clone() }
    }

    /// Marks a version: its record and its recipe.
    pub(super) fn version(&mut self, score: Score, record: BlockId) -> Result<()> {
        // Clones have records in the catalog and its log only.
        if self.objects.insert(record) && self.is_kept(&record)? {
            self.block(record)?;
        }
        self.score(score)
    }

    fn score(&mut self, score: Score) -> Result<()> {
        if !self.scores.insert(score) {
            return Ok(());
        }
        self.block(score.0)?;
        let root = Root::decode(score, &self.store.page(&score.0)?)?;
        let mut stack: Vec<Child> = root.top.into_iter().map(|(_, child)| child).collect();
        while let Some(child) = stack.pop() {
            if !self.pages.insert(child.id) {
                continue;
            }
            self.block(child.id)?;
            match decode(&child, &self.store.page(&child.id)?)?.1 {
                Contents::Branch(children) => stack.extend(children),
                Contents::Leaf(entries) => {
                    let mut last = None;
                    for entry in entries {
                        let State::Data { block, .. } = entry.state else { continue };
                        if last.replace(block) != Some(block) {
                            self.block(block)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn boot_set(&mut self, id: &BlockId) -> Result<()> {
        if !self.objects.insert(*id) {
            return Ok(());
        }
        self.block(*id)?;
        let head = BootSetHead::decode(&self.store.read_block(Kind::BootSet, id)?)?;
        head.parts.into_iter().try_for_each(|part| self.block(part))
    }

    /// Returns whether a block is in a pack that was not collected.
    fn is_kept(&self, id: &BlockId) -> Result<bool> {
        let place = self.store.0.locate(id)?;
        let pack = place.map(|place| self.store.0.packs.get(place.frame.pack)).transpose()?;
        Ok(pack.is_some_and(|pack| !pack.is_collected()))
    }

    /// Marks one block. It must be in a pack that stays.
    fn block(&mut self, id: BlockId) -> Result<()> {
        if !self.sample.has(&id) {
            return Ok(());
        }
        if !self.is_kept(&id)? {
            return Err(Error::corrupt(format!(
                "block {id} is needed but not in the store: `platter check` names the versions that need it; capture such a \
                 disk again, or forget the version"
            )));
        }
        self.ids.add(id)
    }

    /// Ends the marking. Returns all marked ids, sorted.
    pub(super) fn live(&mut self) -> &[BlockId] {
        self.ids.sort();
        &self.ids.ids
    }
}
