//! Looks up in the store which blocks it has. All batches that wait are looked up together, so a far store
//! gets few requests, and a near one is asked at once.

use crossbeam_channel::{Receiver, Sender};
use platter_image::{BlockId, FrameStore, Result};

use super::hash::{Block, Hashed};

/// The most batches in one lookup.
const BATCHES_TOGETHER: usize = 16;

/// Whether lookups need separate threads; a near store is queried by the hashing threads themselves.
pub(super) fn is_far<S: FrameStore>(store: &S) -> bool {
    store.lookups_under_way() > 1
}

/// Looks up the blocks of batches until there are no more.
pub(super) fn look_up_batches<S: FrameStore>(
    store: &S,
    hashed: &Receiver<Hashed>,
    looked_up: &Sender<Hashed>,
) -> Result<()> {
    for first in hashed {
        let mut batches = vec![first];
        batches.extend(hashed.try_iter().take(BATCHES_TOGETHER - 1));
        look_up(store, &mut batches)?;
        for batch in batches {
            if looked_up.send(batch).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Records which blocks of these batches the store has.
pub(super) fn look_up<S: FrameStore>(store: &S, batches: &mut [Hashed]) -> Result<()> {
    let ids: Vec<BlockId> = batches
        .iter()
        .flat_map(|batch| &batch.blocks)
        .filter_map(|block| match block {
            Block::Named { id, .. } => Some(*id),
            Block::Zero => None,
        })
        .collect();
    let mut pins = store.lookup_and_pin_all(&ids)?.into_iter();
    for block in batches.iter_mut().flat_map(|batch| &mut batch.blocks) {
        if let Block::Named { known, .. } = block {
            *known = pins.next().flatten();
        }
    }
    Ok(())
}
