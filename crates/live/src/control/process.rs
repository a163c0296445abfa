//! The client side of the control socket of a process that serves disks.

use std::fs::{read_dir, remove_file};
use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use platter_image::{Error, ErrorKind, IoContext, Result};
use platter_records::ImageName;

use super::cast::NodeCastRequest;
use super::line::{ended, read_line, write_line};
use super::question::{Answer, Question, Words};
use super::socket::{DIRECTORY, NODE_SOCKET};
use crate::attached::Attached;
use crate::disk_request::{DiskRequest, OnDetach};
use crate::estate::{Claim, Estate};
use crate::publish_report::PublishReport;
use platter_api::{DiskStatus, ListedDisk};
use platter_jobs::{CloneReport, CloneRequest};

/// Longest time for a reply: publishing a large disk takes minutes.
const ANSWER_TIME: Duration = Duration::from_secs(3600);
/// Longest time for the list of disks: a process that does not answer, such as a stopped one, is skipped.
const DISKS_TIME: Duration = Duration::from_secs(5);

/// A process that serves disks.
#[derive(Debug)]
pub(crate) struct ServingProcess {
    socket: PathBuf,
}

impl ServingProcess {
    /// Returns the processes that answer in this directory, a node first. Sockets of ended processes are removed.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn all(dir: &Path) -> Result<Vec<Self>> {
        let dir = dir.join(DIRECTORY);
        let listed = match read_dir(&dir) {
            Err(error) if error.kind() == NotFound => return Ok(Vec::new()),
            listed => listed.context(|| format!("listing {}", dir.display()))?,
        };
        let mut processes = Vec::new();
        for entry in listed {
            let socket = entry.context(|| format!("listing {}", dir.display()))?.path();
            if socket.extension() == Some("sock".as_ref()) {
                processes.extend(Self::at(socket)?);
            }
        }
        processes.sort_by_key(|process| (!process.is_node(), process.socket.clone()));
        Ok(processes)
    }

    /// Returns the node of this directory, if it answers.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn node(dir: &Path) -> Result<Option<Self>> {
        Self::at(dir.join(DIRECTORY).join(NODE_SOCKET))
    }

    /// Returns the process that listens at this socket, if one does.
    fn at(socket: PathBuf) -> Result<Option<Self>> {
        match UnixStream::connect(&socket) {
            Ok(_) => Ok(Some(Self { socket })),
            Err(error) if error.kind() == ConnectionRefused => {
                // Its process has ended.
                let _ = remove_file(&socket);
                Ok(None)
            }
            Err(error) if error.kind() == NotFound => Ok(None),
            Err(error) => Err(Error::io(format!("connecting to {}", socket.display()), error)),
        }
    }

    fn is_node(&self) -> bool {
        self.socket.file_name() == Some(NODE_SOCKET.as_ref())
    }

    /// Asks it to hand everything over. Returns its estate, and the connection for the parcels.
    pub(crate) fn take_over(&self, claim: &Claim) -> Result<(UnixStream, Estate)> {
        match self.ask_over(&Question::TakeOver(claim.clone()), DISKS_TIME)? {
            (stream, Answer::Estate(estate)) => Ok((stream, estate)),
            (_, other) => Err(unexpected(&other)),
        }
    }

    /// Returns its disks; none if it does not answer in time.
    pub(crate) fn disks(&self) -> Result<Vec<DiskStatus>> {
        Ok(self.listed()?.into_iter().map(|listed| listed.status).collect())
    }

    /// The same, with which edit locks it knows to be lost.
    pub(crate) fn listed(&self) -> Result<Vec<ListedDisk>> {
        match self.ask(&Question::Disks, DISKS_TIME) {
            Ok(Answer::Disks(disks)) => Ok(disks),
            Ok(other) => Err(unexpected(&other)),
            Err(error) if error.kind() == ErrorKind::Transient => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn attach(&self, requests: Vec<DiskRequest>) -> Result<Vec<Attached>> {
        match self.ask(&Question::Attach(requests), ANSWER_TIME)? {
            Answer::Attached(attached) => Ok(attached),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn publish(&self, disk: &str, words: &Words) -> Result<PublishReport> {
        self.published(&Question::Publish { disk: disk.to_owned(), words: words.clone() })
    }

    pub(crate) fn publish_image(
        &self,
        image: &ImageName,
        edit_lock: Option<u64>,
        words: &Words,
    ) -> Result<PublishReport> {
        self.published(&Question::PublishImage { image: image.clone(), edit_lock, words: words.clone() })
    }

    fn published(&self, question: &Question) -> Result<PublishReport> {
        match self.ask(question, ANSWER_TIME)? {
            Answer::Published(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn detach(
        &self,
        disk: &str,
        then: Option<OnDetach>,
        words: &Words,
    ) -> Result<Option<PublishReport>> {
        let question = Question::Detach { disk: disk.to_owned(), then, words: words.clone() };
        match self.ask(&question, ANSWER_TIME)? {
            Answer::Detached(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn discard(&self, image: &ImageName, edit_lock: Option<u64>) -> Result<u64> {
        match self.ask(&Question::Discard { image: image.clone(), edit_lock }, ANSWER_TIME)? {
            Answer::Discarded(bytes) => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn clone_version(&self, request: &CloneRequest) -> Result<CloneReport> {
        let question = Question::Clone {
            version: request.version.clone(),
            name: request.name.clone(),
            next: request.next,
            edit_lock: request.edit_lock,
            tool_version: request.tool_version.clone(),
        };
        match self.ask(&question, ANSWER_TIME)? {
            Answer::Cloned(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks it to read a version for a cast. Its replies follow on the connection.
    pub(crate) fn cast(&self, request: &NodeCastRequest) -> Result<UnixStream> {
        self.send(&Question::Cast(request.clone()), ANSWER_TIME)
    }

    fn ask(&self, question: &Question, time: Duration) -> Result<Answer> {
        self.ask_over(question, time).map(|(_, answer)| answer)
    }

    fn ask_over(&self, question: &Question, time: Duration) -> Result<(UnixStream, Answer)> {
        let stream = self.send(question, time)?;
        let answer = read_line::<Answer>(&stream)?.or_error()?;
        Ok((stream, answer))
    }

    fn send(&self, question: &Question, time: Duration) -> Result<UnixStream> {
        let context = || format!("asking {}", self.socket.display());
        let stream = UnixStream::connect(&self.socket).map_err(|error| self.gone_or(error))?;
        stream.set_read_timeout(Some(time)).context(context)?;
        write_line(&stream, question).map_err(|error| self.gone_or(error))?;
        Ok(stream)
    }

    /// Turns an error of the socket into `ended` if only a process that no longer runs can cause it.
    fn gone_or(&self, error: std::io::Error) -> Error {
        match error.kind() {
            NotFound | ConnectionRefused | ConnectionReset | BrokenPipe => ended(),
            _ => Error::io(format!("asking {}", self.socket.display()), error),
        }
    }
}

pub(crate) fn unexpected(answer: &Answer) -> Error {
    Error::bug(format!("a reply to another request: {answer:?}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::super::socket::answer;
    use super::*;

    fn asked(act: impl Fn(UnixStream) + Send + 'static) -> Error {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("1.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let answering = std::thread::spawn(move || act(listener.accept().unwrap().0));
        let error = ServingProcess { socket }.publish("lab/disk", &Words::default()).unwrap_err();
        answering.join().unwrap();
        error
    }

    #[test]
    fn errors_keep_their_kind_and_causes() {
        let full = || Error::io("writing a pack", std::io::ErrorKind::StorageFull.into());
        let error = asked(move |stream| answer(&stream, &|_, _| Err(full())));
        assert_eq!((error.kind(), error.messages()), (ErrorKind::Io, full().messages()));
    }

    /// A process that is killed leaves half a reply, or none: that is not damage.
    #[test]
    fn a_process_that_dies_is_not_damage() {
        for half in ["", "{\"published\":"] {
            let error = asked(move |mut stream| {
                let mut byte = [0];
                while stream.read(&mut byte).unwrap() == 1 && byte != *b"\n" {}
                stream.write_all(half.as_bytes()).unwrap();
            });
            assert_eq!(error.kind(), ErrorKind::Transient, "{error}");
        }
        let gone = ServingProcess { socket: "/nonexistent/1.sock".into() };
        assert_eq!(gone.publish("lab/disk", &Words::default()).unwrap_err().kind(), ErrorKind::Transient);
    }
}
