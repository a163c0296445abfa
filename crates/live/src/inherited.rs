//! The successor's side of a handover: requests the predecessor's state, and waits for its end.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use platter_image::{Error, ErrorKind, IoContext, Result};
use platter_transport::Parcel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::address::ServersRequest;
use super::control::{ServingProcess, write_line};
use super::estate::{Claim, Estate, Step};
use super::limits;
use super::tree::NodesState;

/// Maximum length of one parcel in bytes: a 9P session with the maximum of fids.
const PARCEL_BYTES_MAX: usize = 320 << 20;
/// How long the request is repeated while the predecessor has slow requests.
const ASK_TIME: Duration = Duration::from_secs(30);
/// Pause between two attempts, in which clients continue.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Longest time for the predecessor to end.
const END_TIME: Duration = Duration::from_secs(30);

/// The state of a predecessor.
#[derive(Default)]
pub(super) struct Inherited {
    parcels: BTreeMap<String, Vec<Parcel>>,
    nodes: Option<NodesState>,
}

impl Inherited {
    /// Takes over from the node in this directory, which must have the same shared servers; `None` when no node answers
    /// there. The node has ended when this returns.
    ///
    /// # Errors
    /// `Refused` when the claim differs from what the node serves; `Transient` when its requests take too long. The node then
    /// continues.
    pub(super) fn ask(dir: &Path, claim: &Claim, servers: &ServersRequest) -> Result<Option<Self>> {
        let until = Instant::now() + ASK_TIME;
        let mut was_there = false;
        loop {
            let Some(node) = ServingProcess::node(dir)? else {
                return match was_there {
                    false => Ok(None),
                    true => Err(replaced()),
                };
            };
            was_there = true;
            match Self::ask_once(&node, claim, servers) {
                Err(error) if error.kind() == ErrorKind::Transient && Instant::now() < until => {
                    thread::sleep(ASK_AGAIN);
                }
                asked => return asked.map(Some),
            }
        }
    }

    fn ask_once(node: &ServingProcess, claim: &Claim, wanted: &ServersRequest) -> Result<Self> {
        let (stream, estate) = node.take_over(claim)?;
        let Estate { servers, nodes, process } = estate;
        let shared = servers.iter().map(|(name, _)| name).filter(|name| !is_own(name));
        if !shared.eq(&wanted.names()) {
            return Err(Error::transient("the running node has not started all its servers yet"));
        }
        limits::check(process).map_err(|error| error.within("the running node continues"))?;
        say(&stream, Step::Take)?;
        let mut parcels = BTreeMap::new();
        for (name, count) in servers {
            let of_server = (0..count).map(|_| Parcel::receive(&stream, PARCEL_BYTES_MAX));
            parcels.insert(name, of_server.collect::<Result<Vec<_>>>()?);
        }
        let ended = Pid::from_raw(process as i32).ok_or_else(|| Error::corrupt("invalid process id"))?;
        let ended = pidfd_open(ended, PidfdFlags::empty());
        let ended = ended.map_err(std::io::Error::from).context(|| "watching the other process".into())?;
        say(&stream, Step::End)?;
        let mut polled = [PollFd::new(&ended, PollFlags::IN)];
        let time = Timespec { tv_sec: END_TIME.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut polled, Some(&time)) {
            Ok(1) => Ok(Self { parcels, nodes }),
            _ => Err(Error::refused(format!("process {process} should have ended but still runs: end it"))),
        }
    }

    /// Takes the state of the server with this name, if there is any.
    pub(super) fn take(&mut self, name: &str) -> Option<Vec<Parcel>> {
        self.parcels.remove(name)
    }

    /// Takes the node numbers of the tree.
    pub(super) fn take_nodes(&mut self) -> Option<NodesState> {
        self.nodes.take()
    }
}

/// The error for a node that answered, and then was gone.
fn replaced() -> Error {
    Error::transient(
        "the running node ended meanwhile, or another process has taken over from it: `platter disks --node DIR` shows \
         whether one runs; try again",
    )
}

/// The name of a disk's own server.
pub(super) fn own_server(disk: &str) -> String {
    format!("disk:{disk}")
}

fn is_own(name: &str) -> bool {
    name.starts_with("disk:")
}

fn say(stream: &UnixStream, step: Step) -> Result<()> {
    write_line(stream, &step).context(|| "answering the other process".into())
}
