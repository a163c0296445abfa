//! What a token's unfinished uploads hold: the blocks of packs that earlier ones left, which the next one goes on with, and
//! the bytes of all of them together, which have a limit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use platter_image::{BlockId, Error, Result};
use platter_store::{ParkedPack, Session, Store};

use crate::access::Principal;
use crate::config::UNFINISHED_KEPT;

/// For whom packs are kept aside that were sent through the unix socket: those clients are one.
const UNIX_SOCKET_OWNER: &str = "local";

/// The name under which packs of that principal are kept aside.
pub(super) fn owner_name(id: &str) -> &str {
    if id.is_empty() { UNIX_SOCKET_OWNER } else { id }
}

/// Blocks in packs that earlier uploads of the same token left.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    packs: Vec<Option<ParkedPack>>,
    blocks: HashMap<BlockId, usize>,
}

impl Leftovers {
    /// Those of that owner.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn of(store: &Store, owner: &str) -> Result<Self> {
        let mut leftovers = Self::default();
        for pack in store.parked()?.into_iter().filter(|pack| pack.owner == owner) {
            let number = leftovers.packs.len();
            leftovers.blocks.extend(store.parked_ids(&pack)?.into_iter().map(|id| (id, number)));
            leftovers.packs.push(Some(pack));
        }
        Ok(leftovers)
    }

    /// Makes the pack that has a block part of the session, if there is one: its length, and its blocks.
    ///
    /// # Errors
    /// What the store says.
    pub(super) fn claim(&mut self, session: &Session, id: &BlockId) -> Result<Option<(u64, Vec<BlockId>)>> {
        let Some(number) = self.blocks.get(id).copied() else { return Ok(None) };
        let Some(pack) = self.packs[number].take() else { return Ok(None) };
        let mut ids = Vec::new();
        self.blocks.retain(|id, other| {
            if *other == number {
                ids.push(*id);
            }
            *other != number
        });
        Ok(session.resume(&pack)?.then_some((pack.length, ids)))
    }
}

/// Bytes that one owner's unfinished uploads hold, those that were left included.
#[derive(Clone, Debug)]
pub(super) struct Usage(Arc<AtomicU64>);

impl Usage {
    /// Counts so many more, unless that is more than the limit.
    ///
    /// # Errors
    /// `Refused`.
    pub(super) fn add(&self, bytes: u64, limit: u64) -> Result<()> {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= limit {
            return Ok(());
        }
        self.subtract(bytes);
        let days = UNFINISHED_KEPT.as_secs() / 86_400;
        Err(Error::refused(format!(
            "the unfinished uploads of this access token hold {before} bytes, and may hold {limit}: publish what was uploaded, \
             or wait until it is discarded, {days} days after it was left (the origin's --upload-limit)"
        )))
    }

    pub(super) fn subtract(&self, bytes: u64) {
        let _ =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(now.saturating_sub(bytes)));
    }
}

/// The usage of every owner who was heard of.
#[derive(Debug, Default)]
pub(super) struct Usages(Mutex<HashMap<String, Usage>>);

impl Usages {
    /// That of one owner; what was left before this origin began is counted.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn of(&self, store: &Store, owner: &str) -> Result<Usage> {
        let mut usages = self.lock();
        if let Some(usage) = usages.get(owner) {
            return Ok(usage.clone());
        }
        let parked = store.parked()?;
        let left = parked.iter().filter(|pack| pack.owner == owner).map(|pack| pack.length).sum();
        let usage = Usage(Arc::new(AtomicU64::new(left)));
        usages.insert(owner.to_owned(), usage.clone());
        Ok(usage)
    }

    /// Discards what was left before that time.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn discard_before(&self, store: &Store, time_unix_ms: i64) -> Result<()> {
        let mut old = store.parked()?.into_iter().filter(|pack| pack.since_unix_ms < time_unix_ms);
        old.try_for_each(|pack| self.discard(store, &pack))
    }

    /// Discards the oldest packs of that owner, until there are so many.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn discard_beyond(&self, store: &Store, owner: &str, packs_max: usize) -> Result<()> {
        let mut packs = store.parked()?;
        packs.retain(|pack| pack.owner == owner);
        packs.sort_by_key(|pack| pack.since_unix_ms);
        packs.truncate(packs.len().saturating_sub(packs_max));
        packs.iter().try_for_each(|pack| self.discard(store, pack))
    }

    fn discard(&self, store: &Store, pack: &ParkedPack) -> Result<()> {
        store.discard_parked(pack)?;
        if let Some(usage) = self.lock().get(&pack.owner) {
            usage.subtract(pack.length);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Usage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Most bytes that a principal's unfinished uploads may hold: who may do everything on the machine itself has no limit.
pub(super) fn limit_of(who: &Principal, limit: u64) -> u64 {
    if who.id.is_empty() { u64::MAX } else { limit }
}
