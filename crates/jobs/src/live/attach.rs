//! Serves disks until it is told to stop, or the last one is detached.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use platter_export::Exports;
use platter_export::nbd::{NbdEvent, NbdListener, NbdOptions, NbdServer, NbdTls};
use platter_image::{Error, ErrorKind, Result};
use platter_store::{ImageName, Store, StorePlace, Token};
use platter_vdisk::{BlockCache, BlockDevice, CacheOptions};
use serde::Serialize;

use super::control::{self, Answer, ControlSocket, DiskStatus, OnDetach, Question, Words};
use super::disk::{Base, LiveDisk};
use super::publish::{PublishReport, end_editing, publish_disk};
use crate::Silent;
use crate::token::unix_ms;

/// How often it is looked whether a disk is to be published.
const PUBLISH_LOOK: Duration = Duration::from_millis(500);

/// Where NBD is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A unix socket, for its owner only.
    Unix(PathBuf),
    /// A TCP port, of this machine only unless there is TLS.
    Tcp(SocketAddr),
}

impl NbdAddress {
    /// How a client writes it; an `nbds` one has to say where its certificates are, too.
    fn uri(&self, disk: &str, tls: bool) -> String {
        let scheme = if tls { "nbds" } else { "nbd" };
        match self {
            Self::Unix(path) => format!("{scheme}+unix:///{disk}?socket={}", path.display()),
            Self::Tcp(address) => format!("{scheme}://{address}/{disk}"),
        }
    }
}

/// What to serve, and how.
#[derive(Clone, Debug)]
pub struct AttachRequest {
    /// The store.
    pub store: StorePlace,
    /// The versions: names, names with numbers, or scores.
    pub versions: Vec<String>,
    /// Take their edit tokens and let them be written.
    pub write: bool,
    /// Take the tokens from whoever has them.
    pub steal: bool,
    /// Who edits, for the others.
    pub holder: String,
    /// Where NBD is served.
    pub nbd: NbdAddress,
    /// TLS, which every NBD client then has to speak.
    pub tls: Option<NbdTls>,
    /// Memory for decoded blocks, shared by all disks, in bytes.
    pub cache_bytes: usize,
    /// What becomes of what was written when a disk is detached or the process is asked to end.
    pub on_detach: OnDetach,
    /// Publish each writable disk that often, if it was written.
    pub publish_every: Option<Duration>,
    /// A sentence for the versions that are published.
    pub notes: String,
    /// What is doing this, such as `platter 0.1.0`.
    pub tool_version: String,
    /// Set to true by whoever wants this to end.
    pub stop: Arc<AtomicBool>,
}

/// A disk that is served now.
#[derive(Clone, Debug, Serialize)]
pub struct Attached {
    /// What exports call it.
    pub disk: String,
    /// The score at the bottom.
    pub base: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Whether it takes writes.
    pub writable: bool,
    /// Bytes written above the base before, by a process that ended.
    pub written_bytes: u64,
    /// Where it is served, as clients write it.
    pub exports: Vec<String>,
}

/// What happens while disks are served.
#[derive(Debug)]
pub enum LiveEvent<'a> {
    /// A disk is served.
    Attached(&'a Attached),
    /// A disk was published.
    Published(&'a PublishReport),
    /// A disk is no longer served; what was written to it is kept when it says so.
    Detached {
        /// What exports called it.
        disk: &'a str,
        /// Whether what was written waits in its overlay.
        kept: bool,
    },
    /// Something of a client.
    Nbd(&'a NbdEvent<'a>),
    /// Something that a person should know.
    Note(String),
}

/// Hears what happens, from many threads; must not wait.
pub type OnEvent = Box<dyn Fn(&LiveEvent<'_>) + Send + Sync>;

/// Serves disks until `stop` is set or the last one is detached.
///
/// # Errors
/// `Missing` when there is no such version; `Refused` when somebody else has an edit token, or a socket is in use; `Io`.
pub fn attach(request: AttachRequest, on_event: OnEvent) -> Result<()> {
    let served = Arc::new(Served {
        store: Arc::new(Store::open_reader(&request.store)?),
        cache: new_cache(request.cache_bytes)?,
        disks: Mutex::default(),
        request,
        on_event,
    });
    let request = &served.request;
    for version in &request.versions {
        served.attach(version)?;
    }
    let control = ControlSocket::open(request.store.dir())?;
    let listener = match &request.nbd {
        NbdAddress::Unix(path) => NbdListener::unix(path)?,
        NbdAddress::Tcp(address) => NbdListener::tcp(*address)?,
    };
    let noted = served.clone();
    let options = NbdOptions {
        on_event: Arc::new(move |event| (noted.on_event)(&LiveEvent::Nbd(event))),
        tls: request.tls.clone(),
        ..NbdOptions::default()
    };
    for attached in served.attached()? {
        (served.on_event)(&LiveEvent::Attached(&attached));
    }
    thread::scope(|scope| {
        scope.spawn(|| served.answer_questions(&control));
        scope.spawn(|| served.publish_now_and_then());
        let ended = NbdServer::serve(listener, served.clone(), options, &request.stop);
        request.stop.store(true, Ordering::Relaxed);
        // The thread that waits for questions wakes and sees it.
        let _ = control.wake();
        ended
    })?;
    served.detach_all()
}

/// A memory cache of that many bytes.
pub(super) fn new_cache(bytes: usize) -> Result<Arc<BlockCache>> {
    BlockCache::new(CacheOptions { block_bytes_max: bytes as u64, ..CacheOptions::default() })
}

struct Served {
    request: AttachRequest,
    store: Arc<Store>,
    cache: Arc<BlockCache>,
    disks: Mutex<BTreeMap<String, Arc<LiveDisk>>>,
    on_event: OnEvent,
}

impl Exports for Served {
    fn list(&self) -> Vec<String> {
        self.disks().keys().cloned().collect()
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>> {
        Ok(self.disk(name)?)
    }
}

impl Served {
    fn disks(&self) -> MutexGuard<'_, BTreeMap<String, Arc<LiveDisk>>> {
        self.disks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disk(&self, name: &str) -> Result<Arc<LiveDisk>> {
        let disk = self.disks().get(name).cloned();
        disk.ok_or_else(|| Error::missing(format!("no disk {name} is attached here")))
    }

    fn attach(&self, version: &str) -> Result<()> {
        let resolved = self.store.resolve(version)?;
        let name = match &resolved.version {
            Some(version) => version.record.image.to_string(),
            None => resolved.score.to_string(),
        };
        let disk = if self.request.write {
            let version = resolved.version.ok_or_else(|| {
                Error::refused(format!("{version} is a bare score: clone it to a name to write to it"))
            })?;
            let (image, number) = (version.record.image, version.record.number);
            let newest = self.store.resolve(image.as_str())?;
            if newest.score != resolved.score {
                return Err(Error::refused(format!(
                    "{image}@{number} is not the newest version, and publishing it would undo those after it: clone it to another name, or with --next"
                )));
            }
            let token = self.take_token(&image)?;
            LiveDisk::writable(
                name.clone(),
                &self.request.store,
                (&self.store, &self.cache),
                (image, token),
                resolved.score,
            )?
        } else {
            LiveDisk::read_only(name.clone(), Base::open(&self.store, &self.cache, resolved.score)?)
        };
        match self.disks().insert(name.clone(), Arc::new(disk)) {
            None => Ok(()),
            Some(_) => Err(Error::refused(format!("{name} is named twice"))),
        }
    }

    /// The image's token: this holder's, if an earlier process left it, or a new one.
    fn take_token(&self, image: &ImageName) -> Result<Token> {
        let held = self.store.token(image)?.filter(|token| token.holder == self.request.holder);
        if let Some(token) = held.filter(|_| !self.request.steal) {
            return Ok(token);
        }
        match self.request.steal {
            true => self.store.steal_token(image, &self.request.holder, unix_ms()),
            false => self.store.take_token(image, &self.request.holder, unix_ms()),
        }
    }

    fn attached(&self) -> Result<Vec<Attached>> {
        let status = |disk: &LiveDisk| -> Result<Attached> {
            let (base, written_bytes) = disk.state()?;
            Ok(Attached {
                disk: disk.name.clone(),
                base: base.to_string(),
                disk_bytes: disk.length(),
                writable: disk.is_writable(),
                written_bytes,
                exports: vec![self.request.nbd.uri(&disk.name, self.request.tls.is_some())],
            })
        };
        self.disks().values().map(|disk| status(disk)).collect()
    }

    fn answer_questions(&self, control: &ControlSocket) {
        thread::scope(|scope| {
            while let Ok((stream, _)) = control.listener.accept() {
                if self.request.stop.load(Ordering::Relaxed) {
                    return;
                }
                scope.spawn(move || control::answer(stream, &|question| self.answer(question)));
            }
        });
    }

    fn answer(&self, question: Question) -> Result<Answer> {
        match question {
            Question::Disks => {
                let disks = self.attached()?.into_iter().map(|attached| self.status(attached));
                Ok(Answer::Disks(disks.collect()))
            }
            Question::Publish { disk, words } => {
                Ok(Answer::Published(self.publish(&*self.disk(&disk)?, &words)?))
            }
            Question::Detach { disk, then, words } => {
                let report = self.detach(&*self.disk(&disk)?, then, &words)?;
                if self.disks().is_empty() {
                    self.request.stop.store(true, Ordering::Relaxed);
                }
                Ok(Answer::Detached(report))
            }
        }
    }

    fn status(&self, attached: Attached) -> DiskStatus {
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
        }
    }

    fn publish(&self, disk: &LiveDisk, words: &Words) -> Result<PublishReport> {
        let report = publish_disk(disk, &self.request.store, (&self.store, &self.cache), words, &Silent)?;
        (self.on_event)(&LiveEvent::Published(&report));
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
            end_editing(disk, &self.store)?;
        }
        (self.on_event)(&LiveEvent::Detached { disk: &disk.name, kept });
        Ok(report)
    }

    /// What becomes of a disk that nobody writes any more, if it is to be published.
    fn publish_last(&self, disk: &LiveDisk, then: OnDetach, words: &Words) -> Result<Option<PublishReport>> {
        let wanted = then == OnDetach::Publish && disk.is_writable() && disk.state()?.1 > 0;
        wanted.then(|| self.publish(disk, words)).transpose()
    }

    fn detach_all(&self) -> Result<()> {
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

    fn publish_now_and_then(&self) {
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
                    Err(error) => (self.on_event)(&LiveEvent::Note(format!("{}: {error}", disk.name))),
                    Ok(_) => {}
                }
            }
        }
    }
}

impl ControlSocket {
    /// Ends the wait for questions once.
    fn wake(&self) -> std::io::Result<()> {
        let address = self.listener.local_addr()?;
        address.as_pathname().map_or(Ok(()), |path| UnixStream::connect(path).map(drop))
    }
}
