//! Asks the store which blocks it has: of all batches together that wait when an answer is there, so that a store far
//! away is asked seldom and a near one at once.

use crossbeam_channel::{Receiver, Sender};
use platter_image::{BlockId, FrameStore, Result};

use super::hash::{Block, Hashed};

/// Most batches in one question to a store that answers late. One that is near is asked for each.
const BATCHES_TOGETHER: usize = 16;

/// Looks up the blocks of batches until there are no more.
pub(super) fn look_up_batches<S: FrameStore>(
    store: &S,
    hashed: &Receiver<Hashed>,
    looked_up: &Sender<Hashed>,
) -> Result<()> {
    let together = if store.lookups_under_way() > 1 { BATCHES_TOGETHER } else { 1 };
    for first in hashed {
        let mut batches = vec![first];
        batches.extend(hashed.try_iter().take(together - 1));
        let ids: Vec<BlockId> = batches
            .iter()
            .flat_map(|batch| &batch.blocks)
            .filter_map(|block| match block {
                Block::Named { id, .. } => Some(*id),
                Block::Zero => None,
            })
            .collect();
        let mut pins = store.lookup_and_pin_all(&ids)?.into_iter();
        for mut batch in batches {
            for block in &mut batch.blocks {
                if let Block::Named { known, .. } = block {
                    *known = pins.next().flatten();
                }
            }
            if looked_up.send(batch).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
