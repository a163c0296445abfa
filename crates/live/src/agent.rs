//! Background work of a process that reads an origin through a cache: retries disks that cannot be served yet, makes
//! the cache durable, and reports a node to the origin.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use platter_api::{NodeReport, ReportedDisk, Role};
use platter_image::{Error, ErrorKind, IoContext, Result};
use platter_records::VersionQuery;

use super::attached::Attached;
use super::disk_request::{DiskRequest, OnDetach};
use super::event::LiveEvent;
use super::remembered::RememberedDisk;
use super::served::Served;
use platter_fetch::KnownNode;
use platter_fetch::counters_of;

/// Interval of checks for notes.
const NOTES_LOOK: Duration = Duration::from_millis(500);
/// Interval of syncs of the cache, so that a power loss costs little.
const SYNC_EVERY: Duration = Duration::from_secs(10);
/// Interval of reports to the origin.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// Interval of reports to an origin without that endpoint.
const REPORT_SELDOM: Duration = Duration::from_secs(60);
/// After connections from unknown nodes, the node reports at once, but not more often than this.
const STRANGER_PAUSE: Duration = Duration::from_secs(1);
/// Interval of attempts to attach disks that could not be opened because their first blocks were not available.
const ATTACH_EVERY: Duration = Duration::from_secs(5);
/// Interval of checks for due work.
const LOOK: Duration = Duration::from_millis(200);
/// Interval of requests for all versions, so that their names are known while the origin is down.
const VERSIONS_EVERY: Duration = Duration::from_secs(600);
/// Interval of checks whether the edit locks of writable disks are still held.
const LOCKS_EVERY: Duration = Duration::from_secs(5);
/// Most disks opened at once: each may wait for an origin that is down.
const OPENING_MAX: usize = 32;

/// A disk that should be served but currently cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pending {
    /// Named on the command line.
    Named(DiskRequest),
    Remembered(RememberedDisk),
}

/// The background work, see above.
pub(super) struct Agent {
    served: Arc<Served>,
    pending: Mutex<Vec<Pending>>,
}

impl Agent {
    /// Creates the agent for the disks of this process.
    ///
    /// # Errors
    /// `Io` when the address for peers is not available.
    pub(super) fn open(served: &Arc<Served>) -> Result<Arc<Self>> {
        match share(served) {
            Err(error) if error.kind() == ErrorKind::Transient => {
                served.tell(&LiveEvent::Note(format!(
                    "this node shares nothing with peers until the origin can be reached: {error}"
                )));
            }
            shared => shared?,
        }
        Ok(Arc::new(Self { served: served.clone(), pending: Mutex::default() }))
    }

    /// Attaches the disks of the request, and those that a node served before. On a node, disks that are currently not
    /// available are retried.
    ///
    /// # Errors
    /// The error of a disk in the request, or of a disk that can never be served.
    pub(super) fn attach_at_start(&self) -> Result<()> {
        let is_node = self.served.request().node.is_some();
        match self.served.opener.claim() {
            Err(error) if error.kind() == ErrorKind::Transient => {}
            // Read-only disks write nothing there; then commands have to name the directory.
            Err(_) if !is_node => {}
            claimed => claimed?,
        }
        if let Err(error) = self.served.unpin_forgotten() {
            let note = format!("the pins of earlier disks could not be removed: {error}");
            self.served.tell(&LiveEvent::Note(note));
        }
        let remembered = self.served.remembered().into_iter().map(Pending::Remembered).collect();
        for (pending, error) in self.attach_together(remembered) {
            // One failing disk does not stop a node.
            self.served.tell(&LiveEvent::Note(format!("{}: {error}", pending.name())));
            if self.is_tried_again(&pending, &error) {
                self.pending.lock().push(pending);
            }
        }
        for request in self.served.request().disks.clone() {
            let pending = Pending::Named(request);
            match self.attach(&pending) {
                Err(error) if is_node && error.kind() == ErrorKind::Transient => {
                    let note = format!("{}: not available, will be retried: {error}", pending.name());
                    self.served.tell(&LiveEvent::Note(note));
                    self.pending.lock().push(pending);
                }
                attached => attached?,
            }
        }
        Ok(())
    }

    /// Tries to serve all of these, several at a time. Returns those that cannot be served now, with the errors.
    fn attach_together(&self, all: Vec<Pending>) -> Vec<(Pending, Error)> {
        let left = Mutex::new(all.into_iter());
        let failed = Mutex::new(Vec::new());
        let work = || {
            loop {
                let next = left.lock().next();
                let Some(pending) = next else { return };
                if let Err(error) = self.attach(&pending) {
                    failed.lock().push((pending, error));
                }
            }
        };
        let count = left.lock().len().min(OPENING_MAX);
        thread::scope(|scope| {
            for _ in 1..count {
                // Fewer threads are enough.
                let _ = thread::Builder::new().name("attach".into()).spawn_scoped(scope, work);
            }
            work();
        });
        failed.into_inner()
    }

    fn attach(&self, pending: &Pending) -> Result<()> {
        match pending {
            Pending::Remembered(disk) => self.served.reattach(disk).map(drop),
            // A restarted node continues with the version that it served.
            Pending::Named(request) if self.served.request().node.is_some() && self.is_known(request) => {
                Ok(())
            }
            Pending::Named(request) => self.served.attach(request).map(drop),
        }
    }

    /// Whether a disk is served or pending under the name that this version's disk would have.
    fn is_known(&self, request: &DiskRequest) -> bool {
        let name = match request.version.parse::<VersionQuery>() {
            Ok(VersionQuery::Named(image, _)) => image.to_string(),
            Ok(VersionQuery::Score(score)) => score.to_string(),
            Err(_) => return false,
        };
        let is_it = |pending: &Pending| matches!(pending, Pending::Remembered(disk) if disk.name == name);
        self.served.is_attached(&name) || self.pending.lock().iter().any(is_it)
    }

    /// Whether a failed disk should be retried; if not, it is forgotten.
    fn is_tried_again(&self, pending: &Pending, error: &Error) -> bool {
        match pending {
            Pending::Named(_) => error.kind() == ErrorKind::Transient,
            // Its overlays were published or discarded before the node noted it.
            Pending::Remembered(disk) if error.kind() == ErrorKind::Missing => {
                let _ = self.served.forget_unserved(&disk.name);
                false
            }
            Pending::Remembered(_) => true,
        }
    }

    /// Removes a pending disk. Returns false if there is none.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn forget_pending(&self, name: &str) -> Result<bool> {
        let mut pending = self.pending.lock();
        let before = pending.len();
        pending.retain(|pending| pending.name() != name);
        if pending.len() == before {
            return Ok(false);
        }
        self.served.forget_unserved(name).map(|()| true)
    }

    /// Runs the background work until the process stops.
    pub(super) fn run(self: &Arc<Self>) {
        let served = &self.served;
        let Some(cache) = served.store().cache() else { return };
        if let Err(error) = self.start_reporting() {
            served.tell(&LiveEvent::Note(error.to_string()));
        }
        let mut sync_due = Instant::now() + SYNC_EVERY;
        loop {
            cache.notes().into_iter().for_each(|note| served.tell(&LiveEvent::Note(note)));
            let stopped = served.stop().load(Ordering::Relaxed);
            if stopped || Instant::now() >= sync_due {
                // The cache notes failures.
                let _ = cache.cache().sync();
                sync_due = Instant::now() + SYNC_EVERY;
            }
            if stopped {
                return;
            }
            thread::sleep(NOTES_LOOK);
        }
    }

    /// Starts the thread that talks to the origin. Nothing waits for it, because an origin may not answer for long.
    fn start_reporting(self: &Arc<Self>) -> Result<()> {
        if self.served.request().node.is_none() {
            return Ok(());
        }
        self.served.listen_for_revisions()?;
        let weak = Arc::downgrade(self);
        let report = move || {
            let (mut report_due, mut attach_due) = (Instant::now(), Instant::now() + ATTACH_EVERY);
            let (mut strange, mut reported) = (0, Instant::now());
            let (mut versions_due, mut locks_due) = (Instant::now(), Instant::now());
            while let Some(agent) = weak.upgrade() {
                let served = &agent.served;
                if served.stop().load(Ordering::Relaxed) {
                    return;
                }
                let now_strange = served.store().remote().map_or(0, |store| store.fetcher().strangers());
                // An unknown node may have just reported to the origin.
                let is_asked_for = now_strange != strange && Instant::now() >= reported + STRANGER_PAUSE;
                if Instant::now() >= report_due || is_asked_for || served.hoarding.has_news() {
                    (strange, reported) = (now_strange, Instant::now());
                    report_due = Instant::now() + agent.report();
                }
                if Instant::now() >= versions_due {
                    // The reply is stored in the cache's directory.
                    let asked =
                        served.store().remote().map_or(Ok(Vec::new()), |store| store.origin().versions());
                    let pause = if asked.is_ok() { VERSIONS_EVERY } else { ATTACH_EVERY };
                    versions_due = Instant::now() + pause;
                }
                served.record_boots();
                if Instant::now() >= locks_due {
                    // If this fails, the last result counts until the next check.
                    let _ = served.locks.look(served.store(), &served.statuses());
                    locks_due = Instant::now() + LOCKS_EVERY;
                }
                if Instant::now() >= attach_due {
                    agent.try_pending();
                    attach_due = Instant::now() + ATTACH_EVERY;
                }
                drop(agent);
                thread::sleep(LOOK);
            }
        };
        let started = thread::Builder::new().name("node".to_owned()).spawn(report);
        started.map(drop).context(|| "starting the reporting thread".to_owned())
    }

    /// Reports this node to the origin. Returns the time until the next report.
    fn report(&self) -> Duration {
        let served = &self.served;
        let (Some(node), Some(store), Some(cache)) =
            (&served.request().node, served.store().remote(), served.store().cache())
        else {
            return REPORT_SELDOM;
        };
        let disks = served.statuses().into_iter().map(|disk| ReportedDisk {
            edit_lock_holder: disk.holder,
            name: disk.disk,
            image: disk.base,
            writable: disk.writable,
        });
        // The origin may have been down when this node started.
        let _ = share(served);
        let peers = Some(store.fetcher()).filter(|fetcher| fetcher.shares());
        let counts = peers.map(|fetcher| fetcher.counts());
        let report = NodeReport {
            id: cache.cache().id().to_string(),
            name: node.name.clone(),
            peer_address: peers.and_then(|fetcher| fetcher.address()),
            fingerprint: peers.and_then(|fetcher| fetcher.fingerprint()).map(str::to_owned),
            hoard_revision: Some(served.hoarding.revision()),
            counters: counters_of(&cache.counters(), counts.as_ref()),
            disks: disks.collect(),
        };
        match store.origin().report(&report) {
            Err(error) if error.kind() == ErrorKind::Missing => REPORT_SELDOM,
            // An origin that is down gets the report later.
            Err(_) => REPORT_EVERY,
            Ok(answer) => {
                served.follow_hoard(answer.hoard_revision);
                let may_write = answer.role >= Role::Write;
                served.boots().into_iter().for_each(|boots| boots.set_allowed(may_write));
                let learned = peers.map_or(Ok(()), |peers| peers.learn(&KnownNode::all_of(&answer.nodes)));
                if let Err(error) = learned {
                    served.tell(&LiveEvent::Note(format!(
                        "the list of other nodes could not be saved: {error}"
                    )));
                }
                REPORT_EVERY
            }
        }
    }

    /// Retries pending disks.
    fn try_pending(&self) {
        let waiting = self.pending.lock().clone();
        let failed = self.attach_together(waiting.clone());
        for pending in waiting {
            let error = failed.iter().find(|(other, _)| *other == pending).map(|(_, error)| error);
            if error.is_some_and(|error| self.is_tried_again(&pending, error)) {
                continue;
            }
            let was_detached = !self.take_pending(&pending);
            match (error, self.attached(pending.name())) {
                (Some(error), _) => {
                    self.served.tell(&LiveEvent::Note(format!("{}: {error}", pending.name())));
                }
                // A detach was requested while the disk was opened.
                (None, Some(_)) if was_detached => self.detach(pending.name()),
                (None, Some(attached)) => self.served.tell(&LiveEvent::Attached(&attached)),
                (None, None) => {}
            }
        }
    }

    /// Removes a disk from the pending ones. Returns false if it was not among them.
    fn take_pending(&self, pending: &Pending) -> bool {
        let mut all = self.pending.lock();
        let before = all.len();
        all.retain(|other| other != pending);
        all.len() < before
    }

    fn detach(&self, name: &str) {
        let detached = self
            .served
            .disk(name)
            .and_then(|disk| self.served.detach(&disk, OnDetach::Keep, &self.served.words(&disk)));
        if let Err(error) = detached {
            self.served.tell(&LiveEvent::Note(format!("{name}: {error}")));
        }
    }

    fn attached(&self, name: &str) -> Option<Attached> {
        self.served.attached().ok()?.into_iter().find(|disk| disk.disk == name)
    }
}

/// Starts sharing with other nodes, if it is requested and not done yet. Disks that are already served continue without
/// peers.
fn share(served: &Served) -> Result<()> {
    let wanted = served.request().node.as_ref().and_then(|node| node.sharing.as_ref());
    match (wanted, served.store().remote(), served.store().cache()) {
        (Some(request), Some(store), Some(_)) => store.share(request),
        _ => Ok(()),
    }
}

impl Pending {
    fn name(&self) -> &str {
        match self {
            Self::Named(request) => &request.version,
            Self::Remembered(disk) => &disk.name,
        }
    }
}
