//! The control socket of a process that serves disks: a line of JSON is asked, a line of JSON answers.
//!
//! Sockets lie in the store's `run` directory, one a process, for the store's owner only. One whose process is gone
//! answers nobody and is removed by whoever notices.

use std::collections::BTreeMap;
use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use platter_image::{Error, ErrorKind, IoContext, Result};
use platter_store::{ImageName, Store, StorePlace};
use platter_vdisk::{BlockDevice, CacheCounters};
use serde::{Deserialize, Serialize};

use super::overlays;
use super::publish::{PublishReport, open_left};

const DIRECTORY: &str = "run";
/// Most bytes of a line.
const LINE_LENGTH_MAX: u64 = 1 << 20;
/// How long a question may take to arrive.
const QUESTION_TIME: Duration = Duration::from_secs(5);
/// How long an answer may take: publishing a large disk takes minutes.
const ANSWER_TIME: Duration = Duration::from_secs(3600);
/// How long a process may take to say what it serves: one that does not, such as one that was stopped, is passed over.
const DISKS_TIME: Duration = Duration::from_secs(5);

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Question {
    /// Which disks there are.
    Disks,
    /// Publish a disk.
    Publish { disk: String, words: Words },
    /// Stop serving a disk.
    Detach { disk: String, then: OnDetach, words: Words },
}

/// What a user says of a version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Words {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) notes: String,
    pub(super) tool_version: String,
    /// Publish as the first version of this new image, not as the next one of the disk's own.
    #[serde(default)]
    pub(super) branch: Option<ImageName>,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Disks(Vec<DiskStatus>),
    Published(PublishReport),
    Detached(Option<PublishReport>),
    Failed { kind: String, message: String },
}

/// What becomes of what was written when a disk is detached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDetach {
    /// It is kept, with the edit token: the disk can be attached again, published or discarded later.
    #[default]
    Keep,
    /// It becomes the next version.
    Publish,
    /// It is thrown away.
    Discard,
}

/// A disk that a process serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskStatus {
    /// What exports call it.
    pub disk: String,
    /// The score at the bottom.
    pub base: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Whether it takes writes.
    pub writable: bool,
    /// Who edits it, and the number of the edit token.
    pub holder: Option<String>,
    /// See `holder`.
    pub token: Option<u64>,
    /// Bytes written above the base; `None` when no process serves it.
    pub written_bytes: Option<u64>,
    /// Where it is served.
    pub exports: Vec<String>,
    /// The process that serves it; `None` for one that was written and waits.
    pub process: Option<u32>,
    /// What the memory cache of that process did, for all of its disks together.
    #[serde(default)]
    pub cache: Option<CacheStatus>,
}

/// What a memory cache did since its process began.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Blocks that were in memory when a read asked for them.
    pub hits: u64,
    /// Blocks that were not.
    pub misses: u64,
    /// Bytes that blocks take now.
    pub bytes_held: u64,
}

impl From<CacheCounters> for CacheStatus {
    fn from(counters: CacheCounters) -> Self {
        Self { hits: counters.hits, misses: counters.misses, bytes_held: counters.bytes_held }
    }
}

/// A disk as it is listed.
#[derive(Clone, Debug, Serialize)]
pub struct ListedDisk {
    /// What is known of it.
    #[serde(flatten)]
    pub status: DiskStatus,
    /// Its edit token was taken over or released: what was written to it can become a new image, or be discarded, but
    /// never the image's next version.
    pub lost: bool,
}

/// A process that serves disks.
#[derive(Debug)]
pub(super) struct Server {
    socket: PathBuf,
}

impl Server {
    pub(super) fn publish(&self, disk: &str, words: &Words) -> Result<PublishReport> {
        match self.ask(&Question::Publish { disk: disk.to_owned(), words: words.clone() }, ANSWER_TIME)? {
            Answer::Published(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn detach(&self, disk: &str, then: OnDetach, words: &Words) -> Result<Option<PublishReport>> {
        let question = Question::Detach { disk: disk.to_owned(), then, words: words.clone() };
        match self.ask(&question, ANSWER_TIME)? {
            Answer::Detached(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// What it serves; nothing if it does not say in time.
    fn disks(&self) -> Result<Vec<DiskStatus>> {
        match self.ask(&Question::Disks, DISKS_TIME) {
            Ok(Answer::Disks(disks)) => Ok(disks),
            Ok(other) => Err(unexpected(&other)),
            Err(error) if error.kind() == ErrorKind::Transient => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn ask(&self, question: &Question, time: Duration) -> Result<Answer> {
        let context = || format!("asking {}", self.socket.display());
        let mut stream = UnixStream::connect(&self.socket).context(context)?;
        stream.set_read_timeout(Some(time)).context(context)?;
        write_line(&mut stream, question).context(context)?;
        match read_line(&stream)? {
            Answer::Failed { kind, message } => Err(error_of(&kind, message)),
            answer => Ok(answer),
        }
    }
}

/// Every disk that some process serves from that store, and those that were written and are not served now.
///
/// # Errors
/// `Missing` when this is no store; `Io`.
pub fn disks(place: &StorePlace) -> Result<Vec<ListedDisk>> {
    let store = Arc::new(Store::open_reader(place)?);
    let tokens = store.tokens()?;
    let is_held = |image: &str, number: u64| {
        tokens.iter().any(|token| token.image.as_str() == image && token.number == number)
    };
    let mut found = Vec::new();
    for server in servers(place.dir())? {
        found.extend(server.disks()?);
    }
    for token in &tokens {
        if found.iter().any(|disk| disk.token == Some(token.number)) {
            continue;
        }
        let newest = store.resolve(token.image.as_str())?;
        found.push(DiskStatus {
            disk_bytes: newest.version.map_or(0, |version| version.record.disk_length),
            holder: Some(token.holder.clone()),
            ..waiting(&token.image, token.number, newest.score.to_string())
        });
    }
    for (image, number) in overlays::list(place)? {
        if is_held(image.as_str(), number) || found.iter().any(|disk| disk.token == Some(number)) {
            continue;
        }
        let known = left_disk(place, &store, &image, number)?;
        let (base, disk_bytes, written_bytes) = known.unwrap_or_default();
        found.push(DiskStatus { disk_bytes, written_bytes, ..waiting(&image, number, base) });
    }
    found.sort_by(|a, b| (&a.disk, a.token).cmp(&(&b.disk, b.token)));
    let listed = found.into_iter().map(|status| {
        let lost = status.token.is_some_and(|number| !is_held(&status.disk, number));
        ListedDisk { status, lost }
    });
    Ok(listed.collect())
}

/// What [`disks`] tells as far as it can be known without opening any disk, for who looks often: of those that nobody
/// serves, not how much was written.
///
/// # Errors
/// As [`disks`].
pub fn served_disks(store: &Store) -> Result<Vec<ListedDisk>> {
    let tokens = store.tokens()?;
    let mut found = Vec::new();
    for server in servers(store.place().dir())? {
        found.extend(server.disks()?);
    }
    let is_found = |found: &[DiskStatus], number| found.iter().any(|disk| disk.token == Some(number));
    for token in &tokens {
        if !is_found(&found, token.number) {
            let holder = Some(token.holder.clone());
            found.push(DiskStatus { holder, ..waiting(&token.image, token.number, String::new()) });
        }
    }
    for (image, number) in overlays::list(store.place())? {
        if !is_found(&found, number) {
            found.push(waiting(&image, number, String::new()));
        }
    }
    found.sort_by(|a, b| (&a.disk, a.token).cmp(&(&b.disk, b.token)));
    let listed = found.into_iter().map(|status| {
        let is_held =
            |number| tokens.iter().any(|it| it.image.as_str() == status.disk && it.number == number);
        ListedDisk { lost: status.token.is_some_and(|number| !is_held(number)), status }
    });
    Ok(listed.collect())
}

/// A disk that no process says it serves.
fn waiting(image: &ImageName, token: u64, base: String) -> DiskStatus {
    DiskStatus {
        disk: image.to_string(),
        base,
        disk_bytes: 0,
        writable: true,
        holder: None,
        token: Some(token),
        written_bytes: None,
        exports: Vec::new(),
        process: None,
        cache: None,
    }
}

/// Base, length and bytes written of a disk that lies there; nothing if some process has it, or it cannot be opened.
fn left_disk(
    place: &StorePlace,
    store: &Arc<Store>,
    image: &ImageName,
    token: u64,
) -> Result<Option<(String, u64, Option<u64>)>> {
    match open_left(place, store, image, token) {
        Ok(disk) => {
            let (base, written) = disk.state()?;
            Ok(Some((base.to_string(), disk.length(), Some(written))))
        }
        // Damaged, in use, or just removed: the list still names it, or will not the next time.
        Err(error) if error.kind() != ErrorKind::Bug => Ok(None),
        Err(error) => Err(error),
    }
}

/// Stops serving a disk; gives the version that became of it, if it was published.
///
/// # Errors
/// `Missing` when no process serves it; what publishing says: the disk is then still served.
pub fn detach(
    store: &Path,
    disk: &str,
    then: OnDetach,
    notes: &str,
    tool_version: &str,
) -> Result<Option<PublishReport>> {
    let words = Words { notes: notes.to_owned(), tool_version: tool_version.to_owned(), ..Words::default() };
    let mut serving = Vec::new();
    for server in servers(store)? {
        serving.extend(server.disks()?.iter().any(|it| it.disk == disk).then_some(server));
    }
    match &serving[..] {
        [server] => server.detach(disk, then, &words),
        [] => {
            Err(Error::missing(format!("no process serves {disk}: `platter disks` tells what is attached")))
        }
        several => Err(Error::refused(format!(
            "{} processes serve {disk}: end the one that is meant, `platter disks` tells their numbers",
            several.len()
        ))),
    }
}

/// The process that serves the disk of an image which is written under that token.
pub(super) fn serving(store: &Path, image: &ImageName, token: u64) -> Result<Option<(Server, DiskStatus)>> {
    for server in servers(store)? {
        let is_it = |disk: &DiskStatus| disk.disk == image.as_str() && disk.token == Some(token);
        if let Some(disk) = server.disks()?.into_iter().find(is_it) {
            return Ok(Some((server, disk)));
        }
    }
    Ok(None)
}

/// The processes that answer; sockets of others are removed.
fn servers(store: &Path) -> Result<Vec<Server>> {
    let dir = store.join(DIRECTORY);
    let listed = match std::fs::read_dir(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.context(|| format!("listing {}", dir.display()))?,
    };
    let mut servers = Vec::new();
    for entry in listed {
        let socket = entry.context(|| format!("listing {}", dir.display()))?.path();
        match UnixStream::connect(&socket) {
            Ok(_) => servers.push(Server { socket }),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                // Whoever made it is gone.
                let _ = std::fs::remove_file(&socket);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(format!("connecting to {}", socket.display()), error)),
        }
    }
    Ok(servers)
}

/// The socket of this process, removed when dropped.
pub(super) struct ControlSocket {
    path: PathBuf,
    pub(super) listener: UnixListener,
}

impl ControlSocket {
    pub(super) fn open(store: &Path) -> Result<Self> {
        let dir = store.join(DIRECTORY);
        std::fs::create_dir_all(&dir).context(|| format!("making {}", dir.display()))?;
        let path = dir.join(format!("{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let context = || format!("listening at {}", path.display());
        let listener = UnixListener::bind(&path).context(context)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).context(context)?;
        Ok(Self { path, listener })
    }

    /// Ends the wait for questions once.
    pub(super) fn wake(&self) -> std::io::Result<()> {
        UnixStream::connect(&self.path).map(drop)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Answers one question on a new connection. Whoever asks nonsense is told so; whoever hangs up is let go.
pub(super) fn answer(mut stream: UnixStream, act: &dyn Fn(Question) -> Result<Answer>) {
    let timed = stream
        .set_read_timeout(Some(QUESTION_TIME))
        .and_then(|()| stream.set_write_timeout(Some(QUESTION_TIME)));
    if timed.is_err() {
        return;
    }
    let answer = read_line(&stream).and_then(act).unwrap_or_else(|error| Answer::Failed {
        kind: format!("{:?}", error.kind()),
        message: error.to_string(),
    });
    let _ = write_line(&mut stream, &answer);
}

fn write_line(stream: &mut UnixStream, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn read_line<T: for<'de> Deserialize<'de>>(stream: &UnixStream) -> Result<T> {
    let mut line = Vec::new();
    let read = BufReader::new(stream.take(LINE_LENGTH_MAX)).read_until(b'\n', &mut line);
    match read {
        Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => {
            return Err(Error::transient("nothing came from a control socket in time"));
        }
        read => read.context(|| "reading from a control socket".to_owned())?,
    };
    serde_json::from_slice(&line)
        .map_err(|error| Error::corrupt(format!("a control socket: {error}: another version of Platter?")))
}

fn unexpected(answer: &Answer) -> Error {
    Error::bug(format!("an answer to another question: {answer:?}"))
}

fn error_of(kind: &str, message: String) -> Error {
    match kind {
        "Refused" => Error::refused(message),
        "Missing" => Error::missing(message),
        "Corrupt" => Error::corrupt(message),
        "Transient" => Error::transient(message),
        _ => Error::bug(message),
    }
}
