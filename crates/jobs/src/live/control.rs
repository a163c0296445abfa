//! The control socket of a process that serves disks: a line of JSON is asked, a line of JSON answers.
//!
//! Sockets lie in the `run` directory of the [`LivePlace`], one a process, for its owner only. One whose process is gone
//! answers nobody and is removed by whoever notices.

use std::collections::BTreeMap;
use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, TimedOut, WouldBlock};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use platter_image::{Error, ErrorKind, IoContext, Result};
use platter_store::ImageName;
use platter_vdisk::CacheCounters;
use serde::{Deserialize, Serialize};

use super::attach::Attached;
use super::place::LivePlace;
use super::publish::PublishReport;
use crate::node::{FillStatus, NodeCounters};

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
    /// Serve another disk, read-only; with `fill`, fetch all of it.
    Attach { version: String, fill: bool },
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
    Attached(Attached),
    Published(PublishReport),
    Detached(Option<PublishReport>),
    /// An error: its kind as a word, what it says, and what its causes say.
    Failed {
        kind: String,
        messages: Vec<String>,
    },
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
    /// How far its filling is, if all of it is to be held.
    #[serde(default)]
    pub fill: Option<FillStatus>,
    /// What the cache that the origin is read through did, for all disks of that process together.
    #[serde(default)]
    pub node: Option<NodeCounters>,
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

/// Reads a line as a question and as an answer, and writes what was understood again. For tests of the format.
pub fn read_control_line(line: &[u8]) -> [Option<String>; 2] {
    let question = serde_json::from_slice::<Question>(line).ok();
    let answer = serde_json::from_slice::<Answer>(line).ok();
    [
        question.and_then(|question| serde_json::to_string(&question).ok()),
        answer.and_then(|answer| serde_json::to_string(&answer).ok()),
    ]
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
    pub(super) fn disks(&self) -> Result<Vec<DiskStatus>> {
        match self.ask(&Question::Disks, DISKS_TIME) {
            Ok(Answer::Disks(disks)) => Ok(disks),
            Ok(other) => Err(unexpected(&other)),
            Err(error) if error.kind() == ErrorKind::Transient => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn ask(&self, question: &Question, time: Duration) -> Result<Answer> {
        let context = || format!("asking {}", self.socket.display());
        let mut stream = UnixStream::connect(&self.socket).map_err(|error| self.gone_or(error))?;
        stream.set_read_timeout(Some(time)).context(context)?;
        write_line(&mut stream, question).map_err(|error| self.gone_or(error))?;
        match read_line(&stream)? {
            Answer::Failed { kind, messages } => {
                // A word of a newer Platter: that it failed is known, and what it says.
                let kind = ErrorKind::from_word(&kind).unwrap_or(ErrorKind::Io);
                Err(Error::from_messages(kind, messages))
            }
            answer => Ok(answer),
        }
    }

    /// What an error means that a process on the other side would not make.
    fn gone_or(&self, error: std::io::Error) -> Error {
        match error.kind() {
            NotFound | ConnectionRefused | ConnectionReset | BrokenPipe => ended(),
            _ => Error::io(format!("asking {}", self.socket.display()), error),
        }
    }
}

/// Every disk that is served over the cache in that directory, by a node or by others.
///
/// # Errors
/// `Missing` when no process answers there; `Io`.
pub fn disks_of_node(cache: &Path) -> Result<Vec<DiskStatus>> {
    let mut found = Vec::new();
    for server in servers_at(cache)? {
        found.extend(server.disks()?);
    }
    found.sort_by(|a, b| a.disk.cmp(&b.disk));
    Ok(found)
}

/// Has the node whose cache lies there serve a version, read-only; with `fill`, all of it is fetched.
///
/// # Errors
/// `Missing` when no process answers there; what the node says.
pub fn attach_at_node(cache: &Path, version: &str, fill: bool) -> Result<Attached> {
    let question = Question::Attach { version: version.to_owned(), fill };
    let servers = servers_at(cache)?;
    let server = servers.first().ok_or_else(|| Error::bug("nobody among those who answer"))?;
    match server.ask(&question, ANSWER_TIME)? {
        Answer::Attached(attached) => Ok(attached),
        other => Err(unexpected(&other)),
    }
}

/// Has the node whose cache lies there stop serving a disk.
///
/// # Errors
/// `Missing` when it does not serve it.
pub fn detach_at_node(cache: &Path, disk: &str) -> Result<()> {
    detach_from(servers_at(cache)?, disk, OnDetach::Keep, &Words::default()).map(drop)
}

/// The processes that answer in that directory: one at least.
fn servers_at(cache: &Path) -> Result<Vec<Server>> {
    let servers = servers(cache)?;
    if servers.is_empty() {
        return Err(Error::missing(format!(
            "no node answers in {0}: `platter node --cache {0}` starts one",
            cache.display()
        )));
    }
    Ok(servers)
}

/// Stops serving a disk; gives the version that became of it, if it was published.
///
/// # Errors
/// `Missing` when no process serves it; what publishing says: the disk is then still served.
pub fn detach(
    place: &LivePlace,
    disk: &str,
    then: OnDetach,
    notes: &str,
    tool_version: &str,
) -> Result<Option<PublishReport>> {
    let words = Words { notes: notes.to_owned(), tool_version: tool_version.to_owned(), ..Words::default() };
    detach_from(servers(place.dir())?, disk, then, &words)
}

fn detach_from(
    servers: Vec<Server>,
    disk: &str,
    then: OnDetach,
    words: &Words,
) -> Result<Option<PublishReport>> {
    let mut serving = Vec::new();
    for server in servers {
        // Only one that is written can be published or discarded.
        let is_it = |it: &DiskStatus| it.disk == disk && (it.writable || then == OnDetach::Keep);
        serving.extend(server.disks()?.iter().any(is_it).then_some(server));
    }
    match &serving[..] {
        [server] => server.detach(disk, then, words),
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
pub(super) fn serving(
    place: &LivePlace,
    image: &ImageName,
    token: u64,
) -> Result<Option<(Server, DiskStatus)>> {
    for server in servers(place.dir())? {
        let is_it = |disk: &DiskStatus| disk.disk == image.as_str() && disk.token == Some(token);
        if let Some(disk) = server.disks()?.into_iter().find(is_it) {
            return Ok(Some((server, disk)));
        }
    }
    Ok(None)
}

/// The processes that answer; sockets of others are removed.
pub(super) fn servers(dir: &Path) -> Result<Vec<Server>> {
    let dir = dir.join(DIRECTORY);
    let listed = match std::fs::read_dir(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.context(|| format!("listing {}", dir.display()))?,
    };
    let mut servers = Vec::new();
    for entry in listed {
        let socket = entry.context(|| format!("listing {}", dir.display()))?.path();
        if socket.extension() != Some("sock".as_ref()) {
            continue;
        }
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
    pub(super) fn open(place: &LivePlace) -> Result<Self> {
        let dir = place.dir().join(DIRECTORY);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.context(|| format!("making {}", dir.display()))?;
        let (new, path) =
            ["new", "sock"].map(|kind| dir.join(format!("{}.{kind}", std::process::id()))).into();
        let _ = std::fs::remove_file(&new);
        let context = || format!("listening at {}", path.display());
        // Nobody sees it before it is listened at: it would be taken for that of a process that is gone, and removed.
        let listener = UnixListener::bind(&new).context(context)?;
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).context(context)?;
        std::fs::rename(&new, &path).context(context)?;
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
        kind: error.kind().as_str().to_owned(),
        messages: error.messages(),
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
        Err(error) if error.kind() == ConnectionReset => return Err(ended()),
        read => read.context(|| "reading from a control socket".to_owned())?,
    };
    if line.last() != Some(&b'\n') && (line.len() as u64) < LINE_LENGTH_MAX {
        return Err(ended());
    }
    serde_json::from_slice(&line)
        .map_err(|error| Error::corrupt(format!("a control socket: {error}: another version of Platter?")))
}

fn unexpected(answer: &Answer) -> Error {
    Error::bug(format!("an answer to another question: {answer:?}"))
}

/// The process on the other side went away in the middle: nothing that is stored is wrong.
fn ended() -> Error {
    Error::transient("the process that serves the disk ended before it answered: try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(act: impl Fn(UnixStream) + Send + 'static) -> Error {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("1.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let answering = std::thread::spawn(move || act(listener.accept().unwrap().0));
        let error = Server { socket }.publish("lab/disk", &Words::default()).unwrap_err();
        answering.join().unwrap();
        error
    }

    #[test]
    fn errors_keep_their_kind_and_causes() {
        let full = || Error::io("writing a pack", std::io::ErrorKind::StorageFull.into());
        let error = asked(move |stream| answer(stream, &|_| Err(full())));
        assert_eq!((error.kind(), error.messages()), (ErrorKind::Io, full().messages()));
    }

    /// A process that is killed in the middle leaves half an answer, or none: that is no damage.
    #[test]
    fn a_server_that_dies_is_no_damage() {
        for half in ["", "{\"published\":"] {
            let error = asked(move |mut stream| {
                let mut byte = [0];
                while stream.read(&mut byte).unwrap() == 1 && byte != *b"\n" {}
                stream.write_all(half.as_bytes()).unwrap();
            });
            assert_eq!(error.kind(), ErrorKind::Transient, "{error}");
        }
        let gone = Server { socket: "/nonexistent/1.sock".into() };
        assert_eq!(gone.publish("lab/disk", &Words::default()).unwrap_err().kind(), ErrorKind::Transient);
    }
}
