//! Checks one recipe: that every page and block is in the store and fits. The check goes on past what is lost, so that it names everything
//! that a version lacks, and everything that it needs.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe, check_piece};
use platter_image::{BlockId, BlockPlace, Error, Extent, Result, Score};
use platter_records::PackId;

use crate::block_lengths::BlockLengths;
use crate::losses::Losses;
use crate::store::Store;

/// The result of checking a recipe.
#[derive(Debug, Default)]
pub(crate) struct CheckedRecipe {
    /// The length of the disk.
    pub(crate) disk_length: u64,
    /// Blocks and pages that are lost: the pack that had each, if that is known, and the bytes of the disk for which it was first needed.
    pub(crate) lost: BTreeMap<BlockId, (Option<PackId>, u64)>,
    /// Blocks that do not fit the recipe, and why.
    pub(crate) unfit: Vec<(BlockId, String)>,
    /// Why the first page could not be read. What it names is unknown.
    pub(crate) unread: Option<String>,
}

/// Checks the recipe with that score.
///
/// # Errors
/// Errors other than damage.
pub(crate) fn check_recipe(
    store: &Store,
    score: Score,
    losses: &Losses,
    lengths: &BlockLengths,
) -> Result<CheckedRecipe> {
    let checking = Checking { store, losses, lost: Mutex::default() };
    let mut checked = CheckedRecipe::default();
    let unread = Mutex::new(None);
    match Recipe::open(score, &checking) {
        Err(error) if error.is_data_loss() => checked.unread = Some(error.with_causes()),
        Err(error) => return Err(error),
        Ok(recipe) => {
            checked.disk_length = recipe.root().disk_length;
            let on_lost = |_: Extent, error: &Error| {
                unread.lock().get_or_insert_with(|| error.with_causes());
            };
            let mut unfit = BTreeSet::new();
            for entry in recipe.readable_entries(Extent::new(0, checked.disk_length), &on_lost) {
                let entry = entry?;
                let State::Data { block, offset } = entry.state else { continue };
                let place = checking.find(&block, entry.extent.length)?;
                let length = place.and_then(|place| length_at(store, lengths, &place));
                if let Some(length) = length
                    && let Err(error) = check_piece(&block, offset.into(), entry.extent.length, length)
                    && unfit.insert(block)
                {
                    checked.unfit.push((block, error.with_causes()));
                }
            }
        }
    }
    checked.unread = checked.unread.or(unread.into_inner());
    checked.lost = checking.lost.into_inner();
    Ok(checked)
}

/// Returns whether a place is in a pack that stays. Collected packs keep nothing for versions.
pub(crate) fn is_kept(store: &Store, place: &BlockPlace) -> bool {
    store.0.packs.get(place.frame.pack).is_ok_and(|pack| !pack.is_collected())
}

fn length_at(store: &Store, lengths: &BlockLengths, place: &BlockPlace) -> Option<u64> {
    let pack = store.pack_id(place.frame).ok()?;
    lengths.of(pack, place.frame.offset, place.slot)
}

struct Checking<'a> {
    store: &'a Store,
    losses: &'a Losses,
    lost: Mutex<BTreeMap<BlockId, (Option<PackId>, u64)>>,
}

impl Checking<'_> {
    /// Returns the place of a block; `None` if it is lost, which is noted.
    fn find(&self, id: &BlockId, bytes: u64) -> Result<Option<BlockPlace>> {
        let place = self.store.0.locate(id)?.filter(|place| is_kept(self.store, place));
        let pack = match (place, self.losses.only_bad(id)) {
            (Some(place), None) => {
                let pack = self.store.pack_id(place.frame)?;
                if !self.losses.is_bad((pack, place.frame.offset)) {
                    return Ok(Some(place));
                }
                // The index names it, and the footer of the pack does not.
                Some(pack)
            }
            (Some(_), bad) => bad,
            (None, _) => self.store.0.pack_that_had(id)?,
        };
        self.lost.lock().entry(*id).or_insert((pack, bytes));
        Ok(None)
    }
}

impl PageSource for Checking<'_> {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        // A page that is lost is tried all the same: it may be readable once more.
        self.find(id, 0)?;
        self.store.page(id)
    }
}
