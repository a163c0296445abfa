//! The disks that this process serves, for all its servers: attaching, publishing and detaching them, and answers to
//! those who ask by the control socket.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use platter_export::tree::Tree;
use platter_export::{Exports, ReadOnlyTree};
use platter_image::{Error, ErrorKind, Result, Score};
use platter_store::{HoardMember, HoardSnapshot, ImageName, NumberChoice, Resolved, Token, VersionQuery};
use platter_vdisk::BlockDevice;

use super::agent::Agent;
use super::attach::{AttachRequest, Attached, LiveEvent, OnEvent};
use super::control::{self, Answer, ControlSocket, DiskStatus, OnDetach, Question, Words};
use super::disk::{Base, LiveDisk};
use super::hoarding::Hoarding;
use super::overlays;
use super::publish::{PublishReport, end_editing, open_left};
use super::record::Recorder;
use super::servers::{Server, Uri};
use super::sources::Sources;
use super::tree::ImageTree;
use super::version::publish_disk;
use crate::{OpenStore, Silent};

/// How often it is looked whether a disk is to be published.
const PUBLISH_LOOK: Duration = Duration::from_millis(500);

/// What all servers of the process share.
pub(super) struct Served {
    request: AttachRequest,
    sources: Sources,
    /// Boot sets that are kept on this machine.
    pub(super) hoarding: Hoarding,
    disks: Mutex<BTreeMap<String, Arc<LiveDisk>>>,
    recorder: OnceLock<Recorder>,
    on_event: OnEvent,
    /// How clients of each server write a disk.
    uris: OnceLock<Vec<Uri>>,
    /// What FUSE and 9P serve: one tree, as long as one of them does.
    tree: Mutex<Weak<dyn Tree>>,
    /// A tree is served, or this is a node, so this goes on without disks.
    has_tree: AtomicBool,
    /// What a node has beside.
    pub(super) agent: Agent,
}

impl Exports for Served {
    fn list(&self) -> Vec<String> {
        self.disks().keys().cloned().collect()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>> {
        let disk = self.disk(name)?;
        Ok(self.recorder.get().map_or(disk.clone() as _, |recorder| recorder.over(disk)))
    }
}

impl Served {
    /// Opens the store, to serve no disk yet.
    pub(super) fn open(request: AttachRequest, on_event: OnEvent) -> Result<Arc<Self>> {
        let store = OpenStore::open_reader(request.place.store())?;
        let hoarding = Hoarding::open(&request)?;
        Ok(Arc::new(Self {
            agent: Agent::open(&store, &request)?,
            sources: Sources::new(store, request.cache_bytes, hoarding.hoard().cloned())?,
            hoarding,
            disks: Mutex::default(),
            recorder: OnceLock::new(),
            request,
            on_event,
            uris: OnceLock::new(),
            tree: Mutex::new(Weak::<ImageTree>::new()),
            has_tree: AtomicBool::new(false),
        }))
    }

    /// Notes which servers there are.
    pub(super) fn set_servers(&self, servers: &[Server]) {
        self.uris.get_or_init(|| servers.iter().map(|server| server.uri.clone()).collect());
        let goes_on = self.request.node.is_some() || servers.iter().any(|server| server.has_tree);
        self.has_tree.store(goes_on, Ordering::Relaxed);
    }

    pub(super) fn request(&self) -> &AttachRequest {
        &self.request
    }

    /// The tree of all images, the same for all who serve it. What was not served to be written is only read.
    pub(super) fn tree(self: &Arc<Self>) -> Result<Arc<dyn Tree>> {
        let mut kept = self.tree.lock();
        if let Some(tree) = kept.upgrade() {
            return Ok(tree);
        }
        let (place, tool_version) = (&self.request.place, self.request.tool_version.clone());
        let tree = ImageTree::open(place, self.sources.clone(), self.clone(), tool_version)?;
        let tree: Arc<dyn Tree> = match self.request.write {
            true => Arc::new(tree),
            false => Arc::new(ReadOnlyTree::over(Arc::new(tree))),
        };
        *kept = Arc::downgrade(&tree);
        Ok(tree)
    }

    /// Tells what happens.
    pub(super) fn tell(&self, event: &LiveEvent<'_>) {
        (self.on_event)(event);
    }

    fn disks(&self) -> MutexGuard<'_, BTreeMap<String, Arc<LiveDisk>>> {
        self.disks.lock()
    }

    fn disk(&self, name: &str) -> Result<Arc<LiveDisk>> {
        let disk = self.disks().get(name).cloned();
        disk.ok_or_else(|| Error::missing(format!("no disk {name} is attached here")))
    }

    /// Serves a version; gives the name of its disk.
    pub(super) fn attach(self: &Arc<Self>, version: &str, fill: bool) -> Result<String> {
        let disk = match self.sources.store.resolve(version) {
            Err(error) if error.kind() == ErrorKind::Transient && self.request.write => {
                self.go_on(version, error)?
            }
            resolved => {
                let (resolved, name) = self.named(version, resolved)?;
                if !self.request.write {
                    self.attach_read_only(&name, resolved.score, fill)?;
                    return Ok(name);
                }
                self.open_writable(name, version, resolved)?
            }
        };
        let name = disk.name.clone();
        self.insert(name.clone(), disk)?;
        Ok(name)
    }

    fn insert(&self, name: String, disk: LiveDisk) -> Result<()> {
        match self.disks().entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(Arc::new(disk));
                Ok(())
            }
            Entry::Occupied(entry) => Err(Error::refused(format!("{} is attached already", entry.key()))),
        }
    }

    /// Serves a score under that name; with `fill`, all of it is fetched.
    pub(super) fn attach_read_only(self: &Arc<Self>, name: &str, score: Score, fill: bool) -> Result<()> {
        let disk = LiveDisk::read_only(name.to_owned(), Base::open(&self.sources, score)?);
        self.insert(name.to_owned(), disk)?;
        self.begin_filling(name, score, fill)
    }

    fn open_writable(&self, name: String, version: &str, resolved: Resolved) -> Result<LiveDisk> {
        let version = resolved.version.ok_or_else(|| {
            Error::refused(format!("{version} is a bare score: clone it to a name to write to it"))
        })?;
        let (image, number) = (version.record.image, version.record.number);
        let newest = self.sources.store.resolve(image.as_str())?;
        if newest.score != resolved.score {
            return Err(Error::refused(format!(
                "{image}@{number} is not the newest version, and publishing it would undo those after it: clone it to another name, or with --next"
            )));
        }
        let token = self.take_token(&image)?;
        // Somebody may have published until the token was ours; nobody does from now on.
        let score = self.sources.store.resolve(image.as_str())?.score;
        LiveDisk::writable(name, &self.request.place, &self.sources, (image, token), score)
    }

    /// Opens a disk that was written here before, while the origin is away, as `error` says. Whether its token is still ours is
    /// known when it is published.
    fn go_on(&self, version: &str, error: Error) -> Result<LiveDisk> {
        let place = &self.request.place;
        let newest = match version.parse()? {
            VersionQuery::Named(image, NumberChoice::Latest) if !self.request.steal => {
                // Token numbers ascend: what lies there under lower ones is lost.
                overlays::list(place.dir())?.into_iter().rfind(|(name, _)| *name == image)
            }
            _ => None,
        };
        let Some((image, number)) = newest else { return Err(error) };
        self.tell(&LiveEvent::Note(format!(
            "{error}: continuing with the local changes to {image} under edit lock {number}"
        )));
        open_left(place, &self.sources, &image, number, &self.request.holder).map_err(|error| {
            let dir = place.dir().display();
            error.within(format!(
                "{image} cannot be opened without its origin, which has the pages of its recipe; what was written to it \
                 is kept in {dir}"
            ))
        })
    }

    /// What a version is, and what its disk is called. An origin that is away need not be asked for what is in the hoard.
    pub(super) fn named(&self, version: &str, resolved: Result<Resolved>) -> Result<(Resolved, String)> {
        let hoarded = |error: Error| match self.sources.hoard() {
            Some(hoard) if error.kind() == ErrorKind::Transient => {
                let snapshot = hoard.snapshot();
                let found = hoarded_version(&snapshot, version).ok_or(error)?;
                let score = found.record.score;
                Ok((Resolved { score, version: None }, found.version.image.to_string()))
            }
            _ => Err(error),
        };
        resolved.map_or_else(hoarded, |resolved| {
            let name = match &resolved.version {
                Some(version) => version.record.image.to_string(),
                None => resolved.score.to_string(),
            };
            Ok((resolved, name))
        })
    }

    pub(super) fn start_recording(&self) -> Result<()> {
        let Some(file) = &self.request.record else { return Ok(()) };
        let disks: Vec<_> = self.disks().values().cloned().collect();
        let [disk] = &disks[..] else {
            return Err(Error::refused("a trace is of one disk: attach the others by themselves"));
        };
        let recorder = Recorder::start(file, disk.name.clone(), disk.state()?.0, disk.length())?;
        self.recorder.set(recorder).map_err(|_| Error::bug("a disk that is recorded twice"))
    }

    pub(super) fn finish_recording(&self) -> Result<()> {
        let Some(recorder) = self.recorder.get() else { return Ok(()) };
        self.tell(&LiveEvent::Recorded(&recorder.finish()?));
        Ok(())
    }

    /// The image's token: this holder's, if an earlier process left it, or a new one.
    fn take_token(&self, image: &ImageName) -> Result<Token> {
        let (holder, steal) = (&self.request.holder, self.request.steal);
        let held = self.sources.store.token(image)?.filter(|token| token.holder == *holder && !steal);
        held.map_or_else(|| self.sources.store.take_token(image, holder, steal), Ok)
    }

    pub(super) fn store(&self) -> &OpenStore {
        &self.sources.store
    }

    pub(super) fn attached(&self) -> Result<Vec<Attached>> {
        let status = |disk: &LiveDisk| -> Result<Attached> {
            let (base, written_bytes) = disk.state()?;
            Ok(Attached {
                disk: disk.name.clone(),
                base: base.to_string(),
                disk_bytes: disk.length(),
                writable: disk.is_writable(),
                written_bytes,
                exports: self.uris.get().into_iter().flatten().map(|uri| uri(&disk.name)).collect(),
            })
        };
        self.disks().values().map(|disk| status(disk)).collect()
    }

    pub(super) fn answer_questions(self: &Arc<Self>, control: &ControlSocket) {
        thread::scope(|scope| {
            while let Ok((stream, _)) = control.listener.accept() {
                if self.request.stop.load(Ordering::Relaxed) {
                    return;
                }
                scope.spawn(move || control::answer(stream, &|question| self.answer(question)));
            }
        });
    }

    pub(super) fn answer(self: &Arc<Self>, question: Question) -> Result<Answer> {
        match question {
            Question::Disks => {
                let disks = self.attached()?.into_iter().map(|attached| self.status(attached));
                Ok(Answer::Disks(disks.collect()))
            }
            Question::Attach { version, fill } => Ok(Answer::Attached(self.attach_asked(&version, fill)?)),
            Question::Publish { disk, words } => {
                Ok(Answer::Published(self.publish(&*self.disk(&disk)?, &words)?))
            }
            Question::Detach { disk, then, words } => {
                let report = self.detach(&*self.disk(&disk)?, then, &words)?;
                self.forget_disk(&disk)?;
                if self.disks().is_empty() && !self.has_tree.load(Ordering::Relaxed) {
                    self.request.stop.store(true, Ordering::Relaxed);
                }
                Ok(Answer::Detached(report))
            }
        }
    }

    pub(super) fn status(&self, attached: Attached) -> DiskStatus {
        let attached_disk = attached.disk.clone();
        let disk = self.disk(&attached.disk).ok();
        let token = disk.as_ref().and_then(|disk| Some(&disk.writing()?.token));
        DiskStatus {
            holder: token.map(|token| token.holder.clone()),
            token: token.map(|token| token.number),
            disk: attached.disk,
            base: attached.base,
            disk_bytes: attached.disk_bytes,
            writable: attached.writable,
            written_bytes: Some(attached.written_bytes),
            exports: attached.exports,
            process: Some(std::process::id()),
            cache: Some(self.sources.memory.counters().into()),
            fill: self.agent.fill_status(&attached_disk),
            node: self.sources.store.cache().map(|cache| cache.counters()),
        }
    }

    fn publish(&self, disk: &LiveDisk, words: &Words) -> Result<PublishReport> {
        let report = publish_disk(disk, &self.sources, words, &Silent)?;
        self.tell(&LiveEvent::Published(&report));
        Ok(report)
    }

    /// Stops serving a disk. If it cannot be published, it is served on.
    fn detach(&self, disk: &LiveDisk, then: OnDetach, words: &Words) -> Result<Option<PublishReport>> {
        // First, so that no write comes after what is published, and is told done, and goes with the overlay.
        disk.set_open(false);
        let report = self.publish_last(disk, then, words).inspect_err(|_| disk.set_open(true))?;
        self.disks().remove(&disk.name);
        disk.detach()?;
        let kept = disk.is_writable() && then == OnDetach::Keep;
        if disk.is_writable() && !kept {
            end_editing(disk, &self.sources.store)?;
        }
        self.tell(&LiveEvent::Detached { disk: &disk.name, kept });
        Ok(report)
    }

    /// What becomes of a disk that nobody writes any more, if it is to be published.
    fn publish_last(&self, disk: &LiveDisk, then: OnDetach, words: &Words) -> Result<Option<PublishReport>> {
        let wanted = then == OnDetach::Publish && disk.is_writable() && disk.state()?.1 > 0;
        wanted.then(|| self.publish(disk, words)).transpose()
    }

    pub(super) fn detach_all(&self) -> Result<()> {
        let disks: Vec<_> = self.disks().values().cloned().collect();
        let mut first = Ok(());
        for disk in disks {
            let detached = self.detach(&disk, self.request.on_detach, &self.words());
            first = first.and(detached.map(drop));
        }
        first
    }

    fn words(&self) -> Words {
        Words {
            notes: self.request.notes.clone(),
            tool_version: self.request.tool_version.clone(),
            ..Words::default()
        }
    }

    pub(super) fn publish_now_and_then(&self) {
        let Some(interval) = self.request.publish_every else { return };
        let mut due = Instant::now() + interval;
        while !self.request.stop.load(Ordering::Relaxed) {
            thread::sleep(PUBLISH_LOOK.min(interval));
            if Instant::now() < due {
                continue;
            }
            due = Instant::now() + interval;
            let disks: Vec<_> = self.disks().values().cloned().collect();
            for disk in disks.iter().filter(|disk| disk.is_writable()) {
                match self.publish(disk, &self.words()) {
                    Err(error)
                        if error.kind() == ErrorKind::Refused && disk.state().is_ok_and(|it| it.1 == 0) => {}
                    Err(error) => self.tell(&LiveEvent::Note(format!("{}: {error}", disk.name))),
                    Ok(_) => {}
                }
            }
        }
    }
}

/// The member of a hoard that a name or a score stands for; of an image, the one of the highest number.
fn hoarded_version<'a>(hoard: &'a HoardSnapshot, text: &str) -> Option<&'a HoardMember> {
    let query: VersionQuery = text.parse().ok()?;
    let fits = |member: &&HoardMember| match &query {
        VersionQuery::Named(image, NumberChoice::Latest) => member.version.image == *image,
        VersionQuery::Named(image, NumberChoice::Number(number)) => {
            member.version.image == *image && member.version.number == *number
        }
        VersionQuery::Score(score) => member.record.score == *score,
    };
    hoard.members.iter().filter(fits).max_by_key(|member| member.version.number)
}
