//! Checks of a successor while its predecessor still serves, so that a mistyped option disconnects no disk.
//!
//! The predecessor holds the locks of the cache and the overlays, so these are not opened here. While the origin is
//! down, nothing can be checked; the predecessor then hands over only to a process with the same origin and access
//! token. Must never change anything.

use std::sync::Arc;

use platter_image::{Error, ErrorKind, Result};
use platter_vfs::OsVfs;

use super::attach::AttachRequest;
use super::estate::Claim;
use super::remembered::RememberedDisks;
use platter_fetch::{Audience, OpenStore, OriginLocation, RemoteStore, StoreLocation};

/// Checks what can be checked without a lock: sizes, certificates, the address for peers and the list of disks of this
/// machine; then the origin's certificate, the access token, the store, the sharing group, the versions on the command
/// line, and the disks that the running node serves. Returns what the successor asks the running node for.
///
/// # Errors
/// `Refused` or `Missing` when the successor could not serve what the running node serves.
pub(super) fn check(request: &AttachRequest) -> Result<Claim> {
    let checked = || -> Result<Claim> {
        let is_peers_address_used = check_here(request)?;
        let is_checked = match request.place.store() {
            StoreLocation::Local(_) => true,
            StoreLocation::Remote(location) => match check_origin(request, location) {
                Err(error) if error.kind() == ErrorKind::Transient => false,
                checked => checked.map(|()| true)?,
            },
        };
        Ok(Claim { is_checked, is_peers_address_used, ..request.claim() })
    };
    checked().map_err(|error| error.within("the running node continues"))
}

/// Checks the options that only concern this machine. Returns whether the address for peers is in use.
fn check_here(request: &AttachRequest) -> Result<bool> {
    if let Some(tls) = request.servers.nbd.as_ref().and_then(|nbd| nbd.tls.as_ref()) {
        tls.open()?;
    }
    if let StoreLocation::Remote(OriginLocation { cache: Some(cache), .. }) = request.place.store() {
        cache.check()?;
    }
    RememberedDisks::open(request.place.dir())?;
    let sharing = request.node.as_ref().and_then(|node| node.sharing.as_ref());
    sharing.map_or(Ok(false), |sharing| sharing.check().map(|is_free| !is_free))
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
