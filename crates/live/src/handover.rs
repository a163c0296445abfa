//! The side of a process that is replaced: it pauses its servers, gives what they have to its successor, and goes on as if
//! nothing had been if that fails.
//!
//! The successor opens disks and caches by itself, as after a crash, when this process has ended: what was written before a
//! reply is in the overlays. So nothing but sockets, devices and sessions moves, and no lock is ever held twice.

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

/// All servers have stopped by then, or one of them is given up, and with it the pause.
const PAUSE_TIME: Duration = Duration::from_secs(1);

/// What is said to the successor first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Estate {
    /// The servers, and the parcels of each, in the order in which they come.
    pub(super) servers: Vec<(String, usize)>,
    /// Where these servers listen or are mounted ([`super::address::ServersRequest::places`]).
    pub(super) places: BTreeSet<String>,
    /// The numbers of the tree's nodes.
    pub(super) nodes: Option<NodesState>,
    /// The process that ends when the successor has everything.
    pub(super) process: u32,
}

/// A server that can pause.
pub(super) trait Pausable {
    fn run(&mut self, stop: &AtomicBool) -> Result<RunEnd>;
    /// What its successor gets.
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
    /// Changes when servers are to go on.
    round: u64,
}

/// The servers of this process, and the order to pause that they share.
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

    /// Runs a server of that name until `stop` says so, with a pause now and then.
    ///
    /// # Errors
    /// What the server says.
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
            // An order that was lifted meanwhile is nobody's concern.
            if self.pause.is_ordered() {
                let round = state.round;
                state.paused.insert(name.to_owned(), parcels);
                self.changed.notify_all();
                self.changed.wait_while(&mut state, |state| state.round == round);
            }
        }
    }

    /// Gives everything to the process behind `stream`. When this returns without an error, that process has all, and this one
    /// has to end at once.
    ///
    /// # Errors
    /// `Transient` when requests take too long, or the successor goes away; the servers then go on.
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
                return Err(Error::transient("the node begins or ends at this moment"));
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
            let heard = |result: std::io::Result<()>| result.context(|| "hearing from the successor".into());
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
