//! A server on a thread of the test, its mount point, and its events. Nothing stays mounted after a test.

use parking_lot::{Condvar, Mutex};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use platter_export::fuse::{FuseEvent, FuseOptions, FuseServer};
use platter_export::tree::Tree;
use platter_image::Result;
use tempfile::TempDir;

use crate::memory::MemoryTree;

type Events = Arc<(Mutex<Vec<String>>, Condvar)>;

/// Whether FUSE is available.
pub(crate) fn is_possible() -> bool {
    let is = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !is {
        println!("skipped: no /dev/fuse");
    }
    is
}

/// Whether the test runs as root.
pub(crate) fn is_root() -> bool {
    let is = rustix::process::geteuid().is_root();
    if !is {
        println!("skipped: not root");
    }
    is
}

pub(crate) struct Mounted {
    folder: TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
    events: Events,
}

impl Mounted {
    pub(crate) fn of(tree: &Arc<MemoryTree>) -> Self {
        Self::start(tempfile::tempdir().unwrap(), Arc::clone(tree) as Arc<dyn Tree>, FuseOptions::default())
    }

    pub(crate) fn start(folder: TempDir, tree: Arc<dyn Tree>, mut options: FuseOptions) -> Self {
        let point = folder.path().join("tree");
        let _ = std::fs::create_dir(&point);
        let stop = Arc::new(AtomicBool::new(false));
        let events = Events::default();
        let (ending, told) = (Arc::clone(&stop), Arc::clone(&events));
        options.on_event = Arc::new(move |event: &FuseEvent<'_>| {
            told.0.lock().push(format!("{event:?}"));
            told.1.notify_all();
        });
        let run = move || FuseServer::serve(&point, tree, options, &ending);
        let mounted = Self { folder, stop, thread: Some(thread::spawn(run)), events };
        mounted.wait_for("Mounted {");
        mounted
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Runs a shell script in the tree, which must succeed. `$T` is a folder outside the tree.
    pub(crate) fn shell(&self, script: &str) -> String {
        let output = self.try_shell(script);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {errors}{:#?}", self.events());
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub(crate) fn try_shell(&self, script: &str) -> Output {
        let mut command = Command::new("bash");
        command
            .args(["-euc", script])
            .current_dir(self.path())
            .env("T", self.folder.path())
            .env("LC_ALL", "C");
        command.output().unwrap()
    }

    /// Runs a script that must fail. Returns its output.
    pub(crate) fn failure(&self, script: &str) -> String {
        let output = self.try_shell(script);
        assert!(!output.status.success(), "{script}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.events.0.lock().clone()
    }

    /// Waits for an event whose text contains this.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        let mut events = self.events.0.lock();
        for _ in 0..200 {
            if let Some(event) = events.iter().find(|event| event.contains(text)) {
                return event.clone();
            }
            self.events.1.wait_for(&mut events, Duration::from_millis(100));
        }
        panic!("no event has {text}: {events:#?}");
    }

    pub(crate) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for the server to end by itself.
    pub(crate) fn join(&mut self) -> Result<()> {
        self.thread.take().unwrap().join().unwrap()
    }

    pub(crate) fn finish(mut self) {
        self.ask_to_stop();
        self.join().unwrap();
        assert!(!is_mounted(&self.path()), "nothing is mounted any more");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.ask_to_stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        force_away(&self.path());
    }
}

/// Unmounts what a failed test left.
pub(crate) fn force_away(path: &Path) {
    while is_mounted(path) {
        let output = Command::new("umount").args(["-l", "--"]).arg(path).output().unwrap();
        if !output.status.success() {
            break;
        }
    }
}

pub(crate) fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}
