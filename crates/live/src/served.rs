//! The disks that this process serves, for all its servers: attaching, publishing and detaching them.
//!
//! Whether a disk is writable is a property of the disk, not of the process. Owns the table of disks; `opener` opens
//! disks, `answering` executes requests of the control socket.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use platter_export::tree::Tree;
use platter_export::{Exports, RestrictedTree};
use platter_image::{Error, ErrorKind, IoContext, Result, Score};
use platter_vdisk::{BlockDevice, Source};

use super::address::TreeAccess;
use super::attach::AttachRequest;
use super::attached::{Attached, cache_status};
use super::boots::BootRecorder;
use super::control::{Answer, Words, write_line};
use super::disk_request::{DiskRequest, OnDetach};
use super::estate::Claim;
use super::event::{LiveEvent, OnEvent};
use super::fills::{Fills, needs_a_cache};
use super::handover::Handover;
use super::hoarding::Hoarding;
use super::inherited::{Inherited, own_server};
use super::known_locks::KnownLocks;
use super::opener::{OpenedDisk, Opener};
use super::own_server::OwnServer;
use super::publish::{after, end_editing};
use super::publish_report::PublishReport;
use super::record::Recorder;
use super::remembered::{RememberedDisk, RememberedDisks};
use super::served_disk::ServedDisk;
use super::servers::{NbdPort, Server, Uri};
use super::sources::Sources;
use super::tree::ImageTree;
use super::version::publish_disk;
use platter_api::{DiskStatus, ListedDisk};
use platter_fetch::OpenStore;
use platter_jobs::Silent;

/// Interval of checks whether a disk is due to be published.
const PUBLISH_LOOK: Duration = Duration::from_millis(500);

/// The state that all servers of the process share.
pub(super) struct Served {
    request: AttachRequest,
    pub(super) opener: Opener,
    /// The hoard of this machine.
    pub(super) hoarding: Hoarding,
    disks: Mutex<BTreeMap<String, Arc<ServedDisk>>>,
    pub(super) fills: Fills,
    /// Edit locks that are lost, as far as known.
    pub(super) locks: KnownLocks,
    /// The disks that a node serves again after a restart.
    remembered: Option<RememberedDisks>,
    on_event: Arc<OnEvent>,
    /// For each shared server: whether it is an NBD server, and the function for a disk's URI there.
    uris: OnceLock<Vec<(bool, Uri)>>,
    /// The tree that FUSE and 9P serve, while one of them does.
    tree: Mutex<Weak<dyn Tree>>,
    /// The same tree without its access layers.
    image_tree: Mutex<Weak<ImageTree>>,
    /// The handover to a successor.
    pub(super) handover: Arc<Handover>,
    /// The remaining state of a predecessor.
    pub(super) inherited: Mutex<Inherited>,
    /// Whether the process continues without disks, because it serves a tree or is a node.
    goes_on: AtomicBool,
}

/// All disks, as shown in the tree.
impl Exports for Served {
    fn list(&self) -> Vec<String> {
        self.disks().keys().cloned().collect()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>> {
        Ok(self.disk(name)?.opened())
    }
}

/// The disks at the shared NBD address.
struct SharedDisks(Arc<Served>);

impl Exports for SharedDisks {
    fn list(&self) -> Vec<String> {
        let disks = self.0.disks();
        let shared = disks.values().filter(|disk| disk.request.nbd.is_none());
        shared.map(|disk| disk.name().to_owned()).collect()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>> {
        match self.0.disk(name)? {
            disk if disk.request.nbd.is_none() => Ok(disk.opened()),
            _ => Err(Error::missing(format!("{name} is served at an address of its own"))),
        }
    }
}

impl Served {
    /// Opens the store. Serves no disk yet.
    ///
    /// # Errors
    /// `Refused` when this is a node without a cache; the errors of opening the store and the hoard.
    pub(super) fn open(request: AttachRequest, inherited: Inherited, on_event: OnEvent) -> Result<Arc<Self>> {
        let store = OpenStore::open_reader(request.place.store())?;
        if request.node.is_some() && store.cache().is_none() {
            return Err(needs_a_cache());
        }
        let hoarding = Hoarding::open(&request)?;
        let boots = hoarding.boot_recorder(&store, &request);
        let hoard = hoarding.hoard().cloned();
        let sources = Sources::new(store.clone(), request.memory_bytes, hoard.clone())?;
        let sources = sources.recorded(boots).requiring(request.signatures.clone());
        let dir = request.place.dir();
        Ok(Arc::new(Self {
            remembered: request.node.as_ref().map(|_| RememberedDisks::open(dir)).transpose()?,
            opener: Opener { place: request.place.clone(), sources },
            hoarding,
            disks: Mutex::default(),
            fills: Fills::new(store, hoard),
            locks: KnownLocks::default(),
            request,
            on_event: Arc::new(on_event),
            uris: OnceLock::new(),
            tree: Mutex::new(Weak::<ImageTree>::new()),
            image_tree: Mutex::default(),
            handover: Arc::new(Handover::new()?),
            inherited: Mutex::new(inherited),
            goes_on: AtomicBool::new(false),
        }))
    }

    /// Sets the servers.
    pub(super) fn set_servers(&self, servers: &[Server]) {
        let uris = || servers.iter().map(|server| (!server.has_tree, server.uri.clone())).collect();
        self.uris.get_or_init(uris);
        let goes_on = self.request.node.is_some() || servers.iter().any(|server| server.has_tree);
        self.goes_on.store(goes_on, Ordering::Relaxed);
    }

    pub(super) fn request(&self) -> &AttachRequest {
        &self.request
    }

    pub(super) fn store(&self) -> &OpenStore {
        &self.opener.sources.store
    }

    /// Returns the source of a recipe's blocks and pages for its disks.
    pub(super) fn source(&self, score: Score) -> Arc<dyn Source> {
        self.opener.sources.of(score)
    }

    /// The recorder of boots, if there is one.
    pub(super) fn boots(&self) -> Option<&Arc<BootRecorder>> {
        self.opener.sources.boots()
    }

    /// Set to true to end everything.
    pub(super) fn stop(&self) -> &AtomicBool {
        &self.request.stop
    }

    pub(super) fn on_event(&self) -> &Arc<OnEvent> {
        &self.on_event
    }

    /// Reports an event.
    pub(super) fn tell(&self, event: &LiveEvent<'_>) {
        (self.on_event)(event);
    }

    /// Returns the disks for the shared NBD server.
    pub(super) fn shared_exports(self: &Arc<Self>) -> Arc<dyn Exports> {
        Arc::new(SharedDisks(self.clone()))
    }

    /// Returns the tree of all images, which all servers share.
    pub(super) fn tree(self: &Arc<Self>) -> Result<Arc<dyn Tree>> {
        let mut kept = self.tree.lock();
        if let Some(tree) = kept.upgrade() {
            return Ok(tree);
        }
        let tool_version = self.request.tool_version.clone();
        let tree =
            ImageTree::open(&self.request.place, self.opener.sources.clone(), self.clone(), tool_version)?;
        if let Some(nodes) = self.inherited.lock().take_nodes() {
            tree.restore_nodes(nodes);
        }
        let tree = Arc::new(tree);
        *self.image_tree.lock() = Arc::downgrade(&tree);
        let tree: Arc<dyn Tree> = match self.request.servers.tree_access {
            TreeAccess::ReadOnly => Arc::new(RestrictedTree::read_only(tree)),
            TreeAccess::Disks => Arc::new(RestrictedTree::fixed_names(tree)),
            TreeAccess::Names => tree,
        };
        *kept = Arc::downgrade(&tree);
        Ok(tree)
    }

    fn disks(&self) -> MutexGuard<'_, BTreeMap<String, Arc<ServedDisk>>> {
        self.disks.lock()
    }

    fn all(&self) -> Vec<Arc<ServedDisk>> {
        self.disks().values().cloned().collect()
    }

    pub(super) fn disk(&self, name: &str) -> Result<Arc<ServedDisk>> {
        let disk = self.disks().get(name).cloned();
        disk.ok_or_else(|| Error::missing(format!("no disk {name} is attached here")))
    }

    pub(super) fn is_attached(&self, name: &str) -> bool {
        self.disks().contains_key(name)
    }

    /// Whether nothing is served any more, and the process can end.
    pub(super) fn is_done(&self) -> bool {
        self.disks().is_empty() && !self.goes_on.load(Ordering::Relaxed)
    }

    /// Returns the disks that a node served when it ended.
    pub(super) fn remembered(&self) -> Vec<RememberedDisk> {
        self.remembered.as_ref().map(RememberedDisks::all).unwrap_or_default()
    }

    /// Attaches a disk. Returns its name. An edit lock that was taken for a disk that then cannot be served is
    /// released.
    ///
    /// # Errors
    /// As [`Opener::open`]; `Refused` when it is already attached, or its own address is in use; `Io`.
    pub(super) fn attach(self: &Arc<Self>, request: &DiskRequest) -> Result<String> {
        if request.fill && self.store().cache().is_none() {
            return Err(needs_a_cache());
        }
        // Its address first: if it is in use, no edit lock is taken.
        let port = request.nbd.as_ref().map(|address| NbdPort::open(address, None)).transpose()?;
        let opened = self.opener.open(request, &|name| self.check_name(name))?;
        self.begin(opened, request.clone(), port)
    }

    /// Attaches a disk again that was served before.
    ///
    /// # Errors
    /// As [`Opener::reopen`].
    pub(super) fn reattach(self: &Arc<Self>, remembered: &RememberedDisk) -> Result<String> {
        self.check_name(&remembered.name)?;
        // A trace belongs to one process: the file is complete, or never will be.
        let request = DiskRequest { record: None, ..remembered.request.clone() };
        let inherited = self.inherited.lock().take(&own_server(&remembered.name));
        let port = request.nbd.as_ref().map(|address| NbdPort::open(address, inherited)).transpose()?;
        self.begin(self.opener.reopen(remembered)?, request, port)
    }

    /// Hands everything over to the process at the other end of this connection; this process then has to end.
    ///
    /// # Errors
    /// `Transient` when something is under way that cannot move; this process then continues.
    pub(super) fn hand_over(&self, successor: &Claim, stream: &UnixStream) -> Result<()> {
        self.request().claim().check(successor)?;
        if let Some(disk) = self.all().iter().find(|disk| disk.disk.is_publishing()) {
            return Err(Error::transient(format!("{} is being published", disk.name())));
        }
        if self.fills.holds_any() {
            return Err(Error::transient("a version is being cast"));
        }
        let tree = self.image_tree.lock().upgrade();
        let nodes = tree.map(|tree| tree.nodes()).transpose()?;
        self.handover.hand_over(stream, nodes, |estate| {
            write_line(stream, &Answer::Estate(estate)).context(|| "answering the successor".into())
        })
    }

    fn check_name(&self, name: &str) -> Result<()> {
        match self.is_attached(name) {
            true => Err(Error::refused(format!("{name} is attached already"))),
            false => Ok(()),
        }
    }

    fn begin(
        self: &Arc<Self>,
        mut opened: OpenedDisk,
        request: DiskRequest,
        port: Option<NbdPort>,
    ) -> Result<String> {
        if let Some(note) = opened.note.take() {
            self.tell(&LiveEvent::Note(note));
        }
        let (disk, recorder) = (&opened.disk, request.record.as_deref());
        let start = |file| Recorder::start(file, disk.name.clone(), disk.state()?.0, disk.length());
        let (recorder, failed) = match recorder.map(start).transpose() {
            Ok(recorder) => (recorder, None),
            Err(error) => (None, Some(error)),
        };
        let disk = Arc::new(ServedDisk::new(opened, request, recorder));
        let begun = failed.map_or(Ok(()), Err).and_then(|()| self.serve(&disk, port));
        match begun {
            Ok(()) => Ok(disk.name().to_owned()),
            Err(error) => {
                self.release_unwritten(&disk);
                Err(error)
            }
        }
    }

    fn serve(self: &Arc<Self>, disk: &Arc<ServedDisk>, port: Option<NbdPort>) -> Result<()> {
        let name = disk.name();
        match self.disks().entry(name.to_owned()) {
            Entry::Vacant(entry) => entry.insert(disk.clone()),
            Entry::Occupied(_) => return Err(Error::refused(format!("{name} is attached already"))),
        };
        let begin = || -> Result<()> {
            if let Some((port, address)) = port.zip(disk.request.nbd.as_ref()) {
                disk.set_own_server(OwnServer::start(port, address, disk, self)?);
            }
            self.remember(disk, disk.request.fill)?;
            match disk.request.fill {
                true => self.fill(name, disk.disk.state()?.0),
                false => Ok(()),
            }
        };
        begin().inspect_err(|_| {
            disk.end_own_server();
            self.disks().remove(name);
            let _ = self.fills.stop(name);
            // A remembered disk that cannot be served is retried after a restart.
            let _ = self.forget(name);
        })
    }

    /// Releases an edit lock that was taken for this attachment, if nothing was written under it.
    fn release_unwritten(&self, disk: &ServedDisk) {
        disk.disk.set_open(false);
        if disk.edit_lock_is_new && disk.disk.state().is_ok_and(|(_, written)| written == 0) {
            let _ = self.forget(disk.name());
            if let Err(error) = end_editing(&disk.disk, self.store()) {
                self.tell(&LiveEvent::Note(format!("{}: {error}", disk.name())));
            }
        }
    }

    /// Undoes an attach, because another disk of the same request cannot be attached.
    pub(super) fn withdraw(&self, name: &str) {
        let Ok(disk) = self.disk(name) else { return };
        self.release_unwritten(&disk);
        for done in [self.forget(name), self.fills.stop(name), self.close(&disk)] {
            self.note_failure(name, done);
        }
    }

    /// Undoes a fill that was begun on an attached disk, as [`Served::withdraw`] does with a disk.
    pub(super) fn withdraw_fill(&self, name: &str) {
        let remembered = self.disk(name).and_then(|disk| self.remember(&disk, false));
        for done in [remembered, self.fills.stop(name)] {
            self.note_failure(name, done);
        }
    }

    fn note_failure(&self, name: &str, done: Result<()>) {
        if let Err(error) = done {
            self.tell(&LiveEvent::Note(format!("{name}: {error}")));
        }
    }

    /// Notes that a node should serve a disk again after a restart.
    pub(super) fn remember(&self, disk: &ServedDisk, fill: bool) -> Result<()> {
        let Some(all) = &self.remembered else { return Ok(()) };
        let mut remembered = disk.remembered()?;
        remembered.request.fill = fill;
        all.add(remembered)
    }

    /// Notes that a node should not serve a disk after a restart.
    pub(super) fn forget(&self, name: &str) -> Result<()> {
        self.remembered.as_ref().map_or(Ok(()), |all| all.remove(name))
    }

    /// Notes that a disk that is not served should not be served after a restart either, and removes its pins.
    pub(super) fn forget_unserved(&self, name: &str) -> Result<()> {
        self.forget(name)?;
        self.unpin_forgotten()
    }

    /// Removes the pins of filled disks that are neither served nor remembered. They are left when a process was killed.
    pub(super) fn unpin_forgotten(&self) -> Result<()> {
        if self.remembered.is_none() {
            return Ok(());
        }
        let remembered = self.remembered().into_iter().filter(|disk| disk.request.fill);
        let kept = remembered.map(|disk| disk.base()).collect::<Result<Vec<Score>>>()?;
        self.fills.unpin_others(&kept)
    }

    /// Starts to fill a disk.
    pub(super) fn fill(self: &Arc<Self>, name: &str, score: Score) -> Result<()> {
        self.fills.start(name, score, self.on_filled(name))
    }

    fn on_filled(self: &Arc<Self>, name: &str) -> impl Fn() + Send + use<> {
        let (served, disk) = (Arc::downgrade(self), name.to_owned());
        move || {
            if let Some(served) = served.upgrade() {
                served.tell(&LiveEvent::Filled { disk: &disk });
            }
        }
    }

    pub(super) fn attached(&self) -> Result<Vec<Attached>> {
        self.all().iter().map(|disk| self.attached_disk(disk)).collect()
    }

    pub(super) fn attached_disk(&self, disk: &ServedDisk) -> Result<Attached> {
        disk.attached(self.uris.get().map_or(&[], |uris| uris))
    }

    /// Returns the status of every disk. A disk that is just being detached is left out.
    pub(super) fn statuses(&self) -> Vec<DiskStatus> {
        let status = |disk: &Arc<ServedDisk>| Some(self.status(disk, self.attached_disk(disk).ok()?));
        self.all().iter().filter_map(status).collect()
    }

    /// The same, with whether their edit locks are lost.
    pub(super) fn listed(&self) -> Vec<ListedDisk> {
        let statuses = self.statuses().into_iter();
        let listed = statuses.map(|status| ListedDisk { lost: self.locks.is_lost(&status), status });
        listed.collect()
    }

    fn status(&self, disk: &ServedDisk, attached: Attached) -> DiskStatus {
        let edit_lock = disk.disk.writing().map(|writing| &writing.edit_lock);
        DiskStatus {
            holder: edit_lock.map(|edit_lock| edit_lock.holder.clone()),
            edit_lock: edit_lock.map(|edit_lock| edit_lock.number),
            fill: self.fills.status(&attached.disk),
            disk: attached.disk,
            base: attached.base,
            disk_bytes: attached.disk_bytes,
            writable: attached.writable,
            written_bytes: Some(attached.written_bytes),
            exports: attached.exports,
            process: Some(std::process::id()),
            cache: Some(cache_status(self.opener.sources.memory.counters())),
            node: self.store().cache().map(|cache| cache.counters()),
        }
    }

    pub(super) fn publish(self: &Arc<Self>, disk: &ServedDisk, words: &Words) -> Result<PublishReport> {
        let report = publish_disk(&disk.disk, &self.opener.sources, words, &Silent)?;
        if let Some(tree) = self.image_tree.lock().upgrade() {
            tree.changed();
        }
        self.tell(&LiveEvent::Published(&report));
        if words.branch.is_none() && self.fills.score(disk.name()).is_some() {
            let score = disk.disk.state()?.0;
            // First, because a restarted node removes the pins of versions that it does not remember.
            self.remembered.as_ref().map_or(Ok(()), |all| all.set_base(disk.name(), score))?;
            self.fills.follow(disk.name(), score, self.on_filled(disk.name()))?;
        }
        Ok(report)
    }

    /// Detaches a disk. If publishing fails, it stays attached.
    pub(super) fn detach(
        self: &Arc<Self>,
        disk: &ServedDisk,
        then: OnDetach,
        words: &Words,
    ) -> Result<Option<PublishReport>> {
        // First, so that no acknowledged write comes after the published state and is removed with the overlay.
        disk.disk.set_open(false);
        let publish = then == OnDetach::Publish && disk.disk.is_writable() && disk.disk.state()?.1 > 0;
        let last = match publish.then(|| self.publish(disk, words)).transpose() {
            // Meanwhile `--publish-every` published everything, and nothing was left for this one.
            Err(error) if error.kind() == ErrorKind::Refused && disk.disk.state()?.1 == 0 => Ok(None),
            last => last,
        };
        // Before the overlay is removed, because a remembered disk needs one.
        let report = last.and_then(|report| self.forget(disk.name()).map(|()| report));
        let report = report.inspect_err(|_| disk.disk.set_open(true))?;
        let kept = disk.disk.is_writable() && then == OnDetach::Keep;
        let closed = self.close(disk);
        let closed = match self.fills.stop(disk.name()) {
            stopped if closed.is_ok() => stopped,
            stopped => {
                self.note_failure(disk.name(), stopped);
                closed
            }
        };
        if disk.disk.is_writable() && !kept {
            let ended = end_editing(&disk.disk, self.store());
            ended.map_err(|error| report.iter().fold(error, |error, report| after(report, error)))?;
        }
        closed?;
        self.tell(&LiveEvent::Detached { disk: disk.name(), kept });
        Ok(report)
    }

    /// Ends all use of a disk. Its writes are durable and stay.
    fn close(&self, disk: &ServedDisk) -> Result<()> {
        self.disks().remove(disk.name());
        disk.end_own_server();
        disk.disk.detach()?;
        if let Some(recorder) = disk.recorder() {
            self.tell(&LiveEvent::Recorded(&recorder.finish()?));
        }
        Ok(())
    }

    /// Ends gracefully. A node keeps its disks for a restart; in other processes, each disk's `on_detach` decides about
    /// its changes.
    ///
    /// # Errors
    /// The first error; all disks are tried.
    pub(super) fn detach_all(self: &Arc<Self>) -> Result<()> {
        let mut first = Ok(());
        for disk in self.all() {
            let detached = match self.remembered {
                Some(_) => self.close(&disk).map(|()| self.tell(&LiveEvent::Stopped { disk: disk.name() })),
                None => self.detach(&disk, disk.on_detach(), &self.words(&disk)).map(drop),
            };
            first = first.and(detached);
        }
        first
    }

    /// Ends because of a failure: changes stay for the next process, and edit locks without writes are released.
    pub(super) fn give_up(&self) {
        for disk in self.all() {
            self.release_unwritten(&disk);
            if let Err(error) = self.close(&disk) {
                self.tell(&LiveEvent::Note(format!("{}: {error}", disk.name())));
            }
        }
    }

    /// Returns labels and notes from a disk's request.
    pub(super) fn words(&self, disk: &ServedDisk) -> Words {
        let notes = disk.write().map(|write| write.notes.clone()).unwrap_or_default();
        Words { notes, tool_version: self.request.tool_version.clone(), ..Words::default() }
    }

    pub(super) fn publish_now_and_then(self: &Arc<Self>) {
        while !self.stop().load(Ordering::Relaxed) {
            thread::sleep(PUBLISH_LOOK);
            let now = Instant::now();
            for disk in self.all().iter().filter(|disk| disk.take_publish_due(now)) {
                match self.publish(disk, &self.words(disk)) {
                    Err(error)
                        if error.kind() == ErrorKind::Refused
                            && disk.disk.state().is_ok_and(|it| it.1 == 0) => {}
                    Err(error) => self.tell(&LiveEvent::Note(format!("{}: {error}", disk.name()))),
                    Ok(_) => {}
                }
            }
        }
    }
}
