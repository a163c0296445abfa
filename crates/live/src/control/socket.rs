//! The control socket of this process.

use std::collections::VecDeque;
use std::fs::{DirBuilder, Permissions, remove_file, rename, set_permissions};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use platter_image::{Error, IoContext, Result};

use super::line::{read_line, write_line};
use super::question::{Answer, Question};

/// The directory of all control sockets, in the place where a process keeps its disks.
pub(super) const DIRECTORY: &str = "run";
/// The socket of a node.
pub(super) const NODE_SOCKET: &str = "node.sock";
/// Longest time for a request to arrive.
const QUESTION_TIME: Duration = Duration::from_secs(5);
/// Most requests executed at once, each on a thread of its own. Publishing occupies its thread.
const QUESTIONS_MAX: usize = 256;

/// The socket of this process, removed when dropped.
pub(crate) struct ControlSocket {
    path: PathBuf,
    listener: UnixListener,
    open_questions: AtomicUsize,
    /// Connections that have not sent their request yet, the oldest first.
    silent: Mutex<VecDeque<(u64, UnixStream)>>,
}

impl ControlSocket {
    /// Listens in this directory: as its agent, if this is a node.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open(dir: &Path, is_node: bool) -> Result<Self> {
        let dir = dir.join(DIRECTORY);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.context(|| format!("making {}", dir.display()))?;
        let pid = std::process::id();
        let new = dir.join(format!("{pid}.new"));
        let path = dir.join(if is_node { NODE_SOCKET.to_owned() } else { format!("{pid}.sock") });
        let _ = remove_file(&new);
        let context = || format!("listening at {}", path.display());
        // Renamed into place after listening starts: before, others would remove it as the socket of an ended process.
        let listener = UnixListener::bind(&new).context(context)?;
        set_permissions(&new, Permissions::from_mode(0o600)).context(context)?;
        rename(&new, &path).context(context)?;
        Ok(Self { path, listener, open_questions: AtomicUsize::new(0), silent: Mutex::default() })
    }

    /// Wakes the wait for requests once.
    pub(crate) fn wake(&self) -> std::io::Result<()> {
        UnixStream::connect(&self.path).map(drop)
    }

    /// Lets `act` answer requests, each on a thread, until `is_stopped` returns true after a [`ControlSocket::wake`].
    /// Returns when all are answered.
    pub(crate) fn answer_all(
        &self,
        is_stopped: &dyn Fn() -> bool,
        act: &(dyn Fn(Question, &UnixStream) -> Result<Answer> + Sync),
    ) {
        let mut number = 0;
        thread::scope(|scope| {
            while let Ok((stream, _)) = self.listener.accept() {
                if is_stopped() {
                    return;
                }
                if self.open_questions.fetch_add(1, Ordering::AcqRel) >= QUESTIONS_MAX && !self.displace() {
                    self.open_questions.fetch_sub(1, Ordering::AcqRel);
                    let busy =
                        || Error::transient(format!("{QUESTIONS_MAX} requests are under way: try again"));
                    say(&stream, Err(busy()));
                    continue;
                }
                number += 1;
                // Without a copy it cannot be displaced.
                let copy = stream.try_clone().ok().map(|copy| (number, copy));
                self.silent.lock().extend(copy);
                let run = move || {
                    answer(&stream, &|question, stream| {
                        self.heard(number);
                        act(question, stream)
                    });
                    self.heard(number);
                    self.open_questions.fetch_sub(1, Ordering::AcqRel);
                };
                if thread::Builder::new().name("control".into()).spawn_scoped(scope, run).is_err() {
                    self.heard(number);
                    self.open_questions.fetch_sub(1, Ordering::AcqRel);
                }
            }
        });
    }

    /// Ends the connection that has been silent for longest; false if none is silent.
    fn displace(&self) -> bool {
        let oldest = self.silent.lock().pop_front();
        oldest.is_some_and(|(_, stream)| stream.shutdown(Shutdown::Both).is_ok())
    }

    /// That connection has sent its request, or has ended.
    fn heard(&self, number: u64) {
        self.silent.lock().retain(|(other, _)| *other != number);
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = remove_file(&self.path);
    }
}

/// Answers one request on a new connection. An invalid request gets an error; disconnecting clients are ignored.
pub(super) fn answer(stream: &UnixStream, act: &dyn Fn(Question, &UnixStream) -> Result<Answer>) {
    let timed = stream
        .set_read_timeout(Some(QUESTION_TIME))
        .and_then(|()| stream.set_write_timeout(Some(QUESTION_TIME)));
    if timed.is_err() {
        return;
    }
    say(stream, read_line(stream).and_then(|question| act(question, stream)));
}

fn say(stream: &UnixStream, answer: Result<Answer>) {
    let answer = answer.unwrap_or_else(|error| Answer::Failed {
        kind: error.kind().as_str().to_owned(),
        messages: error.messages(),
    });
    let _ = write_line(stream, &answer);
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Silent connections do not delay requests.
    #[test]
    fn a_question_is_answered_among_many_silent_connections() {
        let folder = tempfile::tempdir().unwrap();
        let control = ControlSocket::open(folder.path(), true).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                control.answer_all(&|| stop.load(Ordering::Relaxed), &|_, _| Ok(Answer::Disks(Vec::new())));
            });
            let connect = || UnixStream::connect(&control.path).unwrap();
            let mut silent: Vec<_> = (0..QUESTIONS_MAX + 44).map(|_| connect()).collect();
            let asking = connect();
            write_line(&asking, &Question::Disks).unwrap();
            assert!(matches!(read_line(&asking).unwrap(), Answer::Disks(_)));
            // The first was displaced for it, and the last is still waited for.
            assert_eq!(silent[0].read(&mut [0; 1]).unwrap(), 0);
            let last = silent.last().unwrap();
            write_line(last, &Question::Disks).unwrap();
            assert!(matches!(read_line(last).unwrap(), Answer::Disks(_)));
            drop(silent);
            stop.store(true, Ordering::Relaxed);
            control.wake().unwrap();
        });
    }
}
