//! Whether a store has all that must stay, asked before something is removed that no version seems to need, and after a rebuild.

use std::collections::{HashMap, HashSet};

use platter_image::page::State;
use platter_image::recipe::Recipe;
use platter_image::{BlockId, Extent, Kind, Result, Score};
use platter_records::BootSetHead;

use crate::readers::registered;
use crate::store::Store;

/// Returns the first lack of the store; `None` if it has all that must stay.
///
/// # Errors
/// As [`lacks`].
pub(crate) fn first_lack(store: &Store) -> Result<Option<String>> {
    Ok(lacks(store, 1)?.pop())
}

/// Returns which versions, boot sets, and disks of readers and overlays lack something, at most `count_max` of them, each with the first thing
/// that is missing, known to be damaged, or only in the trash. Blocks are looked up, not read. Takes time in proportion to all recipes,
/// and memory for the blocks of one.
///
/// # Errors
/// When that cannot be found out, such as for a lack of memory.
pub(crate) fn lacks(store: &Store, count_max: usize) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let roots = store.catalog()?.roots()?;
    let named = roots.versions.iter().map(|version| (version.record.score, version.name.to_string()));
    let held =
        registered(store.place())?.into_iter().map(|score| (score, format!("{score}, which is in use")));
    let mut walked: HashMap<Score, Option<String>> = HashMap::new();
    for (score, name) in named.chain(held) {
        if found.len() == count_max {
            return Ok(found);
        }
        let lack = match walked.get(&score) {
            Some(known) => known.clone(),
            None => lack_of_disk(store, score).or_else(as_lack)?,
        };
        found.extend(lack.as_ref().map(|what| format!("{name}: {what}")));
        walked.insert(score, lack);
    }
    for id in &roots.boot_sets {
        if found.len() == count_max {
            break;
        }
        let lack = lack_of_boot_set(store, id).or_else(as_lack)?;
        found.extend(lack.map(|what| format!("the boot set {id}: {what}")));
    }
    Ok(found)
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
