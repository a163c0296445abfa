//! The server of a view: mounts, serves with several threads, and shuts down cleanly.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fuser::{Session, SessionACL};
use platter_image::{IoContext, Result};

use super::requests::{Requests, Served};
use crate::file_view::FileView;
use crate::fuse::event::FuseEvent;
use crate::fuse::mount::{Mount, Rules};
use crate::fuse::server::{FuseOptions, config, end};

/// Maximum sleep, so that a stop or an unmount is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Mounts views.
#[derive(Debug)]
pub struct FilesServer;

impl FilesServer {
    /// Mounts a view read-only at `mount_point`, an empty directory, and serves it until `stop` is true or it is unmounted.
    ///
    /// # Errors
    /// `Missing` or `Refused` when the mount point cannot be used or mounting is not allowed; `Io` when mounting, unmounting or
    /// communicating with the kernel fails.
    pub fn serve(
        mount_point: &Path,
        view: Arc<dyn FileView>,
        options: FuseOptions,
        stop: &AtomicBool,
    ) -> Result<()> {
        let rules = Rules { is_read_only: true, checks_modes: options.allow_other };
        let (mount, device) = Mount::new(mount_point, &options, rules)?;
        let mount_point: PathBuf = mount.mount_point.clone();
        let (_, config) = config(&options);
        let served = Arc::new(Served { view, options, is_ending: AtomicBool::new(false) });
        let tell = |event: &FuseEvent<'_>| (served.options.on_event)(event);
        let requests = Requests(Arc::clone(&served));
        let doing = || "beginning to talk to the kernel".to_owned();
        let session = Session::from_fd(requests, device, SessionACL::All, config).context(doing);
        let running = session.and_then(|session| session.spawn().context(doing));
        let running = running.inspect_err(|_| drop(mount.detach()))?;
        mount.raise_readahead();
        tell(&FuseEvent::Mounted { mount_point: &mount_point });
        while !stop.load(Ordering::Relaxed) && !running.guard.is_finished() {
            thread::sleep(SLEEP_MAX);
        }
        served.is_ending.store(true, Ordering::Relaxed);
        let ended = end(&mount, running, &served.options, || {});
        tell(&FuseEvent::Unmounted { mount_point: &mount_point });
        ended
    }
}
