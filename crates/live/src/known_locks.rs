//! Tells which disks of a process lost their edit locks, from the locks that the store last listed. This only informs people:
//! the origin decides whether a disk may be published.

use parking_lot::Mutex;
use platter_api::DiskStatus;
use platter_fetch::OpenStore;
use platter_image::{ErrorKind, Result};
use platter_records::{EditLock, ImageName};

/// See above.
#[derive(Default)]
pub(super) struct KnownLocks(Mutex<Vec<(ImageName, u64)>>);

impl KnownLocks {
    /// Asks the store about the locks of these disks; nothing if none of them is written.
    ///
    /// # Errors
    /// Those of the store; what was known before stays.
    pub(super) fn look(&self, store: &OpenStore, disks: &[DiskStatus]) -> Result<()> {
        let is_asked = disks.iter().any(|disk| disk.edit_lock.is_some());
        let held = if is_asked { store.edit_locks()? } else { Vec::new() };
        self.note(store, &held, disks)
    }

    /// Notes which locks of these disks are not among the held ones.
    ///
    /// # Errors
    /// Those of the store; what was known before stays.
    pub(super) fn note(&self, store: &OpenStore, held: &[EditLock], disks: &[DiskStatus]) -> Result<()> {
        let mut all = Vec::new();
        for disk in disks {
            let Some((image, number)) = disk.disk.parse::<ImageName>().ok().zip(disk.edit_lock) else {
                continue;
            };
            let is_held = held.iter().any(|edit_lock| edit_lock.image == image && edit_lock.number == number);
            if !is_held && is_visible(store, &image)? {
                all.push((image, number));
            }
        }
        *self.0.lock() = all;
        Ok(())
    }

    /// Whether that disk lost its lock.
    pub(super) fn is_lost(&self, disk: &DiskStatus) -> bool {
        let lost = self.0.lock();
        lost.iter().any(|(image, number)| image.as_str() == disk.disk && Some(*number) == disk.edit_lock)
    }
}

/// Whether the store would say that somebody holds an image's lock. An origin does not if the access token does not cover the
/// image.
fn is_visible(store: &OpenStore, image: &ImageName) -> Result<bool> {
    if store.remote().is_none() {
        return Ok(true);
    }
    match store.resolve(image.as_str()) {
        Err(error) if error.kind() == ErrorKind::Missing => Ok(false),
        resolved => resolved.map(|_| true),
    }
}
