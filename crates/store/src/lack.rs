//! Whether a store has all that must stay, asked before something is removed that no version seems to need, and after a rebuild.
//!
//! What only leases and stopped overlays keep is not asked for: a lease can be of a disk that is incomplete for good.

use std::collections::{HashMap, HashSet};

use platter_image::page::{Child, Contents, State, decode};
use platter_image::recipe::{PageSource, Root};
use platter_image::{BlockId, Error, Kind, Result, Score};
use platter_records::{BootSetHead, VersionName};

use crate::readers::registered;
use crate::store::Store;

/// Returns the first lack of the store; `None` if it has all that must stay.
///
/// # Errors
/// As [`lacks`].
pub(crate) fn first_lack(store: &Store) -> Result<Option<String>> {
    Ok(lacks(store, 1)?.pop())
}

/// Returns which versions, boot sets and disks of readers lack something, at most `count_max` of them, each with the first block or page that
/// is missing, known to be damaged, or only in the trash. Only pages are read. Takes time in proportion to all pages.
///
/// # Errors
/// When that cannot be found out, such as for a lack of memory.
pub(crate) fn lacks(store: &Store, count_max: usize) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let roots = store.catalog()?.roots()?;
    let named = roots.versions.iter().map(|version| (version.record.score, version.name.to_string()));
    let held =
        registered(store.place())?.into_iter().map(|score| (score, format!("{score}, which is in use")));
    let mut walk = Walk { store, whole: HashSet::new() };
    let mut walked: HashMap<Score, Option<String>> = HashMap::new();
    for (score, name) in named.chain(held) {
        if found.len() == count_max {
            return Ok(found);
        }
        let lack = match walked.get(&score) {
            Some(known) => known.clone(),
            None => walk.disk(score).or_else(as_lack)?,
        };
        found.extend(lack.as_ref().map(|what| format!("{name}: {what}")));
        walked.insert(score, lack);
    }
    for id in &roots.boot_sets {
        if found.len() == count_max {
            break;
        }
        let lack = walk.boot_set(id).or_else(as_lack)?;
        found.extend(lack.map(|what| format!("the boot set {id}: {what}")));
    }
    Ok(found)
}

impl Store {
    /// Returns which of these versions lack something, as a rebuild names them.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub fn lacking(&self, versions: &[VersionName]) -> Result<Vec<String>> {
        let mut walk = Walk { store: self, whole: HashSet::new() };
        let mut found = Vec::new();
        for version in self.versions()?.into_iter().filter(|version| versions.contains(&version.name)) {
            let lack = walk.disk(version.record.score).or_else(as_lack)?;
            found.extend(lack.map(|what| format!("{}: {what}", version.name)));
        }
        Ok(found)
    }
}

/// What cannot be read is lacking.
fn as_lack(error: Error) -> Result<Option<String>> {
    if error.is_damage() || error.is_data_loss() { Ok(Some(error.with_causes())) } else { Err(error) }
}

/// A walk through everything that disks and boot sets need. Each function returns the first thing that is lacking.
struct Walk<'a> {
    store: &'a Store,
    /// The pages below which nothing is lacking. Versions share most of them.
    whole: HashSet<BlockId>,
}

impl Walk<'_> {
    fn disk(&mut self, score: Score) -> Result<Option<String>> {
        if let lack @ Some(_) = self.block(&score.0)? {
            return Ok(lack);
        }
        let root = Root::decode(score, &self.store.page(&score.0)?)?;
        root.top.map_or(Ok(None), |(_, child)| self.page(&child))
    }

    fn page(&mut self, child: &Child) -> Result<Option<String>> {
        if self.whole.contains(&child.id) {
            return Ok(None);
        }
        if let lack @ Some(_) = self.block(&child.id)? {
            return Ok(lack);
        }
        match decode(child, &self.store.page(&child.id)?)?.1 {
            Contents::Branch(children) => {
                for child in &children {
                    if let lack @ Some(_) = self.page(child)? {
                        return Ok(lack);
                    }
                }
            }
            Contents::Leaf(entries) => {
                let mut last = None;
                for entry in entries {
                    let State::Data { block, .. } = entry.state else { continue };
                    if last.replace(block) != Some(block)
                        && let lack @ Some(_) = self.block(&block)?
                    {
                        return Ok(lack);
                    }
                }
            }
        }
        self.whole.insert(child.id);
        Ok(None)
    }

    fn boot_set(&mut self, id: &BlockId) -> Result<Option<String>> {
        if let lack @ Some(_) = self.block(id)? {
            return Ok(lack);
        }
        let head = BootSetHead::decode(&self.store.read_block(Kind::BootSet, id)?)?;
        for part in &head.parts {
            if let lack @ Some(_) = self.block(part)? {
                return Ok(lack);
            }
        }
        Ok(None)
    }

    fn block(&self, id: &BlockId) -> Result<Option<String>> {
        let is_kept = self.store.0.locate_kept(id)?.is_some();
        Ok((!is_kept).then(|| format!("block {id} is missing or damaged")))
    }
}
