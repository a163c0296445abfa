//! Which live disks there are: those that processes serve, and those that were written and wait.

use std::path::Path;

use platter_image::{Error, ErrorKind, Result};
use platter_records::{EditLock, ImageName};
use platter_store::Store;
use platter_vdisk::BlockDevice;

use super::control::ServingProcess;
use super::overlays::{self, Overlays};
use super::place::LivePlace;
use super::publish::open_left;
use super::sources::Sources;
use platter_api::{DiskStatus, ListedDisk};
use platter_fetch::OpenStore;

/// All live disks of a store that have to do with this machine, or whose edit lock somebody holds.
#[derive(Clone, Debug)]
pub struct DiskList {
    /// By name and edit lock.
    pub disks: Vec<ListedDisk>,
    /// Why nothing was asked of the store: then nobody knows who holds an edit lock, nor which are lost.
    pub away: Option<String>,
}

/// Every disk that some process serves from that store, and those that were written and are not served now.
///
/// # Errors
/// `Missing` when this is no store; what an origin says, but not that it is away; `Io`.
pub fn disks(place: &LivePlace) -> Result<DiskList> {
    let store = OpenStore::open_reader(place.store())?;
    let (edit_locks, away) = match store.edit_locks() {
        Err(error) if error.kind() == ErrorKind::Transient => (Vec::new(), Some(error.to_string())),
        edit_locks => (edit_locks?, None),
    };
    let mut found = Vec::new();
    for process in processes(place)? {
        found.extend(process.disks()?);
    }
    for (image, number) in overlays::list_everywhere(place)? {
        if is_found(&found, number) {
            continue;
        }
        let place = overlays::place_of(place, &image, number)?;
        let known = match away {
            Some(_) => lying_there(place.dir(), &image, number)?,
            None => left_disk(&place, &store, &image, number)?,
        };
        let holder =
            edit_locks.iter().find(|it| is_lock(it, image.as_str(), number)).map(|it| it.holder.clone());
        let status = match known {
            Some((base, disk_bytes, written_bytes)) => {
                DiskStatus { disk_bytes, written_bytes, ..waiting(&image, number, base) }
            }
            None if holder.is_some() => continue,
            None => waiting(&image, number, String::new()),
        };
        found.push(DiskStatus { holder, ..status });
    }
    // The others are written elsewhere, or were not written yet.
    for edit_lock in &edit_locks {
        if is_found(&found, edit_lock.number) {
            continue;
        }
        let newest = store.resolve(edit_lock.image.as_str())?;
        found.push(DiskStatus {
            disk_bytes: newest.version.map_or(0, |version| version.record.disk_length),
            holder: Some(edit_lock.holder.clone()),
            ..waiting(&edit_lock.image, edit_lock.number, newest.score.to_string())
        });
    }
    found.sort_by(|a, b| (&a.disk, a.edit_lock).cmp(&(&b.disk, b.edit_lock)));
    let listed = found.into_iter().map(|status| {
        let is_lost = |number| away.is_none() && !is_held(&edit_locks, &status.disk, number);
        ListedDisk { lost: status.edit_lock.is_some_and(is_lost), status }
    });
    Ok(DiskList { disks: listed.collect(), away })
}

/// What [`disks`] tells as far as it can be known without opening any disk, for who looks often: of those that nobody
/// serves, not how much was written.
///
/// # Errors
/// As [`disks`].
pub fn served_disks(store: &Store) -> Result<Vec<ListedDisk>> {
    let edit_locks = store.edit_locks()?;
    let mut found = Vec::new();
    for process in ServingProcess::all(store.place().dir())? {
        found.extend(process.disks()?);
    }
    for edit_lock in &edit_locks {
        if !is_found(&found, edit_lock.number) {
            let holder = Some(edit_lock.holder.clone());
            found.push(DiskStatus { holder, ..waiting(&edit_lock.image, edit_lock.number, String::new()) });
        }
    }
    for (image, number) in overlays::list(store.place().dir())? {
        if !is_found(&found, number) {
            found.push(waiting(&image, number, String::new()));
        }
    }
    found.sort_by(|a, b| (&a.disk, a.edit_lock).cmp(&(&b.disk, b.edit_lock)));
    let listed = found.into_iter().map(|status| {
        let is_held =
            |number| edit_locks.iter().any(|it| it.image.as_str() == status.disk && it.number == number);
        ListedDisk { lost: status.edit_lock.is_some_and(|number| !is_held(number)), status }
    });
    Ok(listed.collect())
}

/// The processes that serve disks at that place, and at others of this machine for the same store.
///
/// # Errors
/// `Io`.
pub(super) fn processes(place: &LivePlace) -> Result<Vec<ServingProcess>> {
    let mut all = Vec::new();
    for other in place.everywhere()? {
        all.extend(ServingProcess::all(other.dir())?);
    }
    Ok(all)
}

/// What is served in that directory by a node or by others, and what was written there and waits. Asks the store nothing.
///
/// # Errors
/// `Missing` when no process answers there; `Io`.
pub fn disks_of_node(dir: &Path) -> Result<Vec<DiskStatus>> {
    let mut found = Vec::new();
    for process in processes_at(dir)? {
        found.extend(process.disks()?);
    }
    for (image, number) in overlays::list(dir)? {
        if is_found(&found, number) {
            continue;
        }
        if let Some((base, disk_bytes, written_bytes)) = lying_there(dir, &image, number)? {
            found.push(DiskStatus { disk_bytes, written_bytes, ..waiting(&image, number, base) });
        }
    }
    found.sort_by(|a, b| (&a.disk, a.edit_lock).cmp(&(&b.disk, b.edit_lock)));
    Ok(found)
}

/// The processes that answer in that directory, at least one; a node comes first.
///
/// # Errors
/// `Missing` when none does; `Io`.
pub(super) fn processes_at(dir: &Path) -> Result<Vec<ServingProcess>> {
    let all = ServingProcess::all(dir)?;
    if all.is_empty() {
        return Err(Error::missing(format!(
            "no node answers in {0}: `platter node --cache {0}` starts one",
            dir.display()
        )));
    }
    Ok(all)
}

fn is_found(found: &[DiskStatus], number: u64) -> bool {
    found.iter().any(|disk| disk.edit_lock == Some(number))
}

fn is_held(edit_locks: &[EditLock], image: &str, number: u64) -> bool {
    edit_locks.iter().any(|edit_lock| is_lock(edit_lock, image, number))
}

fn is_lock(edit_lock: &EditLock, image: &str, number: u64) -> bool {
    edit_lock.image.as_str() == image && edit_lock.number == number
}

/// A disk that no process says it serves.
fn waiting(image: &ImageName, edit_lock: u64, base: String) -> DiskStatus {
    DiskStatus {
        disk: image.to_string(),
        base,
        disk_bytes: 0,
        writable: true,
        holder: None,
        edit_lock: Some(edit_lock),
        written_bytes: None,
        exports: Vec::new(),
        process: None,
        cache: None,
        fill: None,
        node: None,
    }
}

/// Base, length and bytes written of a disk.
type Known = (String, u64, Option<u64>);

/// What is known of a disk that lies there; nothing if some process has it, or it cannot be opened.
fn left_disk(
    place: &LivePlace,
    store: &OpenStore,
    image: &ImageName,
    edit_lock: u64,
) -> Result<Option<Known>> {
    let sources = Sources::for_a_job(store.clone())?;
    match open_left(place, &sources, image, edit_lock, "") {
        Ok(disk) => {
            let (base, written) = disk.state()?;
            Ok(Some((base.to_string(), disk.length(), Some(written))))
        }
        // Damaged, in use, or just removed: the list still names it, or will not the next time.
        Err(error) if error.kind() != ErrorKind::Bug => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same without the version below it, which is out of reach.
fn lying_there(dir: &Path, image: &ImageName, edit_lock: u64) -> Result<Option<Known>> {
    let lying = || -> Result<Option<Known>> {
        let overlays = Overlays::lock(dir, image, edit_lock)?;
        let Some(newest) = overlays.numbers()?.last().copied() else { return Ok(None) };
        let header = overlays.header(newest)?;
        Ok(Some((header.base_score.to_string(), header.disk_length, None)))
    };
    match lying() {
        Err(error) if error.kind() != ErrorKind::Bug => Ok(None),
        lying => lying,
    }
}
