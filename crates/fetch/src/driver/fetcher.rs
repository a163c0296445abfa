//! The one driver for all fetching: connects the pure state machines with threads.
//!
//! A caller with an event (a reader, a thread with a received frame, a connection) executes its consequences itself,
//! under one lock, which is held briefly and never during I/O. One thread executes what becomes due without an event.
//! The thread that received a frame adds it to the cache after the readers got it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use platter_cast::peer::{Exchange, ExchangeOptions, Hello};
use platter_image::{Domain, Error, Result, Score};
use platter_transport::random_bytes;

use super::counts::PeerCounts;
use super::directory::{Directory, KnownNode};
use super::groups::Groups;
use super::holdings::Holdings;
use super::identity::Identity;
use super::link::LinkContext;
use super::links::{Door, Links};
use super::machine::{Machine, Sharing};
use super::network::{NetworkSource, SourceOptions};
use super::options::PeerOptions;
use super::origin::{Origin, OriginFrames};
use super::serving::Serving;
use super::shelf::ShelfLimits;

/// The state that readers, connections and threads share.
pub(super) struct Shared {
    machine: Mutex<Machine>,
    /// Notified when something is due earlier than the timer's thread expects.
    changed: Condvar,
    started: Instant,
    pub(super) groups: Arc<Groups>,
    pub(super) holdings: Option<Arc<dyn Holdings>>,
}

impl Shared {
    /// Runs a step of the machine and its consequences. `None` when the machine has ended.
    pub(super) fn act<T>(self: &Arc<Self>, act: impl FnOnce(&mut Machine, Duration) -> T) -> Option<T> {
        let mut machine = self.machine.lock();
        if machine.has_ended() {
            return None;
        }
        let now = self.started.elapsed();
        let result = act(&mut machine, now);
        let due = machine.pump(now);
        if !machine.has_timer && due.is_some() {
            machine.has_timer = self.start_timer().is_ok();
        } else if due.is_some_and(|due| machine.timer_at.is_none_or(|at| due < at)) {
            self.changed.notify_one();
        }
        let came = machine.take_to_keep();
        drop(machine);
        if let Some(holdings) = &self.holdings {
            came.iter().for_each(|frame| holdings.keep(&frame.stored, &frame.header));
        }
        Some(result)
    }

    /// Reads from the machine without changing it.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&self.machine.lock())
    }

    fn start_timer(self: &Arc<Self>) -> std::io::Result<()> {
        let shared = self.clone();
        thread::Builder::new().name("fetch-timer".to_owned()).spawn(move || shared.run_timer()).map(drop)
    }

    fn run_timer(&self) {
        let mut machine = self.machine.lock();
        while !machine.has_ended() {
            let now = self.started.elapsed();
            machine.timer_at = machine.pump(now);
            match machine.timer_at {
                Some(due) => drop(self.changed.wait_for(&mut machine, due.saturating_sub(now))),
                None => self.changed.wait(&mut machine),
            }
        }
    }

    fn end(&self) {
        self.machine.lock().end();
        self.changed.notify_all();
    }
}

/// Fetches frames from an origin and, once it shares, from peers. Ends when its last source is dropped.
pub struct Fetcher {
    shared: Arc<Shared>,
    sharing: OnceLock<Sharer>,
    next_source: AtomicU64,
}

/// State of a fetcher that shares.
struct Sharer {
    door: Option<Door>,
    directory: Arc<Directory>,
    fingerprint: String,
}

impl Fetcher {
    /// Creates a fetcher without threads, which has requested nothing yet. Received frames are also kept in `holdings`.
    pub(crate) fn new(origin: Arc<dyn OriginFrames>, holdings: Option<Arc<dyn Holdings>>) -> Arc<Self> {
        let limits = if holdings.is_some() { ShelfLimits::BESIDE_CACHE } else { ShelfLimits::ALONE };
        Self::with_limits(origin, holdings, limits)
    }

    /// As [`Self::new`], with these limits of frames in memory.
    pub(crate) fn with_limits(
        origin: Arc<dyn OriginFrames>,
        holdings: Option<Arc<dyn Holdings>>,
        limits: ShelfLimits,
    ) -> Arc<Self> {
        let seed = RandomState::new().build_hasher().finish();
        let groups = Arc::new(Groups::default());
        let keeps = holdings.is_some();
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| Shared {
            machine: Mutex::new(Machine::new(
                seed,
                Origin::new(origin, groups.clone(), shared.clone()),
                keeps,
                limits,
            )),
            changed: Condvar::new(),
            started: Instant::now(),
            groups,
            holdings,
        });
        Arc::new(Self { shared, sharing: OnceLock::new(), next_source: AtomicU64::new(0) })
    }

    /// Starts to share the held frames: at once with stored nodes, and with nodes that it learns of.
    ///
    /// # Errors
    /// `Io` when the address is not available, or threads cannot be started; `Refused` without holdings.
    pub(crate) fn share(
        &self,
        options: &PeerOptions,
        identity: Identity,
        directory: Directory,
    ) -> Result<()> {
        let Some(holdings) = &self.shared.holdings else {
            return Err(Error::refused("sharing with peers needs a cache"));
        };
        let (directory, node) = (Arc::new(directory), identity.id);
        let fingerprint = identity.fingerprint().to_string();
        let shared = Arc::downgrade(&self.shared);
        let groups = self.shared.groups.clone();
        let context = LinkContext { shared: shared.clone(), groups, silence_max: options.silence_max };
        let links = Links {
            identity: Arc::new(identity),
            directory: directory.clone(),
            context,
            next_number: AtomicU64::new(0),
        };
        let links = Arc::new(links);
        let exchange = Exchange::new(ExchangeOptions {
            hello: Hello { group: options.group, domain: Domain::SHARED, node },
            salt: u64::from_le_bytes(random_bytes()?),
            share_bits_per_second: options.share_bits_per_second,
        });
        let sharing = Sharing {
            links: links.clone(),
            holdings: holdings.clone(),
            serving: Serving::start(holdings, &shared)?,
            silence_max: options.silence_max,
        };
        self.shared.act(|machine, now| machine.share(now, exchange, sharing));
        let door = options.listen.map(|address| Door::open(address, &links)).transpose()?;
        let homes = door.is_some();
        self.shared.act(|machine, _| machine.join(node, homes));
        // A concurrent call may have set it first.
        let _ = self.sharing.set(Sharer { door, directory, fingerprint });
        Ok(())
    }

    /// Whether it shares with peers.
    pub fn shares(&self) -> bool {
        self.sharing.get().is_some()
    }

    /// The address for peers, with the assigned port if port 0 was requested.
    pub fn address(&self) -> Option<SocketAddr> {
        self.sharing.get()?.door.as_ref().map(Door::address)
    }

    /// The fingerprint of this node's certificate, 64 hexadecimal digits.
    pub fn fingerprint(&self) -> Option<&str> {
        self.sharing.get().map(|sharer| sharer.fingerprint.as_str())
    }

    /// Number of connections from unknown nodes: a reason to ask the registry soon.
    pub fn strangers(&self) -> u64 {
        self.sharing.get().map_or(0, |sharer| sharer.directory.strangers())
    }

    /// Takes the nodes of a registry's reply.
    ///
    /// # Errors
    /// `Io` when they cannot be stored; they are known anyway.
    pub fn learn(&self, nodes: &[KnownNode]) -> Result<()> {
        let Some(sharer) = self.sharing.get() else { return Ok(()) };
        let (learned, written) = sharer.directory.learn(nodes);
        if !learned.known.is_empty() || !learned.gone.is_empty() {
            self.shared.act(|machine, now| machine.handle_nodes(now, learned));
        }
        written
    }

    /// Returns a source of a recipe's frames.
    pub(crate) fn source(self: &Arc<Self>, score: Score, options: SourceOptions) -> Arc<NetworkSource> {
        let number = self.next_source.fetch_add(1, Ordering::Relaxed);
        Arc::new(NetworkSource::new(self.clone(), score, number, options))
    }

    /// Returns the counters; all are zero without sharing.
    pub fn counts(&self) -> PeerCounts {
        self.shared.look(Machine::counts)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.shared.end();
    }
}
