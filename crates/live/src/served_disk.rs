//! One served disk with its own state: its request, its recording, its own NBD server.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use platter_image::Result;
use platter_vdisk::BlockDevice;

use super::attached::Attached;
use super::disk::LiveDisk;
use super::disk_request::{DiskRequest, OnDetach, WriteRequest};
use super::opener::OpenedDisk;
use super::own_server::OwnServer;
use super::record::Recorder;
use super::remembered::RememberedDisk;
use super::servers::Uri;

/// A served disk, see above.
pub(super) struct ServedDisk {
    pub(super) disk: Arc<LiveDisk>,
    pub(super) request: DiskRequest,
    /// Whether its edit lock was taken when it was attached.
    pub(super) edit_lock_is_new: bool,
    recorder: Option<Recorder>,
    own_server: Mutex<Option<OwnServer>>,
    publish_due: Mutex<Option<Instant>>,
}

impl ServedDisk {
    pub(super) fn new(opened: OpenedDisk, request: DiskRequest, recorder: Option<Recorder>) -> Self {
        let interval = request.write.as_ref().and_then(|write| write.publish_every);
        Self {
            disk: Arc::new(opened.disk),
            edit_lock_is_new: opened.edit_lock_is_new,
            publish_due: Mutex::new(interval.map(|interval| Instant::now() + interval)),
            request,
            recorder,
            own_server: Mutex::new(None),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.disk.name
    }

    /// Returns the device for another client.
    pub(super) fn opened(&self) -> Arc<dyn BlockDevice> {
        let disk = self.disk.clone();
        self.recorder.as_ref().map_or(disk.clone() as _, |recorder| recorder.over(disk))
    }

    pub(super) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    pub(super) fn write(&self) -> Option<&WriteRequest> {
        self.request.write.as_ref()
    }

    /// The default for unpublished changes when the disk is detached.
    pub(super) fn on_detach(&self) -> OnDetach {
        self.write().map_or(OnDetach::Keep, |write| write.on_detach)
    }

    pub(super) fn set_own_server(&self, server: OwnServer) {
        *self.own_server.lock() = Some(server);
    }

    /// Ends its own server, if it has one. On return, its clients are disconnected.
    pub(super) fn end_own_server(&self) {
        let server = self.own_server.lock().take();
        drop(server);
    }

    /// Whether it is due to be published periodically; if so, sets the next time.
    pub(super) fn take_publish_due(&self, now: Instant) -> bool {
        let interval = self.write().and_then(|write| write.publish_every);
        let mut due = self.publish_due.lock();
        let is_due = due.is_some_and(|due| due <= now);
        if is_due {
            *due = interval.map(|interval| now + interval);
        }
        is_due
    }

    /// Returns its reported state. `common` has, for each shared server, whether it is an NBD server, and the function
    /// for URIs.
    pub(super) fn attached(&self, common: &[(bool, Uri)]) -> Result<Attached> {
        let (base, written_bytes) = self.disk.state()?;
        let own = self.request.nbd.as_ref().map(|address| address.uri(self.name()));
        let shared = common.iter().filter(|(is_nbd, _)| !*is_nbd || own.is_none());
        let shared = shared.map(|(_, uri)| uri(self.name()));
        Ok(Attached {
            disk: self.disk.name.clone(),
            base: base.to_string(),
            disk_bytes: self.disk.length(),
            writable: self.disk.is_writable(),
            written_bytes,
            exports: shared.chain(own.clone()).collect(),
        })
    }

    /// Returns what another process needs to continue with it.
    ///
    /// # Errors
    /// `Refused` when it was detached.
    pub(super) fn remembered(&self) -> Result<RememberedDisk> {
        Ok(RememberedDisk {
            name: self.name().to_owned(),
            base: self.disk.state()?.0.to_string(),
            edit_lock: self.disk.writing().map(|writing| writing.edit_lock.number),
            request: self.request.clone(),
        })
    }
}
