//! Publishing and discarding what was written to live disks, by whoever serves them, or by this process when none does.

use std::collections::BTreeMap;

use platter_image::{Error, ErrorKind, Result};
use platter_records::{EditLock, ImageName};

use super::control::{ServingProcess, Words};
use super::disk::LiveDisk;
use super::disk_request::OnDetach;
use super::list::processes;
use super::overlays::{self, Overlays};
use super::place::LivePlace;
use super::publish_report::PublishReport;
use super::sources::Sources;
use super::version::publish_disk;
use platter_api::DiskStatus;
use platter_fetch::OpenStore;
use platter_jobs::Progress;

/// Which disk to publish, and what to say of the version.
#[derive(Clone, Debug)]
pub struct PublishRequest {
    /// The store, and where what was written lies.
    pub place: LivePlace,
    /// The image whose writable disk it is.
    pub disk: ImageName,
    /// The edit lock that the disk was written under; the one that somebody holds if none is named.
    pub edit_lock: Option<u64>,
    /// Publish it as the first version of this new image: a branch. Then the edit ends.
    pub branch: Option<ImageName>,
    /// Words of the user's.
    pub labels: BTreeMap<String, String>,
    /// A sentence of the user's.
    pub notes: String,
    /// What is doing this, such as `platter 0.1.0`.
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

/// Publishes a disk: by the process that serves it, which goes on above the new version; or, when none does, here. Then
/// the edit lock is given back. A branch ends the edit in both cases, and needs no edit lock: the disk of one that was
/// lost may become one.
///
/// # Errors
/// `Refused` when nothing was written, the edit lock was taken over, or the branch's name is another image's: what was
/// written is kept. `Missing` when the image has no such disk. `Transient` when an origin is away: it can be tried again. What the
/// store says.
pub fn publish(request: &PublishRequest, progress: &dyn Progress) -> Result<PublishReport> {
    publish_from(&OpenStore::open_reader(request.place.store())?, request, progress)
}

/// The same, of a store that was opened before.
pub(super) fn publish_from(
    store: &OpenStore,
    request: &PublishRequest,
    progress: &dyn Progress,
) -> Result<PublishReport> {
    let words = request.words();
    let (image, place) = (&request.disk, &request.place);
    let wanted = Wanted::find(place, store, image, request.edit_lock).map_err(kept)?;
    if let Some((server, status)) = serving(place, image, wanted.number())? {
        if words.branch.is_none() {
            return server.publish(image.as_str(), &words);
        }
        if status.written_bytes == Some(0) {
            return Err(nothing_written(image.as_str(), &status.base));
        }
        let published = server.detach(image.as_str(), Some(OnDetach::Publish), &words)?;
        return published.ok_or_else(|| nothing_written(image.as_str(), &status.base));
    }
    let sources = Sources::for_a_job(store.clone())?;
    let disk = wanted.open(place, &sources, image)?;
    // Nobody reads it afterwards.
    disk.set_open(false);
    let mut report = publish_disk(&disk, &sources, &words, progress)?;
    end_editing(&disk, &sources.store)?;
    report.attached = false;
    Ok(report)
}

/// Throws away what was written to a disk that no process serves, and gives the edit lock back. `edit_lock` says which
/// disk of the image, the held one if it says nothing.
///
/// # Errors
/// `Missing` when the image has no such disk; `Refused` when a process serves it.
pub fn discard(place: &LivePlace, image: &ImageName, edit_lock: Option<u64>) -> Result<u64> {
    discard_from(&OpenStore::open_reader(place.store())?, place, image, edit_lock)
}

/// The same, of a store that was opened before.
pub(super) fn discard_from(
    store: &OpenStore,
    place: &LivePlace,
    image: &ImageName,
    edit_lock: Option<u64>,
) -> Result<u64> {
    let wanted = Wanted::find(place, store, image, edit_lock)?;
    let sources = Sources::for_a_job(store.clone())?;
    let disk = wanted.open(place, &sources, image)?;
    let (_, written) = disk.state()?;
    end_editing(&disk, &sources.store)?;
    Ok(written)
}

/// The process that serves the disk of an image which is written under that edit lock.
fn serving(
    place: &LivePlace,
    image: &ImageName,
    edit_lock: u64,
) -> Result<Option<(ServingProcess, DiskStatus)>> {
    for process in processes(place)? {
        let is_it = |disk: &DiskStatus| disk.disk == image.as_str() && disk.edit_lock == Some(edit_lock);
        if let Some(disk) = process.disks()?.into_iter().find(is_it) {
            return Ok(Some((process, disk)));
        }
    }
    Ok(None)
}

/// Which disk of an image a person means.
enum Wanted {
    /// The one of the edit lock that somebody holds.
    Held(EditLock),
    /// One of an edit lock that nobody holds any more.
    Lost(u64),
}

impl Wanted {
    fn find(place: &LivePlace, store: &OpenStore, image: &ImageName, number: Option<u64>) -> Result<Self> {
        let held = store.edit_lock(image)?;
        let of_image = overlays::list_everywhere(place)?.into_iter().filter(|(name, _)| name == image);
        let lost: Vec<u64> = of_image.map(|(_, number)| number).collect();
        if let Some(edit_lock) = held.filter(|held| number.is_none_or(|number| held.number == number)) {
            // What others write to an origin's images lies elsewhere, and is not ours to end.
            return match place.is_far() && !lost.contains(&edit_lock.number) {
                true => Err(elsewhere(&edit_lock)),
                false => Ok(Self::Held(edit_lock)),
            };
        }
        match (number, &lost[..]) {
            (Some(number), lost) if lost.contains(&number) => Ok(Self::Lost(number)),
            (Some(number), _) => {
                Err(Error::missing(format!("{image} has no changes under edit lock {number}")))
            }
            (None, []) => Err(Error::missing(format!(
                "no changes to {image} exist: start with `platter attach --write {image}`"
            ))),
            (None, [number, ..]) => Err(lost_edit_lock(image, *number)),
        }
    }

    fn number(&self) -> u64 {
        match self {
            Self::Held(edit_lock) => edit_lock.number,
            Self::Lost(number) => *number,
        }
    }

    /// Opens the disk, which was left when its process ended.
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

/// Opens what lies there of a disk whose edit lock nobody needs to hold; `holder` is who had it, as far as that is known.
///
/// # Errors
/// `Missing` when nothing does; `Refused` when a process has it; what opening the overlays says.
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

/// The same error; of an origin that is away, with what that means for what was written.
pub(super) fn kept(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Transient => {
            error.within("nothing was published, and what was written is kept: try again later")
        }
        _ => error,
    }
}

/// Why nothing can be done with a disk that somebody writes on another machine.
fn elsewhere(edit_lock: &EditLock) -> Error {
    Error::missing(format!(
        "{} is edited elsewhere ({edit_lock}): nothing that was written under that edit lock lies here",
        edit_lock.image
    ))
}

/// Why a disk is not published, and what can be done with it.
pub(super) fn lost_edit_lock(image: &ImageName, number: u64) -> Error {
    Error::refused(format!(
        "edit lock {number} of {image} was taken over or released: nothing was published, and the changes are kept. \
         `platter publish {image} NEW-NAME --lock {number}` creates a new image from them, `platter discard {image} \
         --lock {number}` discards them"
    ))
}

/// The overlays go, and with them the edit lock.
pub(super) fn end_editing(disk: &LiveDisk, store: &OpenStore) -> Result<()> {
    let Some(writing) = disk.writing() else { return Ok(()) };
    disk.detach()?;
    writing.remove_overlays()?;
    match store.release_edit_lock(&writing.edit_lock) {
        // Somebody took it over meanwhile: it is theirs.
        Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Missing) => Ok(()),
        released => released.map_err(|error| {
            error.within(format!(
                "the changes to {image} are gone, but its edit lock could not be released: run \
                 `platter lock release {image}`",
                image = writing.image
            ))
        }),
    }
}
