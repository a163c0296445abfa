//! Leases of remote readers: which disks an origin's clients read, each for the access token it is read with, in the file `leases.json`.
//!
//! A disk that was forgotten while somebody reads it is kept from collection until the lease ends. A reader gets a lease only for
//! a disk that some version has which it may read. It is written before the catalog is asked again whether the version still exists,
//! and a collection reads the leases after the catalog. So it sees the version or the lease, as with registrations (`readers`).
//!
//! A lease ends [`LEASE_MS`] after its last use. Use cannot prolong it for ever: it ends at the latest [`UNNAMED_MS`] after the last use
//! at which a readable version still had the disk, and with its access token. Losing the file ends all leases of forgotten disks.
//!
//! The clock can be wrong for a while. So the file keeps leases that have ended for as long again, and notes since when a time of use
//! lies in the future: such a use counts as of then.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::thread;
use std::time::Duration;

use platter_image::{BlockId, Error, IoContext, Result, Score};
use platter_records::ImageName;
use platter_vfs::{VfsFile, read_whole, replace};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::collect::can_be_marked;
use crate::place::StorePlace;
use crate::store::Store;

const FILE: &str = "leases.json";
const LOCK: &str = "leases.lock";
const FILE_LENGTH_MAX: u64 = 8 << 20;
const DAY_MS: i64 = 24 * 3_600_000;
/// A lease ends this long after its last use.
const LEASE_MS: i64 = 7 * DAY_MS;
/// A lease of a forgotten disk ends this long after the last use before the disk was forgotten, even if it is still used.
const UNNAMED_MS: i64 = 90 * DAY_MS;
/// A use that is further in the future was noted by a wrong clock.
const AHEAD_MS: i64 = DAY_MS;
/// Maximum number of leases of an access token, and of all: the longest unused are dropped first, of the token that has most.
const LEASES_OF_OWNER_MAX: usize = 1024;
const LEASES_MAX: usize = 16_384;
/// How long a request for frames waits for another process that changes the file, how long the removal of an access token does, and how
/// long it is between two looks.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_WAIT_OF_REMOVAL: Duration = Duration::from_secs(20);
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// The lease of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lease {
    /// Id of the access token; empty for clients of the unix socket.
    owner: String,
    /// 64 hexadecimal digits.
    score: String,
    /// Its last use, in milliseconds since 1970 UTC.
    used_unix_ms: i64,
    /// Its last use while a version had the disk.
    named_unix_ms: i64,
    /// When it was noticed that one of these times is in the future.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ahead_unix_ms: Option<i64>,
}

/// The contents of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaseFile {
    leases: Vec<Lease>,
    /// XXH3-64 of the list, in hexadecimal. A file without it is read, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

impl LeaseFile {
    fn is_sound(&self) -> bool {
        self.checksum.as_ref().is_none_or(|sum| *sum == checksum(&self.leases))
    }
}

/// The checksum of a list as it is written.
fn checksum(leases: &[Lease]) -> String {
    let text = serde_json::to_vec(leases).unwrap_or_default();
    format!("{:016x}", XxHash3_64::oneshot(&text))
}

impl Lease {
    fn is_live(&self, now_unix_ms: i64) -> bool {
        self.is_within(now_unix_ms, LEASE_MS, UNNAMED_MS)
    }

    /// Whether it ended so long ago that no wrong clock can be the reason.
    fn is_long_over(&self, now_unix_ms: i64) -> bool {
        !self.is_within(now_unix_ms, 2 * LEASE_MS, 2 * UNNAMED_MS)
    }

    fn is_within(&self, now_unix_ms: i64, used_max: i64, named_max: i64) -> bool {
        let age = |time: i64| now_unix_ms.saturating_sub(self.credible(time, now_unix_ms));
        age(self.used_unix_ms) <= used_max && age(self.named_unix_ms) <= named_max
    }

    /// Returns a time of use; instead of one in the future, when that was noticed, which may be now.
    fn credible(&self, time: i64, now_unix_ms: i64) -> i64 {
        let is_credible = |time: &i64| *time <= now_unix_ms.saturating_add(AHEAD_MS);
        if is_credible(&time) { time } else { self.ahead_unix_ms.filter(is_credible).unwrap_or(now_unix_ms) }
    }

    /// Notes since when a time of use is in the future.
    fn note_clock(&mut self, now_unix_ms: i64) {
        let latest = self.used_unix_ms.max(self.named_unix_ms);
        let is_ahead = latest > now_unix_ms.saturating_add(AHEAD_MS);
        self.ahead_unix_ms = is_ahead.then(|| self.credible(latest, now_unix_ms));
    }
}

impl Store {
    /// Notes that disks are read with an access token, which must be allowed to read them. Returns those that have a lease now: only
    /// these are kept by collections. `may_read` tells which images the token covers, and denies all once the token was removed: it is
    /// asked while no other process can change the leases.
    ///
    /// # Errors
    /// `Transient` when another process changes the leases for too long; `Io`; an error when the catalog cannot be read.
    pub fn renew_leases(
        &self,
        owner: &str,
        scores: &BTreeSet<Score>,
        may_read: &dyn Fn(&ImageName) -> bool,
        now_unix_ms: i64,
    ) -> Result<BTreeSet<Score>> {
        let lock = lock(self.place(), LOCK_WAIT)?;
        let mut leases = read(self.place())?;
        let named = self.named(scores, may_read)?;
        let (mut known, mut used) = (BTreeSet::new(), BTreeSet::new());
        let own = leases.iter().enumerate().filter(|(_, lease)| lease.owner == owner);
        let own: HashMap<String, usize> = own.map(|(at, lease)| (lease.score.clone(), at)).collect();
        for score in scores {
            let (hex, is_named) = (score.to_string(), named.contains(score));
            let lease = own.get(&hex).map(|at| &mut leases[*at]);
            let was_live = lease.as_ref().is_some_and(|lease| lease.is_live(now_unix_ms));
            match lease {
                _ if !was_live && !is_named => continue,
                Some(lease) => {
                    lease.used_unix_ms = now_unix_ms;
                    lease.named_unix_ms = if is_named { now_unix_ms } else { lease.named_unix_ms };
                }
                None => leases.push(Lease {
                    owner: owner.to_owned(),
                    score: hex,
                    used_unix_ms: now_unix_ms,
                    named_unix_ms: now_unix_ms,
                    ahead_unix_ms: None,
                }),
            }
            used.insert(*score);
            known.extend(was_live.then_some(*score));
        }
        if used.is_empty() {
            return Ok(used);
        }
        limit(&mut leases, now_unix_ms);
        write(self.place(), &mut leases, now_unix_ms)?;
        drop(lock);
        let held = leases_of(&leases, owner, now_unix_ms);
        known.extend(self.named(&used, may_read)?);
        used.retain(|score| held.contains(score) && known.contains(score));
        Ok(used)
    }

    /// Returns the disks of which an access token has a lease.
    ///
    /// # Errors
    /// `Io`.
    pub fn leases_of(&self, owner: &str, now_unix_ms: i64) -> Result<BTreeSet<Score>> {
        Ok(leases_of(&read(self.place())?, owner, now_unix_ms))
    }

    /// Returns which of these disks a version of a readable image has.
    fn named(
        &self,
        scores: &BTreeSet<Score>,
        may_read: &dyn Fn(&ImageName) -> bool,
    ) -> Result<BTreeSet<Score>> {
        let versions = self.catalog()?.all_versions()?.into_iter();
        let named = versions.filter(|version| scores.contains(&version.record.score));
        Ok(named
            .filter(|version| may_read(&version.name.image))
            .map(|version| version.record.score)
            .collect())
    }

    /// Returns the disks that collections keep for remote readers now.
    pub(crate) fn leased(&self, now_unix_ms: i64) -> Result<Vec<Score>> {
        let leases = read(self.place())?;
        let live = leases.iter().filter(|lease| lease.is_live(now_unix_ms));
        Ok(live.filter_map(|lease| BlockId::from_hex(&lease.score).map(Score)).collect())
    }

    /// Returns the leased disks that no version has any more.
    ///
    /// # Errors
    /// When it cannot be found out whether one of them can be kept.
    pub(crate) fn leased_only(&self, now_unix_ms: i64) -> Result<LeasedOnly> {
        let mut only = LeasedOnly::default();
        for score in self.leased(now_unix_ms)?.into_iter().collect::<BTreeSet<_>>() {
            if self.catalog()?.oldest_of(score)?.is_none() {
                let is_whole = can_be_marked(self, score)?;
                if is_whole { &mut only.kept } else { &mut only.in_vain }.insert(score);
            }
        }
        Ok(only)
    }
}

/// Leased disks that no version has any more.
#[derive(Debug, Default)]
pub(crate) struct LeasedOnly {
    /// They are in the store because of their leases.
    pub(crate) kept: BTreeSet<Score>,
    /// No collection can keep them, because they lack something already: collected before, or damaged.
    pub(crate) in_vain: BTreeSet<Score>,
}

impl StorePlace {
    /// Ends all leases of an access token, which must have been removed before: else a request under way could get another one.
    ///
    /// # Errors
    /// `Transient` when another process changes the leases for too long; `Io`.
    pub fn end_leases(&self, owner: &str) -> Result<()> {
        let _lock = lock(self, LOCK_WAIT_OF_REMOVAL)?;
        let mut leases = read(self)?;
        let before = leases.len();
        leases.retain(|lease| lease.owner != owner);
        if leases.len() < before { replace_file(self, &leases) } else { Ok(()) }
    }

    /// Ends the leases of these disks.
    ///
    /// # Errors
    /// As [`StorePlace::end_leases`].
    pub(crate) fn end_leases_of_disks(&self, disks: &BTreeSet<Score>) -> Result<()> {
        if disks.is_empty() {
            return Ok(());
        }
        let _lock = lock(self, LOCK_WAIT)?;
        let disks: BTreeSet<String> = disks.iter().map(Score::to_string).collect();
        let mut leases = read(self)?;
        leases.retain(|lease| !disks.contains(&lease.score));
        replace_file(self, &leases)
    }

    /// Notes which leases have times in the future, so that they end although nobody renews another one.
    ///
    /// # Errors
    /// As [`StorePlace::end_leases`].
    pub(crate) fn note_clock_of_leases(&self, now_unix_ms: i64) -> Result<()> {
        let noted = |mut leases: Vec<Lease>| {
            leases.iter_mut().for_each(|lease| lease.note_clock(now_unix_ms));
            leases
        };
        let leases = read(self)?;
        if noted(leases.clone()) == leases {
            return Ok(());
        }
        let _lock = lock(self, LOCK_WAIT)?;
        replace_file(self, &noted(read(self)?))
    }
}

fn leases_of(leases: &[Lease], owner: &str, now_unix_ms: i64) -> BTreeSet<Score> {
    let own = leases.iter().filter(|lease| lease.owner == owner && lease.is_live(now_unix_ms));
    own.filter_map(|lease| BlockId::from_hex(&lease.score).map(Score)).collect()
}

/// Makes sure that no other process or thread changes the file as long as the result lives.
fn lock(place: &StorePlace, wait: Duration) -> Result<Box<dyn VfsFile>> {
    let path = place.dir().join(LOCK);
    for _ in 0..wait.as_millis() / LOCK_PAUSE.as_millis() {
        if let Some(lock) = place.vfs().lock(&path).context(|| format!("locking {}", path.display()))? {
            return Ok(lock);
        }
        thread::sleep(LOCK_PAUSE);
    }
    Err(Error::transient(format!("another process holds {}", path.display())))
}

/// Drops leases above the limits.
fn limit(leases: &mut Vec<Lease>, now_unix_ms: i64) {
    // Those of forgotten disks stay longest: nobody can get one again. Those that have ended go first.
    leases.sort_by_key(|lease| {
        let is_named = lease.used_unix_ms <= lease.named_unix_ms;
        (!lease.is_live(now_unix_ms), is_named, std::cmp::Reverse(lease.used_unix_ms))
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

/// Reads the file.
///
/// # Errors
/// `Corrupt` when it is damaged: then nobody knows what must be kept.
fn read(place: &StorePlace) -> Result<Vec<Lease>> {
    let path = place.dir().join(FILE);
    let bytes = read_whole(place.vfs(), &path, FILE_LENGTH_MAX);
    let Some(bytes) = bytes.context(|| format!("reading {}", path.display()))? else { return Ok(Vec::new()) };
    let file = serde_json::from_slice(&bytes).ok().filter(LeaseFile::is_sound);
    file.map(|file: LeaseFile| file.leases).ok_or_else(|| {
        Error::corrupt(format!(
            "{} is damaged, so it is unknown which forgotten disks remote readers use, and nothing is collected: delete it when \
             no remote reader needs a forgotten version",
            path.display()
        ))
    })
}

fn write(place: &StorePlace, leases: &mut Vec<Lease>, now_unix_ms: i64) -> Result<()> {
    leases.iter_mut().for_each(|lease| lease.note_clock(now_unix_ms));
    leases.retain(|lease| !lease.is_long_over(now_unix_ms));
    replace_file(place, leases)
}

fn replace_file(place: &StorePlace, leases: &[Lease]) -> Result<()> {
    let path = place.dir().join(FILE);
    let leases = leases.to_vec();
    let file = LeaseFile { checksum: Some(checksum(&leases)), leases };
    let text = serde_json::to_vec(&file)
        .map_err(|error| Error::bug("cannot serialize leases").with_source(error))?;
    replace(place.vfs(), &path, &text).context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use platter_collection::CollectRequest;
    use platter_image::frame::{Compressor, FrameBuilder};
    use platter_image::page::{Entry, State};
    use platter_image::recipe::{CutPolicy, RecipeBuilder};
    use platter_image::{Domain, ErrorKind, Extent, FrameStore, Kind};
    use platter_records::VersionRecord;

    use super::*;

    const NOW: i64 = 1_000 * DAY_MS;

    fn lease(owner: usize, used: usize) -> Lease {
        let time = used as i64;
        let (owner, score) = (owner.to_string(), format!("{used:064x}"));
        Lease { owner, score, used_unix_ms: time, named_unix_ms: time, ahead_unix_ms: None }
    }

    /// Publishes the same zero disk under this name.
    fn publish(store: &Store, name: &str) -> Score {
        let policy = CutPolicy::FILE_ALIGNED_64K_GRID_32K;
        let pages: Vec<(BlockId, Vec<u8>)> = Vec::new();
        let mut recipe = RecipeBuilder::new(4096, 512, policy, Domain::SHARED, pages);
        recipe.push(Entry { extent: Extent::new(0, 4096), state: State::Zero }).unwrap();
        let (score, pages) = recipe.finish().unwrap();
        let session = store.session().unwrap();
        let mut frame = FrameBuilder::new(Kind::Page, Domain::SHARED, 1 << 17);
        pages.iter().for_each(|(id, bytes)| frame.push(*id, bytes));
        session.append(&frame.encode(&mut Compressor::new(3).unwrap()).unwrap()).unwrap();
        let draft = VersionRecord::draft(name.parse().unwrap(), score, 1_000);
        session.publish(VersionRecord { disk_length: 4096, ..draft }).unwrap();
        score
    }

    fn new_store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let place = StorePlace::on_system(folder.path().join("store"));
        Store::init(&place).unwrap();
        (folder, Store::open_writer(&place).unwrap())
    }

    fn renew(store: &Store, owner: &str, score: Score, below: &str, now: i64) -> bool {
        let may_read = |image: &ImageName| !below.is_empty() && image.to_string().starts_with(below);
        !store.renew_leases(owner, &BTreeSet::from([score]), &may_read, now).unwrap().is_empty()
    }

    /// What a hidden image has neither gives nor prolongs a lease.
    #[test]
    fn an_equal_disk_of_another_tenant_does_not_matter() {
        let (_folder, store) = new_store();
        let score = publish(&store, "lab/a");
        assert_eq!(publish(&store, "other/b"), score);
        assert!(renew(&store, "lab", score, "lab/", NOW));
        store.forget(&"lab/a".parse().unwrap(), None).unwrap();
        assert!(!renew(&store, "late", score, "lab/", NOW), "it cannot get one any more");
        for days in (0..=90).step_by(6) {
            assert!(renew(&store, "lab", score, "lab/", NOW + days * DAY_MS), "day {days}");
        }
        assert!(!renew(&store, "lab", score, "lab/", NOW + 91 * DAY_MS));
        assert!(renew(&store, "other", score, "other/", NOW + 91 * DAY_MS));
        // As if its token had been removed.
        store.place().end_leases("other").unwrap();
        assert!(!renew(&store, "other", score, "", NOW + 91 * DAY_MS));
        assert!(store.leases_of("other", NOW + 91 * DAY_MS).unwrap().is_empty());
    }

    #[test]
    fn no_lease_is_promised_that_the_limits_drop() {
        let (_folder, store) = new_store();
        let score = publish(&store, "lab/a");
        let forgotten =
            |number: usize| Lease { used_unix_ms: NOW, named_unix_ms: NOW - 1, ..lease(1, number) };
        let leases: Vec<Lease> = (0..LEASES_OF_OWNER_MAX).map(forgotten).collect();
        replace_file(store.place(), &leases).unwrap();
        assert!(!renew(&store, "1", score, "lab/", NOW));
        assert!(renew(&store, "2", score, "lab/", NOW));
    }

    #[test]
    fn wrong_clocks_end_no_lease_and_keep_none_for_ever() {
        let (_folder, store) = new_store();
        let (place, score) = (store.place(), publish(&store, "lab/a"));
        let has = |now: i64| store.leases_of("lab", now).unwrap().contains(&score);
        assert!(renew(&store, "lab", score, "lab/", NOW));
        // Ahead for a moment, in which somebody else has a lease.
        let ahead = NOW + 8 * DAY_MS;
        assert!(renew(&store, "other", score, "lab/", ahead) && !has(ahead) && has(NOW));
        // Years behind for a moment.
        let behind = NOW - 900 * DAY_MS;
        assert!(renew(&store, "third", score, "lab/", behind) && has(behind));
        place.note_clock_of_leases(NOW).unwrap();
        assert!(has(NOW) && has(NOW + 7 * DAY_MS) && !has(ahead));
        // Used by a clock that was years ahead.
        assert!(renew(&store, "lab", score, "lab/", NOW + 900 * DAY_MS));
        place.note_clock_of_leases(NOW).unwrap();
        assert!(has(NOW) && has(NOW + 7 * DAY_MS) && !has(NOW + 8 * DAY_MS));
        place.note_clock_of_leases(NOW + 8 * DAY_MS).unwrap();
        assert!(!has(NOW + 8 * DAY_MS));
        // In the end it is dropped.
        assert!(renew(&store, "other", score, "lab/", NOW + 15 * DAY_MS));
        assert!(read(place).unwrap().iter().all(|lease| lease.owner != "lab"));
    }

    /// An error that says nothing about the disk ends the collection.
    #[test]
    fn what_cannot_be_found_out_is_not_in_vain() {
        let (_folder, store) = new_store();
        let (place, score) = (store.place(), publish(&store, "lab/a"));
        assert!(renew(&store, "lab", score, "lab/", NOW));
        store.forget(&"lab/a".parse().unwrap(), None).unwrap();
        let request = CollectRequest {
            now_unix_ms: NOW,
            keep_trash_ms: 0,
            dry_run: false,
            is_confirmed: true,
            compact_percent: 0,
            recompress: None,
            end_leases: false,
        };
        let collect = || store.collect(&request, &|| Ok(Vec::new()), &mut |_| {});
        let packs: Vec<PathBuf> = place.list_packs().unwrap().iter().map(|id| place.pack(*id)).collect();
        let swap = |from: &str, to: &str| {
            for path in &packs {
                let place_of = |suffix: &str| path.with_extension(format!("pack{suffix}"));
                place.vfs().rename(&place_of(from), &place_of(to)).unwrap();
            }
            (0..packs.len()).for_each(|ordinal| store.0.packs.close(ordinal as u32));
        };
        swap("", ".kept");
        // Not a file: opening it fails as if the system lacked something.
        packs.iter().for_each(|path| place.vfs().create_dir(path).unwrap());
        store.0.packs.close(0);
        assert_eq!(store.leased_only(NOW).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(collect().unwrap_err().kind(), ErrorKind::Io);
        swap("", ".other");
        swap(".kept", "");
        assert!(store.leased_only(NOW).unwrap().in_vain.is_empty());
        assert_eq!(collect().unwrap().given_up.packs, 0);
        assert!(!store.read_block(Kind::Page, &score.0).unwrap().is_empty());
    }

    #[test]
    fn changes_wait_for_each_other() {
        let (_folder, store) = new_store();
        let score = publish(&store, "lab/a");
        let held = lock(store.place(), LOCK_WAIT).unwrap();
        thread::scope(|scope| {
            let renewed = scope.spawn(|| renew(&store, "lab", score, "lab/", NOW));
            thread::sleep(Duration::from_millis(50));
            assert_eq!(read(store.place()).unwrap(), []);
            drop(held);
            assert!(renewed.join().unwrap());
        });
    }

    #[test]
    fn a_token_drops_only_its_own_oldest_leases() {
        let forgotten = Lease { used_unix_ms: 1, ..lease(1, 0) };
        let mut leases: Vec<Lease> = (0..LEASES_OF_OWNER_MAX + 10).map(|used| lease(1, used)).collect();
        leases.push(lease(2, 0));
        leases[0] = forgotten.clone();
        limit(&mut leases, 2_000);
        assert_eq!(leases.len(), LEASES_OF_OWNER_MAX + 1);
        assert!(leases.contains(&forgotten));
        assert!(
            leases.contains(&lease(2, 0))
                && leases.contains(&lease(1, 11))
                && !leases.contains(&lease(1, 10))
        );
        // One that has ended goes first.
        leases.push(lease(1, 5 + LEASE_MS as usize));
        limit(&mut leases, 5 + LEASE_MS);
        assert!(!leases.contains(&forgotten));
        // All together: of those that have most.
        let mut leases: Vec<Lease> =
            (1..=16).flat_map(|owner| (1..=1024).map(move |used| lease(owner, used))).collect();
        leases.push(lease(17, 0));
        limit(&mut leases, 2_000);
        assert_eq!(leases.len(), LEASES_MAX);
        assert!(leases.contains(&lease(17, 0)));
    }
}
