//! Leases of the disks that clients read, so that collections keep them after they were forgotten (`platter_store`, `leases`): each request for
//! frames and each report of a node is a use of a lease.
//!
//! A lease never grants more than its token had: it is taken only for what the token may read, and afterwards gives access to a
//! forgotten disk only if one of the disk's versions had a name that the token covers when it was forgotten.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use platter_api::{AccessToken, NodeReport};
use platter_image::{BlockId, Result, Score};

use crate::access::Principal;
use crate::clock::unix_ms;
use crate::origin::Origin;

/// A further use of a lease is noted again after this time.
const STEP: Duration = Duration::from_secs(600);

/// The leases that were noted within the last [`STEP`], by access token and disk. Locked while the store's list changes.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<(String, Score), Instant>>);

impl Origin {
    /// Notes that a client reads a disk. It must be allowed to.
    pub(crate) fn lease(&self, who: &Principal, score: Score) {
        let mut noted = self.leases.0.lock();
        let (key, now) = ((who.id.clone(), score), Instant::now());
        if noted.get(&key).is_some_and(|at| now.duration_since(*at) < STEP) {
            return;
        }
        // Without space for it, the disk is still read, but not kept after it was forgotten.
        if self.store.renew_lease(&who.id, score, unix_ms()).unwrap_or(false) {
            noted.retain(|_, at| now.duration_since(*at) < STEP);
            noted.insert(key, now);
        }
    }

    /// Removes an access token and ends its leases.
    ///
    /// # Errors
    /// As `AccessTokens::remove`; `Io`.
    pub(crate) fn remove_token(&self, id: &str) -> Result<AccessToken> {
        let removed = self.access.remove(id)?;
        let _noted = self.leases.0.lock();
        self.store.place().end_leases(id)?;
        Ok(removed)
    }

    /// Notes the disks that a node serves, as far as it may read them.
    pub(crate) fn lease_for_node(&self, who: &Principal, report: &NodeReport) {
        for disk in &report.disks {
            if let Some(score) = BlockId::from_hex(&disk.image).map(Score)
                && self.may_read_disk(who, score).is_ok_and(|may_read| may_read)
            {
                self.lease(who, score);
            }
        }
    }

    /// Returns whether the principal may read a disk: it reads everything, or covers a version of the disk, or has a lease and
    /// covers a version that was forgotten.
    ///
    /// # Errors
    /// When the catalog cannot be read; `Io`.
    pub(crate) fn may_read_disk(&self, who: &Principal, score: Score) -> Result<bool> {
        if who.reads_everything() {
            return Ok(true);
        }
        let mut versions = self.store.versions()?.into_iter().filter(|version| version.record.score == score);
        if versions.any(|version| who.may_read(&version.name.image)) {
            return Ok(true);
        }
        if !self.store.has_lease(&who.id, score, unix_ms())? {
            return Ok(false);
        }
        let mut forgotten =
            self.store.forgotten()?.into_iter().filter(|version| version.record.score == score);
        Ok(forgotten.any(|version| who.may_read(&version.name.image)))
    }
}
