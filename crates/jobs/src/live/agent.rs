//! What a process has beside its disks when it reads an origin through a cache: disks that are being filled, those that a node
//! serves again after it was killed, and what it tells the origin.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use platter_image::{Error, ErrorKind, IoContext, Result, Score};
use platter_store::VersionQuery;

use super::attach::{AttachRequest, Attached, LiveEvent};
use super::served::Served;
use super::sources::FILL_OPTIONS;
use crate::OpenStore;
use crate::node::{
    Fill, FillStatus, NodeReport, RememberedDisk, RememberedDisks, ReportedDisk, counters_of, pin_name,
};
use crate::peers::{KnownNode, Peers};

/// How often notes are told.
const NOTES_LOOK: Duration = Duration::from_millis(500);
/// How often what was read is made durable, so that a power loss costs little.
const SYNC_EVERY: Duration = Duration::from_secs(10);
/// How often the origin is told of this node, and how often one is that knows nothing of nodes.
const REPORT_EVERY: Duration = Duration::from_secs(5);
const REPORT_SELDOM: Duration = Duration::from_secs(60);
/// Not so often, though nodes come that are not known.
const STRANGER_PAUSE: Duration = Duration::from_secs(1);
/// How often disks are tried that could not be attached, because nobody had what they begin with.
const ATTACH_EVERY: Duration = Duration::from_secs(5);
/// From one look whether something is due to the next.
const LOOK: Duration = Duration::from_millis(200);

/// A disk that is to be served, and cannot be for now.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pending {
    /// What the command line names.
    Named(String),
    Remembered(RememberedDisk),
}

/// See above.
pub(super) struct Agent {
    remembered: Option<RememberedDisks>,
    fills: Mutex<BTreeMap<String, Arc<Fill>>>,
    pending: Mutex<Vec<Pending>>,
}

impl Agent {
    /// # Errors
    /// `Refused` when a cache is needed and there is none.
    pub(super) fn open(store: &OpenStore, request: &AttachRequest) -> Result<Self> {
        let cache = store.cache();
        if cache.is_none() && (request.fill || request.node.is_some()) {
            return Err(needs_a_cache());
        }
        let dir = cache.filter(|_| request.node.is_some()).map(|cache| cache.cache().dir());
        Ok(Self {
            remembered: dir.map(RememberedDisks::open),
            fills: Mutex::default(),
            pending: Mutex::default(),
        })
    }

    /// How far the filling of that disk is, if it is filled.
    pub(super) fn fill_status(&self, disk: &str) -> Option<FillStatus> {
        self.fills().get(disk).map(|fill| fill.status())
    }

    fn fills(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Fill>>> {
        self.fills.lock()
    }

    fn pending(&self) -> MutexGuard<'_, Vec<Pending>> {
        self.pending.lock()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.fills().values().for_each(|fill| fill.stop());
    }
}

fn needs_a_cache() -> Error {
    Error::refused("that needs an origin and a cache of it: --server URL --cache-dir DIR")
}

impl Served {
    /// Serves at the start what the request names, and what the node served before. What cannot be had for now is tried again.
    pub(super) fn attach_at_start(self: &Arc<Self>) -> Result<()> {
        match self.share() {
            Err(error) if error.kind() == ErrorKind::Transient => {
                self.tell(&LiveEvent::Note(format!("shares nothing until the origin is there: {error}")));
            }
            shared => shared?,
        }
        let remembered = self.agent.remembered.as_ref().map(RememberedDisks::all).unwrap_or_default();
        let mut wanted: Vec<Pending> = remembered.into_iter().map(Pending::Remembered).collect();
        wanted.extend(self.request().versions.iter().cloned().map(Pending::Named));
        for pending in wanted {
            match self.attach_pending(&pending) {
                Err(error) if self.request().node.is_some() && error.kind() == ErrorKind::Transient => {
                    self.tell(&LiveEvent::Note(format!(
                        "{}: tried again until it can be had: {error}",
                        pending.name()
                    )));
                    self.agent.pending().push(pending);
                }
                attached => attached?,
            }
        }
        Ok(())
    }

    /// Begins to share with other nodes, if that is wanted and not done. Disks that are served already go on without peers.
    fn share(&self) -> Result<()> {
        let wanted = self.request().node.as_ref().and_then(|node| node.sharing.as_ref());
        match (wanted, self.store().remote(), self.store().cache()) {
            (Some(request), Some(store), Some(cache)) => cache.share(store, request),
            _ => Ok(()),
        }
    }

    fn attach_pending(self: &Arc<Self>, pending: &Pending) -> Result<()> {
        match pending {
            Pending::Remembered(disk) => {
                let score = Score::from_hex(&disk.score);
                let score = score
                    .ok_or_else(|| Error::corrupt(format!("{}: {} is no score", disk.name, disk.score)))?;
                self.attach_read_only(&disk.name, score, disk.fill)
            }
            // A node that is started again goes on with the version that it served.
            Pending::Named(version) if self.request().node.is_some() && self.is_attached(version) => Ok(()),
            Pending::Named(version) => {
                let fill = self.request().fill;
                let name = self.attach(version, fill)?;
                self.remember(&name, fill)
            }
        }
    }

    /// Whether a disk is served under the name that this version's would have.
    fn is_attached(&self, version: &str) -> bool {
        let name = match version.parse::<VersionQuery>() {
            Ok(VersionQuery::Named(image, _)) => image.to_string(),
            Ok(VersionQuery::Score(score)) => score.to_string(),
            Err(_) => return false,
        };
        self.score_of(&name).is_some()
    }

    fn score_of(&self, name: &str) -> Option<Score> {
        let attached = self.attached().ok()?.into_iter().find(|disk| disk.disk == name)?;
        Score::from_hex(&attached.base)
    }

    /// Serves what somebody asked for by the control socket. A disk that is served already is filled, if that is new.
    pub(super) fn attach_asked(self: &Arc<Self>, version: &str, fill: bool) -> Result<Attached> {
        if self.request().write {
            return Err(Error::refused("that process serves disks to be written: start another one"));
        }
        let (_, name) = self.named(version, self.store().resolve(version))?;
        let name = match self.score_of(&name) {
            None => self.attach(version, fill)?,
            Some(score) if fill && self.agent.fill_status(&name).is_none() => {
                self.begin_filling(&name, score, true)?;
                name
            }
            Some(_) => return Err(Error::refused(format!("{name} is attached already"))),
        };
        self.remember(&name, fill)?;
        let attached = self.attached()?.into_iter().find(|disk| disk.disk == name);
        let attached = attached.ok_or_else(|| Error::missing(format!("{name} was detached meanwhile")))?;
        self.tell(&LiveEvent::Attached(&attached));
        Ok(attached)
    }

    fn remember(&self, name: &str, fill: bool) -> Result<()> {
        let (Some(remembered), Some(score)) = (&self.agent.remembered, self.score_of(name)) else {
            return Ok(());
        };
        remembered.add(RememberedDisk { name: name.to_owned(), score: score.to_string(), fill })
    }

    /// Has all of a disk fetched, if `fill` says so.
    pub(super) fn begin_filling(self: &Arc<Self>, name: &str, score: Score, fill: bool) -> Result<()> {
        if !fill {
            return Ok(());
        }
        let source = self.store().cached_source(score, FILL_OPTIONS);
        let (served, disk) = (Arc::downgrade(self), name.to_owned());
        let on_filled = move || {
            if let Some(served) = served.upgrade() {
                served.tell(&LiveEvent::Filled { disk: &disk });
            }
        };
        let fill = Fill::start(source.ok_or_else(needs_a_cache)?, score, Box::new(on_filled))?;
        self.agent.fills().insert(name.to_owned(), fill);
        Ok(())
    }

    /// A disk was detached by somebody who asked for it: it is not served again, and what was pinned for it may go.
    pub(super) fn forget_disk(&self, name: &str) -> Result<()> {
        if let Some(remembered) = &self.agent.remembered {
            remembered.remove(name)?;
        }
        let mut fills = self.agent.fills();
        let Some(fill) = fills.remove(name) else { return Ok(()) };
        fill.stop();
        let shared = fills.values().any(|other| other.score() == fill.score());
        drop(fills);
        match self.store().cache() {
            Some(cache) if !shared => cache.cache().unpin(&pin_name(fill.score())?),
            _ => Ok(()),
        }
    }

    /// Does what goes on beside the disks, until the process is to stop.
    pub(super) fn run_node(self: &Arc<Self>) {
        let Some(cache) = self.store().cache() else { return };
        if let Err(error) = self.start_reporting() {
            self.tell(&LiveEvent::Note(error.to_string()));
        }
        let mut sync_due = Instant::now() + SYNC_EVERY;
        loop {
            cache.notes().into_iter().for_each(|note| self.tell(&LiveEvent::Note(note)));
            let stopped = self.request().stop.load(Ordering::Relaxed);
            if stopped || Instant::now() >= sync_due {
                // What fails is noted by the cache.
                let _ = cache.cache().sync();
                sync_due = Instant::now() + SYNC_EVERY;
            }
            if stopped {
                return;
            }
            thread::sleep(NOTES_LOOK);
        }
    }

    /// Starts the thread that speaks with the origin. Nothing waits for it: an origin may be silent for long.
    fn start_reporting(self: &Arc<Self>) -> Result<()> {
        if self.request().node.is_none() {
            return Ok(());
        }
        self.listen_for_revisions()?;
        let weak = Arc::downgrade(self);
        let report = move || {
            let (mut report_due, mut attach_due) = (Instant::now(), Instant::now() + ATTACH_EVERY);
            let (mut strange, mut reported) = (0, Instant::now());
            while let Some(served) = weak.upgrade() {
                if served.request().stop.load(Ordering::Relaxed) {
                    return;
                }
                let now_strange =
                    served.store().cache().and_then(|cache| cache.peers()).map_or(0, Peers::strangers);
                // Who is not known here may have told the origin a moment ago.
                let is_asked_for = now_strange != strange && Instant::now() >= reported + STRANGER_PAUSE;
                if Instant::now() >= report_due || is_asked_for || served.hoarding.has_news() {
                    (strange, reported) = (now_strange, Instant::now());
                    report_due = Instant::now() + served.report();
                }
                if Instant::now() >= attach_due {
                    served.try_pending();
                    attach_due = Instant::now() + ATTACH_EVERY;
                }
                drop(served);
                thread::sleep(LOOK);
            }
        };
        let started = thread::Builder::new().name("node".to_owned()).spawn(report);
        started.map(drop).context(|| "starting a thread that reports".to_owned())
    }

    /// Tells the origin of this node; gives after how long to do so again.
    fn report(self: &Arc<Self>) -> Duration {
        let (Some(node), Some(store), Some(cache)) =
            (&self.request().node, self.store().remote(), self.store().cache())
        else {
            return REPORT_SELDOM;
        };
        let disks = self.attached().unwrap_or_default().into_iter().map(|disk| ReportedDisk {
            token_holder: disk.writable.then(|| self.request().holder.clone()),
            name: disk.disk,
            image: disk.base,
            writable: disk.writable,
        });
        // The origin may have been away when this node was started.
        let _ = self.share();
        let peers = cache.peers();
        let counts = peers.map(Peers::counts);
        let report = NodeReport {
            id: cache.cache().id().to_string(),
            name: node.name.clone(),
            peer_address: peers.and_then(Peers::address).map(|address| address.to_string()),
            fingerprint: peers.map(|peers| peers.fingerprint().to_string()),
            hoard_revision: self.hoarding.revision(),
            counters: counters_of(&cache.counters(), counts.as_ref()),
            disks: disks.collect(),
        };
        match store.report(&report) {
            Err(error) if error.kind() == ErrorKind::Missing => REPORT_SELDOM,
            // One that is away is told later.
            Err(_) => REPORT_EVERY,
            Ok(answer) => {
                self.follow_hoard(answer["hoard_revision"].as_u64().unwrap_or_default());
                let learned = peers.map_or(Ok(()), |peers| peers.learn(&KnownNode::all_of(&answer["nodes"])));
                if let Err(error) = learned {
                    self.tell(&LiveEvent::Note(format!("nodes are not remembered: {error}")));
                }
                REPORT_EVERY
            }
        }
    }

    /// Tries once more to attach what could not be.
    fn try_pending(self: &Arc<Self>) {
        let waiting = self.agent.pending().clone();
        for pending in waiting {
            match self.attach_pending(&pending) {
                Err(error) if error.kind() == ErrorKind::Transient => {}
                attached => {
                    self.agent.pending().retain(|other| *other != pending);
                    let disks = self.attached().unwrap_or_default();
                    let disk = disks.iter().find(|disk| pending.name() == disk.disk);
                    match (attached, disk) {
                        (Err(error), _) => {
                            self.tell(&LiveEvent::Note(format!("{}: {error}", pending.name())));
                        }
                        (Ok(()), Some(disk)) => self.tell(&LiveEvent::Attached(disk)),
                        (Ok(()), None) => {}
                    }
                }
            }
        }
    }
}

impl Pending {
    fn name(&self) -> &str {
        match self {
            Self::Named(version) => version,
            Self::Remembered(disk) => &disk.name,
        }
    }
}
