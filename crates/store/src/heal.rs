//! Heals a store: blocks that are only in quarantined frames, or in no pack at all, are fetched from other holders and stored
//! again.
//!
//! A source only suggests bytes. They count only if they have the wanted hash, so no source has to be trusted. What was found is
//! added by a session like new data, and is reported only after its packs and the catalog's commit are durable and the new frames
//! were read back. An interrupted run leaves what it had stored to the next one.
//!
//! Damage that nobody has found yet is not healed: `check --read-data` or a scrub finds it. Only the pages of recipes are read.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

use platter_image::frame::{Compressor, FrameBuilder, RAW_LENGTH_DEFAULT};
use platter_image::page::State as EntryState;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, Domain, Error, Extent, FrameAddress, FrameStore, Kind, Result, Score};
use platter_records::{BootSetHead, VersionName};

use crate::clock::now_unix_ms;
use crate::readers::{MoreRoots, registered};
use crate::session::Session;
use crate::store::Store;

/// Maximum number of scores that are kept for one block, and of pieces: they only help sources to find it. A block of 64 KiB has at most 128
/// sectors in different places.
const HINTS_MAX: usize = 32;
const PIECES_MAX: usize = 128;
/// zstd level of the new frames.
const LEVEL: i32 = 3;
/// The name under which this store itself is counted: a later read of a quarantined place may succeed, and the trash may have a block.
const SAME_PLACE: &str = "this store: a place that can be read again, or the trash";

/// A part of a block on the disk of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceOnDisk {
    /// Offset on the disk.
    pub disk_offset: u64,
    /// Offset in the block.
    pub block_offset: u64,
    /// Length in bytes. It may reach past the block's end; the rest is zeros.
    pub length: u64,
}

/// A block, page or boot set that no sound frame has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedBlock {
    /// Its kind.
    pub kind: Kind,
    /// Its name, the hash of its contents.
    pub id: BlockId,
    /// The identity domain of the store.
    pub domain: Domain,
    /// Recipes that need it, as far as they are kept.
    pub scores: Vec<Score>,
    /// Where it stands on their disks, as far as they are kept.
    pub pieces: Vec<PieceOnDisk>,
    /// The versions that need it.
    pub versions: Vec<VersionName>,
}

impl WantedBlock {
    /// Whether these are its contents.
    pub fn is(&self, contents: &[u8]) -> bool {
        self.domain.id_of(self.kind, contents).is_ok_and(|id| id == self.id)
    }
}

/// Somebody who may have lost blocks.
pub trait HealSource {
    /// Returns its name for the report.
    fn name(&self) -> String;

    /// Returns what may be the contents of a block; `None` if it does not have it.
    ///
    /// # Errors
    /// When it cannot be asked. The next source is then tried.
    fn find(&mut self, wanted: &WantedBlock) -> Result<Option<Vec<u8>>>;
}

/// The contribution of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealedFrom {
    /// The source.
    pub source: String,
    /// Number of blocks.
    pub blocks: usize,
    /// Bytes of blocks.
    pub bytes: u64,
    /// Number of times that it returned other contents than wanted.
    pub wrong: usize,
    /// Its first error.
    pub error: Option<String>,
}

/// The result of healing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealReport {
    /// The contributions of the sources, in the order in which they were tried.
    pub sources: Vec<HealedFrom>,
    /// Number of blocks, pages and boot sets that were stored again. Records are not counted: the catalog has them.
    pub healed: usize,
    /// Blocks that no source has.
    pub lost: Vec<WantedBlock>,
    /// Versions that are complete again.
    pub whole: Vec<VersionName>,
    /// Versions that are still damaged.
    pub damaged: Vec<VersionName>,
}

impl Store {
    /// Heals what is quarantined or missing, of versions and boot sets, and of all that a collection keeps besides: `more` lists what only
    /// the caller knows.
    ///
    /// # Errors
    /// `Refused` when the store was opened for reading or a write has failed; `Io`. What was not committed is not reported, and
    /// can be healed again.
    pub fn heal(&self, sources: &mut [Box<dyn HealSource>], more: MoreRoots<'_>) -> Result<HealReport> {
        self.0.writer()?.check()?;
        let session = self.upkeep_session()?;
        let healing = Healing { store: self, session: &session, state: Mutex::new(State::new(sources)?) };
        let wanted = healing.walk(&self.held(more)?)?;
        wanted.values().try_for_each(|block| healing.heal(block).map(drop))?;
        healing.state.lock().flush(&session)?;
        let state = healing.state.into_inner();
        session.keep_mended()?;
        self.prove_all(state.healed.keys())?;
        Ok(state.report())
    }

    /// Returns the scores that readers, leases, followers and the caller hold and whose recipes are here.
    fn held(&self, more: MoreRoots<'_>) -> Result<BTreeSet<Score>> {
        let mut held = registered(self.place())?;
        held.extend(self.leased(now_unix_ms())?);
        held.extend(self.held_for_followers(now_unix_ms())?);
        held.extend(more()?);
        let is_here = |score: &Score| self.has(&score.0).map(|is_here| is_here.then_some(*score));
        held.iter().map(is_here).filter_map(Result::transpose).collect()
    }

    /// Returns whether a block is in a frame that is not known to be bad and stays.
    fn is_sound(&self, id: &BlockId) -> Result<bool> {
        Ok(self.0.locate_kept(id)?.is_some())
    }

    /// Reads back the frames of blocks that were just stored.
    fn prove_all<'a>(&self, ids: impl Iterator<Item = &'a BlockId>) -> Result<()> {
        let mut frames: BTreeSet<FrameAddress> = BTreeSet::new();
        for id in ids {
            let place = self.0.locate_sound(id)?;
            let place = place.ok_or_else(|| Error::bug(format!("block {id} was stored and is not found")))?;
            frames.insert(place.frame);
        }
        for frame in frames {
            self.0.prove(frame).map_err(|error| error.within("reading back what was healed"))?;
        }
        Ok(())
    }
}

/// A run under way.
struct Healing<'a> {
    store: &'a Store,
    session: &'a Session,
    state: Mutex<State<'a>>,
}

impl Healing<'_> {
    /// Walks the recipes of all versions, of `held` and all boot sets. Heals pages and boot sets on the way, because what they name is not
    /// known without them. Returns the data blocks that are wanted.
    fn walk(&self, held: &BTreeSet<Score>) -> Result<BTreeMap<BlockId, WantedBlock>> {
        let mut scores: BTreeMap<Score, Vec<VersionName>> =
            held.iter().map(|score| (*score, Vec::new())).collect();
        for version in self.store.versions()? {
            scores.entry(version.record.score).or_default().push(version.name);
        }
        let mut wanted = BTreeMap::new();
        for (score, versions) in &scores {
            self.walk_recipe(*score, versions, &mut wanted)?;
        }
        let members = self.store.hoard()?.members;
        // Also those that left the hoard lately: nodes may still need them.
        for id in &self.store.catalog()?.roots()?.boot_sets {
            let of_it = members.iter().filter(|member| member.boot_set == *id);
            let versions: Vec<VersionName> = of_it.map(|member| member.version.clone()).collect();
            self.walk_boot_set(id, &versions)?;
        }
        Ok(wanted)
    }

    fn walk_recipe(
        &self,
        score: Score,
        versions: &[VersionName],
        wanted: &mut BTreeMap<BlockId, WantedBlock>,
    ) -> Result<()> {
        let pages = Pages { healing: self, score, versions };
        let recipe = match Recipe::open(score, pages) {
            Err(error) if error.is_damage() => return Ok(()),
            opened => opened?,
        };
        let whole = Extent::new(0, recipe.root().disk_length);
        let mut counted = BTreeSet::new();
        // Lost pages are in the report already.
        for entry in recipe.readable_entries(whole, &|_, _| {}) {
            let entry = entry?;
            let EntryState::Data { block, offset } = entry.state else { continue };
            if self.store.is_sound(&block)? {
                continue;
            }
            let found = wanted.entry(block).or_insert_with(|| WantedBlock {
                kind: Kind::Data,
                id: block,
                domain: self.store.domain(),
                scores: Vec::new(),
                pieces: Vec::new(),
                versions: Vec::new(),
            });
            // A disk may have a block many times.
            if counted.insert(block) {
                found.versions.extend_from_slice(versions);
                if found.scores.len() < HINTS_MAX {
                    found.scores.push(score);
                }
            }
            let (disk_offset, length) = (entry.extent.offset, entry.extent.length);
            let piece = PieceOnDisk { disk_offset, block_offset: offset.into(), length };
            if found.pieces.len() < PIECES_MAX && !found.pieces.contains(&piece) {
                found.pieces.push(piece);
            }
        }
        Ok(())
    }

    fn walk_boot_set(&self, id: &BlockId, versions: &[VersionName]) -> Result<()> {
        let wanted = |id: &BlockId| WantedBlock {
            kind: Kind::BootSet,
            id: *id,
            domain: self.store.domain(),
            scores: Vec::new(),
            pieces: Vec::new(),
            versions: versions.to_vec(),
        };
        let Some(head) = self.read_or_heal(&wanted(id))? else { return Ok(()) };
        for part in BootSetHead::decode(&head)?.parts {
            self.read_or_heal(&wanted(&part))?;
        }
        Ok(())
    }

    /// Reads an object, and heals it if that fails. `None` if nobody has it.
    fn read_or_heal(&self, wanted: &WantedBlock) -> Result<Option<Vec<u8>>> {
        if self.store.is_sound(&wanted.id)? {
            match self.store.read_block(wanted.kind, &wanted.id) {
                // The reader has quarantined the frame.
                Err(_) if !self.store.is_sound(&wanted.id)? => {}
                read => return read.map(Some),
            }
        }
        self.heal(wanted)
    }

    /// Gets a block from the first source that has it, and stores it again.
    fn heal(&self, wanted: &WantedBlock) -> Result<Option<Vec<u8>>> {
        let state = &mut *self.state.lock();
        if let Some(known) = state.healed.get_mut(&wanted.id) {
            known.versions.extend_from_slice(&wanted.versions);
            return Ok(known.page.clone());
        }
        if let Some(known) = state.lost.get_mut(&wanted.id) {
            known.versions.extend_from_slice(&wanted.versions);
            return Ok(None);
        }
        let same_place = self.store.read_block(wanted.kind, &wanted.id).ok();
        let Some(bytes) =
            same_place.inspect(|bytes| state.contributed[0].count(bytes)).or_else(|| state.find(wanted))
        else {
            state.lost.insert(wanted.id, wanted.clone());
            return Ok(None);
        };
        state.add(wanted, &bytes, self.session)?;
        Ok(Some(bytes))
    }
}

/// Reads the pages of one recipe, and heals those that are lost.
struct Pages<'a, 'b> {
    healing: &'a Healing<'b>,
    score: Score,
    versions: &'a [VersionName],
}

impl PageSource for Pages<'_, '_> {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        let (scores, versions) = (vec![self.score], self.versions.to_vec());
        let (kind, domain) = (Kind::Page, self.healing.store.domain());
        let wanted = WantedBlock { kind, id: *id, domain, scores, pieces: Vec::new(), versions };
        let page = self.healing.read_or_heal(&wanted)?;
        page.ok_or_else(|| Error::corrupt(format!("page {id} is lost")))
    }
}

/// A block that was stored again.
struct Healed {
    versions: Vec<VersionName>,
    /// Its contents if it is a page or boot set: it can be wanted again before it is committed.
    page: Option<Vec<u8>>,
}

struct State<'a> {
    sources: &'a mut [Box<dyn HealSource>],
    /// The quarantined place itself, and then the sources.
    contributed: Vec<HealedFrom>,
    healed: BTreeMap<BlockId, Healed>,
    lost: BTreeMap<BlockId, WantedBlock>,
    /// The frame under way of each kind.
    open: BTreeMap<u8, FrameBuilder>,
    compressor: Compressor,
}

impl HealedFrom {
    fn new(source: String) -> Self {
        Self { source, blocks: 0, bytes: 0, wrong: 0, error: None }
    }

    fn count(&mut self, contents: &[u8]) {
        self.blocks += 1;
        self.bytes += contents.len() as u64;
    }
}

impl<'a> State<'a> {
    fn new(sources: &'a mut [Box<dyn HealSource>]) -> Result<Self> {
        let names = sources.iter().map(|source| source.name());
        let contributed = std::iter::once(SAME_PLACE.to_owned()).chain(names).map(HealedFrom::new).collect();
        let (healed, lost, open) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Ok(Self { sources, contributed, healed, lost, open, compressor: Compressor::new(LEVEL)? })
    }

    /// Asks the sources in turn. Only contents with the wanted hash count.
    fn find(&mut self, wanted: &WantedBlock) -> Option<Vec<u8>> {
        for (source, contributed) in self.sources.iter_mut().zip(&mut self.contributed[1..]) {
            match source.find(wanted) {
                Ok(Some(bytes)) if wanted.is(&bytes) => {
                    contributed.count(&bytes);
                    return Some(bytes);
                }
                Ok(Some(_)) => contributed.wrong += 1,
                Ok(None) => {}
                Err(error) => {
                    contributed.error.get_or_insert_with(|| error.with_causes());
                }
            }
        }
        None
    }

    /// Adds a verified block to the frame under way.
    fn add(&mut self, wanted: &WantedBlock, bytes: &[u8], session: &Session) -> Result<()> {
        let domain = if wanted.kind == Kind::BootSet { Domain::SHARED } else { wanted.domain };
        let new = || FrameBuilder::new(wanted.kind, domain, RAW_LENGTH_DEFAULT);
        let open = self.open.entry(wanted.kind as u8).or_insert_with(new);
        if open.is_full_for(bytes.len()) {
            let full = open.take();
            session.append(&full.encode(&mut self.compressor)?)?;
        }
        open.push(wanted.id, bytes);
        let page = (wanted.kind != Kind::Data).then(|| bytes.to_vec());
        self.healed.insert(wanted.id, Healed { versions: wanted.versions.clone(), page });
        Ok(())
    }

    fn flush(&mut self, session: &Session) -> Result<()> {
        for open in std::mem::take(&mut self.open).into_values().filter(|open| !open.is_empty()) {
            session.append(&open.encode(&mut self.compressor)?)?;
        }
        Ok(())
    }

    fn report(self) -> HealReport {
        let damaged: BTreeSet<VersionName> =
            self.lost.values().flat_map(|block| &block.versions).cloned().collect();
        let touched: BTreeSet<VersionName> =
            self.healed.values().flat_map(|block| &block.versions).cloned().collect();
        let mut lost: Vec<WantedBlock> = self.lost.into_values().collect();
        for block in &mut lost {
            block.versions.sort_unstable();
            block.versions.dedup();
        }
        HealReport {
            sources: self
                .contributed
                .into_iter()
                .filter(|it| it.source != SAME_PLACE || it.blocks > 0)
                .collect(),
            healed: self.healed.len(),
            lost,
            whole: touched.difference(&damaged).cloned().collect(),
            damaged: damaged.into_iter().collect(),
        }
    }
}
