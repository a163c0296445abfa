//! The hoard at the origin: its members and how they change. Each change is one commit and makes one revision.
//!
//! Why a jump of the clock removes no member: a member's age is the number of days on which the daily work ran since it was
//! added, and one run of the daily work counts at most one day, whatever the clock shows. Times are only displayed.

use platter_image::{BlockId, Error, IoContext, Kind, Result};
use serde::Serialize;

use crate::catalog::Change;
use crate::store::Store;
use platter_records::{Action, OBSERVED_BYTES_MAX};
use platter_records::{BootSet, BootSetHead, Registered};
use platter_records::{HoardChanges, HoardMember, HoardSnapshot};
use platter_records::{ImageName, VersionName};

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Parameters of the daily work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DailyRequest {
    /// Current time in milliseconds since 1970 UTC. A date that differs from that of the last run counts as one day.
    pub now_unix_ms: i64,
    /// Members that were added this many days ago or earlier are removed, except the newest version of each image; `None` keeps
    /// all.
    pub keep_days: Option<u64>,
    /// Changes are kept for this many days. A node that was away for longer gets the full list.
    pub window_days: u64,
}

/// The result of the daily work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DailyReport {
    /// Number of days counted so far.
    pub day: u64,
    /// The newest revision.
    pub revision: u64,
    /// The oldest revision since which changes are known.
    pub oldest: u64,
    /// The members that were removed.
    #[serde(skip)]
    pub dropped: Vec<VersionName>,
}

impl Store {
    /// Returns the current members and revision of the hoard.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn hoard(&self) -> Result<HoardSnapshot> {
        let catalog = self.catalog()?;
        let facts = catalog.hoard_facts()?;
        Ok(HoardSnapshot { epoch: facts.epoch, revision: facts.revision, members: catalog.hoard_members()? })
    }

    /// Returns the epoch of the hoard's revisions (see [`HoardSnapshot::epoch`]) and the newest revision.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn hoard_revision(&self) -> Result<(String, u64)> {
        let facts = self.catalog()?.hoard_facts()?;
        Ok((facts.epoch, facts.revision))
    }

    /// Returns the changes since a revision; all members when those changes are no longer known or `epoch` is another one.
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

    /// Returns each known revision with its time in milliseconds since 1970 UTC; 0 where the time is unknown.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn hoard_revisions(&self) -> Result<Vec<(u64, i64)>> {
        self.catalog()?.hoard_revisions()
    }

    /// Reads a boot set as bytes: its head followed by its parts, as [`BootSet::decode`] takes them.
    ///
    /// # Errors
    /// `Missing` when it is not in the store; `Corrupt` when it is damaged; `Io`.
    pub fn boot_set_bytes(&self, id: &BlockId) -> Result<Vec<u8>> {
        let mut bytes = self.read_block(Kind::BootSet, id)?;
        let head = BootSetHead::decode(&bytes)?;
        for part in &head.parts {
            bytes.extend_from_slice(&self.read_block(Kind::BootSet, part)?);
        }
        Ok(bytes)
    }

    /// Returns the blocks in which a boot set is stored: its head and its parts.
    ///
    /// # Errors
    /// As [`Store::boot_set_bytes`].
    pub fn boot_set_parts(&self, id: &BlockId) -> Result<Vec<BlockId>> {
        let head = BootSetHead::decode(&self.read_block(Kind::BootSet, id)?)?;
        Ok(std::iter::once(*id).chain(head.parts).collect())
    }

    /// Reads a boot set.
    ///
    /// # Errors
    /// As [`Store::boot_set_bytes`].
    pub fn boot_set(&self, id: &BlockId) -> Result<BootSet> {
        BootSet::decode(id, &self.boot_set_bytes(id)?)
    }

    /// Registers a boot set for a version. Durable on return.
    ///
    /// A set that a person recorded replaces the present one. A set that a node observed
    /// ([`BootSetRecord::boots`]) refines those of other nodes ([`BootSet::refined`]); if the present set is settled, nothing changes.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` when the version has another score, the boot set names blocks that
    /// are not in the store, or an observed set is too large; after any other error the store accepts no more writes until
    /// it is opened again.
    pub fn register_boot_set(
        &self,
        name: &VersionName,
        set: &BootSet,
        time_unix_ms: i64,
    ) -> Result<Registered> {
        for block in set.pages.iter().chain(&set.blocks) {
            if !self.has(&block.id)? {
                let what = format!("the boot set names {}, which is not in the store", block.id);
                return Err(Error::refused(what));
            }
        }
        if set.record.boots > 0 && set.length() > OBSERVED_BYTES_MAX {
            return Err(Error::refused(format!(
                "a boot that reads {} bytes, {OBSERVED_BYTES_MAX} are allowed",
                set.length()
            )));
        }
        let epoch = self.random_epoch()?;
        // An inner error means refused: nothing has changed, and the store stays usable.
        self.session()?.commit(|change, state, session| {
            let version = change.versions_below(&name.image)?;
            let Some(version) = version.into_iter().find(|version| version.name == *name) else {
                return Ok(Err(Error::missing(format!("there is no {name}"))));
            };
            if version.record.score != set.record.score {
                let score = set.record.score;
                return Ok(Err(Error::refused(format!(
                    "{name} has a different score than the boot set ({score})"
                ))));
            }
            let unchanged = |revision| Ok(Ok(Registered { revision, is_new: false }));
            let members = change.hoard_members()?;
            let member = members.iter().find(|member| member.version == *name);
            let Some(set) = self.next_set(member, set) else {
                return unchanged(change.hoard_facts()?.revision);
            };
            let encoded = match set.encode().and_then(|encoded| Ok((encoded.frames()?, encoded))) {
                Ok(encoded) => encoded,
                Err(error) => return Ok(Err(error)),
            };
            let (frames, encoded) = encoded;
            if member.is_some_and(|member| member.boot_set == encoded.id) {
                return unchanged(change.hoard_facts()?.revision);
            }
            // The store may have this boot set from another version with this score, or from an earlier registration.
            let mut is_here = true;
            for block in frames.iter().flat_map(|frame| &frame.blocks) {
                is_here &= session.pin_shared(&block.id)?.is_some();
            }
            if !is_here {
                for frame in &frames {
                    session.append_to(state, frame)?;
                }
            }
            change.make_hoard(epoch)?;
            let revision = change.next_hoard_revision(time_unix_ms)?;
            change.add_member(name, encoded.id, &set.record, revision)?;
            change.does(Action::RegisterBootSet { version: name.clone(), revision });
            Ok(Ok(Registered { revision, is_new: true }))
        })
    }

    /// The boot set that a version gets when `set` is registered; `None` when it keeps the present one.
    fn next_set(&self, member: Option<&HoardMember>, set: &BootSet) -> Option<BootSet> {
        let mut next = set.clone();
        next.record.boots = next.record.boots.min(1);
        match member {
            Some(member) if next.record.boots > 0 => match self.boot_set(&member.boot_set) {
                Ok(present) => present.refined(&next),
                // The present set is damaged.
                Err(_) => Some(next),
            },
            _ => Some(next),
        }
    }

    /// Removes the boot set of a version, or those of all versions of an image, from the hoard in one revision. Returns that
    /// revision and the removed versions.
    ///
    /// # Errors
    /// `Missing` when there is none; `Transient` when another process holds the writer's lock for more than a few seconds; `Io`.
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
            let revision = end_all(change, &names, time_unix_ms)?;
            change.does(Action::UnregisterBootSets { versions: names.clone(), revision });
            Ok(Ok((revision, names)))
        })
    }

    /// Does the daily work: counts a day, removes old members, and forgets changes that are older than the window.
    ///
    /// # Errors
    /// `Transient` when another process holds the writer's lock for more than a few seconds; `Io`.
    pub fn hoard_daily(&self, request: DailyRequest) -> Result<DailyReport> {
        let epoch = self.random_epoch()?;
        self.change_catalog(|change| {
            change.make_hoard(epoch)?;
            let day = change.count_day(request.now_unix_ms.div_euclid(DAY_MS))?;
            let old = match request.keep_days.and_then(|days| day.checked_sub(days)) {
                Some(day_max) => change.members_of_days(day_max)?,
                None => Vec::new(),
            };
            let dropped = too_old(&old, &change.hoard_members()?);
            if !dropped.is_empty() {
                end_all(change, &dropped, request.now_unix_ms)?;
            }
            if let Some(day_max) = day.checked_sub(request.window_days.max(1)) {
                change.forget_changes(day_max)?;
            }
            change.does(Action::HoardDaily { day, versions: dropped.clone() });
            let facts = change.hoard_facts()?;
            Ok(Ok(DailyReport { day, revision: facts.revision, oldest: facts.oldest, dropped }))
        })
    }

    /// Records that boot sets of new versions of an image are to be recorded. `settings` says how, in the caller's format; `None`
    /// ends it.
    ///
    /// # Errors
    /// `Missing` when there is no such image; `Transient` when another process holds the writer's lock for more than a few
    /// seconds; `Io`.
    pub fn hoard_follow(&self, image: &ImageName, settings: Option<&str>) -> Result<()> {
        let epoch = self.random_epoch()?;
        self.change_catalog(|change| {
            if !change.versions_below(image)?.iter().any(|version| version.name.image == *image) {
                return Ok(Err(Error::missing(format!("there is no image {image}"))));
            }
            change.make_hoard(epoch)?;
            change.does(Action::FollowBoots { image: image.clone(), follow: settings.is_some() });
            change.follow(image, settings).map(Ok)
        })
    }

    /// Returns the images whose new versions are to be recorded, with their settings.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn hoard_followed(&self) -> Result<Vec<(ImageName, String)>> {
        self.catalog()?.hoard_followed()
    }

    fn random_epoch(&self) -> Result<[u8; 16]> {
        self.place().vfs().random_id().context(|| "choosing a random epoch for the hoard".into())
    }
}

/// Returns which of the old members to remove: all except the newest version of each image in the hoard.
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
