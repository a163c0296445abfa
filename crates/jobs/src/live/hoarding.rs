//! The hoard of a node: what its disks read of it, and how it follows the origin's revisions while the node runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use platter_image::Result;
use platter_store::Hoard;
use platter_vdisk::Source;

use super::attach::{AttachRequest, LiveEvent};
use super::served::Served;
use crate::hoard::{HoardFirst, HoardSyncRequest, hoard_place, hoard_sync};
use crate::remote::ServerOptions;
use crate::{Silent, StoreLocation};

/// A hoard on this machine.
pub(super) struct Hoarding {
    hoard: Option<Arc<Hoard>>,
    /// It is being brought to a newer revision.
    under_way: AtomicBool,
}

impl Hoarding {
    /// Opens the hoard that the request names.
    pub(super) fn open(request: &AttachRequest) -> Result<Self> {
        let hoard = request.hoard.as_ref().map(|dir| Hoard::open(&hoard_place(dir))).transpose()?;
        Ok(Self { hoard, under_way: AtomicBool::new(false) })
    }

    pub(super) fn hoard(&self) -> Option<&Arc<Hoard>> {
        self.hoard.as_ref()
    }

    /// The revision that is whole here; 0 if none is.
    pub(super) fn revision(&self) -> u64 {
        self.hoard.as_ref().map_or(0, |hoard| hoard.snapshot().revision)
    }

    /// That source behind the hoard, if there is one.
    pub(super) fn before(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        match &self.hoard {
            Some(hoard) => Arc::new(HoardFirst::new(hoard.clone(), source)),
            None => source,
        }
    }
}

impl Served {
    /// Brings the hoard to the origin's revision, if that is another one: in a thread of its own, one at a time. What fails is
    /// tried again when the origin is heard of the next time.
    pub(super) fn follow_hoard(self: &Arc<Self>, revision: u64) {
        let (StoreLocation::Remote(origin), Some(cache)) =
            (self.request().place.store(), &self.request().hoard)
        else {
            return;
        };
        if revision == self.hoarding.revision() || self.hoarding.under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        // The cache is this process's already; what is hoarded needs none.
        let store = StoreLocation::Remote(ServerOptions { cache: None, ..origin.clone() });
        let request = HoardSyncRequest { store, cache: cache.clone(), whole: false };
        let served = self.clone();
        let sync = move || {
            match hoard_sync(&request, &Silent) {
                Ok(report) => {
                    let refreshed = served.hoarding.hoard.as_ref().map_or(Ok(()), |hoard| hoard.refresh());
                    served.tell(&LiveEvent::Note(match refreshed {
                        Ok(()) => format!(
                            "hoard: revision {}, {} boot sets, {} bytes on the disk",
                            report.revision, report.members, report.disk_bytes
                        ),
                        Err(error) => format!("hoard: revision {} cannot be read: {error}", report.revision),
                    }));
                }
                Err(error) => served.tell(&LiveEvent::Note(format!("hoard: {error}"))),
            }
            served.hoarding.under_way.store(false, Ordering::Release);
        };
        if thread::Builder::new().name("hoard".to_owned()).spawn(sync).is_err() {
            self.hoarding.under_way.store(false, Ordering::Release);
        }
    }
}
