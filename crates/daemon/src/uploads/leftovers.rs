//! Data of a token's unfinished uploads: the blocks of their packs, which the next upload reuses, and the total bytes,
//! which have a limit.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use platter_image::{BlockId, Error, Result};
use platter_store::{ParkedPack, Resumed, Session, Store};

use crate::access::Principal;

/// The owner's name for packs that were sent through the unix socket. All its clients count as one owner.
const UNIX_SOCKET_OWNER: &str = "local";

/// Returns the owner's name for the packs of a principal.
pub(super) fn owner_name(id: &str) -> &str {
    if id.is_empty() { UNIX_SOCKET_OWNER } else { id }
}

/// Packs of earlier unfinished uploads of the same token, and their blocks.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Each pack with the number of its blocks; `None` once it was claimed.
    packs: Vec<Option<(ParkedPack, usize)>>,
    blocks: HashMap<BlockId, usize>,
}

/// The result of claiming a block from earlier uploads.
#[derive(Debug)]
pub(super) enum Claim {
    /// No remaining pack has the block.
    Nothing,
    /// The block's pack, of `length` bytes, is now part of the session, with these blocks.
    Pack { length: u64, ids: Vec<BlockId> },
    /// The block's pack, of `length` bytes, was damaged and has been removed.
    Lost { length: u64 },
}

impl Leftovers {
    /// Loads the packs of an owner, newest first, up to `ids_max` blocks.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn of(store: &Store, owner: &str, ids_max: usize) -> Result<Self> {
        let mut leftovers = Self::default();
        let mut parked = store.parked()?;
        parked.retain(|pack| pack.owner == owner);
        parked.sort_by_key(|pack| std::cmp::Reverse(pack.since_unix_ms));
        for pack in parked {
            let ids = store.parked_ids(&pack)?;
            if leftovers.blocks.len() + ids.len() > ids_max {
                break;
            }
            let number = leftovers.packs.len();
            leftovers.packs.push(Some((pack, ids.len())));
            leftovers.blocks.extend(ids.into_iter().map(|id| (id, number)));
        }
        Ok(leftovers)
    }

    /// Adds the pack with this block to the session, if there is one and it has at most `room()` blocks.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) fn claim(
        &mut self,
        session: &Session,
        id: &BlockId,
        room: &dyn Fn() -> usize,
    ) -> Result<Claim> {
        let Some(number) = self.blocks.get(id).copied() else { return Ok(Claim::Nothing) };
        let Some((pack, _)) = self.packs[number].take_if(|(_, blocks)| *blocks <= room()) else {
            return Ok(Claim::Nothing);
        };
        Ok(match session.resume(&pack)? {
            Resumed::Taken(ids) => Claim::Pack { length: pack.length, ids },
            Resumed::Gone => Claim::Nothing,
            Resumed::Damaged => Claim::Lost { length: pack.length },
        })
    }
}

/// Bytes of one owner's uploads.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage(Arc<Bytes>);

#[derive(Debug, Default)]
struct Bytes {
    /// Of unfinished uploads, both under way and ended.
    unfinished: AtomicU64,
    /// What became part of the store since garbage was collected, needed or not.
    stored: AtomicU64,
}

impl Usage {
    /// Adds bytes, unless the sum would exceed the limit.
    ///
    /// # Errors
    /// `Refused`.
    pub(super) fn add(&self, bytes: u64, limit: u64) -> Result<()> {
        let before = self.0.unfinished.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= limit {
            return Ok(());
        }
        self.subtract(bytes);
        Err(Error::refused(format!(
            "the unfinished uploads of this access token hold {before} bytes, and {limit} are allowed: publish or end one, or have \
             the token's quota or the origin's --upload-limit raised"
        )))
    }

    /// As [`Usage::add`], for an owner with a quota: together with what became part of the store since garbage was collected, at most
    /// `stored_max` bytes. A version need not refer to what was sent for it, so only a collection shows whether that counts for the
    /// quota. If only a limit of unfinished data would be exceeded, the oldest of the owner is discarded.
    ///
    /// # Errors
    /// `Refused`; `Io`.
    pub(super) fn add_to_latest(
        &self,
        bytes: u64,
        (limit, stored_max): (u64, u64),
        store: &Store,
        owner: &str,
    ) -> Result<()> {
        let stored = self.0.stored.load(Ordering::Relaxed);
        let left = stored_max.saturating_sub(stored);
        let needs_collection = || {
            let unfinished = self.0.unfinished.load(Ordering::Relaxed);
            Error::refused(format!(
                "this access token has stored {stored} bytes since garbage was collected, and its unfinished uploads hold {unfinished}: \
                 with its quota, {stored_max} are allowed together; have the origin collect garbage (`platter gc`), wait for other \
                 uploads, or have the quota raised"
            ))
        };
        if bytes > left {
            return Err(needs_collection());
        }
        let Err(refusal) = self.add(bytes, limit.min(left)) else { return Ok(()) };
        let refusal = if left < limit { needs_collection() } else { refusal };
        let mut packs = store.parked()?;
        packs.retain(|pack| pack.owner == owner);
        packs.sort_by_key(|pack| pack.since_unix_ms);
        for pack in packs {
            // If an upload has reused the pack, the upload still counts it.
            if store.discard_parked(&pack)? {
                self.subtract(pack.length);
            }
            if self.add(bytes, limit.min(left)).is_ok() {
                return Ok(());
            }
        }
        Err(refusal)
    }

    pub(super) fn subtract(&self, bytes: u64) {
        self.change(bytes, 0);
    }

    /// Counts `new` bytes instead of `old` ones.
    pub(super) fn change(&self, old: u64, new: u64) {
        let change = |now: u64| Some(now.saturating_sub(old).saturating_add(new));
        let _ = self.0.unfinished.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Counts bytes as part of the store.
    pub(super) fn add_stored(&self, bytes: u64) {
        self.0.stored.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The usage of every known owner.
#[derive(Debug, Default)]
pub(super) struct Usages {
    of_owners: Mutex<HashMap<String, Usage>>,
    /// How many packs collections have given up, when that was last asked.
    given_up: AtomicU64,
}

impl Usages {
    /// Returns the usage of an owner. It includes data left before this origin started.
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
        let usage = Usage::default();
        usage.change(0, left);
        usages.insert(owner.to_owned(), usage.clone());
        Ok(usage)
    }

    /// Notes that this origin collected garbage: nothing counts as stored since then.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub(super) fn note_collection(&self, store: &Store) -> Result<()> {
        self.given_up.store(store.packs_given_up()?, Ordering::Relaxed);
        self.forget_stored();
        Ok(())
    }

    fn forget_stored(&self) {
        self.lock().values().for_each(|usage| usage.0.stored.store(0, Ordering::Relaxed));
    }

    /// Notes whether another process collected garbage and gave up packs.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub(super) fn look_for_collection(&self, store: &Store) -> Result<()> {
        let given_up = store.packs_given_up()?;
        if self.given_up.swap(given_up, Ordering::Relaxed) != given_up {
            self.forget_stored();
        }
        Ok(())
    }

    /// Discards data that was left before this time.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn discard_before(&self, store: &Store, time_unix_ms: i64) -> Result<()> {
        let mut old = store.parked()?.into_iter().filter(|pack| pack.since_unix_ms < time_unix_ms);
        old.try_for_each(|pack| self.discard(store, &pack))
    }

    /// Discards the oldest packs of this owner, down to `packs_max`.
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
        // If an upload has reused the pack, the upload still counts it.
        if store.discard_parked(pack)?
            && let Some(usage) = self.lock().get(&pack.owner)
        {
            usage.subtract(pack.length);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Usage>> {
        self.of_owners.lock()
    }
}

/// Most bytes of a principal's unfinished uploads. Clients of the unix socket have no limit. With a quota, they may hold that much
/// again: more could not be published.
pub(super) fn limit_of(who: &Principal, limit: u64) -> u64 {
    let of_quota = who.quota_bytes.map_or(u64::MAX, with_headers);
    if who.id.is_empty() { u64::MAX } else { limit.min(of_quota) }
}

/// The bytes of a quota, and an eighth for the headers of frames.
pub(super) fn with_headers(quota: u64) -> u64 {
    quota.saturating_add(quota / 8)
}
