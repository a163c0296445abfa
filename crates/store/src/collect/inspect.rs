//! The second proof, before condemned packs become dead: by other code than the marking, from a new snapshot, page by page in
//! disk order and without remembering pages. Whatever a version needs and a condemned pack has must also be in a frame of a live
//! pack, and that frame is read and hashed.

use std::collections::BTreeSet;

use platter_image::page::State;
use platter_image::recipe::Recipe;
use platter_image::{BlockId, Error, Extent, FrameAddress, Result, Score};

use super::roots::Roots;
use crate::catalog::PackState;
use crate::store::Store;
use platter_pack::read_directory;

/// The packs under inspection.
pub(super) struct Inspection<'a> {
    store: &'a Store,
    /// All blocks of the condemned packs, sorted: half the memory of a table.
    condemned: Vec<BlockId>,
    /// Frames that are relied on instead.
    instead: BTreeSet<FrameAddress>,
}

impl<'a> Inspection<'a> {
    /// Reads the directories of condemned packs, by their ordinals.
    pub(super) fn of(store: &'a Store, condemned: &BTreeSet<u32>) -> Result<Self> {
        let mut ids = Vec::new();
        for ordinal in condemned {
            let id = store.0.packs.get(*ordinal)?.id;
            let directory = read_directory(&*store.0.packs.file(*ordinal)?, id, store.id())?;
            ids.extend(directory.ids);
        }
        ids.sort_unstable();
        Ok(Self { store, condemned: ids, instead: BTreeSet::new() })
    }

    /// Proves that no root loses a block. Returns the number of frames that were read for it.
    pub(super) fn prove(mut self, roots: &Roots) -> Result<usize> {
        for version in &roots.versions {
            self.block(&version.record_id)
                .map_err(|error| error.within(format!("the record of {}", version.name)))?;
        }
        for id in &roots.boot_sets {
            let set = self.store.boot_set_parts(id)?;
            set.iter().try_for_each(|part| self.block(part))?;
        }
        for score in roots.scores() {
            self.recipe(score).map_err(|error| error.within(format!("inspecting the recipe {score}")))?;
        }
        for address in &self.instead {
            if !self.store.0.prove_known(*address) {
                return Err(Error::corrupt(format!(
                    "the frame at offset {} of pack {} has the only other copy of a block, and is damaged",
                    address.offset,
                    self.store.pack_id(*address)?
                )));
            }
        }
        Ok(self.instead.len())
    }

    fn recipe(&mut self, score: Score) -> Result<()> {
        let recipe = Recipe::open(score, self.store)?;
        let whole = Extent::new(0, recipe.root().disk_length);
        recipe.visit_pages(whole, &mut |page| self.block(page))?;
        for entry in recipe.entries(whole) {
            if let State::Data { block, .. } = entry?.state {
                self.block(&block)?;
            }
        }
        Ok(())
    }

    fn block(&mut self, id: &BlockId) -> Result<()> {
        if self.condemned.binary_search(id).is_err() {
            return Ok(());
        }
        // Preferred: a sound frame in a pack that stays.
        let place = self.store.0.locate(id)?;
        let pack = place.map(|place| self.store.0.packs.get(place.frame.pack)).transpose()?;
        match (place, pack.map(|pack| pack.state())) {
            (Some(place), Some(PackState::Live)) => {
                self.instead.insert(place.frame);
                Ok(())
            }
            _ => Err(Error::bug(format!("block {id} is needed, but only a condemned pack has it"))),
        }
    }
}
