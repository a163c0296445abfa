//! Lists live disks: those that processes serve, and those with unpublished changes.

use std::path::Path;

use platter_image::{Error, ErrorKind, Result};
use platter_records::{EditLock, ImageName};
use platter_store::Store;

use super::control::ServingProcess;
use super::known_locks::KnownLocks;
use super::overlays::{self, Overlays};
use super::place::LivePlace;
use platter_api::{DiskStatus, ListedDisk};
use platter_fetch::OpenStore;

/// All live disks of a store on this machine, and those with a held edit lock.
#[derive(Clone, Debug)]
pub struct DiskList {
    /// The disks, ordered by name and edit lock.
    pub disks: Vec<ListedDisk>,
    /// Why the store could not be queried: then it is unknown who holds an edit lock, and which disks are lost.
    pub away: Option<String>,
}

/// Lists every disk that a process serves from this store, and those with unpublished changes that are not served.
///
/// # Errors
/// `Missing` when there is no store; an origin's errors, except that it is down; `Io`.
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
        let known = left_here(place.dir(), &image, number)?;
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
    // The others are written elsewhere, or have no writes yet.
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
    let locks = KnownLocks::default();
    if away.is_none() {
        locks.note(&store, &edit_locks, &found)?;
    }
    let listed = found.into_iter().map(|status| ListedDisk { lost: locks.is_lost(&status), status });
    Ok(DiskList { disks: listed.collect(), away })
}

/// As [`disks`], but without opening any disk, for frequent calls: for disks that nobody serves, the written bytes are
/// left out.
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

/// Returns the processes that serve disks at this place, and at other places of this machine for the same store.
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

/// Lists the disks served in this directory by a node or by other processes, and those with unpublished changes there.
/// Does not query the store.
///
/// # Errors
/// `Missing` when no process answers there; `Io`.
pub fn disks_of_node(dir: &Path) -> Result<Vec<ListedDisk>> {
    let mut found = Vec::new();
    for process in processes_at(dir)? {
        found.extend(process.listed()?);
    }
    for (image, number) in overlays::list(dir)? {
        if found.iter().any(|disk| disk.status.edit_lock == Some(number)) {
            continue;
        }
        if let Some((base, disk_bytes, written_bytes)) = left_here(dir, &image, number)? {
            let status = DiskStatus { disk_bytes, written_bytes, ..waiting(&image, number, base) };
            found.push(ListedDisk { status, lost: false });
        }
    }
    found.sort_by(|a, b| (&a.status.disk, a.status.edit_lock).cmp(&(&b.status.disk, b.status.edit_lock)));
    Ok(found)
}

/// Returns the processes that answer in this directory, at least one; a node comes first.
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

fn is_lock(edit_lock: &EditLock, image: &str, number: u64) -> bool {
    edit_lock.image.as_str() == image && edit_lock.number == number
}

/// The status of a disk that no process serves.
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

/// Base, length and written bytes of a disk.
type Known = (String, u64, Option<u64>);

/// Returns the facts of an unserved disk; `None` if a process has it, or its overlays cannot be read.
fn left_here(dir: &Path, image: &ImageName, edit_lock: u64) -> Result<Option<Known>> {
    let left = || -> Result<Option<Known>> {
        let written = Overlays::lock(dir, image, edit_lock)?.written()?;
        Ok(written.map(|(base, length, bytes)| (base.to_string(), length, Some(bytes))))
    };
    match left() {
        // Damaged, in use, or just removed: the disk is still listed, or will be missing the next time.
        Err(error) if error.kind() != ErrorKind::Bug => Ok(None),
        left => left,
    }
}
