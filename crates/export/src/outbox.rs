//! Replies on their way to one client, and the requests that still owe one.
//!
//! Owns the right to write to the socket: one thread at a time has it, and takes all replies that wait in one call. Any
//! thread may leave a reply; only the two threads of the connection may write, so that a client that does not read holds
//! up nobody else.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io::{self, IoSlice};

use platter_image::{Error, Result};

use crate::buffer::{Buffer, Buffers};
use crate::peer::Peer;

/// Requests of one client that are with the workers, or whose replies wait.
const REQUESTS_IN_FLIGHT_MAX: usize = 64;
/// Bytes of payload, in either direction, of these. One request alone may have more. Four times as much was no faster, and
/// four connections of `nbdcopy` then cost 30 MB more.
const BYTES_IN_FLIGHT_MAX: u64 = 4 << 20;
/// Replies in one system call.
const REPLIES_AT_ONCE: usize = 64;

/// Bytes of replies that the reader gathers before it sends them.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Replies that the reader gathers before it sends them.
const BATCH_REPLIES_MAX: usize = 64;

/// A reply, and the payload that its request took from the budget; `None` when it took nothing.
pub(crate) struct Owed {
    pub(crate) reply: Buffer,
    pub(crate) reserved: Option<u64>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Owed>,
    /// A thread writes; it will take what comes meanwhile.
    is_writing: bool,
    /// Nothing can be written any more.
    has_failed: bool,
    /// No reply will come any more.
    is_closed: bool,
    requests: usize,
    bytes: u64,
}

impl State {
    fn release(&mut self, reserved: Option<u64>) {
        if let Some(bytes) = reserved {
            self.requests -= 1;
            self.bytes -= bytes;
        }
    }
}

/// The replies of one connection.
#[derive(Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// Something to write, or the end: for the writer.
    work: Condvar,
    /// Less is in flight, or nothing can be written any more: for the reader.
    room: Condvar,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until a request with that many bytes of payload may begin. False: the connection has failed.
    pub(crate) fn wait_for_room(&self, bytes: u64) -> bool {
        let mut state = self.lock();
        while !state.has_failed
            && state.requests > 0
            && (state.requests >= REQUESTS_IN_FLIGHT_MAX || state.bytes + bytes > BYTES_IN_FLIGHT_MAX)
        {
            self.room.wait(&mut state);
        }
        !state.has_failed
    }

    /// Notes a request that goes to a worker.
    pub(crate) fn reserve(&self, bytes: u64) {
        let mut state = self.lock();
        state.requests += 1;
        state.bytes += bytes;
    }

    /// Requests that owe a reply.
    pub(crate) fn in_flight(&self) -> usize {
        self.lock().requests
    }

    /// Leaves a reply for the writer.
    pub(crate) fn post(&self, owed: Owed) {
        let mut state = self.lock();
        if state.has_failed {
            state.release(owed.reserved);
            self.room.notify_all();
            return;
        }
        state.waiting.push(owed);
        if !state.is_writing {
            self.work.notify_one();
        }
    }

    /// Sends the reader's own replies, unless another thread writes already: then that one sends them too, and until it
    /// has they count as in flight.
    ///
    /// # Errors
    /// As the socket; the connection is then over.
    pub(crate) fn send(&self, batch: &mut Batch, peer: &impl Peer, buffers: &Buffers) -> Result<()> {
        if batch.replies.is_empty() {
            return Ok(());
        }
        batch.bytes = 0;
        let replies = &mut batch.replies;
        let mut state = self.lock();
        if state.is_writing {
            for owed in replies.iter_mut() {
                let bytes = owed.reply.as_slice().len() as u64;
                owed.reserved = Some(bytes);
                state.requests += 1;
                state.bytes += bytes;
            }
        }
        state.waiting.append(replies);
        if state.is_writing { Ok(()) } else { self.write_all(state, peer, buffers) }
    }

    /// The writer's whole life: writes what workers leave.
    ///
    /// # Errors
    /// As the socket; the connection is then over.
    pub(crate) fn run_writer(&self, peer: &impl Peer, buffers: &Buffers) -> Result<()> {
        loop {
            let mut state = self.lock();
            while !state.is_closed && (state.waiting.is_empty() || state.is_writing) {
                self.work.wait(&mut state);
            }
            if state.is_closed {
                return Ok(());
            }
            self.write_all(state, peer, buffers)?;
        }
    }

    /// A request that a worker had will have no reply.
    pub(crate) fn release(&self, bytes: u64) {
        self.lock().release(Some(bytes));
        self.room.notify_all();
    }

    /// Waits until every request has had its reply, or none can have one.
    pub(crate) fn wait_until_idle(&self) {
        drop(self.idle());
    }

    /// Waits until every request has had its reply, or none can have one, and lets the writer go.
    pub(crate) fn close(&self) {
        self.idle().is_closed = true;
        self.work.notify_all();
    }

    fn idle(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.requests > 0 || state.is_writing {
            self.room.wait(&mut state);
        }
        state
    }

    fn write_all<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        peer: &impl Peer,
        buffers: &Buffers,
    ) -> Result<()> {
        state.is_writing = true;
        let mut result = Ok(());
        while !state.waiting.is_empty() {
            let batch = std::mem::take(&mut state.waiting);
            drop(state);
            if result.is_ok() {
                result = write(peer, &batch);
            }
            if result.is_err() {
                // Wakes the reader, who would wait for requests.
                peer.cut_off();
            }
            state = self.lock();
            state.has_failed |= result.is_err();
            batch.iter().for_each(|owed| state.release(owed.reserved));
            buffers.give(batch.into_iter().map(|owed| owed.reply));
            self.room.notify_all();
        }
        state.is_writing = false;
        self.room.notify_all();
        result
    }
}

/// Replies of the reader itself, sent together.
#[derive(Default)]
pub(crate) struct Batch {
    replies: Vec<Owed>,
    bytes: usize,
}

impl Batch {
    /// Adds one that took nothing from the budget.
    pub(crate) fn add(&mut self, reply: Buffer) {
        self.bytes += reply.as_slice().len();
        self.replies.push(Owed { reply, reserved: None });
    }

    /// Whether it should be sent before anything is added.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES_MAX || self.replies.len() >= BATCH_REPLIES_MAX
    }
}

fn write(peer: &impl Peer, batch: &[Owed]) -> Result<()> {
    for replies in batch.chunks(REPLIES_AT_ONCE) {
        let mut slices = [IoSlice::new(&[]); REPLIES_AT_ONCE];
        let mut left = &mut slices[..replies.len()];
        for (slice, owed) in left.iter_mut().zip(replies) {
            *slice = IoSlice::new(owed.reply.as_slice());
        }
        while !left.is_empty() {
            match peer.send_slices(left) {
                Ok(0) => return Err(Error::transient("the client has hung up")),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(Error::transient("the client does not read what it asked for"));
                }
                Err(error) => return Err(Error::io("writing to the client", error)),
            }
        }
    }
    Ok(())
}
