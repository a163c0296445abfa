//! An NBD server for a single disk, at its own address.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use platter_export::Exports;
use platter_image::{Error, IoContext, Result};
use platter_vdisk::BlockDevice;

use super::address::NbdAddress;
use super::event::LiveEvent;
use super::inherited::own_server;
use super::served::Served;
use super::served_disk::ServedDisk;
use super::servers::NbdPort;

/// The server, see above. Dropping it disconnects its clients and waits for its end.
pub(super) struct OwnServer {
    stop: Arc<AtomicBool>,
    running: Option<JoinHandle<()>>,
}

/// The exported disk.
struct OneDisk {
    disk: Weak<ServedDisk>,
    name: String,
}

impl OwnServer {
    /// Serves a disk at an address that is already open.
    ///
    /// # Errors
    /// `Refused` when certificates cannot be used; `Io` when no thread can be started.
    pub(super) fn start(
        port: NbdPort,
        address: &NbdAddress,
        disk: &Arc<ServedDisk>,
        served: &Served,
    ) -> Result<Self> {
        let (on_event, handover) = (served.on_event().clone(), served.handover.clone());
        let name = own_server(disk.name());
        let stop = Arc::new(AtomicBool::new(false));
        let exports = OneDisk { disk: Arc::downgrade(disk), name: disk.name().to_owned() };
        let (stopping, place) = (stop.clone(), format!("{}: {}", disk.name(), address.address));
        let run = move || {
            if let Err(error) = port.serve(&name, Arc::new(exports), &on_event, &handover, &stopping) {
                on_event(&LiveEvent::Note(format!("{place} is no longer served: {error}")));
            }
        };
        let running = thread::Builder::new().name("nbd".into()).spawn(run);
        Ok(Self { stop, running: Some(running.context(|| "starting a thread".into())?) })
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

impl OneDisk {
    fn missing(&self, name: &str) -> Error {
        Error::missing(format!("no disk {name} is attached here: {} is", self.name))
    }
}

impl Exports for OneDisk {
    fn list(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>> {
        let disk = self.disk.upgrade().filter(|disk| disk.name() == name);
        disk.map(|disk| disk.opened()).ok_or_else(|| self.missing(name))
    }
}
