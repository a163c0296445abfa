//! The followers of a store, with their positions in its log, in the file `followers.json`.
//!
//! Collection spares a version that was forgotten after a follower's position for some time, because the follower may be copying
//! it. Losing the file loses nothing else: a follower that misses data reads the next changes.

use std::collections::BTreeSet;

use platter_image::{Error, IoContext, Result, Score};
use platter_records::{Action, FOLLOWERS_MAX, Follower};
use platter_vfs::{VfsFile, read_whole, replace};

use crate::collect::can_be_marked;
use crate::place::StorePlace;
use crate::store::Store;

const FILE: &str = "followers.json";
const FILE_LENGTH_MAX: u64 = 1 << 20;
/// A follower that was silent for longer pins nothing.
const LEASE_MS: i64 = 24 * 3_600_000;
/// While a follower's position stays the same, its last contact is written at most this often.
const SEEN_STEP_MS: i64 = 30_000;

/// The right to follow or promote with a store.
#[derive(Debug)]
pub struct FollowLock {
    _file: Box<dyn VfsFile>,
}

impl Store {
    /// Returns the registered followers. An invalid file counts as none.
    ///
    /// # Errors
    /// `Io`.
    pub fn followers(&self) -> Result<Vec<Follower>> {
        let path = self.place().dir().join(FILE);
        let bytes = read_whole(self.place().vfs(), &path, FILE_LENGTH_MAX)
            .context(|| format!("reading {}", path.display()))?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
    }

    /// Registers a follower, or notes how far it is.
    ///
    /// # Errors
    /// `Refused` when there are too many followers; `Io`.
    pub fn register_follower(&self, follower: Follower) -> Result<()> {
        let mut followers = self.followers()?;
        if let Some(known) = followers.iter_mut().find(|known| known.id == follower.id) {
            let is_news = (&known.name, &known.address, known.number)
                != (&follower.name, &follower.address, follower.number)
                || follower.seen_unix_ms - known.seen_unix_ms > SEEN_STEP_MS;
            if !is_news {
                return Ok(());
            }
            *known = follower;
        } else if followers.len() < FOLLOWERS_MAX {
            followers.push(follower);
        } else {
            return Err(Error::refused(format!(
                "this store has {FOLLOWERS_MAX} followers: remove one with `platter copies --remove ID`"
            )));
        }
        self.write_followers(&followers)
    }

    /// Removes the registration of a follower. Returns whether it was registered.
    ///
    /// # Errors
    /// `Io`.
    pub fn remove_follower(&self, id: &str) -> Result<bool> {
        let mut followers = self.followers()?;
        let before = followers.len();
        followers.retain(|follower| follower.id != id);
        let is_gone = followers.len() < before;
        if is_gone {
            self.write_followers(&followers)?;
        }
        Ok(is_gone)
    }

    /// Makes sure that no other process follows or promotes with this store. Held as long as the result lives.
    ///
    /// # Errors
    /// `Refused`, naming the process; `Missing` when there is no store; `Io`.
    pub fn lock_following(place: &StorePlace) -> Result<FollowLock> {
        // First, because it says best what is wrong if there is no store.
        place.read_format()?;
        let path = place.dir().join("follow.lock");
        let context = || format!("locking {}", path.display());
        let Some(file) = place.vfs().lock(&path).context(context)? else {
            let pid = read_whole(place.vfs(), &path, 16).ok().flatten().unwrap_or_default();
            let pid = String::from_utf8_lossy(&pid).trim().to_owned();
            return Err(Error::refused(format!(
                "process {pid} follows with the store {}: end it first",
                place.dir().display()
            )));
        };
        let pid = format!("{}\n", std::process::id());
        file.set_length(0).and_then(|()| file.write_all_at(pid.as_bytes(), 0)).context(context)?;
        Ok(FollowLock { _file: file })
    }

    fn write_followers(&self, followers: &[Follower]) -> Result<()> {
        let path = self.place().dir().join(FILE);
        let text = serde_json::to_vec(followers)
            .map_err(|error| Error::bug("cannot serialize followers").with_source(error))?;
        replace(self.place().vfs(), &path, &text).context(|| format!("writing {}", path.display()))
    }

    /// Returns the disks of versions that were forgotten after a follower's position, except those that were collected already.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub(crate) fn held_for_followers(&self, now_unix_ms: i64) -> Result<BTreeSet<Score>> {
        let followers = self.followers()?;
        let live = followers.iter().filter(|it| now_unix_ms - it.seen_unix_ms <= LEASE_MS);
        let Some(after) = live.map(|follower| follower.number).min() else { return Ok(BTreeSet::new()) };
        let changes = self.changes_after(after, usize::MAX)?.changes;
        let mut names = BTreeSet::new();
        for change in changes {
            if let Action::Forget { versions } = change.action {
                names.extend(versions);
            }
        }
        let mut held = BTreeSet::new();
        for version in self.forgotten()?.into_iter().filter(|version| names.contains(&version.name)) {
            if can_be_marked(self, version.record.score)? {
                held.insert(version.record.score);
            }
        }
        Ok(held)
    }
}
