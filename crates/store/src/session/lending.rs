//! Blocks of sessions under way: a session of the same process may rely on what another has added but not published, so disks
//! that are captured at the same time share blocks like disks that are captured one after the other.
//!
//! A block is borrowed with its pack. Before the borrower commits, its lenders seal these packs and hand them over: they are
//! then treated like the packs of interrupted sessions, which the next commit of anybody lists. So a borrower waits for a lender only
//! while that writes, not until it publishes, and a lender may be abandoned.
//!
//! Locks: a session that looks at another one holds no lock of its own.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use platter_image::{BlockId, FrameAddress, Pin, Result};
use platter_index::Index;

use super::{Session, State};
use crate::store::{Shared, Writer};

/// The sessions of this process that have not ended.
#[derive(Debug, Default)]
pub(crate) struct SessionsUnderWay(Mutex<Vec<Weak<Mutex<State>>>>);

impl SessionsUnderWay {
    pub(super) fn add(&self, state: &Arc<Mutex<State>>) {
        let mut all = self.0.lock();
        all.retain(|state| state.strong_count() > 0);
        all.push(Arc::downgrade(state));
    }

    pub(super) fn remove(&self, state: &Arc<Mutex<State>>) {
        self.0.lock().retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(state)));
    }

    /// Returns all except `own`.
    fn others(&self, own: &Arc<Mutex<State>>) -> Vec<Arc<Mutex<State>>> {
        let all = self.0.lock();
        all.iter().filter_map(Weak::upgrade).filter(|state| !Arc::ptr_eq(state, own)).collect()
    }
}

impl Session {
    /// Returns a pin for a block that another session has added, or has published since it was looked up.
    pub(super) fn borrow(&self, id: &BlockId) -> Result<Option<Pin>> {
        if self.is_alone {
            return Ok(None);
        }
        let others = self.shared.writer()?.under_way.others(&self.state);
        for other in &others {
            let mut state = other.lock();
            let Some(place) = state.index.locate_sound(id) else { continue };
            let pack = place.frame.pack;
            // What an earlier process wrote has to be read back, which its own session does.
            if state.resumed.contains(&pack) {
                continue;
            }
            let pin = self.shared.packs.get(pack)?.pin();
            state.lent.insert(pack);
            drop(state);
            self.borrowed.lock().insert(pack);
            self.pins.lock().insert(pin.clone());
            return Ok(Some(pin));
        }
        if others.is_empty() { Ok(None) } else { self.pin_published(id) }
    }

    /// Makes the packs on which this session relies part of the store: the next commit of any session lists them. Called before
    /// blocks that were looked up are read, and before the commit.
    ///
    /// # Errors
    /// `Refused` when a write has failed; `Io`.
    pub fn take_borrowed(&self) -> Result<()> {
        let borrowed = std::mem::take(&mut *self.borrowed.lock());
        if borrowed.is_empty() {
            return Ok(());
        }
        let writer = self.shared.writer()?;
        for other in writer.under_way.others(&self.state) {
            let mut state = other.lock();
            let packs: HashSet<u32> = borrowed.intersection(&state.lent).copied().collect();
            if packs.is_empty() {
                continue;
            }
            writer.check()?;
            if state.open.as_ref().is_some_and(|open| packs.contains(&open.ordinal)) {
                writer.poison(state.seal())?;
            }
            self.shared.hand_over(writer, &mut state, &packs)?;
        }
        Ok(())
    }
}

impl Shared {
    /// Takes these sealed packs from a session and makes them part of the store.
    pub(super) fn hand_over(&self, writer: &Writer, state: &mut State, packs: &HashSet<u32>) -> Result<()> {
        if packs.is_empty() {
            return Ok(());
        }
        let mut index = Index::new();
        let lent = state.index.frames().filter(|(address, _)| packs.contains(&address.pack));
        for (address, ids) in lent {
            index.push_frame(address, ids.iter().copied())?;
        }
        state.lent.retain(|pack| !packs.contains(pack));
        // Before anybody finds these blocks: whoever refers to them lists their packs.
        for (ordinal, pack) in state.sealed.extract_if(.., |(ordinal, _)| packs.contains(ordinal)) {
            state.begun.retain(|begun| *begun != pack.id);
            writer.interrupted().refer(ordinal, pack);
        }
        self.absorb(index)?;
        let bad: Vec<FrameAddress> = state.index.bad_frames().collect();
        state.index.retain_packs(|pack| !packs.contains(&pack));
        state.index.condemn(&bad);
        Ok(())
    }
}
