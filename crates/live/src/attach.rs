//! The job that serves disks until it is stopped, and its request.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use platter_image::{Error, IoContext, Result};
use platter_store::StorePlace;
use platter_transport::notify;

use super::address::ServersRequest;
use super::agent::Agent;
use super::answering;
use super::control::ControlSocket;
use super::disk_request::DiskRequest;
use super::estate::Claim;
use super::event::{LiveEvent, OnEvent};
use super::inherited::Inherited;
use super::place::LivePlace;
use super::preflight;
use super::served::Served;
use super::servers::Server;
use platter_fetch::{OriginLocation, SharingRequest, StoreLocation};
use platter_signing::SignaturePolicy;

/// The request to serve disks.
#[derive(Clone, Debug)]
pub struct AttachRequest {
    /// The store, and the local directory for writes.
    pub place: LivePlace,
    /// The first disks. May be empty if the tree of all images is served, or other processes will request disks.
    pub disks: Vec<DiskRequest>,
    /// The addresses that all disks share.
    pub servers: ServersRequest,
    /// Memory for decoded blocks, shared by all disks, in bytes.
    pub memory_bytes: usize,
    /// A node's directory: hoarded blocks are read from its hoard, others from the store.
    pub hoard: Option<PathBuf>,
    /// Be a node: continue without disks, remember served disks, and report to the origin.
    pub node: Option<NodeRequest>,
    /// Take over from the node that runs in the same directory, if there is one, without disturbing its clients.
    pub take_over: bool,
    /// Which versions may be served.
    pub signatures: SignaturePolicy,
    /// Name and version of the program, such as `platter 0.1.0`.
    pub tool_version: String,
    /// Set to true to end the job.
    pub stop: Arc<AtomicBool>,
}

/// Options of a node.
#[derive(Clone, Debug)]
pub struct NodeRequest {
    /// Its name for people.
    pub name: String,
    /// Sharing with other nodes, if any.
    pub sharing: Option<SharingRequest>,
    /// Register boots of its disks as boot sets, if its access token allows that.
    pub record_boots: bool,
    /// Receive revisions of the hoard by cast, if the origin casts them.
    pub casts: bool,
    /// The interface for that, by name or address. `None`: the one towards the origin, if it is another machine.
    pub interface: Option<String>,
}

impl AttachRequest {
    /// # Errors
    /// `Refused` when there is no server address, nothing to serve, several disks would be recorded in one file, or the
    /// cache's directory is a store.
    fn check(&self) -> Result<()> {
        let ServersRequest { nbd, fuse, ninep, .. } = &self.servers;
        let has_tree = fuse.is_some() || ninep.is_some();
        if nbd.is_none() && !has_tree {
            return Err(Error::refused("no address to serve at: use --nbd, --fuse or --9p"));
        }
        if self.disks.is_empty() && !has_tree && self.node.is_none() {
            return Err(Error::refused("there is nothing to serve: name a version, such as lab/debian12"));
        }
        if let StoreLocation::Remote(OriginLocation { cache: Some(cache), .. }) = self.place.store()
            && StorePlace::on_system(&cache.dir).is_store()?
        {
            return Err(Error::refused(format!(
                "{} is a store: name another directory for the cache",
                cache.dir.display()
            )));
        }
        if self.disks.len() > 1 && self.disks.iter().any(|disk| disk.record.is_some()) {
            return Err(Error::refused(
                "a trace records one disk: attach the other disks with separate commands",
            ));
        }
        Ok(())
    }

    /// What the process serves, for comparison between a process and its successor.
    pub(super) fn claim(&self) -> Claim {
        let origin = match self.place.store() {
            StoreLocation::Local(_) => None,
            StoreLocation::Remote(location) => Some(location.server.identity()),
        };
        let sharing = self.node.as_ref().and_then(|node| node.sharing.as_ref());
        Claim {
            places: self.servers.places(),
            origin,
            is_checked: true,
            peers: sharing.map(|sharing| sharing.address),
            is_peers_address_used: false,
        }
    }
}

/// Serves disks until `stop` is set, or until the last disk is detached if nothing else is served.
///
/// # Errors
/// `Missing` when there is no such version; `Refused` when somebody else holds an edit lock, an address is in use, or
/// there is nothing to serve; `Transient` when an origin is down and a disk cannot be opened without it; `Io`. The
/// first failing server ends all. Edit locks that were taken for this and have no writes are then released.
pub fn attach(request: AttachRequest, on_event: OnEvent) -> Result<()> {
    request.check()?;
    request.place.make()?;
    let inherited = match request.take_over {
        true => {
            let claim = preflight::check(&request)?;
            Inherited::ask(request.place.dir(), &claim, &request.servers)?.unwrap_or_default()
        }
        false => Inherited::default(),
    };
    let served = Served::open(request, inherited, on_event)?;
    let request = served.request();
    let agent = Agent::open(&served)?;
    // Addresses first: if one is in use, no edit lock is taken.
    let servers = Server::open_all(&request.servers, &served)?;
    served.set_servers(&servers);
    let begun = agent.attach_at_start().and_then(|()| {
        let control = ControlSocket::open(request.place.dir(), request.node.is_some())?;
        serve(&served, &agent, &control, servers)
    });
    match begun {
        Ok(()) => served.detach_all(),
        Err(error) => {
            served.give_up();
            Err(error)
        }
    }
}

/// Runs the servers and the background work, until all have ended.
fn serve(
    served: &Arc<Served>,
    agent: &Arc<Agent>,
    control: &ControlSocket,
    servers: Vec<Server>,
) -> Result<()> {
    for attached in served.attached()? {
        served.tell(&LiveEvent::Attached(&attached));
    }
    notify("READY=1");
    thread::scope(|scope| {
        let is_stopped = || served.stop().load(Ordering::Relaxed);
        let answer = move || {
            control.answer_all(&is_stopped, &|question, stream| {
                answering::answer(served, agent, question, stream)
            });
        };
        let start = || thread::Builder::new();
        let started = start()
            .spawn_scoped(scope, answer)
            .and_then(|_| start().spawn_scoped(scope, || served.publish_now_and_then()))
            .and_then(|_| start().spawn_scoped(scope, || agent.run()));
        let ended = match started.context(|| "starting a thread".into()) {
            Ok(_) => Server::run_all(servers, served),
            Err(error) => {
                served.stop().store(true, Ordering::Relaxed);
                Err(error)
            }
        };
        notify("STOPPING=1");
        // Wakes the thread that waits for requests, so that it notices the end.
        let _ = control.wake();
        ended
    })
}
