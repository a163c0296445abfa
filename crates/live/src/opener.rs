//! Opens the disks of a process: a requested version, or a disk that was served before.
//!
//! Owns the edit locks while a disk is being opened: one that was taken for a disk that then cannot be opened is
//! released. Must never open a disk for writing above an older version, nor put one edit lock's overlays in two places.

use std::thread;
use std::time::Duration;

use platter_fetch::Opened;
use platter_image::{Error, ErrorKind, Result, Score};
use platter_records::{
    EditLock, ImageName, NumberChoice, Resolved, Standing, Version, VersionName, VersionQuery,
};

use super::disk::{Base, LiveDisk};
use super::disk_request::{DiskRequest, WriteRequest};
use super::overlays;
use super::place::LivePlace;
use super::publish::open_left;
use super::remembered::RememberedDisk;
use super::sources::Sources;

/// Pause and number of attempts to open a remembered disk that another process has open: a process that lists disks
/// holds it briefly.
const LOCKED_PAUSE: Duration = Duration::from_millis(50);
const LOCKED_TRIES: u32 = 40;

/// Opens disks, see above.
pub(super) struct Opener {
    pub(super) place: LivePlace,
    pub(super) sources: Sources,
}

/// An opened disk that is not served yet.
pub(super) struct OpenedDisk {
    pub(super) disk: LiveDisk,
    /// Whether its edit lock was taken just now.
    pub(super) edit_lock_is_new: bool,
    /// A notice for people about the opening.
    pub(super) note: Option<String>,
}

impl Opener {
    /// Makes sure that no other store's disks are written at this place, and that commands find the place by its store.
    ///
    /// # Errors
    /// `Transient` when the origin is down and its store's id is not stored; as [`LivePlace::claim`].
    pub(super) fn claim(&self) -> Result<()> {
        let store = self.sources.store.remote();
        store.map_or(Ok(()), |store| self.place.claim(store.origin().id()?))
    }

    /// Opens a version. Before an edit lock is taken, `check_name` decides whether a disk may be served under a name.
    ///
    /// # Errors
    /// `Missing` when there is no such version; `Refused` when somebody else holds the edit lock, the version is not
    /// the newest, or `check_name` refuses; `Transient` when the origin is down and the disk cannot be opened without
    /// it.
    pub(super) fn open(
        &self,
        request: &DiskRequest,
        check_name: &dyn Fn(&str) -> Result<()>,
    ) -> Result<OpenedDisk> {
        let version = &*request.version;
        match &request.write {
            None => {
                let Named { score, name, note } = self.named(version)?;
                check_name(&name)?;
                Ok(OpenedDisk { note, ..OpenedDisk::of(self.read_only(&name, score)?) })
            }
            Some(write) => {
                let taken = self.sources.resolve(version).and_then(|resolved| {
                    let image = newest_image(&self.sources, version, resolved)?;
                    check_name(image.as_str())?;
                    self.sources.store.domain()?.check_open()?;
                    let (edit_lock, is_new) = self.take_edit_lock(&image, write)?;
                    Ok((image, edit_lock, is_new))
                });
                match taken {
                    Err(error) if error.kind() == ErrorKind::Transient => {
                        self.go_on(version, write, error, check_name)
                    }
                    taken => self.open_writable(taken?),
                }
            }
        }
    }

    /// Opens a disk as it was served before: the same version, or the same overlays under the same edit lock. The
    /// lock's holder is checked at publishing.
    ///
    /// # Errors
    /// `Missing` when its overlays no longer exist; `Transient` when the origin is down and data is missing.
    pub(super) fn reopen(&self, remembered: &RememberedDisk) -> Result<OpenedDisk> {
        let Some((number, write)) = remembered.edit_lock.zip(remembered.request.write.as_ref()) else {
            return Ok(OpenedDisk::of(self.read_only(&remembered.name, remembered.base()?)?));
        };
        let image: ImageName = remembered.name.parse()?;
        let place = overlays::place_of(&self.place, &image, number)?;
        let mut left = LOCKED_TRIES;
        loop {
            match open_left(&place, &self.sources, &image, number, &write.holder) {
                Err(error) if error.kind() == ErrorKind::Refused && left > 0 => {
                    left -= 1;
                    thread::sleep(LOCKED_PAUSE);
                }
                opened => return opened.map(OpenedDisk::of),
            }
        }
    }

    fn read_only(&self, name: &str, score: Score) -> Result<LiveDisk> {
        Ok(LiveDisk::read_only(name.to_owned(), Base::open(&self.sources, score)?))
    }

    /// Returns the image's edit lock, either left by an earlier process of this holder or newly taken, and whether it
    /// is new. Two machines may have the same holder's name, so a lock without overlays here is somebody else's.
    fn take_edit_lock(&self, image: &ImageName, write: &WriteRequest) -> Result<(EditLock, bool)> {
        let store = &self.sources.store;
        let held =
            store.edit_lock(image)?.filter(|edit_lock| edit_lock.holder == write.holder && !write.steal);
        match held {
            Some(edit_lock) => {
                // A follower has the locks of its origin, also those with this holder's name.
                if let Opened::Local(store) = store.opened()
                    && let standing @ Standing::Follower(_) = store.standing()?
                {
                    return Err(standing
                        .refusal()
                        .unwrap_or_else(|| Error::bug("a follower that accepts changes")));
                }
                let is_here = overlays::is_taking(self.place.dir(), image)
                    || overlays::list_everywhere(&self.place)?.contains(&(image.clone(), edit_lock.number));
                if !is_here {
                    return Err(Error::refused(format!(
                        "{image} is being edited ({edit_lock}), but nothing that was written under this lock is here. Another machine, \
                         user or directory may have the same holder's name: --holder NAME gives another one. If it was taken by \
                         `platter lock take`, or could not be released, `platter lock release {image}` does that. --steal takes it over"
                    )));
                }
                Ok((edit_lock, false))
            }
            None => {
                overlays::note_taking(self.place.dir(), image);
                let taken = store.take_edit_lock(image, &write.holder, write.steal);
                // A lost answer may have been yes.
                if taken.as_ref().is_err_and(|error| error.kind() != ErrorKind::Transient) {
                    overlays::forget_taking(self.place.dir(), image);
                }
                Ok((taken?, true))
            }
        }
    }

    fn open_writable(&self, (image, edit_lock, is_new): (ImageName, EditLock, bool)) -> Result<OpenedDisk> {
        let open = || {
            self.claim()?;
            // Somebody may have published before the edit lock was taken; from now on nobody can.
            let score = self.sources.resolve(image.as_str())?.score;
            let place = overlays::place_of(&self.place, &image, edit_lock.number)?;
            let owner = (image.clone(), edit_lock.clone());
            LiveDisk::writable(image.to_string(), &place, &self.sources, owner, score)
        };
        match open() {
            Ok(disk) => {
                overlays::forget_taking(self.place.dir(), &image);
                Ok(OpenedDisk { disk, edit_lock_is_new: is_new, note: None })
            }
            Err(error) if is_new => Err(match self.sources.store.release_edit_lock(&edit_lock) {
                Ok(()) => {
                    overlays::forget_taking(self.place.dir(), &image);
                    error
                }
                Err(kept) => error.within(format!(
                    "the edit lock of {image} was taken and could not be given back ({kept}): `platter lock release \
                     {image}` does that"
                )),
            }),
            Err(error) => Err(error),
        }
    }

    /// Opens a disk with local writes while the origin is down, for the reason `error`. Whether the edit lock is still
    /// held is checked at publishing.
    fn go_on(
        &self,
        version: &str,
        write: &WriteRequest,
        error: Error,
        check_name: &dyn Fn(&str) -> Result<()>,
    ) -> Result<OpenedDisk> {
        let newest = match version.parse()? {
            VersionQuery::Named(image, NumberChoice::Latest) if !write.steal => {
                // Edit lock numbers ascend: overlays under lower ones are lost.
                overlays::list_everywhere(&self.place)?.into_iter().rfind(|(name, _)| *name == image)
            }
            _ => None,
        };
        let Some((image, number)) = newest else { return Err(error) };
        check_name(image.as_str())?;
        let place = overlays::place_of(&self.place, &image, number)?;
        let note = format!("{error}: continuing with the local changes to {image} under edit lock {number}");
        let disk = open_left(&place, &self.sources, &image, number, &write.holder).map_err(|error| {
            let dir = place.dir().display();
            error.within(format!(
                "{image} cannot be opened without its origin, which has the pages of its recipe; what was written to it \
                 is kept in {dir}"
            ))
        })?;
        Ok(OpenedDisk { note: Some(note), ..OpenedDisk::of(disk) })
    }

    /// Resolves a version to the name of its read-only disk.
    ///
    /// # Errors
    /// As [`Opener::open`].
    pub(super) fn name_of(&self, version: &str) -> Result<String> {
        Ok(self.named(version)?.name)
    }

    /// Resolves a version to its score and its disk's name. While the origin is down, the newest fitting version is used
    /// that its stored replies or the hoard name.
    fn named(&self, version: &str) -> Result<Named> {
        let (resolved, away) = match self.sources.store.resolve_or_remember(version) {
            Err(error) if error.kind() == ErrorKind::Transient => (None, error),
            Err(error) => return Err(error),
            Ok((resolved, None)) => {
                self.sources.admit(version, resolved.version.as_ref().map(|version| &version.record))?;
                return Ok(Named::of(&resolved));
            }
            Ok((resolved, Some(away))) => (Some(resolved), away),
        };
        let stored = resolved.as_ref().and_then(|resolved| resolved.version.as_ref());
        let stored = stored.map(|version| (version.name.clone(), version.record.score));
        let query: VersionQuery = version.parse()?;
        let must_be_signed = self.sources.signatures().is_active()?;
        // The hoard has no signatures.
        let hoard = self.sources.hoard().filter(|_| !must_be_signed);
        let hoard = hoard.map(|hoard| hoard.snapshot().members).unwrap_or_default();
        let versions = self.remembered_versions();
        let known = hoard.iter().map(|it| (&it.version, it.record.score));
        let known = known.chain(versions.iter().map(|it| (&it.name, it.record.score)));
        let Some((newest, score)) = newest(&query, known.chain(stored.iter().map(|it| (&it.0, it.1)))) else {
            let resolved = resolved.ok_or(away)?;
            self.sources.admit(version, resolved.version.as_ref().map(|version| &version.record))?;
            return Ok(Named::of(&resolved));
        };
        if must_be_signed {
            let resolved = resolved.as_ref().and_then(|resolved| resolved.version.as_ref());
            let mut known = versions.iter().chain(resolved);
            let chosen = known.find(|version| version.name == *newest);
            self.sources.admit(version, chosen.map(|version| &version.record))?;
        }
        let note = matches!(query, VersionQuery::Named(_, NumberChoice::Latest)).then(|| {
            format!("{newest} is the newest version that is known here; there may be a newer one: {away}")
        });
        Ok(Named { score, name: newest.image.to_string(), note })
    }

    /// The versions in the origin's stored replies; none without a cache.
    fn remembered_versions(&self) -> Vec<Version> {
        let store = self.sources.store.remote().filter(|store| store.cache().is_some());
        store.and_then(|store| store.origin().versions().ok()).unwrap_or_default()
    }
}

/// A resolved version.
struct Named {
    score: Score,
    /// The name of its read-only disk.
    name: String,
    /// Why it may not be the newest version.
    note: Option<String>,
}

impl Named {
    fn of(resolved: &Resolved) -> Self {
        let name = match &resolved.version {
            Some(version) => version.record.image.to_string(),
            None => resolved.score.to_string(),
        };
        Self { score: resolved.score, name, note: None }
    }
}

impl OpenedDisk {
    fn of(disk: LiveDisk) -> Self {
        Self { disk, edit_lock_is_new: false, note: None }
    }
}

/// Returns the image whose newest version this is.
fn newest_image(sources: &Sources, asked: &str, resolved: Resolved) -> Result<ImageName> {
    let version = resolved.version.ok_or_else(|| {
        Error::refused(format!("{asked} is a bare score: clone it to a name to write to it"))
    })?;
    let (image, number) = (version.record.image, version.record.number);
    let newest = sources.store.resolve(image.as_str())?;
    if newest.score != resolved.score {
        return Err(Error::refused(format!(
            "{image}@{number} is not the newest version, and publishing it would undo those after it: clone it to another name, or with --next"
        )));
    }
    Ok(image)
}

/// Returns the version that a query names; for an image, the one with the highest number.
fn newest<'a>(
    query: &VersionQuery,
    versions: impl Iterator<Item = (&'a VersionName, Score)>,
) -> Option<(&'a VersionName, Score)> {
    let fits = |(name, score): &(&VersionName, Score)| match query {
        VersionQuery::Named(image, NumberChoice::Latest) => name.image == *image,
        VersionQuery::Named(image, NumberChoice::Number(number)) => {
            name.image == *image && name.number == *number
        }
        VersionQuery::Score(wanted) => score == wanted,
    };
    versions.filter(fits).max_by_key(|(name, _)| name.number)
}
