//! One client: messages in, replies out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use platter_image::{Error, IoContext, Result};
use rustix::io::Errno;

use super::event::NinepEvent;
use super::failure::Failure;
use super::server::Shared;
use super::session::Session;
use super::state::NinepState;
use super::tags::{Flush, Tags};
use super::wire::{HEADER_BYTES, Header, Kind, Reply, Request, VERSION, error_reply};
use crate::buffer::Buffer;
use crate::clients::Client;
use crate::input::Input;
use crate::moved::Rest;
use crate::outbox::{Batch, Outbox, Owed};
use crate::pace::Pace;
use crate::pause::Woken;
use crate::workers::Workers;

/// A request for the workers.
pub(super) struct Job {
    connection: Arc<Connection>,
    session: Arc<Session>,
    header: Header,
    body: Buffer,
    serial: u64,
    reserved: u64,
}

impl Job {
    pub(super) fn run(self) {
        let connection = Arc::clone(&self.connection);
        connection.work(self);
    }
}

/// State shared by the threads of one connection and the workers.
pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) client: Client,
    pub(super) outbox: Outbox,
    pub(super) pace: Pace,
    pub(super) tags: Tags,
}

impl Connection {
    /// Serves until the client goes, or a pause is ordered; gives where to go on then, when every request that was begun has
    /// its reply. The calling thread is the reader.
    ///
    /// # Errors
    /// `Corrupt` when the client violates the protocol; `Transient` when it stalls or disconnects within a message;
    /// `Io`.
    pub(super) fn run(
        self: &Arc<Self>,
        workers: &Arc<Workers<Job>>,
        rest: Option<Rest>,
    ) -> Result<Option<Rest>> {
        self.client.settle();
        let (mut session, unread) = match rest {
            None => (None, Vec::new()),
            Some(Rest { state, unread }) => {
                let session = NinepState::from_text(&state)?.session(&self.shared);
                if session.is_some() {
                    self.client.become_known()?;
                }
                (session, unread)
            }
        };
        if session.is_none() && unread.is_empty() && !self.wait_for_first()? {
            return Ok(Some(Rest { state: NinepState::of(None).to_text()?, unread }));
        }
        let limit = |what: &'static str| move || format!("setting a connection's {what}");
        let stall_time = self.shared.options.stall_time;
        self.client.socket.set_read_timeout(Some(stall_time)).context(limit("time to read"))?;
        self.client.socket.set_write_timeout(Some(stall_time)).context(limit("time to write"))?;
        thread::scope(|scope| {
            let run = || self.outbox.run_writer(&*self.client.socket, &self.shared.buffers);
            let writer = thread::Builder::new().name("9p-writer".into()).spawn_scoped(scope, run);
            let writer = writer.context(|| "starting a thread".into())?;
            let mut batch = Batch::default();
            let mut input = Input::new(&*self.client.socket, self.client.pause(), stall_time, unread);
            let mut result = self.read_requests(&mut input, &mut session, workers, &mut batch);
            result = result.and(self.send(&mut batch));
            self.outbox.close();
            if let Ok(written) = writer.join() {
                // The writer's error is more informative than the reader's resulting disconnect.
                result = written.and(result);
            }
            result?;
            if !input.is_paused() {
                return Ok(None);
            }
            let state = NinepState::of(session.as_deref()).to_text()?;
            Ok(Some(Rest { state, unread: input.into_unread() }))
        })
    }

    /// Waits until the client says something, or hangs up. False: a pause is ordered.
    fn wait_for_first(&self) -> Result<bool> {
        let time = Some(self.shared.options.handshake_time);
        match self.client.pause().wait(&*self.client.socket, time) {
            Ok(Woken::Ready) => Ok(true),
            Ok(Woken::Paused) => Ok(!self.client.pause().is_ordered()),
            Ok(Woken::TimedOut) => Err(Error::transient("the client took too long to say anything")),
            Err(error) => Err(Error::io("waiting for the client", error)),
        }
    }

    fn read_requests(
        self: &Arc<Self>,
        input: &mut Input<'_>,
        session: &mut Option<Arc<Session>>,
        workers: &Arc<Workers<Job>>,
        batch: &mut Batch,
    ) -> Result<()> {
        loop {
            if input.available() < HEADER_BYTES || batch.is_full() {
                self.send(batch)?;
            }
            let Some(bytes) = input.header()? else { return Ok(()) };
            let header = Header::parse(&bytes);
            let length = body_length(header, session.as_deref())?;
            if input.available() < length {
                self.send(batch)?;
            }
            let mut body = self.shared.buffers.take();
            if !input.payload(body.grow(length))? {
                input.put_back(&bytes);
                return Ok(());
            }
            match (header.kind, &*session) {
                (Kind::VERSION, _) => *session = self.begin(header, body, batch)?,
                (_, None) => {
                    return Err(Error::corrupt(format!(
                        "a message of kind {} before the version",
                        header.kind.0
                    )));
                }
                (Kind::FLUSH, Some(_)) => self.flush(header, body, batch)?,
                (_, Some(session)) => {
                    let has_next = input.available() >= HEADER_BYTES;
                    self.handle(session, header, body, has_next, workers, batch)?;
                }
            }
        }
    }

    /// Ends the current session, if any, and begins a new one, unless the client speaks another version.
    fn begin(&self, header: Header, body: Buffer, batch: &mut Batch) -> Result<Option<Arc<Session>>> {
        self.send(batch)?;
        // Requests of the last session have no effect in this one, and its tags are free.
        self.outbox.wait_until_idle();
        let (answer, session) = match Request::parse(header.kind, body.as_slice()) {
            Ok(Request::Version { msize, .. }) if msize < *Session::MSIZES.start() => {
                (Err(Errno::INVAL), None)
            }
            Ok(Request::Version { msize, version }) => {
                let (msize, is_known) = (msize.min(*Session::MSIZES.end()), version == VERSION);
                let (tree, fids_max) = (Arc::clone(&self.shared.tree), self.shared.options.fids_max);
                if is_known {
                    self.client.become_known()?;
                }
                let session = is_known.then(|| Arc::new(Session::new(tree, msize, fids_max)));
                (Ok(Reply::Version { msize, is_known }), session)
            }
            _ => (Err(Errno::PROTO), None),
        };
        self.shared.buffers.give([body]);
        let bytes = match answer {
            Ok(reply) => reply.to_bytes(header.kind, header.tag),
            Err(errno) => error_reply(errno, header.tag),
        };
        self.add(batch, &bytes);
        Ok(session)
    }

    fn flush(&self, header: Header, body: Buffer, batch: &mut Batch) -> Result<()> {
        let request = Request::parse(header.kind, body.as_slice());
        let Ok(Request::Flush { old_tag }) = request else {
            self.add(batch, &error_reply(Errno::PROTO, header.tag));
            return Ok(());
        };
        self.shared.buffers.give([body]);
        // A waiting flush counts as a request in flight, so the limit on requests also limits flushes.
        self.send(batch)?;
        if !self.outbox.wait_for_room(0) {
            return Ok(());
        }
        self.outbox.reserve(0);
        match self.tags.flush(old_tag, header.tag) {
            Flush::Now => self.post(header, &Reply::Done, Some(0)),
            Flush::Later => {}
        }
        Ok(())
    }

    /// Executes a request, or sends it to the workers.
    fn handle(
        self: &Arc<Self>,
        session: &Arc<Session>,
        header: Header,
        body: Buffer,
        has_next: bool,
        workers: &Arc<Workers<Job>>,
        batch: &mut Batch,
    ) -> Result<()> {
        let in_flight = self.outbox.in_flight();
        if in_flight > 0 {
            self.send(batch)?;
        }
        let reserved = payload_bytes(session, header, &body);
        if !self.outbox.wait_for_room(reserved) {
            return Ok(());
        }
        let is_alone = !has_next && in_flight == 0;
        if is_short(header.kind) && self.pace.is_quick(is_alone) {
            let reply = self.execute(session, header, body);
            batch.add(reply);
            return Ok(());
        }
        let serial = self.tags.insert(header.tag, is_read(header.kind))?;
        self.outbox.reserve(reserved);
        let (connection, session) = (Arc::clone(self), Arc::clone(session));
        let job = Job { connection, session, header, body, serial, reserved };
        workers.add(job).inspect_err(|_| self.outbox.release(reserved))
    }

    /// Runs in a worker: executes a request, unless it was abandoned.
    fn work(&self, job: Job) {
        let Job { session, header, body, serial, reserved, .. } = job;
        if !self.tags.begin(header.tag, serial) {
            self.shared.buffers.give([body]);
            self.outbox.release(reserved);
            return;
        }
        let reply = self.execute(&session, header, body);
        self.tags.finish(header.tag, serial, |flushes| match flushes {
            Some(flushes) => {
                self.outbox.post(Owed { reply, reserved: Some(reserved) });
                for tag in flushes {
                    self.post(Header { kind: Kind::FLUSH, tag, ..header }, &Reply::Done, Some(0));
                }
            }
            None => {
                self.shared.buffers.give([reply]);
                self.outbox.release(reserved);
            }
        });
    }

    /// Executes a request. The body's buffer is recycled.
    fn execute(&self, session: &Session, header: Header, body: Buffer) -> Buffer {
        let mut reply = self.shared.buffers.take();
        let start = Instant::now();
        let done = self.perform(session, header, &body, &mut reply);
        if is_short(header.kind) {
            let bytes = body.as_slice().len() + reply.as_slice().len();
            self.pace.note(start.elapsed(), bytes as u32);
        }
        self.shared.buffers.give([body]);
        if let Err(Failure { errno, error }) = done {
            // Missing names are normal, and refused requests are not failures of the tree.
            let is_told = !matches!(errno, Errno::NOENT | Errno::PERM | Errno::ROFS);
            if let Some(error) = error.filter(|_| is_told) {
                let (connection, kind) = (self.client.connection, header.kind);
                self.shared.tell(&NinepEvent::RequestFailed { connection, kind, error: &error });
            }
            reply.clear();
            reply.push(&error_reply(errno, header.tag));
        }
        reply
    }

    fn perform(
        &self,
        session: &Session,
        header: Header,
        body: &Buffer,
        reply: &mut Buffer,
    ) -> Result<(), Failure> {
        if self.shared.is_stopping.load(Ordering::Relaxed) {
            return Err(Errno::SHUTDOWN.into());
        }
        let request = Request::parse(header.kind, body.as_slice()).map_err(|_| Errno::PROTO)?;
        session.perform(header.kind, header.tag, &request, reply)
    }

    /// Adds a short reply for the writer.
    fn post(&self, header: Header, reply: &Reply<'_>, reserved: Option<u64>) {
        let mut buffer = self.shared.buffers.take();
        buffer.push(&reply.to_bytes(header.kind, header.tag));
        self.outbox.post(Owed { reply: buffer, reserved });
    }

    /// Adds a short reply to the reader's batch.
    fn add(&self, batch: &mut Batch, bytes: &[u8]) {
        let mut buffer = self.shared.buffers.take();
        buffer.push(bytes);
        batch.add(buffer);
    }

    fn send(&self, batch: &mut Batch) -> Result<()> {
        self.outbox.send(batch, &*self.client.socket, &self.shared.buffers)
    }
}

/// Bytes of the body of a message.
fn body_length(header: Header, session: Option<&Session>) -> Result<usize> {
    let size_max = session.map_or(*Session::MSIZES.start(), |session| session.msize);
    let size = header.size;
    if size < HEADER_BYTES as u32 || size > size_max {
        return Err(Error::corrupt(format!("a message of {size} bytes, where {size_max} were agreed on")));
    }
    Ok(size as usize - HEADER_BYTES)
}

/// Whether requests of this kind are usually answered from memory.
fn is_short(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::OPEN
            | Kind::CREATE
            | Kind::CLUNK
            | Kind::REMOVE
            | Kind::RENAME
            | Kind::SETATTR
            | Kind::FSYNC
            | Kind::MKDIR
            | Kind::RENAMEAT
            | Kind::UNLINKAT
    )
}

/// Whether requests of this kind change nothing.
fn is_read(kind: Kind) -> bool {
    matches!(kind, Kind::READ | Kind::READDIR | Kind::GETATTR | Kind::STATFS)
}

/// Budget bytes of a request.
fn payload_bytes(session: &Session, header: Header, body: &Buffer) -> u64 {
    let answer = match Request::parse(header.kind, body.as_slice()) {
        Ok(Request::Read { count, .. } | Request::ReadDirectory { count, .. }) => session.data_bytes(count),
        _ => 0,
    };
    u64::from(header.size) + u64::from(answer)
}
