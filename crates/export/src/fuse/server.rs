//! The server: mounts, serves with several threads, and shuts down cleanly.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, Session};
use platter_image::{Error, IoContext, Result};
use platter_transport::Parcel;

use super::event::FuseEvent;
use super::filesystem::Requests;
use super::handles::Handles;
use super::handshake::{begin, hear_init};
use super::mount::{Mount, Rules, Unmounted};
use super::names::Served;
use super::state::{FuseHandover, FuseState};
use crate::pause::Pause;
use crate::socket_server::RunEnd;
use crate::tree::Tree;

/// Maximum sleep, so that a stop or an unmount is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// A pause is abandoned if requests take longer than this.
const PAUSE_TIME: Duration = Duration::from_millis(400);
/// Maximum threads: each has a read buffer and a write buffer.
const THREADS_MAX: usize = 64;

/// Options of a server.
#[derive(Clone)]
pub struct FuseOptions {
    /// Other local users can see the tree. They can read it, but not write.
    pub allow_other: bool,
    /// Threads that answer requests, 1 to 64; this many can wait for the store at once.
    pub threads: usize,
    /// Let the kernel read plain files directly (passthrough), where the tree has such files and the kernel supports
    /// it.
    pub passthrough: bool,
    /// At shutdown, programs have this long to stop using the mount, while new opens are refused.
    pub farewell_time: Duration,
    /// Receives events from many threads; must not block.
    pub on_event: Arc<dyn Fn(&FuseEvent<'_>) + Send + Sync>,
}

impl Default for FuseOptions {
    fn default() -> Self {
        Self {
            allow_other: false,
            threads: 8,
            passthrough: true,
            farewell_time: Duration::from_secs(1),
            on_event: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for FuseOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FuseOptions").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// A FUSE server with its mount. Requests are answered while it runs, and wait otherwise.
pub struct FuseServer {
    served: Arc<Served>,
    mount: Mount,
    /// The connection to the kernel.
    device: OwnedFd,
    /// The kernel's first message, which starts the handshake.
    init: Vec<u8>,
    pause: Arc<Pause>,
    threads: usize,
    session: Conversation,
}

/// The part of the FUSE library.
enum Conversation {
    /// Mounted here, and not running yet: requests wait.
    Mounted(Session<Requests>),
    /// Taken over, and not running yet: requests wait, also for the other process, which may go on.
    TakenOver(Session<Requests>),
    Running(BackgroundSession),
    Over,
}

impl FuseServer {
    /// Mounts `tree` at `mount_point`, an empty directory. Requests wait until it runs: [`FuseServer::run`]. If it is dropped before that,
    /// the mount is removed.
    ///
    /// # Errors
    /// `Missing` or `Refused` when the mount point cannot be used or mounting is not allowed; `Io` when mounting or communicating with
    /// the kernel fails.
    pub fn mount(
        mount_point: &Path,
        tree: Arc<dyn Tree>,
        options: FuseOptions,
        pause: Arc<Pause>,
    ) -> Result<Self> {
        let rules = Rules { is_read_only: tree.is_read_only(), checks_modes: true };
        let (mount, device) = Mount::new(mount_point, &options, rules)?;
        let (threads, config) = config(&options);
        let served = Arc::new(Served::new(tree, options, Handles::default()));
        let requests = Requests(Arc::clone(&served));
        let init = hear_init(device.as_fd());
        let begun = init.and_then(|init| Ok((begin(requests, device.as_fd(), &init, true, config)?, init)));
        let (session, init) = begun.inspect_err(|_| drop(mount.detach()))?;
        mount.raise_readahead();
        let session = Conversation::Mounted(session);
        Ok(Self { served, mount, device, init, pause, threads, session })
    }

    /// Takes over the mount of another process, with all open files. Requests wait until it runs.
    ///
    /// # Errors
    /// `Io`; `Refused` when too much is open.
    pub fn take_over(
        handover: FuseHandover,
        tree: Arc<dyn Tree>,
        options: FuseOptions,
        pause: Arc<Pause>,
    ) -> Result<Self> {
        let FuseHandover { state, device } = handover;
        let FuseState { mount_point, device: number, init, handles } = state;
        let (threads, config) = config(&options);
        let handles = Handles::restored(handles, &tree)?;
        let served = Arc::new(Served::new(tree, options, handles));
        let requests = Requests(Arc::clone(&served));
        let session = Conversation::TakenOver(begin(requests, device.as_fd(), &init, false, config)?);
        let mount = Mount { mount_point, device: number };
        Ok(Self { served, mount, device, init, pause, threads, session })
    }

    /// Mounts and serves until `stop` is true or until the tree is unmounted: [`FuseServer::mount`] and
    /// [`FuseServer::run`].
    ///
    /// # Errors
    /// As these.
    pub fn serve(
        mount_point: &Path,
        tree: Arc<dyn Tree>,
        options: FuseOptions,
        stop: &AtomicBool,
    ) -> Result<()> {
        Self::mount(mount_point, tree, options, Arc::new(Pause::new()?))?.run(stop).map(drop)
    }

    /// Answers requests until `stop` is true, the tree is unmounted or a pause is ordered. In the first two cases, the
    /// mount is removed. Requests that had started are finished, unless the store takes longer for one than
    /// [`FuseOptions::farewell_time`]. Only data that programs synced is synced. After a pause was ordered, returns
    /// when all threads have stopped between two requests or did not stop in time; it may then run again.
    ///
    /// # Errors
    /// `Io` when unmounting or communicating with the kernel fails.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<RunEnd> {
        let mount_point = self.mount.mount_point.clone();
        match std::mem::replace(&mut self.session, Conversation::Over) {
            Conversation::Mounted(session) | Conversation::TakenOver(session) => {
                let running = session.spawn().context(|| "beginning to talk to the kernel".into());
                self.session = Conversation::Running(running.inspect_err(|_| drop(self.mount.detach()))?);
                self.served.tell(&FuseEvent::Mounted { mount_point: &mount_point });
            }
            running => self.session = running,
        }
        self.served.gate.open();
        while !stop.load(Ordering::Relaxed) && !self.is_over() {
            if self.pause.wait_for_order(SLEEP_MAX)? && !stop.load(Ordering::Relaxed) {
                return Ok(if self.stop_threads() { RunEnd::Paused } else { RunEnd::Busy });
            }
        }
        let result = match std::mem::replace(&mut self.session, Conversation::Over) {
            Conversation::Running(running) => self.end(running),
            _ => Ok(()),
        };
        self.served.tell(&FuseEvent::Unmounted { mount_point: &mount_point });
        result.map(|()| RunEnd::Stopped)
    }

    fn is_over(&self) -> bool {
        !matches!(&self.session, Conversation::Running(running) if !running.guard.is_finished())
    }

    /// Waits until every thread is at the gate. Returns false if one is not in time, or if the kernel reads a file
    /// directly that only this process has open.
    fn stop_threads(&self) -> bool {
        if self.served.handles.has_backing() {
            return false;
        }
        let Ok(root) = self.mount.root() else { return false };
        // The last of these requests may be answered only by the next process, so this thread does not wait for it.
        let (wake, woken) = crossbeam_channel::bounded(1);
        let asked = thread::Builder::new().name("fuse-wake".into()).spawn(move || {
            for () in woken {
                // The result does not matter: a thread has answered.
                let _ = rustix::fs::fstatfs(&root);
            }
        });
        asked.is_ok()
            && self.served.gate.close(self.threads, PAUSE_TIME, || {
                // One waiting request is enough.
                let _ = wake.try_send(());
            })
    }

    /// Returns the state for the successor, after a run that ended paused. Until the successor continues, this server
    /// may run again instead; afterwards this process must end, because its threads wait forever.
    ///
    /// # Errors
    /// `Bug` when it does not run; `Io` when there are too many open files.
    pub fn to_parcel(&self) -> Result<Parcel> {
        if !matches!(self.session, Conversation::Running(_)) {
            return Err(Error::bug("a mount that does not run"));
        }
        let state = FuseState {
            mount_point: self.mount.mount_point.clone(),
            device: self.mount.device.clone(),
            init: self.init.clone(),
            handles: self.served.handles.state(),
        };
        let device = self.device.try_clone().context(|| "duplicating a device".into())?;
        Ok(Parcel { bytes: state.to_text()?.into_bytes(), descriptors: vec![device] })
    }

    fn end(&self, running: BackgroundSession) -> Result<()> {
        self.served.is_ending.store(true, Ordering::Relaxed);
        end(&self.mount, running, &self.served.options, || self.served.handles.clear())
    }
}

impl Drop for FuseServer {
    fn drop(&mut self) {
        if matches!(self.session, Conversation::Mounted(_)) {
            // What waits for it gets an error.
            let _ = self.mount.detach();
        }
    }
}

/// Unmounts, and waits for the threads. `give_up` is called if they do not end in time.
///
/// # Errors
/// `Io`.
pub(super) fn end(
    mount: &Mount,
    running: BackgroundSession,
    options: &FuseOptions,
    give_up: impl FnOnce(),
) -> Result<()> {
    let deadline = Instant::now() + options.farewell_time;
    loop {
        if running.guard.is_finished() {
            mount.clear_if_dead()?;
            break;
        }
        if matches!(mount.unmount()?, Unmounted::Done) {
            break;
        }
        if Instant::now() >= deadline {
            (options.on_event)(&FuseEvent::Busy { mount_point: &mount.mount_point });
            mount.detach()?;
            break;
        }
        thread::sleep(SLEEP_MAX);
    }
    // A thread may be waiting for the store. Without the right to abort the connection, threads live as long as the
    // programs that use the mount, or a copy of it in another namespace; their requests fail.
    let deadline = Instant::now() + options.farewell_time;
    while !running.guard.is_finished() {
        if Instant::now() >= deadline {
            give_up();
            return Ok(());
        }
        thread::sleep(SLEEP_MAX);
    }
    running.join().context(|| "talking to the kernel".into())
}

/// Returns the number of threads, and the configuration of the library.
pub(super) fn config(options: &FuseOptions) -> (usize, Config) {
    let threads = options.threads.clamp(1, THREADS_MAX);
    let mut config = Config::default();
    config.n_threads = Some(threads);
    // Each thread has its own descriptor, so threads do not wait for each other.
    config.clone_fd = true;
    (threads, config)
}
