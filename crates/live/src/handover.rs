//! The predecessor's side of a handover: pauses its servers, gives their state to its successor, and continues normally
//! if that fails.
//!
//! After this process has ended, the successor opens disks and caches as after a crash: all acknowledged writes are in
//! the overlays. So only sockets, devices and sessions move, and no lock is ever held twice.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use platter_export::fuse::FuseServer;
use platter_export::{Pause, RunEnd, SocketServer};
use platter_image::{Error, IoContext, Result};
use platter_transport::Parcel;
use serde::{Deserialize, Serialize};

use super::tree::NodesState;

/// Within this time all servers must have paused, otherwise the handover is abandoned.
const PAUSE_TIME: Duration = Duration::from_secs(1);

/// The first message to the successor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Estate {
    /// The servers with their numbers of parcels, in the order of sending.
    pub(super) servers: Vec<(String, usize)>,
    /// The addresses and mount points of these servers ([`super::address::ServersRequest::places`]).
    pub(super) places: BTreeSet<String>,
    /// The node numbers of the tree.
    pub(super) nodes: Option<NodesState>,
    /// The process that ends once the successor has everything.
    pub(super) process: u32,
}

/// A server that can pause.
pub(super) trait Pausable {
    fn run(&mut self, stop: &AtomicBool) -> Result<RunEnd>;
    /// Returns the state for the successor.
    fn to_parcels(&mut self) -> Result<Vec<Parcel>>;
}

impl Pausable for SocketServer {
    fn run(&mut self, stop: &AtomicBool) -> Result<RunEnd> {
        self.run(stop)
    }

    fn to_parcels(&mut self) -> Result<Vec<Parcel>> {
        self.to_parcels()
    }
}

impl Pausable for FuseServer {
    fn run(&mut self, stop: &AtomicBool) -> Result<RunEnd> {
        self.run(stop)
    }

    fn to_parcels(&mut self) -> Result<Vec<Parcel>> {
        Ok(vec![self.to_parcel()?])
    }
}

#[derive(Default)]
struct State {
    running: usize,
    paused: BTreeMap<String, Result<Vec<Parcel>>>,
    /// Changes when servers should continue.
    round: u64,
}

/// The servers of this process, and their common order to pause.
pub(super) struct Handover {
    pub(super) pause: Arc<Pause>,
    state: Mutex<State>,
    changed: Condvar,
    /// Held during a handover: only one runs at a time.
    handing: Mutex<()>,
}

impl Handover {
    /// # Errors
    /// `Io`.
    pub(super) fn new() -> Result<Self> {
        let pause = Arc::new(Pause::new()?);
        Ok(Self { pause, state: Mutex::default(), changed: Condvar::new(), handing: Mutex::default() })
    }

    /// Runs the server with this name until `stop` is set, with pauses for handovers.
    ///
    /// # Errors
    /// The server's errors.
    pub(super) fn run(&self, name: &str, server: &mut dyn Pausable, stop: &AtomicBool) -> Result<()> {
        self.state.lock().running += 1;
        let result = self.run_and_pause(name, server, stop);
        self.state.lock().running -= 1;
        self.changed.notify_all();
        result
    }

    fn run_and_pause(&self, name: &str, server: &mut dyn Pausable, stop: &AtomicBool) -> Result<()> {
        loop {
            let parcels = match server.run(stop)? {
                RunEnd::Stopped => return Ok(()),
                RunEnd::Paused => server.to_parcels(),
                RunEnd::Busy => {
                    Err(Error::transient(format!("{name}: some requests have not been answered in time")))
                }
            };
            let mut state = self.state.lock();
            // An order that was lifted meanwhile has no effect.
            if self.pause.is_ordered() {
                let round = state.round;
                state.paused.insert(name.to_owned(), parcels);
                self.changed.notify_all();
                self.changed.wait_while(&mut state, |state| state.round == round);
            }
        }
    }

    /// Hands everything over to the process at the other end of `stream`. If this succeeds, this process has to end at
    /// once.
    ///
    /// # Errors
    /// `Transient` when requests take too long, or the successor disconnects; the servers then continue.
    pub(super) fn hand_over(
        &self,
        mut stream: &UnixStream,
        places: BTreeSet<String>,
        nodes: Option<NodesState>,
        say: impl FnOnce(Estate) -> Result<()>,
    ) -> Result<()> {
        let _one = self
            .handing
            .try_lock()
            .ok_or_else(|| Error::transient("another process is taking over already"))?;
        self.pause.order();
        let send = || -> Result<()> {
            let mut state = self.state.lock();
            let is_running = |state: &mut State| state.paused.len() < state.running;
            self.changed.wait_while_for(&mut state, is_running, PAUSE_TIME);
            if state.running == 0 {
                return Err(Error::transient("the node is starting or ending"));
            }
            if state.paused.len() < state.running {
                return Err(Error::transient("some requests have not been answered in time"));
            }
            let paused = std::mem::take(&mut state.paused);
            drop(state);
            let mut parcels = Vec::new();
            let mut servers = Vec::new();
            for (name, of_server) in paused {
                let of_server = of_server?;
                servers.push((name, of_server.len()));
                parcels.extend(of_server);
            }
            say(Estate { servers, places, nodes, process: std::process::id() })?;
            let heard = |result: std::io::Result<()>| result.context(|| "reading from the successor".into());
            heard(stream.read_exact(&mut [0]))?;
            parcels.iter().try_for_each(|parcel| parcel.send(stream))?;
            heard(stream.read_exact(&mut [0]))
        };
        send().inspect_err(|_| {
            let mut state = self.state.lock();
            self.pause.lift();
            state.paused.clear();
            state.round += 1;
            self.changed.notify_all();
            let _ = stream.flush();
        })
    }
}
