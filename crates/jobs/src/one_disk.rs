//! Serves one disk over NBD to one program that runs meanwhile, at a socket that only its owner can reach.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use platter_export::Exports;
use platter_export::nbd::{NbdOptions, NbdServer};
use platter_image::{Error, IoContext, Result};
use platter_transport::Listener;
use platter_vdisk::BlockDevice;
use platter_vfs::{OsVfs, Vfs};

/// A temporary folder, removed with its contents.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn make() -> Result<Self> {
        let id = OsVfs.random_id().context(|| "choosing a name".to_owned())?;
        let name: String = id.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let path = std::env::temp_dir().join(format!("platter-record-{name}"));
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failed removal only leaves files behind.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The served disk and its name.
struct OneDisk(&'static str, Arc<dyn BlockDevice>);

impl Exports for OneDisk {
    fn list(&self) -> Vec<String> {
        vec![self.0.to_owned()]
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>> {
        match name == self.0 {
            true => Ok(self.1.clone()),
            false => Err(Error::missing(format!("there is no disk {name}"))),
        }
    }
}

/// Serves a disk while `run` runs, which gets its address.
///
/// # Errors
/// Those of `run`; those of the server.
pub(crate) fn while_served<T>(
    name: &'static str,
    disk: Arc<dyn BlockDevice>,
    scratch: &Scratch,
    run: impl FnOnce(&str) -> Result<T>,
) -> Result<T> {
    let socket = scratch.path("nbd.sock");
    let listener = Listener::unix(&socket)?;
    let uri = format!("nbd+unix:///{name}?socket={}", socket.display());
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let exports = Arc::new(OneDisk(name, disk));
        let serve = || NbdServer::serve(listener, exports, NbdOptions::default(), &is_done);
        let server =
            thread::Builder::new().spawn_scoped(scope, serve).context(|| "starting a thread".into())?;
        let result = run(&uri);
        is_done.store(true, Ordering::Relaxed);
        let ended = server.join().unwrap_or_else(|_| Err(Error::bug("the server of a disk panicked")));
        result.and_then(|result| ended.map(|()| result))
    })
}
