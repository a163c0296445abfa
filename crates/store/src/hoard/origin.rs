//! The hoard at the origin: what is in it, and how that changes. Each change is one commit and makes one revision.
//!
//! Why a jump of the clock loses no member: how old a member is, is how many days of daily work were done since it came,
//! and one run of the daily work counts one day at most, whatever the clock says. Times are shown, and decide nothing.

use platter_image::{BlockId, Error, IoContext, Kind, Result};
use serde::{Deserialize, Serialize};

use crate::boot_set::{BootSet, BootSetHead};
use crate::catalog::Change;
use crate::hoard_member::{HoardChanges, HoardMember, HoardSnapshot};
use crate::name::{ImageName, VersionName};
use crate::store::Store;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// A boot set that was registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The revision that has it.
    pub revision: u64,
    /// It was not there before.
    pub is_new: bool,
}

/// The daily work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailyWish {
    /// What the clock says, in milliseconds since 1970 UTC: another date than last time counts one day.
    pub now_unix_ms: i64,
    /// Members that came so many days ago go, but the one of the highest number of each image; `None` keeps all.
    pub keep_days: Option<u64>,
    /// Changes of so many days can be told; who was away for longer gets everything.
    pub window_days: u64,
}

/// What the daily work did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DailyReport {
    /// Days counted so far.
    pub day: u64,
    /// The newest revision.
    pub revision: u64,
    /// Changes since this revision, or a later one, can be told.
    pub oldest: u64,
    /// What went.
    #[serde(skip)]
    pub dropped: Vec<VersionName>,
}

impl Store {
    /// The hoard as it is.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn hoard(&self) -> Result<HoardSnapshot> {
        let catalog = self.catalog()?;
        let facts = catalog.hoard_facts()?;
        Ok(HoardSnapshot { epoch: facts.epoch, revision: facts.revision, members: catalog.hoard_members()? })
    }

    /// The number of the hoard's newest revision, and the name of their run.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn hoard_revision(&self) -> Result<(String, u64)> {
        let facts = self.catalog()?.hoard_facts()?;
        Ok((facts.epoch, facts.revision))
    }

    /// What changed since a revision; everything, when that is not known any more or was of another run.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn hoard_changes(&self, epoch: &str, since: u64) -> Result<HoardChanges> {
        let catalog = self.catalog()?;
        let facts = catalog.hoard_facts()?;
        let whole = epoch != facts.epoch || since < facts.oldest || since > facts.revision;
        let (added, gone) = match whole {
            true => (catalog.hoard_members()?, Vec::new()),
            false => catalog.hoard_changes(since)?,
        };
        let gone = gone.into_iter().map(|member| member.version).collect();
        Ok(HoardChanges { epoch: facts.epoch, revision: facts.revision, whole, added, gone })
    }

    /// When each revision was made, as far as that is kept, in milliseconds since 1970 UTC; 0 where nobody said.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn hoard_revisions(&self) -> Result<Vec<(u64, i64)>> {
        self.catalog()?.hoard_revisions()
    }

    /// Reads a boot set: its head and parts, one after another, as [`BootSet::decode`] takes them.
    ///
    /// # Errors
    /// `Missing` when it is not here; `Corrupt` when it is damaged; `Io`.
    pub fn boot_set_bytes(&self, id: &BlockId) -> Result<Vec<u8>> {
        let mut bytes = self.read_block(Kind::BootSet, id)?;
        let head = BootSetHead::decode(&bytes)?;
        for part in &head.parts {
            bytes.extend_from_slice(&self.read_block(Kind::BootSet, part)?);
        }
        Ok(bytes)
    }

    /// Reads a boot set.
    ///
    /// # Errors
    /// As [`Store::boot_set_bytes`].
    pub fn boot_set(&self, id: &BlockId) -> Result<BootSet> {
        BootSet::decode(id, &self.boot_set_bytes(id)?)
    }

    /// Makes a boot set that of a version, instead of the one it had. Durable when it returns.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` when it has another score, or the boot set names what is not in
    /// the store; after any other error the store takes nothing more until it is opened again.
    pub fn register_boot_set(
        &self,
        name: &VersionName,
        set: &BootSet,
        time_unix_ms: i64,
    ) -> Result<Registered> {
        let absent = set.pages.iter().chain(&set.blocks).find(|block| !self.has(&block.id));
        if let Some(absent) = absent {
            return Err(Error::refused(format!(
                "the boot set names {}, which is not in the store",
                absent.id
            )));
        }
        let encoded = set.encode()?;
        let frames = encoded.frames()?;
        let epoch = self.random_epoch()?;
        // What is refused inside has changed nothing, and is no failed write.
        self.session()?.commit(|change, state, session| {
            let version = change.versions_below(&name.image)?;
            let Some(version) = version.into_iter().find(|version| version.name == *name) else {
                return Ok(Err(Error::missing(format!("there is no {name}"))));
            };
            if version.record.score != set.record.score {
                let score = set.record.score;
                return Ok(Err(Error::refused(format!(
                    "{name} has another score than the boot set, {score}"
                ))));
            }
            let members = change.hoard_members()?;
            let member = members.iter().find(|member| member.version == *name);
            if member.is_some_and(|member| member.boot_set == encoded.id) {
                return Ok(Ok(Registered { revision: change.hoard_facts()?.revision, is_new: false }));
            }
            // Another version of this score, or an earlier time, may have left it here.
            if !self.has(&encoded.id) {
                for frame in &frames {
                    session.append_to(state, frame)?;
                }
            }
            change.make_hoard(epoch)?;
            let revision = change.next_hoard_revision(time_unix_ms)?;
            change.add_member(name, encoded.id, &set.record, revision)?;
            Ok(Ok(Registered { revision, is_new: true }))
        })
    }

    /// Takes the boot set of that version out of the hoard, or those of all versions of an image, in one revision. Gives
    /// that revision, and what went.
    ///
    /// # Errors
    /// `Missing` when there is none; `Transient` when another process writes the store for longer than some seconds; `Io`.
    pub fn unregister_boot_set(
        &self,
        image: &ImageName,
        number: Option<u64>,
        time_unix_ms: i64,
    ) -> Result<(u64, Vec<VersionName>)> {
        self.change_catalog(|change| {
            let mut members = change.hoard_members()?;
            members.retain(|member| member.version.image == *image);
            members.retain(|member| number.is_none_or(|number| member.version.number == number));
            if members.is_empty() {
                let what = number.map_or(image.to_string(), |number| format!("{image}@{number}"));
                return Ok(Err(Error::missing(format!("the hoard has no boot set of {what}"))));
            }
            let names: Vec<VersionName> = members.into_iter().map(|member| member.version).collect();
            Ok(Ok((end_all(change, &names, time_unix_ms)?, names)))
        })
    }

    /// Counts a day, drops what is too old, and forgets changes that are older than the window.
    ///
    /// # Errors
    /// `Transient` when another process writes the store for longer than some seconds; `Io`.
    pub fn hoard_daily(&self, wish: DailyWish) -> Result<DailyReport> {
        let epoch = self.random_epoch()?;
        self.change_catalog(|change| {
            change.make_hoard(epoch)?;
            let day = change.count_day(wish.now_unix_ms.div_euclid(DAY_MS))?;
            let old = match wish.keep_days.and_then(|days| day.checked_sub(days)) {
                Some(day_max) => change.members_of_days(day_max)?,
                None => Vec::new(),
            };
            let dropped = too_old(&old, &change.hoard_members()?);
            if !dropped.is_empty() {
                end_all(change, &dropped, wish.now_unix_ms)?;
            }
            if let Some(day_max) = day.checked_sub(wish.window_days.max(1)) {
                change.forget_changes(day_max)?;
            }
            let facts = change.hoard_facts()?;
            Ok(Ok(DailyReport { day, revision: facts.revision, oldest: facts.oldest, dropped }))
        })
    }

    /// Notes that the boot sets of new versions of an image are to be recorded, and how, in words of the caller's; `None`:
    /// no longer.
    ///
    /// # Errors
    /// `Missing` when there is no such image; `Transient` when another process writes the store for longer than some
    /// seconds; `Io`.
    pub fn hoard_follow(&self, image: &ImageName, settings: Option<&str>) -> Result<()> {
        let epoch = self.random_epoch()?;
        self.change_catalog(|change| {
            if !change.versions_below(image)?.iter().any(|version| version.name.image == *image) {
                return Ok(Err(Error::missing(format!("there is no image {image}"))));
            }
            change.make_hoard(epoch)?;
            change.follow(image, settings).map(Ok)
        })
    }

    /// The images whose new versions are to be recorded, with how.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn hoard_followed(&self) -> Result<Vec<(ImageName, String)>> {
        self.catalog()?.hoard_followed()
    }

    fn random_epoch(&self) -> Result<[u8; 16]> {
        self.place().vfs().random_id().context(|| "choosing a name for the hoard's revisions".into())
    }
}

/// These of the old ones go: all but the one of the highest number that each image has in the hoard.
fn too_old(old: &[HoardMember], all: &[HoardMember]) -> Vec<VersionName> {
    let is_latest = |name: &VersionName| {
        !all.iter().any(|other| other.version.image == name.image && other.version.number > name.number)
    };
    old.iter().map(|member| member.version.clone()).filter(|name| !is_latest(name)).collect()
}

fn end_all(change: &mut Change<'_>, names: &[VersionName], time_unix_ms: i64) -> Result<u64> {
    let revision = change.next_hoard_revision(time_unix_ms)?;
    names.iter().try_for_each(|name| change.end_member(name, revision))?;
    Ok(revision)
}
