//! Requests of commands to processes that serve disks, which are found by the directory or store that a user names.

use std::path::{Path, PathBuf};

use platter_image::{Error, Result};
use platter_records::ImageName;

use super::attached::Attached;
use super::control::{ServingProcess, Words};
use super::disk_request::{DiskRequest, OnDetach};
use super::list::{processes, processes_at};
use super::overlays;
use super::place::LivePlace;
use super::publish::PublishRequest;
use super::publish_report::PublishReport;
use platter_api::DiskStatus;
use platter_jobs::{CloneReport, CloneRequest};

/// Returns the directory of the running node of this machine that serves disks of this store, if there is one.
///
/// # Errors
/// `Refused` when there are several; `Io`.
pub fn running_node(place: &LivePlace) -> Result<Option<PathBuf>> {
    let mut running = Vec::new();
    for other in place.everywhere()? {
        running.extend(ServingProcess::node(other.dir())?.map(|_| other.dir().to_owned()));
    }
    match &running[..] {
        [first, second, ..] => Err(Error::refused(format!(
            "several nodes of this store run here, at {} and {}: name one with --node",
            first.display(),
            second.display()
        ))),
        _ => Ok(running.pop()),
    }
}

/// Returns the directory of the running node on this machine that keeps unpublished changes to an image, if there is one.
///
/// # Errors
/// `Io`.
pub fn node_of_disk(place: &LivePlace, image: &ImageName) -> Result<Option<PathBuf>> {
    for other in place.everywhere()? {
        let is_its = overlays::list(other.dir())?.iter().any(|(name, _)| name == image);
        if is_its && ServingProcess::node(other.dir())?.is_some() {
            return Ok(Some(other.dir().to_owned()));
        }
    }
    Ok(None)
}

/// Lets the node in this directory, or another process there, serve disks: all of them, or none.
///
/// # Errors
/// `Missing` when no process answers there; that process's errors.
pub fn attach_at(dir: &Path, requests: Vec<DiskRequest>) -> Result<Vec<Attached>> {
    first(processes_at(dir)?)?.attach(requests)
}

/// Lets the processes in this directory stop serving a disk. Without `then`, its `on_detach` decides about its changes.
/// Returns the version that was published, if any.
///
/// # Errors
/// `Missing` when no process answers there, or none serves it; as [`detach`].
pub fn detach_at(
    dir: &Path,
    disk: &str,
    then: Option<OnDetach>,
    notes: &str,
    tool_version: &str,
) -> Result<Option<PublishReport>> {
    let processes = processes_at(dir)?;
    if ServingProcess::node(dir)?.is_some() {
        // The node may know a disk that it does not serve yet.
        return first(processes)?.detach(disk, then, &words(notes, tool_version));
    }
    detach_from(processes, disk, then, &words(notes, tool_version))
}

/// Lets a process in this directory publish an image's disk, as [`super::publish::publish`] does; `None` when no
/// process answers there.
///
/// # Errors
/// That process's errors.
pub fn publish_at(dir: &Path, request: &PublishRequest) -> Result<Option<PublishReport>> {
    let process = ServingProcess::all(dir)?.into_iter().next();
    process.map(|it| it.publish_image(&request.disk, request.edit_lock, &request.words())).transpose()
}

/// Lets a process in this directory discard the changes to a disk, as [`super::publish::discard`] does; `None` when no
/// process answers there.
///
/// # Errors
/// That process's errors.
pub fn discard_at(dir: &Path, image: &ImageName, edit_lock: Option<u64>) -> Result<Option<u64>> {
    let process = ServingProcess::all(dir)?.into_iter().next();
    process.map(|it| it.discard(image, edit_lock)).transpose()
}

/// Lets a process in this directory clone a version, as [`platter_jobs::clone`] does; `None` when no process answers
/// there.
///
/// # Errors
/// That process's errors.
pub fn clone_at(dir: &Path, request: &CloneRequest) -> Result<Option<CloneReport>> {
    let process = ServingProcess::all(dir)?.into_iter().next();
    process.map(|it| it.clone_version(request)).transpose()
}

/// Stops serving a disk. Without `then`, its `on_detach` decides about its changes. Returns the version that was
/// published, if any.
///
/// # Errors
/// `Missing` when no process serves it; the errors of publishing, after which the disk is still served.
pub fn detach(
    place: &LivePlace,
    disk: &str,
    then: Option<OnDetach>,
    notes: &str,
    tool_version: &str,
) -> Result<Option<PublishReport>> {
    detach_from(processes(place)?, disk, then, &words(notes, tool_version))
}

fn words(notes: &str, tool_version: &str) -> Words {
    Words { notes: notes.to_owned(), tool_version: tool_version.to_owned(), ..Words::default() }
}

fn first(processes: Vec<ServingProcess>) -> Result<ServingProcess> {
    let process = processes.into_iter().next();
    process.ok_or_else(|| Error::bug("no process among those that answer"))
}

fn detach_from(
    processes: Vec<ServingProcess>,
    disk: &str,
    then: Option<OnDetach>,
    words: &Words,
) -> Result<Option<PublishReport>> {
    let mut serving = Vec::new();
    for process in processes {
        // Only a writable disk can be published or discarded.
        let keeps = then.is_none_or(|then| then == OnDetach::Keep);
        let is_it = |it: &DiskStatus| it.disk == disk && (it.writable || keeps);
        serving.extend(process.disks()?.iter().any(is_it).then_some(process));
    }
    match &serving[..] {
        [process] => process.detach(disk, then, words),
        [] => {
            Err(Error::missing(format!("no process serves {disk}: `platter disks` lists what is attached")))
        }
        several => Err(Error::refused(format!(
            "{} processes serve {disk}: name the directory of one with --node DIR, or end one of them (`platter disks` lists \
             their numbers)",
            several.len()
        ))),
    }
}
