//! Checks of a successor while its predecessor still serves, so that a mistyped option disconnects no disk.
//!
//! The predecessor holds the locks of the cache and the overlays, so these are not opened here. While the origin is
//! down, nothing can be checked; the predecessor then hands over only to a process with the same origin and access
//! token. Must never change anything.

use std::sync::Arc;

use platter_image::{Error, ErrorKind, Result};
use platter_vfs::OsVfs;

use super::attach::AttachRequest;
use super::remembered::RememberedDisks;
use platter_fetch::{Audience, OpenStore, OriginLocation, RemoteStore, StoreLocation};

/// Checks what can be checked without a lock: the origin's certificate, the access token, the store, the sharing group,
/// the versions on the command line, and the disks that the running node serves. Returns false if the origin cannot be reached.
///
/// # Errors
/// `Refused` or `Missing` when the successor could not serve what the running node serves.
pub(super) fn check(request: &AttachRequest) -> Result<bool> {
    let StoreLocation::Remote(location) = request.place.store() else { return Ok(true) };
    match check_origin(request, location) {
        Err(error) if error.kind() == ErrorKind::Transient => Ok(false),
        checked => checked.map(|()| true).map_err(|error| error.within("the running node continues")),
    }
}

fn check_origin(request: &AttachRequest, location: &OriginLocation) -> Result<()> {
    let store = OpenStore::open_reader(&StoreLocation::Remote(location.uncached()))?;
    let Some(origin) = store.remote().map(RemoteStore::origin) else { return Ok(()) };
    request.place.check_store(origin.id()?)?;
    let rights = origin.sharing_rights()?;
    let shares = request.node.as_ref().is_some_and(|node| node.sharing.is_some());
    if let Some(cache) = location.cache.as_ref().filter(|_| shares) {
        Audience::open(Arc::new(OsVfs), &cache.dir, false).check(rights)?;
    }
    for disk in &request.disks {
        store.resolve(&disk.version)?;
    }
    if rights.all_images {
        return Ok(());
    }
    for disk in RememberedDisks::open(request.place.dir())?.all() {
        store.resolve(&disk.base).map_err(|error| match error.kind() {
            ErrorKind::Missing => Error::refused(format!(
                "the access token does not cover {}, which the running node serves",
                disk.name
            )),
            _ => error,
        })?;
    }
    Ok(())
}
