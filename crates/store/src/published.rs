//! The result of publishing: the version, and the other versions that it has repaired as a side effect.
//!
//! A version is damaged when its record, or one of its pages or blocks, is only in bad frames. A capture that stores such a
//! block again repairs every version that needs it.

use std::collections::{BTreeSet, HashMap};

use platter_image::page::{Child, Contents, State, decode};
use platter_image::recipe::Root;
use platter_image::{BlockId, ErrorKind, FrameIndex, Kind, Result};

use crate::store::Store;
use platter_records::Version;
use platter_records::VersionName;

/// The result of publishing a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The version.
    pub version: Version,
    /// Blocks, pages and records that were stored again because their frames are damaged; sorted.
    pub repaired: Vec<BlockId>,
    /// Number of older frames that were read back because the session relied on them.
    pub known_frames_read: u64,
}

/// Versions that need blocks which were repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Versions that are complete now.
    pub whole: Vec<VersionName>,
    /// Versions that are still damaged otherwise.
    pub damaged: Vec<VersionName>,
}

/// State of a page or block, including everything below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PageState {
    /// It, or something below it, was repaired.
    was_repaired: bool,
    /// It, or something below it, is damaged or missing.
    is_damaged: bool,
}

impl PageState {
    fn add(&mut self, other: Self) {
        self.was_repaired |= other.was_repaired;
        self.is_damaged |= other.is_damaged;
    }
}

impl Store {
    /// Returns which versions needed the blocks in [`Published::repaired`]. Leaves out `but`, which was published with them.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn repaired_by(&self, blocks: &[BlockId], but: &VersionName) -> Result<Repaired> {
        let mut repaired = Repaired::default();
        if blocks.is_empty() {
            return Ok(repaired);
        }
        let versions = self.catalog()?.all_versions()?;
        let bad: BTreeSet<BlockId> = self.quarantined().into_iter().collect();
        let mut walk = Walk { store: self, blocks, bad: &bad, pages: HashMap::new() };
        for version in versions.into_iter().filter(|version| version.name != *but) {
            let part = walk.version(&version)?;
            match (part.was_repaired, part.is_damaged) {
                (true, false) => repaired.whole.push(version.name),
                (true, true) => repaired.damaged.push(version.name),
                (false, _) => {}
            }
        }
        Ok(repaired)
    }
}

/// A walk over the recipes of many versions. It reads each shared page once.
struct Walk<'a> {
    store: &'a Store,
    /// The repaired blocks, sorted.
    blocks: &'a [BlockId],
    bad: &'a BTreeSet<BlockId>,
    pages: HashMap<BlockId, PageState>,
}

impl Walk<'_> {
    fn version(&mut self, version: &Version) -> Result<PageState> {
        // The catalog has the records of all versions. No pack has that of a clone, or of a capture without new data.
        let mut part = PageState {
            was_repaired: self.blocks.binary_search(&version.record_id).is_ok(),
            is_damaged: self.bad.contains(&version.record_id),
        };
        let root = version.record.score.0;
        part.add(self.block(&root)?);
        let read = self.store.read_block(Kind::Page, &root);
        match read.and_then(|bytes| Root::decode(version.record.score, &bytes)) {
            Ok(root) => part.add(root.top.map_or(Ok(PageState::default()), |(_, child)| self.page(&child))?),
            Err(error) if error.kind() == ErrorKind::Bug => return Err(error),
            Err(_) => part.is_damaged = true,
        }
        Ok(part)
    }

    /// Returns the state of a page and everything below it. The recursion ends: levels must descend, or decoding fails.
    fn page(&mut self, child: &Child) -> Result<PageState> {
        if let Some(part) = self.pages.get(&child.id) {
            return Ok(*part);
        }
        let mut part = self.block(&child.id)?;
        match self.store.read_block(Kind::Page, &child.id).and_then(|bytes| decode(child, &bytes)) {
            Ok((_, Contents::Branch(children))) => {
                for child in &children {
                    part.add(self.page(child)?);
                }
            }
            Ok((_, Contents::Leaf(entries))) => {
                let mut last = None;
                for entry in entries {
                    let State::Data { block, .. } = entry.state else { continue };
                    if last.replace(block) != Some(block) {
                        part.add(self.block(&block)?);
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::Bug => return Err(error),
            Err(_) => part.is_damaged = true,
        }
        self.pages.insert(child.id, part);
        Ok(part)
    }

    fn block(&self, id: &BlockId) -> Result<PageState> {
        let was_repaired = self.blocks.binary_search(id).is_ok();
        let is_damaged = self.bad.contains(id) || self.store.locate(id)?.is_none();
        Ok(PageState { was_repaired, is_damaged })
    }
}
