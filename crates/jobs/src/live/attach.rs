//! What to serve and what is told of it, and the job that serves it until it is told to stop.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use platter_export::fuse::FuseEvent;
use platter_export::nbd::{NbdEvent, NbdTls};
use platter_export::ninep::NinepEvent;
use platter_image::Result;
use serde::{Deserialize, Serialize};

use super::control::{ControlSocket, OnDetach};
use super::place::LivePlace;
use super::publish::PublishReport;
use super::record::RecordReport;
use super::served::Served;
use super::servers::{FuseAddress, ServeAddress, Server};
use crate::node::SharingRequest;

/// What to serve, and how.
#[derive(Clone, Debug)]
pub struct AttachRequest {
    /// The store, and where what is written lies.
    pub place: LivePlace,
    /// The versions: names, names with numbers, or scores. None where the tree of all images is served, and no disk
    /// to be written.
    pub versions: Vec<String>,
    /// Take their edit tokens and let them be written, and let names in the tree be changed.
    pub write: bool,
    /// Take the tokens from whoever has them.
    pub steal: bool,
    /// Who edits, for the others.
    pub holder: String,
    /// Where NBD is served, if it is.
    pub nbd: Option<ServeAddress>,
    /// TLS, which every NBD client then has to speak.
    pub tls: Option<NbdTls>,
    /// Where the tree of all images is mounted, if it is.
    pub fuse: Option<FuseAddress>,
    /// Where the tree of all images is served over 9P, if it is.
    pub ninep: Option<ServeAddress>,
    /// Over TCP without TLS, let in every user of this machine, not only the one of this process and root.
    pub insecure_loopback: bool,
    /// Memory for decoded blocks, shared by all disks, in bytes.
    pub cache_bytes: usize,
    /// A node's directory: what is in the hoard there is read there, and the store is asked for the rest only.
    pub hoard: Option<PathBuf>,
    /// Record what is asked of the disk, in a new file; one disk only.
    pub record: Option<PathBuf>,
    /// What becomes of what was written when a disk is detached or the process is asked to end.
    pub on_detach: OnDetach,
    /// Publish each writable disk that often, if it was written.
    pub publish_every: Option<Duration>,
    /// A sentence for the versions that are published.
    pub notes: String,
    /// What is doing this, such as `platter 0.1.0`.
    pub tool_version: String,
    /// Fetch every block of the disks, so that they need nobody; for an origin's store with a cache.
    pub fill: bool,
    /// Go on without disks, attach what others ask for, and tell the origin: what a node does.
    pub node: Option<NodeRequest>,
    /// Set to true by whoever wants this to end.
    pub stop: Arc<AtomicBool>,
}

/// What a node is beside its disks.
#[derive(Clone, Debug)]
pub struct NodeRequest {
    /// What people call it.
    pub name: String,
    /// How it shares with other nodes, if it does.
    pub sharing: Option<SharingRequest>,
}

/// A disk that is served now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attached {
    /// What exports call it.
    pub disk: String,
    /// The score at the bottom.
    pub base: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Whether it takes writes.
    pub writable: bool,
    /// Bytes written above the base before, by a process that ended.
    pub written_bytes: u64,
    /// Where it is served, as clients write it.
    pub exports: Vec<String>,
}

/// What happens while disks are served.
#[derive(Debug)]
pub enum LiveEvent<'a> {
    /// A disk is served.
    Attached(&'a Attached),
    /// A disk was published.
    Published(&'a PublishReport),
    /// A disk is no longer served; what was written to it is kept when it says so.
    Detached {
        /// What exports called it.
        disk: &'a str,
        /// Whether what was written waits in its overlay.
        kept: bool,
    },
    /// All of a disk is held here, durably: it needs nobody.
    Filled {
        /// What exports call it.
        disk: &'a str,
    },
    /// A disk's trace has ended.
    Recorded(&'a RecordReport),
    /// Something of a client of NBD.
    Nbd(&'a NbdEvent<'a>),
    /// Something of the mounted tree.
    Fuse(&'a FuseEvent<'a>),
    /// Something of a client of 9P.
    Ninep(&'a NinepEvent<'a>),
    /// Something that a person should know.
    Note(String),
}

/// Hears what happens, from many threads; must not wait.
pub type OnEvent = Box<dyn Fn(&LiveEvent<'_>) + Send + Sync>;

/// Serves disks until `stop` is set, or the last one is detached where nothing but disks is served.
///
/// # Errors
/// `Missing` when there is no such version; `Refused` when somebody else has an edit token, an address is in use, or
/// there is nothing to serve; `Transient` when an origin is away and a disk cannot be opened without it; `Io`. The first server that
/// fails ends all.
pub fn attach(request: AttachRequest, on_event: OnEvent) -> Result<()> {
    request.place.make()?;
    let served = Served::open(request, on_event)?;
    let request = served.request();
    // Addresses first: where one is in use, no edit token is taken.
    let servers = Server::open_all(request)?;
    served.attach_at_start()?;
    served.start_recording()?;
    let control = ControlSocket::open(&request.place)?;
    served.set_servers(&servers);
    serve(&served, &control, servers)?;
    let detached = served.detach_all();
    detached.and(served.finish_recording())
}

/// Runs the servers, and what goes on beside them, until all have ended.
fn serve(served: &Arc<Served>, control: &ControlSocket, servers: Vec<Server>) -> Result<()> {
    for attached in served.attached()? {
        served.tell(&LiveEvent::Attached(&attached));
    }
    thread::scope(|scope| {
        scope.spawn(|| served.answer_questions(control));
        scope.spawn(|| served.publish_now_and_then());
        scope.spawn(|| served.run_node());
        let ended = Server::run_all(servers, served);
        // The thread that waits for questions wakes and sees that this ends.
        let _ = control.wake();
        ended
    })
}
