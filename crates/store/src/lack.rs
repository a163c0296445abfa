//! Whether a store has all that must stay, asked before something is removed that no version seems to need.

use std::collections::HashSet;

use platter_image::page::State;
use platter_image::recipe::Recipe;
use platter_image::{BlockId, Extent, Kind, Result, Score};
use platter_records::BootSetHead;

use crate::readers::registered;
use crate::store::Store;

/// Returns the first thing that versions, boot sets, readers or overlays need and that the store lacks: missing, known to be damaged, or only
/// in the trash. Blocks are looked up, not read. Takes time in proportion to all recipes, and memory for the blocks of one.
///
/// # Errors
/// When that cannot be found out, such as for a lack of memory.
pub(crate) fn first_lack(store: &Store) -> Result<Option<String>> {
    let roots = store.catalog()?.roots()?;
    let named = roots.versions.iter().map(|version| (version.record.score, version.name.to_string()));
    let held =
        registered(store.place())?.into_iter().map(|score| (score, format!("{score}, which is in use")));
    let mut walked = HashSet::new();
    for (score, name) in named.chain(held) {
        if walked.insert(score) {
            let lack = lack_of_disk(store, score).or_else(as_lack)?;
            if let Some(what) = lack {
                return Ok(Some(format!("{name}: {what}")));
            }
        }
    }
    for id in &roots.boot_sets {
        if let Some(what) = lack_of_boot_set(store, id).or_else(as_lack)? {
            return Ok(Some(format!("the boot set {id}: {what}")));
        }
    }
    Ok(None)
}

/// What cannot be read is lacking.
fn as_lack(error: platter_image::Error) -> Result<Option<String>> {
    if error.is_damage() || error.is_data_loss() { Ok(Some(error.with_causes())) } else { Err(error) }
}

fn lack_of_disk(store: &Store, score: Score) -> Result<Option<String>> {
    let recipe = Recipe::open(score, store)?;
    let mut asked = HashSet::new();
    for entry in recipe.entries(Extent::new(0, recipe.root().disk_length)) {
        let State::Data { block, .. } = entry?.state else { continue };
        if asked.insert(block) && store.0.locate_kept(&block)?.is_none() {
            return Ok(Some(format!("block {block} is missing or damaged")));
        }
    }
    Ok(None)
}

fn lack_of_boot_set(store: &Store, id: &BlockId) -> Result<Option<String>> {
    let head = BootSetHead::decode(&store.read_block(Kind::BootSet, id)?)?;
    for part in head.parts {
        if store.0.locate_kept(&part)?.is_none() {
            return Ok(Some(format!("block {part} is missing or damaged")));
        }
    }
    Ok(None)
}
