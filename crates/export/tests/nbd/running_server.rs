//! A server on a thread of the test, over a unix socket or a TCP port, and its events.

use parking_lot::{Condvar, Mutex};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use platter_export::nbd::{NbdEvent, NbdOptions, NbdServer};
use platter_image::{Error, Result};
use platter_transport::Listener;
use tempfile::TempDir;

use crate::memory::{Disks, Memory};
use crate::raw_client::RawClient;

type Events = Arc<(Mutex<Vec<String>>, Condvar)>;

pub(crate) struct RunningServer {
    folder: TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
    events: Events,
    pub(crate) tcp_address: Option<SocketAddr>,
}

impl RunningServer {
    /// Serves one disk as `disk`.
    pub(crate) fn of(disk: &Arc<Memory>) -> Self {
        Self::start(Disks(vec![("disk", Arc::clone(disk))]), NbdOptions::default())
    }

    pub(crate) fn start(disks: Disks, options: NbdOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::unix(&folder.path().join("socket")).unwrap();
        Self::start_on(folder, listener, disks, options)
    }

    pub(crate) fn start_tcp(disks: Disks, options: NbdOptions) -> Self {
        let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self::start_on(tempfile::tempdir().unwrap(), listener, disks, options)
    }

    fn start_on(folder: TempDir, listener: Listener, disks: Disks, mut options: NbdOptions) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let events = Events::default();
        let (ending, told) = (Arc::clone(&stop), Arc::clone(&events));
        let on_event = move |event: &NbdEvent<'_>| {
            told.0.lock().push(format!("{event:?}"));
            told.1.notify_all();
        };
        options.on_event = Arc::new(on_event);
        let tcp_address = listener.tcp_address();
        let run = move || NbdServer::serve(listener, Arc::new(disks), options, &ending);
        Self { folder, stop, thread: Some(thread::spawn(run)), events, tcp_address }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.path().display())
    }

    pub(crate) fn connect(&self) -> RawClient {
        RawClient::connect(&self.path())
    }

    /// A client that can send requests, with structured replies and contexts if wanted.
    pub(crate) fn open(&self, is_structured: bool) -> RawClient {
        let mut client = self.connect();
        if is_structured {
            client.structured_reply();
            client.set_context("disk", "base:allocation");
        }
        client.go("disk");
        client
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

    /// Number of events whose text contains this.
    pub(crate) fn count_of(&self, text: &str) -> usize {
        self.events.0.lock().iter().filter(|event| event.contains(text)).count()
    }

    pub(crate) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn finish(mut self) {
        self.ask_to_stop();
        self.thread.take().unwrap().join().unwrap().unwrap();
        assert!(!self.path().exists(), "the socket's file is removed");
    }
}

impl RunningServer {
    /// Stops a server that is expected to end with an error.
    pub(crate) fn finish_with_error(mut self) -> Error {
        self.ask_to_stop();
        self.thread.take().unwrap().join().unwrap().unwrap_err()
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.ask_to_stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
