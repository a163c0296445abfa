//! Leases of remote readers: which disks an origin's clients read, each for the access token it is read with, in the file `leases.json`.
//!
//! A disk that was forgotten while somebody reads it is kept from collection until the lease ends. A reader gets a lease only for
//! a disk that some version has. It is written before the catalog is asked again whether the version still exists, and a collection
//! reads the leases after the catalog. So it sees the version or the lease, as with registrations (`readers`).
//!
//! A lease ends [`LEASE_MS`] after its last use. Use cannot prolong it for ever: it ends at the latest [`UNNAMED_MS`] after the last use
//! at which a version still had the disk, and with its access token. Losing the file ends all leases of forgotten disks.

use std::collections::BTreeMap;

use platter_image::{BlockId, Error, IoContext, Result, Score};
use platter_vfs::{read_whole, replace};
use serde::{Deserialize, Serialize};

use crate::collect::can_be_marked;
use crate::place::StorePlace;
use crate::store::Store;

const FILE: &str = "leases.json";
const FILE_LENGTH_MAX: u64 = 8 << 20;
const DAY_MS: i64 = 24 * 3_600_000;
/// A lease ends this long after its last use.
const LEASE_MS: i64 = 7 * DAY_MS;
/// A lease of a forgotten disk ends this long after the last use before the disk was forgotten, even if it is still used.
const UNNAMED_MS: i64 = 90 * DAY_MS;
/// Maximum number of leases of an access token, and of all: the longest unused are dropped first, of the token that has most.
const LEASES_OF_OWNER_MAX: usize = 1024;
const LEASES_MAX: usize = 16_384;

/// The lease of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Lease {
    /// Id of the access token; empty for clients of the unix socket.
    owner: String,
    /// 64 hexadecimal digits.
    score: String,
    /// Its last use, in milliseconds since 1970 UTC.
    used_unix_ms: i64,
    /// Its last use while a version had the disk.
    named_unix_ms: i64,
}

impl Lease {
    fn is_live(&self, now_unix_ms: i64) -> bool {
        now_unix_ms - self.used_unix_ms <= LEASE_MS && now_unix_ms - self.named_unix_ms <= UNNAMED_MS
    }

    fn is_of(&self, owner: &str, score: Score) -> bool {
        self.owner == owner && self.score == score.to_string()
    }
}

impl Store {
    /// Notes that a disk is read with an access token, which must be allowed to read it. Returns whether there is a lease now: only
    /// then collections keep the disk. Calls must not overlap.
    ///
    /// # Errors
    /// `Io`; an error when the catalog cannot be read.
    pub fn renew_lease(&self, owner: &str, score: Score, now_unix_ms: i64) -> Result<bool> {
        let is_named = || Ok::<_, Error>(self.catalog()?.oldest_of(score)?.is_some());
        let mut leases = live(self.place(), now_unix_ms)?;
        let known = leases.iter_mut().find(|lease| lease.is_of(owner, score));
        let was_known = known.is_some();
        match (known, is_named()?) {
            (Some(lease), true) => (lease.used_unix_ms, lease.named_unix_ms) = (now_unix_ms, now_unix_ms),
            (Some(lease), false) => lease.used_unix_ms = now_unix_ms,
            (None, true) => leases.push(Lease {
                owner: owner.to_owned(),
                score: score.to_string(),
                used_unix_ms: now_unix_ms,
                named_unix_ms: now_unix_ms,
            }),
            (None, false) => return Ok(false),
        }
        limit(&mut leases);
        write(self.place(), &leases)?;
        Ok(was_known || is_named()?)
    }

    /// Returns whether an access token has a lease of this disk.
    ///
    /// # Errors
    /// `Io`.
    pub fn has_lease(&self, owner: &str, score: Score, now_unix_ms: i64) -> Result<bool> {
        Ok(live(self.place(), now_unix_ms)?.iter().any(|lease| lease.is_of(owner, score)))
    }

    /// Returns the disks that collections keep for remote readers now.
    pub(crate) fn leased(&self, now_unix_ms: i64) -> Result<Vec<Score>> {
        let leases = live(self.place(), now_unix_ms)?;
        Ok(leases.iter().filter_map(|lease| BlockId::from_hex(&lease.score).map(Score)).collect())
    }

    /// Returns the leased disks that no collection can keep, because they lack something already: collected before, or damaged.
    pub(crate) fn leased_in_vain(&self, now_unix_ms: i64) -> Result<Vec<Score>> {
        let mut leased = self.leased(now_unix_ms)?;
        leased.sort_unstable();
        leased.dedup();
        let mut in_vain = Vec::new();
        for score in leased {
            let is_named = self.catalog()?.oldest_of(score)?.is_some();
            if !is_named && !can_be_marked(self, score) {
                in_vain.push(score);
            }
        }
        Ok(in_vain)
    }
}

impl StorePlace {
    /// Ends all leases of an access token.
    ///
    /// # Errors
    /// `Io`.
    pub fn end_leases(&self, owner: &str) -> Result<()> {
        let mut leases = read(self)?;
        let before = leases.len();
        leases.retain(|lease| lease.owner != owner);
        if leases.len() < before { write(self, &leases) } else { Ok(()) }
    }
}

/// Drops leases above the limits.
fn limit(leases: &mut Vec<Lease>) {
    // Those of forgotten disks stay longest: nobody can get one again.
    leases.sort_by_key(|lease| {
        (lease.used_unix_ms <= lease.named_unix_ms, std::cmp::Reverse(lease.used_unix_ms))
    });
    let mut of_owner: BTreeMap<String, usize> = BTreeMap::new();
    leases.retain(|lease| {
        let count = of_owner.entry(lease.owner.clone()).or_default();
        *count += 1;
        *count <= LEASES_OF_OWNER_MAX
    });
    while leases.len() > LEASES_MAX {
        let mut of_owner: BTreeMap<&str, usize> = BTreeMap::new();
        leases.iter().for_each(|lease| *of_owner.entry(&lease.owner).or_default() += 1);
        let most = of_owner.into_iter().max_by_key(|(_, count)| *count).map(|(owner, _)| owner.to_owned());
        let Some(oldest) = leases.iter().rposition(|lease| Some(&lease.owner) == most.as_ref()) else {
            return;
        };
        leases.remove(oldest);
    }
}

fn live(place: &StorePlace, now_unix_ms: i64) -> Result<Vec<Lease>> {
    let mut leases = read(place)?;
    leases.retain(|lease| lease.is_live(now_unix_ms));
    Ok(leases)
}

/// Reads the file. An invalid one counts as none.
fn read(place: &StorePlace) -> Result<Vec<Lease>> {
    let path = place.dir().join(FILE);
    let bytes = read_whole(place.vfs(), &path, FILE_LENGTH_MAX);
    let bytes = bytes.context(|| format!("reading {}", path.display()))?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
}

fn write(place: &StorePlace, leases: &[Lease]) -> Result<()> {
    let path = place.dir().join(FILE);
    let text = serde_json::to_vec(leases)
        .map_err(|error| Error::bug("cannot serialize leases").with_source(error))?;
    replace(place.vfs(), &path, &text).context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_drops_only_its_own_oldest_leases() {
        let lease = |owner: usize, used: usize| Lease {
            owner: owner.to_string(),
            score: format!("{used:064x}"),
            used_unix_ms: used as i64,
            named_unix_ms: used as i64,
        };
        let forgotten = Lease { used_unix_ms: 1, ..lease(1, 0) };
        let mut leases: Vec<Lease> = (0..LEASES_OF_OWNER_MAX + 10).map(|used| lease(1, used)).collect();
        leases.push(lease(2, 0));
        leases[0] = forgotten.clone();
        limit(&mut leases);
        assert_eq!(leases.len(), LEASES_OF_OWNER_MAX + 1);
        assert!(leases.contains(&forgotten));
        assert!(
            leases.contains(&lease(2, 0))
                && leases.contains(&lease(1, 11))
                && !leases.contains(&lease(1, 10))
        );
        // All together: of those that have most.
        let mut leases: Vec<Lease> =
            (1..=16).flat_map(|owner| (1..=1024).map(move |used| lease(owner, used))).collect();
        leases.push(lease(17, 0));
        limit(&mut leases);
        assert_eq!(leases.len(), LEASES_MAX);
        assert!(leases.contains(&lease(17, 0)));
    }
}
