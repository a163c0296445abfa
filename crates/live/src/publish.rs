//! Publishes and discards the changes of live disks, in the process that serves them, or in this one if none does.

use std::collections::BTreeMap;

use platter_image::{Error, ErrorKind, Result, Score};
use platter_records::{EditLock, ImageName};

use super::control::{ServingProcess, Words};
use super::disk::LiveDisk;
use super::disk_request::OnDetach;
use super::list::processes;
use super::overlays::{self, Overlays};
use super::place::LivePlace;
use super::publish_report::PublishReport;
use super::sources::Sources;
use super::version::{named, publish_disk};
use platter_api::DiskStatus;
use platter_fetch::OpenStore;
use platter_jobs::Progress;

/// The request to publish a disk.
#[derive(Clone, Debug)]
pub struct PublishRequest {
    /// The store, and the place of the changes.
    pub place: LivePlace,
    /// The image of the writable disk.
    pub disk: ImageName,
    /// The edit lock of the changes; the currently held one if not given.
    pub edit_lock: Option<u64>,
    /// Publish it as the first version of this new image (a branch), which ends the edit.
    pub branch: Option<ImageName>,
    /// Labels of the user.
    pub labels: BTreeMap<String, String>,
    /// A note of the user.
    pub notes: String,
    /// Name and version of the program, such as `platter 0.1.0`.
    pub tool_version: String,
}

impl PublishRequest {
    pub(super) fn words(&self) -> Words {
        Words {
            labels: self.labels.clone(),
            notes: self.notes.clone(),
            tool_version: self.tool_version.clone(),
            branch: self.branch.clone(),
        }
    }
}

/// Publishes a disk: in the process that serves it, which continues above the new version; or here, if none does, and
/// then the edit lock is released. A branch ends the edit in both cases, and needs no edit lock: a disk whose lock was
/// lost can become one.
///
/// # Errors
/// `Refused` when there are no changes, the edit lock was taken over, or the branch's name exists: the changes are
/// kept. `Missing` when the image has no such disk. `Transient` when an origin is down: it can be retried. The store's
/// errors.
pub fn publish(request: &PublishRequest, progress: &dyn Progress) -> Result<PublishReport> {
    publish_from(&OpenStore::open_reader(request.place.store())?, request, progress)
}

/// The same, with an open store.
pub(super) fn publish_from(
    store: &OpenStore,
    request: &PublishRequest,
    progress: &dyn Progress,
) -> Result<PublishReport> {
    let words = request.words();
    let (image, place) = (&request.disk, &request.place);
    let wanted =
        Wanted::find(place, store, image, request.edit_lock, words.branch.is_some()).map_err(kept)?;
    if let Some((server, status)) = serving(place, image, Some(wanted.number()))? {
        if words.branch.is_none() {
            return server.publish(image.as_str(), &words);
        }
        let unchanged = || {
            let base = Score::from_hex(&status.base);
            nothing_written(image.as_str(), &base.map_or(status.base.clone(), |it| named(store, image, it)))
        };
        if status.written_bytes == Some(0) {
            return Err(unchanged());
        }
        let published = server.detach(image.as_str(), Some(OnDetach::Publish), &words)?;
        return published.ok_or_else(unchanged);
    }
    let sources = Sources::for_a_job(store.clone())?;
    let disk = wanted.open(place, &sources, image)?;
    // Nobody uses the disk afterwards.
    disk.set_open(false);
    let mut report = publish_disk(&disk, &sources, &words, progress)?;
    end_editing(&disk, &sources.store).map_err(|error| after(&report, error))?;
    report.attached = false;
    Ok(report)
}

/// Discards the changes of a disk that no process serves, and releases the edit lock. `edit_lock` selects the disk of
/// the image; by default, the one with the held lock.
///
/// # Errors
/// `Missing` when the image has no such disk; `Refused` when a process serves it.
pub fn discard(place: &LivePlace, image: &ImageName, edit_lock: Option<u64>) -> Result<u64> {
    discard_from(&OpenStore::open_reader(place.store())?, place, image, edit_lock)
}

/// The same, with an open store.
pub(super) fn discard_from(
    store: &OpenStore,
    place: &LivePlace,
    image: &ImageName,
    edit_lock: Option<u64>,
) -> Result<u64> {
    let wanted = match Wanted::find(place, store, image, edit_lock, false) {
        // Whether the lock is held is unknown, but a served disk is not discarded in any case.
        Err(error) if error.kind() == ErrorKind::Transient => {
            check_unserved(place, image, edit_lock)?;
            return Err(error);
        }
        wanted => wanted?,
    };
    check_unserved(place, image, Some(wanted.number()))?;
    // The overlays are not opened, because that writes: a full disk may have no space for it.
    let place = overlays::place_of(place, image, wanted.number())?;
    let overlays = Overlays::lock(place.dir(), image, wanted.number())?;
    let written = overlays.written()?.map_or(0, |(_, _, bytes)| bytes);
    overlays.remove_all()?;
    if let Wanted::Held(edit_lock) = &wanted {
        release(store, edit_lock)?;
    }
    Ok(written)
}

/// Refuses a disk that a process serves for writing.
fn check_unserved(place: &LivePlace, image: &ImageName, edit_lock: Option<u64>) -> Result<()> {
    match serving(place, image, edit_lock)? {
        None => Ok(()),
        Some((_, status)) => Err(Error::refused(format!(
            "{image} is attached at {}: `platter detach {image} --then discard` ends that and discards the changes",
            status.exports.join(" ")
        ))),
    }
}

/// Returns the process that serves the image's disk for writing: under this edit lock, or any without a number.
fn serving(
    place: &LivePlace,
    image: &ImageName,
    edit_lock: Option<u64>,
) -> Result<Option<(ServingProcess, DiskStatus)>> {
    for process in processes(place)? {
        let is_it = |disk: &DiskStatus| {
            let is_meant = edit_lock.is_none_or(|number| disk.edit_lock == Some(number));
            disk.disk == image.as_str() && disk.writable && is_meant
        };
        if let Some(disk) = process.disks()?.into_iter().find(is_it) {
            return Ok(Some((process, disk)));
        }
    }
    Ok(None)
}

/// The disk of an image to publish or discard.
enum Wanted {
    /// The disk under the held edit lock.
    Held(EditLock),
    /// A disk under an edit lock that is no longer held.
    Lost(u64),
}

impl Wanted {
    /// `number` names an edit lock. Without it, the disk of the held lock is meant; of a branch, which needs no lock, also the
    /// only one whose changes lie here.
    fn find(
        place: &LivePlace,
        store: &OpenStore,
        image: &ImageName,
        number: Option<u64>,
        is_branch: bool,
    ) -> Result<Self> {
        let held = store.edit_lock(image)?;
        let of_image = overlays::list_everywhere(place)?.into_iter().filter(|(name, _)| name == image);
        let here: Vec<u64> = of_image.map(|(_, number)| number).collect();
        let meant = held.as_ref().filter(|held| number.is_none_or(|number| held.number == number));
        match (meant, number, &here[..]) {
            // Others write an origin's images elsewhere: that is not ours to end.
            (Some(edit_lock), _, here) if !place.is_far() || here.contains(&edit_lock.number) => {
                Ok(Self::Held(edit_lock.clone()))
            }
            (_, Some(number), here) if here.contains(&number) => Ok(Self::Lost(number)),
            (Some(edit_lock), _, []) => Err(elsewhere(edit_lock)),
            (_, Some(number), _) => {
                Err(Error::missing(format!("{image} has no changes under edit lock {number}")))
            }
            (_, None, []) => Err(Error::missing(format!(
                "no changes to {image} exist: start with `platter attach --write {image}`"
            ))),
            (_, None, [number]) if is_branch => Ok(Self::Lost(*number)),
            (_, None, [.., number]) => Err(lost_edit_lock(image, *number)),
        }
    }

    fn number(&self) -> u64 {
        match self {
            Self::Held(edit_lock) => edit_lock.number,
            Self::Lost(number) => *number,
        }
    }

    /// Opens the disk, whose process has ended.
    fn open(self, place: &LivePlace, sources: &Sources, image: &ImageName) -> Result<LiveDisk> {
        let place = &overlays::place_of(place, image, self.number())?;
        let edit_lock = match self {
            Self::Held(edit_lock) => edit_lock,
            Self::Lost(number) => return open_left(place, sources, image, number, ""),
        };
        let score = sources.store.resolve(image.as_str())?.score;
        place.make()?;
        LiveDisk::writable(image.to_string(), place, sources, (image.clone(), edit_lock), score)
    }
}

/// Opens a disk's overlays without requiring its edit lock; `holder` is the lock's holder, if known.
///
/// # Errors
/// `Missing` when there are none; `Refused` when a process uses them; the errors of opening the overlays.
pub(super) fn open_left(
    place: &LivePlace,
    sources: &Sources,
    image: &ImageName,
    number: u64,
    holder: &str,
) -> Result<LiveDisk> {
    let overlays = Overlays::lock(place.dir(), image, number)?;
    let Some(lowest) = overlays.numbers()?.first().copied() else {
        overlays.remove_all()?;
        return Err(Error::missing(format!(
            "the overlay of {image} under edit lock {number} no longer exists"
        )));
    };
    let score = overlays.header(lowest)?.base_score;
    let edit_lock = EditLock {
        image: image.clone(),
        number,
        holder: holder.to_owned(),
        time_unix_ms: 0,
        overlay: String::new(),
    };
    LiveDisk::on_overlays(image.to_string(), overlays, sources, (image.clone(), edit_lock), score)
}

pub(super) fn nothing_written(disk: &str, base: &str) -> Error {
    Error::refused(format!("nothing was written to {disk} since {base}"))
}

/// Adds to the error of an origin that is down that the changes are kept.
pub(super) fn kept(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Transient => {
            error.within("nothing was published, and the changes are kept: try again later")
        }
        _ => error,
    }
}

/// The error for a disk that is written on another machine.
fn elsewhere(edit_lock: &EditLock) -> Error {
    Error::missing(format!(
        "{} is edited elsewhere ({edit_lock}): there are no changes to it here",
        edit_lock.image
    ))
}

/// The error for a disk whose edit lock was lost, with what can be done.
pub(super) fn lost_edit_lock(image: &ImageName, number: u64) -> Error {
    Error::refused(format!(
        "edit lock {number} of {image} was taken over or released: nothing was published, and the changes are kept. \
         `platter publish {image} NEW-NAME --lock {number}` creates a new image from them, `platter discard {image} \
         --lock {number}` discards them"
    ))
}

/// The error of ending an edit whose changes were published.
pub(super) fn after(report: &PublishReport, error: Error) -> Error {
    error.within(format!("{} is published, but the edit could not be ended", report.version))
}

/// Removes the overlays, and releases the edit lock.
pub(super) fn end_editing(disk: &LiveDisk, store: &OpenStore) -> Result<()> {
    let Some(writing) = disk.writing() else { return Ok(()) };
    disk.detach()?;
    writing.remove_overlays()?;
    release(store, &writing.edit_lock)
}

/// Releases the edit lock of a disk without overlays.
fn release(store: &OpenStore, edit_lock: &EditLock) -> Result<()> {
    match store.release_edit_lock(edit_lock) {
        // Somebody has taken it over meanwhile.
        Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Missing) => Ok(()),
        released => released.map_err(|error| {
            error.within(format!(
                "nothing of the disk of {image} is left here, but its edit lock could not be released: run `platter lock release {image}`",
                image = edit_lock.image
            ))
        }),
    }
}
