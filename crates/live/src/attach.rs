//! The job that serves disks until it is told to stop, and what it is told when it begins.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use platter_image::{Error, Result};

use super::address::ServersRequest;
use super::agent::Agent;
use super::answering;
use super::control::ControlSocket;
use super::disk_request::DiskRequest;
use super::event::{LiveEvent, OnEvent};
use super::inherited::Inherited;
use super::place::LivePlace;
use super::preflight;
use super::served::Served;
use super::servers::Server;
use platter_fetch::SharingRequest;

/// What to serve, and how.
#[derive(Clone, Debug)]
pub struct AttachRequest {
    /// The store, and where what is written lies.
    pub place: LivePlace,
    /// The disks to begin with. None where the tree of all images is served, or other processes are to ask for disks.
    pub disks: Vec<DiskRequest>,
    /// The addresses that all disks share.
    pub servers: ServersRequest,
    /// Memory for decoded blocks, shared by all disks, in bytes.
    pub memory_bytes: usize,
    /// A node's directory: what is in the hoard there is read there, and the store is asked for the rest only.
    pub hoard: Option<PathBuf>,
    /// Be a node: go on without disks, remember those that are served, and tell the origin of them.
    pub node: Option<NodeRequest>,
    /// Take over from the node that runs in the same directory, if one does: its clients notice nothing.
    pub take_over: bool,
    /// What is doing this, such as `platter 0.1.0`.
    pub tool_version: String,
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
    /// Register boots of its disks as boot sets, if its access token may do that.
    pub record_boots: bool,
}

impl AttachRequest {
    /// # Errors
    /// `Refused` when nobody could reach what is served, there is nothing to serve, or several disks are to be recorded in one
    /// file.
    fn check(&self) -> Result<()> {
        let ServersRequest { nbd, fuse, ninep, .. } = &self.servers;
        let has_tree = fuse.is_some() || ninep.is_some();
        if nbd.is_none() && !has_tree {
            return Err(Error::refused(
                "nobody could reach it: name a place to serve at: --nbd, --fuse or --9p",
            ));
        }
        if self.disks.is_empty() && !has_tree && self.node.is_none() {
            return Err(Error::refused("there is nothing to serve: name a version, such as lab/debian12"));
        }
        if self.disks.len() > 1 && self.disks.iter().any(|disk| disk.record.is_some()) {
            return Err(Error::refused(
                "a trace records one disk: attach the other disks with separate commands",
            ));
        }
        Ok(())
    }
}

/// Serves disks until `stop` is set, or the last one is detached where nothing but disks is served.
///
/// # Errors
/// `Missing` when there is no such version; `Refused` when somebody else has an edit lock, an address is in use, or
/// there is nothing to serve; `Transient` when an origin is away and a disk cannot be opened without it; `Io`. The first server that
/// fails ends all. Edit locks that were taken for this, and under which nothing was written, are then given back.
pub fn attach(request: AttachRequest, on_event: OnEvent) -> Result<()> {
    request.check()?;
    request.place.make()?;
    let inherited = match request.take_over {
        true => {
            preflight::check(&request)?;
            Inherited::ask(request.place.dir(), &request.servers)?.unwrap_or_default()
        }
        false => Inherited::default(),
    };
    let served = Served::open(request, inherited, on_event)?;
    let request = served.request();
    let agent = Agent::open(&served)?;
    // Addresses first: where one is in use, no edit lock is taken.
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

/// Runs the servers, and what goes on beside them, until all have ended.
fn serve(
    served: &Arc<Served>,
    agent: &Arc<Agent>,
    control: &ControlSocket,
    servers: Vec<Server>,
) -> Result<()> {
    for attached in served.attached()? {
        served.tell(&LiveEvent::Attached(&attached));
    }
    thread::scope(|scope| {
        let is_stopped = || served.stop().load(Ordering::Relaxed);
        scope.spawn(move || {
            control.answer_all(&is_stopped, &|question, stream| {
                answering::answer(served, agent, question, stream)
            });
        });
        scope.spawn(|| served.publish_now_and_then());
        scope.spawn(|| agent.run());
        let ended = Server::run_all(servers, served);
        // The thread that waits for questions wakes and sees that this ends.
        let _ = control.wake();
        ended
    })
}
