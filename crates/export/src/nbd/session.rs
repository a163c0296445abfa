//! One client after its negotiation: requests in, replies out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use platter_image::{Error, Extent, Result};

use super::event::NbdEvent;
use super::execute::{Failure, check, perform};
use super::negotiate::Agreed;
use super::server::Shared;
use super::stream::Stream;
use super::wire::{Command, CommandFlags, PAYLOAD_BYTES_MAX, REQUEST_HEADER_BYTES, Request};
use crate::budget::{Account, Share};
use crate::buffer::Buffer;
use crate::input::Input;
use crate::outbox::{Batch, Outbox, Owed};
use crate::pace::Pace;
use crate::pause::Pause;
use crate::workers::Workers;

/// A request for the workers.
pub(super) struct Job {
    session: Arc<Session>,
    request: Request,
    payload: Buffer,
    reserved: u64,
}

/// The workers of a disk.
pub(super) fn workers(threads_max: usize) -> Arc<Workers<Job>> {
    Workers::new("nbd-worker", threads_max, |Job { session, request, payload, reserved }| {
        let reply = session.execute(&request, payload);
        session.outbox.post(Owed { reply, reserved: Some(reserved) });
    })
}

/// How a session ended.
pub(super) enum End {
    /// The client has gone.
    Gone,
    /// A pause is ordered. These bytes were read, and belong to requests that were not begun.
    Paused(Vec<u8>),
}

/// What became of a request that was read.
enum Accepted {
    /// It is to be done, with this payload.
    Yes(Buffer),
    /// Its reply says why not.
    Answered,
    /// A pause was ordered before all of its payload came.
    Paused,
}

/// State shared by the threads of one connection and the workers.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) connection: u64,
    pub(super) stream: Arc<Stream>,
    pub(super) agreed: Agreed,
    pub(super) outbox: Outbox,
    pub(super) pace: Pace,
    pub(super) account: Account,
    pub(super) workers: Arc<Workers<Job>>,
}

impl Session {
    /// Serves until the client goes, or a pause is ordered. The calling thread is the reader; there is a writer too from the
    /// first request on that goes to a worker. Gives what was read and not begun, when every request that was begun has its
    /// reply.
    ///
    /// # Errors
    /// `Corrupt` when the client violates the protocol; `Transient` when it stalls or disconnects within a request;
    /// `Io`.
    pub(super) fn run(self: &Arc<Self>, pause: &Pause, unread: Vec<u8>) -> Result<End> {
        thread::scope(|scope| {
            let mut writer = None;
            let mut start_writer = || -> Result<()> {
                if writer.is_none() {
                    let run = || self.outbox.run_writer(&*self.stream, &self.shared.buffers);
                    let started = thread::Builder::new().name("nbd-writer".into()).spawn_scoped(scope, run);
                    writer = Some(started.map_err(|error| Error::io("starting a thread", error))?);
                }
                Ok(())
            };
            let mut batch = Batch::default();
            let mut input = Input::new(&*self.stream, pause, self.shared.options.stall_time, unread);
            let mut result = self.read_requests(&mut input, &mut batch, &mut start_writer);
            let sent = self.send(&mut batch);
            result = result.and_then(|has_gone| sent.map(|()| has_gone));
            self.outbox.close();
            if let Some(Ok(written)) = writer.map(thread::ScopedJoinHandle::join) {
                // The writer's error is more informative than the reader's resulting disconnect.
                result = written.and(result);
            }
            result.map(|has_gone| match has_gone {
                true => End::Gone,
                false => End::Paused(input.into_unread()),
            })
        })
    }

    /// Gives whether the client has gone; otherwise a pause is ordered.
    fn read_requests(
        self: &Arc<Self>,
        input: &mut Input<'_, Stream>,
        batch: &mut Batch,
        start_writer: &mut dyn FnMut() -> Result<()>,
    ) -> Result<bool> {
        loop {
            let has_next = input.available() >= REQUEST_HEADER_BYTES;
            if !has_next || batch.is_full() {
                self.send(batch)?;
            }
            let Some(header) = input.header()? else { return Ok(!input.is_paused()) };
            let request = Request::parse(&header)?;
            if request.command == Command::Disconnect {
                return Ok(true);
            }
            let reserved = payload_bytes(&request);
            if !self.outbox.wait_for_room(reserved) {
                return Ok(true);
            }
            if input.available() < request.payload_length() as usize {
                self.send(batch)?;
            }
            let payload = match self.accept(&request, input, batch)? {
                Accepted::Yes(payload) => payload,
                Accepted::Answered => continue,
                Accepted::Paused => {
                    input.put_back(&header);
                    return Ok(false);
                }
            };
            let is_alone = input.available() < REQUEST_HEADER_BYTES && self.outbox.in_flight() == 0;
            if self.is_for_workers(&request, is_alone) {
                start_writer()?;
                self.outbox.reserve(reserved);
                let job = Job { session: Arc::clone(self), request, payload, reserved };
                self.workers.add(job).inspect_err(|_| self.outbox.release(reserved))?;
            } else {
                batch.add(self.execute(&request, payload));
            }
        }
    }

    /// Reads the payload of an acceptable request; for other requests, adds the error reply.
    fn accept(
        &self,
        request: &Request,
        input: &mut Input<'_, Stream>,
        batch: &mut Batch,
    ) -> Result<Accepted> {
        let length = request.payload_length();
        if length > PAYLOAD_BYTES_MAX {
            return Err(Error::corrupt(format!("a write of {length} bytes, over {PAYLOAD_BYTES_MAX}")));
        }
        let is_stopping = self.shared.is_stopping.load(Ordering::Relaxed);
        let mut checked = if is_stopping { Err(Failure::shutdown()) } else { check(&self.agreed, request) };
        let mut share = None;
        if checked.is_ok() {
            share = self.take_share(payload_bytes(request), batch)?;
            if share.is_none() {
                checked = Err(Failure::shutdown());
            }
        }
        if let Err(failure) = checked {
            input.skip(length)?;
            batch.add(self.fail(&failure, request, self.shared.buffers.take()));
            return Ok(Accepted::Answered);
        }
        let mut payload = self.shared.buffers.take();
        payload.share = share;
        let is_whole = input.payload(payload.grow(length as usize))?;
        Ok(if is_whole { Accepted::Yes(payload) } else { Accepted::Paused })
    }

    /// Takes bytes from the shared budget; `None` when the server shuts down first.
    fn take_share(&self, bytes: u64, batch: &mut Batch) -> Result<Option<Share>> {
        let budget = &self.shared.budget;
        if let Some(share) = budget.take(&self.account, bytes) {
            return Ok(Some(share));
        }
        // Replies of workers hold budget shares, too.
        self.send(batch)?;
        Ok(budget.wait(&self.account, bytes, || self.shared.is_stopping.load(Ordering::Relaxed)))
    }

    fn is_for_workers(&self, request: &Request, is_alone: bool) -> bool {
        // A flush says nothing about the speed of the next read.
        let is_durable = request.command == Command::Flush || request.flags.has(CommandFlags::FUA);
        let is_long = is_durable || request.command == Command::Cache;
        if is_long {
            return !is_alone;
        }
        // With requests waiting, the disk's own estimate decides first, then recent service times.
        let range = Extent::new(request.offset, u64::from(request.length));
        let asked = request.command == Command::Read && !is_alone;
        let is_near = if asked { self.agreed.device.is_near(range) } else { None };
        !is_near.unwrap_or_else(|| self.pace.is_quick(is_alone))
    }

    /// Executes an accepted request. The payload's buffer is recycled.
    fn execute(&self, request: &Request, mut payload: Buffer) -> Buffer {
        let mut reply = self.shared.buffers.take();
        reply.share = payload.share.take();
        let start = Instant::now();
        let done = perform(&self.agreed, request, payload.as_slice(), &mut reply);
        if matches!(request.command, Command::Read | Command::Write) {
            self.pace.note(start.elapsed(), request.length);
        }
        self.shared.buffers.give([payload]);
        match done {
            Ok(()) => reply,
            Err(failure) => self.fail(&failure, request, reply),
        }
    }

    fn fail(&self, failure: &Failure, request: &Request, mut reply: Buffer) -> Buffer {
        let &Request { command, offset, length, .. } = request;
        let export = &self.agreed.name;
        let error = &failure.error;
        let connection = self.connection;
        if let Some(repeats) = self.shared.failures.note(export, error, Instant::now()) {
            self.shared.tell(&NbdEvent::RequestFailed {
                connection,
                export,
                command,
                offset,
                length,
                error,
                repeats,
            });
        }
        failure.write(&self.agreed, request, &mut reply);
        reply
    }

    fn send(&self, batch: &mut Batch) -> Result<()> {
        self.outbox.send(batch, &*self.stream, &self.shared.buffers)
    }
}

/// Budget bytes of a request.
fn payload_bytes(request: &Request) -> u64 {
    match request.command {
        Command::Read | Command::Write => u64::from(request.length),
        _ => 0,
    }
}
