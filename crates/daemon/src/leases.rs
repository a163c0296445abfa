//! Leases of the disks that clients read, so that collections keep them after they were forgotten (`platter_store`, `leases`): each request for
//! frames and each report of a node is a use of a lease.
//!
//! A lease never grants more than its token had: it is taken only for what the token may read, and afterwards gives access to a
//! forgotten disk only if one of the disk's versions had a name that the token covers when it was forgotten. Tokens with a quota get
//! none: forgotten disks are in no account, so they could keep more than their quota.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use platter_api::{AccessToken, NodeReport};
use platter_image::{BlockId, Result, Score};
use platter_records::ImageName;

use crate::access::Principal;
use crate::clock::unix_ms;
use crate::origin::Origin;

/// A further use of a lease is noted again after this time.
const STEP: Duration = Duration::from_secs(600);
/// A lease that could not be had is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(30);
/// How long a use that could not be noted keeps a disk.
const UNWRITTEN_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most disks to remember: then it is forgotten which were noted.
const NOTED_MAX: usize = 16_384;

/// What this origin noted of leases lately.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// When each use is noted again, by access token and disk. Locked for moments only.
    noted: Mutex<HashMap<(String, Score), Instant>>,
    /// Locked while the store's list changes.
    changing: Mutex<()>,
    /// Uses that could not be noted, such as on a full disk: kept here, for the collections of this origin.
    unwritten: Mutex<HashMap<(String, Score), Instant>>,
}

impl Leases {
    /// Returns the disks whose use has to be noted now.
    fn due(&self, owner: &str, scores: &BTreeSet<Score>, now: Instant) -> BTreeSet<Score> {
        let noted = self.noted.lock();
        let is_due =
            |score: &&Score| noted.get(&(owner.to_owned(), **score)).is_none_or(|again| *again <= now);
        scores.iter().filter(is_due).copied().collect()
    }

    /// Remembers which disks were tried, and which of them have a lease.
    fn note(&self, owner: &str, tried: &BTreeSet<Score>, renewed: &BTreeSet<Score>, now: Instant) {
        let mut noted = self.noted.lock();
        if noted.len() + tried.len() > NOTED_MAX {
            noted.retain(|_, again| *again > now);
        }
        if noted.len() + tried.len() > NOTED_MAX {
            noted.clear();
        }
        for score in tried {
            let pause = if renewed.contains(score) { STEP } else { TRY_AGAIN };
            noted.insert((owner.to_owned(), *score), now + pause);
        }
    }
}

impl Leases {
    /// Remembers whether the use of disks could be noted.
    fn remember(&self, owner: &str, tried: &BTreeSet<Score>, is_written: bool, now: Instant) {
        let mut unwritten = self.unwritten.lock();
        for score in tried {
            let key = (owner.to_owned(), *score);
            if is_written {
                unwritten.remove(&key);
            } else if unwritten.contains_key(&key) || unwritten.len() < NOTED_MAX {
                unwritten.insert(key, now);
            }
        }
    }

    /// Forgets the uses that could not be noted.
    pub(crate) fn end_unwritten(&self) {
        self.unwritten.lock().clear();
    }

    /// Returns the disks whose use could not be noted lately.
    pub(crate) fn unwritten(&self) -> Vec<Score> {
        let mut unwritten = self.unwritten.lock();
        unwritten.retain(|_, used| used.elapsed() < UNWRITTEN_KEPT);
        unwritten.keys().map(|(_, score)| *score).collect()
    }
}

impl Origin {
    /// Notes that a client reads a disk. It must be allowed to.
    pub(crate) fn lease(&self, who: &Principal, score: Score) {
        self.lease_all(who, &BTreeSet::from([score]));
    }

    fn lease_all(&self, who: &Principal, scores: &BTreeSet<Score>) {
        let (leases, now) = (&self.leases, Instant::now());
        if who.quota_bytes.is_some() || leases.due(&who.id, scores, now).is_empty() {
            return;
        }
        let _changing = leases.changing.lock();
        // Another request may have noted them meanwhile.
        let due = leases.due(&who.id, scores, now);
        if due.is_empty() {
            return;
        }
        // Asked while the list is locked, so that nothing is added after the token's removal.
        let is_valid = OnceCell::new();
        let may_read =
            |image: &ImageName| who.may_read(image) && *is_valid.get_or_init(|| self.is_admitted(&who.id));
        let renewed = self.store.renew_leases(&who.id, &due, &may_read, unix_ms());
        leases.remember(&who.id, &due, renewed.is_ok(), now);
        leases.note(&who.id, &due, &renewed.unwrap_or_default(), now);
    }

    /// Returns whether an access token still exists; for an empty id, the unix socket.
    pub(crate) fn is_admitted(&self, id: &str) -> bool {
        id.is_empty() || self.access.list().is_ok_and(|tokens| tokens.iter().any(|token| token.id == id))
    }

    /// Removes an access token and ends its leases.
    ///
    /// # Errors
    /// As `AccessTokens::remove`; `Io`.
    pub(crate) fn remove_token(&self, id: &str) -> Result<AccessToken> {
        let removed = self.access.remove(id)?;
        let _changing = self.leases.changing.lock();
        self.leases.unwritten.lock().retain(|(owner, _), _| owner != id);
        self.store.place().end_leases(id)?;
        Ok(removed)
    }

    /// Notes the disks that a node serves, as far as it may read them.
    pub(crate) fn lease_for_node(&self, who: &Principal, report: &NodeReport) {
        let scores = report.disks.iter().filter_map(|disk| BlockId::from_hex(&disk.image).map(Score));
        let now = Instant::now();
        let due = self.leases.due(&who.id, &scores.collect(), now);
        if who.quota_bytes.is_some() || due.is_empty() {
            return;
        }
        let readable = self.readable_disks(who, &due).unwrap_or_default();
        let hidden = &due - &readable;
        self.leases.note(&who.id, &hidden, &BTreeSet::new(), now);
        self.lease_all(who, &readable);
    }

    /// Returns whether the principal may read a disk: it reads everything, or covers a version of the disk, or has a lease and
    /// covers a version that was forgotten.
    ///
    /// # Errors
    /// When the catalog cannot be read; `Io`.
    pub(crate) fn may_read_disk(&self, who: &Principal, score: Score) -> Result<bool> {
        Ok(!self.readable_disks(who, &BTreeSet::from([score]))?.is_empty())
    }

    /// As [`Origin::may_read_disk`], for several disks: returns those that it may read.
    fn readable_disks(&self, who: &Principal, scores: &BTreeSet<Score>) -> Result<BTreeSet<Score>> {
        if who.reads_everything() {
            return Ok(scores.clone());
        }
        let mut readable = BTreeSet::new();
        for version in self.store.versions()? {
            if scores.contains(&version.record.score) && who.may_read(&version.name.image) {
                readable.insert(version.record.score);
            }
        }
        if readable.len() == scores.len() {
            return Ok(readable);
        }
        let leased = self.store.leases_of(&who.id, unix_ms())?;
        if scores.is_disjoint(&leased) {
            return Ok(readable);
        }
        for version in self.store.forgotten()? {
            let score = version.record.score;
            if scores.contains(&score) && leased.contains(&score) && who.may_read(&version.name.image) {
                readable.insert(score);
            }
        }
        Ok(readable)
    }
}

#[cfg(test)]
mod tests {

    use platter_api::Role;
    use platter_image::frame::{Compressor, FrameBuilder};
    use platter_image::page::{Entry, State};
    use platter_image::recipe::{CutPolicy, RecipeBuilder};
    use platter_image::{Domain, Extent, FrameStore, Kind};
    use platter_records::VersionRecord;
    use platter_store::{Store, StorePlace};
    use serde_json::json;
    use tokio::sync::watch;

    use super::*;
    use crate::api::files_tests::options_of;

    /// Publishes a zero disk of this many sectors.
    fn publish(store: &Store, name: &str, sectors: u64) -> Score {
        let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
        let pages: Vec<(BlockId, Vec<u8>)> = Vec::new();
        let mut recipe = RecipeBuilder::new(sectors * 512, 512, policy, Domain::SHARED, pages);
        recipe.push(Entry { extent: Extent::new(0, sectors * 512), state: State::Zero }).unwrap();
        let (score, pages) = recipe.finish().unwrap();
        let session = store.session().unwrap();
        let mut frame = FrameBuilder::new(Kind::Page, Domain::SHARED, 1 << 17);
        pages.iter().for_each(|(id, bytes)| frame.push(*id, bytes));
        session.append(&frame.encode(&mut Compressor::new(3).unwrap()).unwrap()).unwrap();
        let draft = VersionRecord::draft(name.parse().unwrap(), score, 1_000);
        session.publish(VersionRecord { disk_length: sectors * 512, ..draft }).unwrap();
        score
    }

    fn new_origin() -> (tempfile::TempDir, Origin) {
        let folder = tempfile::tempdir().unwrap();
        let store = StorePlace::on_system(folder.path().join("store"));
        Store::init(&store).unwrap();
        let options = options_of(store);
        (folder, Origin::open(&options, watch::channel(false).1).unwrap())
    }

    fn who(origin: &Origin, pattern: &str, quota: Option<u64>) -> Principal {
        let name = format!("t{}", origin.access.list().unwrap().len());
        let made = origin.access.add(&name, Role::Read, vec![pattern.parse().unwrap()], quota).unwrap();
        Principal::clone(&origin.access.principal(&made.secret).unwrap().unwrap())
    }

    #[test]
    fn a_node_has_leases_of_what_it_may_read() {
        let (_folder, origin) = new_origin();
        let writer = origin.writer.lease().unwrap();
        let [ours, theirs] =
            [("lab/a", 8), ("other/b", 16)].map(|(name, length)| publish(&writer, name, length));
        // Nothing of it gives rights for the other tenant's equal disk.
        publish(&writer, "other/a", 8);
        let disks = [ours, theirs].map(|score| json!({"name": "d", "image": score.to_string()}));
        let report = json!({"id": "1".repeat(32), "name": "n", "disks": disks});
        let report: NodeReport = serde_json::from_value(report).unwrap();
        let (lab, limited) = (who(&origin, "lab/*", None), who(&origin, "lab/*", Some(1_000_000)));
        let late = who(&origin, "lab/*", None);
        let leases = |who: &Principal| origin.store.leases_of(&who.id, unix_ms()).unwrap();
        [&lab, &limited].into_iter().for_each(|who| origin.lease_for_node(who, &report));
        assert_eq!((leases(&lab), leases(&limited)), (BTreeSet::from([ours]), BTreeSet::new()));
        writer.forget(&"lab/a".parse().unwrap(), None).unwrap();
        origin.lease_for_node(&late, &report);
        assert_eq!(leases(&late), BTreeSet::new());
        let may_read = [&lab, &limited, &late].map(|who| origin.may_read_disk(who, ours).unwrap());
        assert_eq!(may_read, [true, false, false]);
    }

    /// Also a request that was admitted before.
    #[test]
    fn a_removed_token_gets_no_lease() {
        let (_folder, origin) = new_origin();
        let score = publish(&origin.writer.lease().unwrap(), "lab/a", 8);
        let lab = who(&origin, "lab/*", None);
        origin.lease(&lab, score);
        assert!(!origin.store.leases_of(&lab.id, unix_ms()).unwrap().is_empty());
        origin.remove_token(&lab.id).unwrap();
        origin.leases.noted.lock().clear();
        origin.lease(&lab, score);
        assert!(origin.store.leases_of(&lab.id, unix_ms()).unwrap().is_empty());
    }

    #[test]
    fn failures_are_repeated_sooner_but_not_at_once() {
        let (leases, now) = (Leases::default(), Instant::now());
        let [held, failed] = [1, 2].map(|byte| Score(BlockId([byte; 32])));
        let both = BTreeSet::from([held, failed]);
        let due = |now: Instant| leases.due("a", &both, now).into_iter().collect::<Vec<_>>();
        assert_eq!(due(now), [held, failed]);
        leases.note("a", &both, &BTreeSet::from([held]), now);
        assert_eq!((due(now), due(now + TRY_AGAIN)), (vec![], vec![failed]));
        assert_eq!(due(now + STEP), [held, failed]);
        assert_eq!(leases.due("b", &both, now), both);
        for byte in 0..=255 {
            let many = (0..100).map(|other| {
                let mut id = [byte; 32];
                id[0] = other;
                Score(BlockId(id))
            });
            leases.note("c", &many.collect(), &BTreeSet::new(), now);
            assert!(leases.noted.lock().len() <= NOTED_MAX);
        }
    }
}
