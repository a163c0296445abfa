//! The server: mounts, serves with several threads, and ends in good order.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, Session, SessionACL};
use platter_image::{IoContext, Result};

use super::event::FuseEvent;
use super::filesystem::Requests;
use super::mount::{Mount, Unmounted};
use super::names::Served;
use crate::tree::Tree;

/// Longest sleep, so that a stop, or an end, is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Most threads: each has a buffer for what it reads and one for what it is told to write.
const THREADS_MAX: usize = 64;

/// How a server serves.
#[derive(Clone)]
pub struct FuseOptions {
    /// Other users of this machine see the tree too. They can read what is in it, and write nothing.
    pub allow_other: bool,
    /// Threads that answer requests, 1 to 64; as many can wait for the store at once.
    pub threads: usize,
    /// Let the kernel read plain files by itself, where the tree has such and the kernel is willing.
    pub passthrough: bool,
    /// At the end, those who use it have that long to go by themselves; nothing more is opened.
    pub farewell_time: Duration,
    /// Hears what happens, from many threads; must not wait.
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

/// A FUSE server.
pub struct FuseServer {
    served: Arc<Served>,
    mount: Mount,
}

impl FuseServer {
    /// Mounts `tree` at `mount_point`, an empty directory, and serves it until `stop` is true or until somebody unmounts
    /// it. The mount is then gone. Requests that had begun are done, unless the store takes longer for one than
    /// [`FuseOptions::farewell_time`]. Nothing is synced that nobody synced.
    ///
    /// # Errors
    /// `Missing` or `Refused` when the mount point cannot be used or mounting is not allowed; `Io` when mounting,
    /// unmounting or talking to the kernel fails.
    pub fn serve(
        mount_point: &Path,
        tree: Arc<dyn Tree>,
        options: FuseOptions,
        stop: &AtomicBool,
    ) -> Result<()> {
        let (mount, descriptor) = Mount::new(mount_point, &options, tree.is_read_only())?;
        let mut config = Config::default();
        config.n_threads = Some(options.threads.clamp(1, THREADS_MAX));
        // Each thread has a descriptor of its own, so that they do not wait for one another's answers.
        config.clone_fd = true;
        let served = Arc::new(Served::new(tree, options));
        let server = Self { served, mount };
        // The kernel itself keeps others out, and knows better than the library who they are.
        let requests = Requests(Arc::clone(&server.served));
        let session = Session::from_fd(requests, descriptor, SessionACL::All, config);
        let running = session.and_then(Session::spawn).context(|| "beginning to talk to the kernel".into());
        let running = running.inspect_err(|_| drop(server.mount.detach()))?;
        server.mount.raise_readahead();
        let mount_point = &*server.mount.mount_point;
        server.served.tell(&FuseEvent::Mounted { mount_point });
        while !stop.load(Ordering::Relaxed) && !running.guard.is_finished() {
            thread::sleep(SLEEP_MAX);
        }
        let result = server.end(running);
        server.served.tell(&FuseEvent::Unmounted { mount_point });
        result
    }

    /// Unmounts, and waits for the threads.
    fn end(&self, running: BackgroundSession) -> Result<()> {
        self.served.is_ending.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + self.served.options.farewell_time;
        loop {
            if running.guard.is_finished() {
                self.mount.clear_if_dead()?;
                break;
            }
            if matches!(self.mount.unmount()?, Unmounted::Done) {
                break;
            }
            if Instant::now() >= deadline {
                self.served.tell(&FuseEvent::Busy { mount_point: &self.mount.mount_point });
                self.mount.detach()?;
                break;
            }
            thread::sleep(SLEEP_MAX);
        }
        // A thread may wait for the store; and without the right to cut clients off, threads live as long as these, or
        // as long as a copy of the mount in another namespace. What is asked for then fails.
        let deadline = Instant::now() + self.served.options.farewell_time;
        while !running.guard.is_finished() {
            if Instant::now() >= deadline {
                self.served.handles.clear();
                return Ok(());
            }
            thread::sleep(SLEEP_MAX);
        }
        running.join().context(|| "talking to the kernel".into())
    }
}
