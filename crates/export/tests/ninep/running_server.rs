//! A server on a thread of the test, over a unix socket or a TCP port, and its events.

use parking_lot::{Condvar, Mutex};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use platter_export::RestrictedTree;
use platter_export::ninep::{NinepEvent, NinepOptions, NinepServer};
use platter_export::tree::Tree;
use platter_image::Result;
use platter_transport::Listener;
use tempfile::TempDir;

use crate::memory_tree::MemoryTree;
use crate::raw_client::RawClient;

type Events = Arc<(Mutex<Vec<String>>, Condvar)>;

pub(crate) struct RunningServer {
    pub(crate) tree: Arc<MemoryTree>,
    folder: TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
    events: Events,
    pub(crate) tcp_address: Option<SocketAddr>,
}

impl RunningServer {
    pub(crate) fn new() -> Self {
        Self::with(options())
    }

    pub(crate) fn with(options: NinepOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::unix(&folder.path().join("socket")).unwrap();
        Self::start(folder, listener, options)
    }

    pub(crate) fn tcp() -> Self {
        Self::tcp_with(options())
    }

    pub(crate) fn tcp_with(options: NinepOptions) -> Self {
        let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self::start(tempfile::tempdir().unwrap(), listener, options)
    }

    /// Serves the same tree read-only.
    pub(crate) fn read_only() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = Listener::unix(&folder.path().join("socket")).unwrap();
        let over = |tree: Arc<MemoryTree>| Arc::new(RestrictedTree::read_only(tree)) as Arc<dyn Tree>;
        Self::start_over(folder, listener, options(), over)
    }

    fn start(folder: TempDir, listener: Listener, options: NinepOptions) -> Self {
        Self::start_over(folder, listener, options, |tree| tree)
    }

    fn start_over(
        folder: TempDir,
        listener: Listener,
        mut options: NinepOptions,
        over: impl FnOnce(Arc<MemoryTree>) -> Arc<dyn Tree>,
    ) -> Self {
        let (tree, stop) = (Arc::new(MemoryTree::new()), Arc::new(AtomicBool::new(false)));
        let events = Events::default();
        let (served, ending, told) = (over(Arc::clone(&tree)), Arc::clone(&stop), Arc::clone(&events));
        let on_event = move |event: &NinepEvent<'_>| {
            told.0.lock().push(format!("{event:?}"));
            told.1.notify_all();
        };
        options.on_event = Arc::new(on_event);
        let tcp_address = listener.tcp_address();
        let thread = Some(thread::spawn(move || NinepServer::serve(listener, served, options, &ending)));
        Self { tree, folder, stop, thread, events, tcp_address }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// A client that has sent nothing yet.
    pub(crate) fn connect(&self) -> RawClient {
        RawClient::connect(&self.path())
    }

    /// A client that negotiated 64 KiB messages and attached fid 0.
    pub(crate) fn attach(&self) -> RawClient {
        let mut client = self.connect();
        client.version(65_536);
        client.attach(0);
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

    pub(crate) fn events(&self) -> Vec<String> {
        self.events.0.lock().clone()
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

pub(crate) fn options() -> NinepOptions {
    NinepOptions { farewell_time: Duration::from_millis(100), ..NinepOptions::default() }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.ask_to_stop();
        // Requests that wait at the gate would delay the end.
        self.tree.gate.open();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
