//! The predecessor's side of a handover: pauses its servers, gives their state to its successor, and continues normally
//! if that fails.
//!
//! After this process has ended, the successor opens disks and caches as after a crash: all acknowledged writes are in
//! the overlays. So only sockets, devices and sessions move, and no lock is ever held twice. Clients wait while the servers
//! are paused, so the successor must take each of its two steps within [`STEP_TIME`].

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use platter_export::fuse::FuseServer;
use platter_export::{Pause, RunEnd, SocketServer};
use platter_image::{Error, IoContext, Result};
use platter_transport::Parcel;

use super::control::read_line;
use super::estate::{Estate, Step};
use super::tree::NodesState;

/// Within this time all servers must have paused, otherwise the handover is abandoned.
const PAUSE_TIME: Duration = Duration::from_secs(1);

/// Time limit for each step of a successor; then the servers continue.
const STEP_TIME: Duration = Duration::from_millis(500);

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
        stream: &UnixStream,
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
            let limited = stream.set_read_timeout(Some(STEP_TIME));
            limited.context(|| "limiting the time of the successor".into())?;
            say(Estate { servers, nodes, process: std::process::id() })?;
            hear(stream, Step::Take)?;
            parcels.iter().try_for_each(|parcel| parcel.send(stream))?;
            hear(stream, Step::End)
        };
        send().inspect_err(|_| {
            let mut state = self.state.lock();
            self.pause.lift();
            state.paused.clear();
            state.round += 1;
            self.changed.notify_all();
        })
    }
}

/// # Errors
/// `Transient` when the message does not arrive in time, or the successor ends; `Corrupt` when it is another message.
fn hear(stream: &UnixStream, step: Step) -> Result<()> {
    match read_line::<Step>(stream)? {
        said if said == step => Ok(()),
        _ => Err(Error::corrupt("an unexpected message of the successor: another version of Platter?")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use platter_image::ErrorKind;

    use super::*;

    /// Has no clients; pauses when ordered.
    struct Idle {
        pause: Arc<Pause>,
        runs: Arc<AtomicUsize>,
    }

    impl Pausable for Idle {
        fn run(&mut self, stop: &AtomicBool) -> Result<RunEnd> {
            self.runs.fetch_add(1, Ordering::SeqCst);
            while !self.pause.is_ordered() {
                if stop.load(Ordering::SeqCst) {
                    return Ok(RunEnd::Stopped);
                }
                thread::yield_now();
            }
            Ok(RunEnd::Paused)
        }

        fn to_parcels(&mut self) -> Result<Vec<Parcel>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn servers_go_on_after_a_successor_that_says_nothing_or_something_else() {
        let handover = Handover::new().unwrap();
        let (stop, runs) = (AtomicBool::new(false), Arc::new(AtomicUsize::new(0)));
        let mut server = Idle { pause: Arc::clone(&handover.pause), runs: Arc::clone(&runs) };
        thread::scope(|scope| {
            let served = scope.spawn(|| handover.run("nbd", &mut server, &stop));
            let cases = [
                (&b""[..], ErrorKind::Transient),
                (b"\x01", ErrorKind::Transient),
                (b"\x01\n", ErrorKind::Corrupt),
                (b"\"end\"\n", ErrorKind::Corrupt),
                // It takes the parcels, and does not say that it has them.
                (b"\"take\"\n", ErrorKind::Transient),
            ];
            for (number, (said, kind)) in cases.into_iter().enumerate() {
                while runs.load(Ordering::SeqCst) <= number {
                    thread::yield_now();
                }
                let (near, mut far) = UnixStream::pair().unwrap();
                far.write_all(said).unwrap();
                let handed = handover.hand_over(&near, None, |_| Ok(()));
                assert_eq!(handed.unwrap_err().kind(), kind, "{said:?}");
                assert!(!handover.pause.is_ordered());
            }
            while runs.load(Ordering::SeqCst) <= cases.len() {
                thread::yield_now();
            }
            stop.store(true, Ordering::SeqCst);
            served.join().unwrap().unwrap();
        });
    }
}
