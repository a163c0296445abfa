//! Replies that wait to be sent to one client, and the requests that still owe a reply.
//!
//! Owns the right to write to the socket: one thread at a time has it, and sends all waiting replies in one call. Any
//! thread may add a reply. Only the two threads of the connection may write, so a client that does not read blocks
//! nobody else.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io::{self, IoSlice};

use platter_image::{Error, Result};

use crate::buffer::{Buffer, Buffers};
use crate::peer::Peer;

/// Maximum requests of one client at the workers or with waiting replies.
const REQUESTS_IN_FLIGHT_MAX: usize = 64;
/// Maximum payload bytes of these requests, in both directions; a single request may have more. Four times as much was
/// not faster, and cost 30 MB more for four connections of `nbdcopy`.
const BYTES_IN_FLIGHT_MAX: u64 = 4 << 20;
/// Maximum replies per system call.
const REPLIES_AT_ONCE: usize = 64;

/// Reply bytes that the reader collects before it sends them.
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Replies that the reader collects before it sends them.
const BATCH_REPLIES_MAX: usize = 64;

/// A reply, and the budget share of its request, if any.
pub(crate) struct Owed {
    pub(crate) reply: Buffer,
    pub(crate) reserved: Option<u64>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Owed>,
    /// A thread is writing, and will also send replies added meanwhile.
    is_writing: bool,
    /// Writing has failed.
    has_failed: bool,
    /// No more replies will be added.
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
    /// Wakes the writer: there is something to write, or the end.
    work: Condvar,
    /// Wakes the reader: less is in flight, or writing failed.
    room: Condvar,
}

impl Outbox {
    /// Waits until a request with this payload size may start. Returns false if the connection failed.
    pub(crate) fn wait_for_room(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        while !state.has_failed
            && state.requests > 0
            && (state.requests >= REQUESTS_IN_FLIGHT_MAX || state.bytes + bytes > BYTES_IN_FLIGHT_MAX)
        {
            self.room.wait(&mut state);
        }
        !state.has_failed
    }

    /// Counts a request handed to a worker.
    pub(crate) fn reserve(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.requests += 1;
        state.bytes += bytes;
    }

    /// Number of requests that owe a reply.
    pub(crate) fn in_flight(&self) -> usize {
        self.state.lock().requests
    }

    /// Adds a reply for the writer.
    pub(crate) fn post(&self, owed: Owed) {
        let mut state = self.state.lock();
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

    /// Sends the reader's own replies. If another thread is writing, that thread sends them too; until then they count
    /// as in flight.
    ///
    /// # Errors
    /// Errors of the socket; the connection then ends.
    pub(crate) fn send(&self, batch: &mut Batch, peer: &impl Peer, buffers: &Buffers) -> Result<()> {
        if batch.replies.is_empty() {
            return Ok(());
        }
        batch.bytes = 0;
        let replies = &mut batch.replies;
        let mut state = self.state.lock();
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

    /// Runs the writer: sends the replies of workers.
    ///
    /// # Errors
    /// As the socket; the connection is then over.
    pub(crate) fn run_writer(&self, peer: &impl Peer, buffers: &Buffers) -> Result<()> {
        loop {
            let mut state = self.state.lock();
            while !state.is_closed && (state.waiting.is_empty() || state.is_writing) {
                self.work.wait(&mut state);
            }
            if state.is_closed {
                return Ok(());
            }
            self.write_all(state, peer, buffers)?;
        }
    }

    /// A request at a worker will get no reply.
    pub(crate) fn release(&self, bytes: u64) {
        self.state.lock().release(Some(bytes));
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
        let mut state = self.state.lock();
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
                // Wakes the reader, which would wait for requests.
                peer.cut_off();
            }
            state = self.state.lock();
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
    /// Adds a reply without a budget share.
    pub(crate) fn add(&mut self, reply: Buffer) {
        self.bytes += reply.as_slice().len();
        self.replies.push(Owed { reply, reserved: None });
    }

    /// Whether the batch should be sent before more is added.
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
                Ok(0) => return Err(Error::transient("the client disconnected")),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(Error::transient("the client does not read its replies"));
                }
                Err(error) => return Err(Error::io("writing to the client", error)),
            }
        }
    }
    Ok(())
}
