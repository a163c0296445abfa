//! Frames on their way to an origin: gathered into requests, several of which are under way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use platter_image::frame::{EncodedFrame, STORED_LENGTH_MAX, stream};
use platter_image::{BlockId, Error, IoContext, Result};
use serde::Deserialize;

use crate::remote::client::{Client, retried};

/// Bytes of frames in one request, about.
const REQUEST_LENGTH: usize = 2 << 20;
/// Requests under way, and requests that wait to be.
const REQUESTS_MAX: usize = 4;
const REQUESTS_WAITING: usize = 2;
/// So long a request is sent again to an origin that is away.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);
/// Most bytes of an answer.
const ANSWER_MAX: u64 = 64 << 10;

// With what is still to come on top, a body is never longer than an origin takes.
const _: () = assert!(REQUEST_LENGTH + 2 * STORED_LENGTH_MAX < stream::UPLOAD_LENGTH_MAX);

/// Frames of one request.
#[derive(Default)]
struct Batch {
    frames: Vec<(Vec<BlockId>, Vec<u8>)>,
    length: usize,
}

/// How a request was answered.
#[derive(Deserialize)]
struct Accepted {
    accepted: u64,
}

/// What the threads share.
struct Way {
    client: Arc<Client>,
    /// The session's path.
    path: String,
    failure: Mutex<Option<Error>>,
}

/// The threads that send, and what waits for them.
pub(super) struct Sending {
    way: Arc<Way>,
    gathered: Mutex<Batch>,
    batches: Option<Sender<Batch>>,
    threads: Vec<JoinHandle<()>>,
}

impl Sending {
    pub(super) fn start(client: Arc<Client>, path: String) -> Result<Self> {
        let way = Arc::new(Way { client, path, failure: Mutex::default() });
        let (batches, waiting) = bounded(REQUESTS_WAITING);
        let mut sending =
            Self { way, gathered: Mutex::default(), batches: Some(batches), threads: Vec::new() };
        for _ in 0..REQUESTS_MAX {
            let (way, waiting) = (sending.way.clone(), waiting.clone());
            let thread = thread::Builder::new().name("upload".to_owned());
            let thread = thread.spawn(move || way.send_all(&waiting));
            sending.threads.push(thread.context(|| "starting a thread that sends".to_owned())?);
        }
        Ok(sending)
    }

    /// Takes a frame to be sent; waits when much is on its way.
    ///
    /// # Errors
    /// The first failure of a request.
    pub(super) fn push(&self, frame: &EncodedFrame) -> Result<()> {
        self.check()?;
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = frame.blocks.iter().map(|block| block.id).collect();
        gathered.frames.push((ids, frame.stored.clone()));
        gathered.length += frame.stored.len();
        if gathered.length < REQUEST_LENGTH {
            return Ok(());
        }
        let batch = std::mem::take(&mut *gathered);
        drop(gathered);
        self.hand_over(batch)
    }

    /// Sends the rest, and waits until the origin has taken all.
    ///
    /// # Errors
    /// The first failure of a request.
    pub(super) fn finish(&mut self) -> Result<()> {
        let rest = std::mem::take(&mut *self.gathered.lock().unwrap_or_else(PoisonError::into_inner));
        let handed = if rest.frames.is_empty() { Ok(()) } else { self.hand_over(rest) };
        self.join();
        self.check().and(handed)
    }

    fn hand_over(&self, batch: Batch) -> Result<()> {
        let gone = || Error::bug("frames for an upload that has ended");
        self.batches.as_ref().ok_or_else(gone)?.send(batch).map_err(|_| gone())
    }

    /// Fails once a request did, as it did.
    fn check(&self) -> Result<()> {
        match &*self.way.failure() {
            None => Ok(()),
            Some(error) => Err(Error::new(error.kind(), error.to_string())),
        }
    }

    fn join(&mut self) {
        self.batches = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                self.way.failure().get_or_insert_with(|| Error::bug("a thread that sends panicked"));
            }
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            // What is not sent is not wanted any more.
            self.way.failure().get_or_insert_with(|| Error::refused("the upload was given up"));
            self.join();
        }
    }
}

impl Way {
    fn failure(&self) -> MutexGuard<'_, Option<Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends batches until there are no more. After a failure they are only taken, so that nobody waits.
    fn send_all(&self, batches: &Receiver<Batch>) {
        for batch in batches {
            if self.failure().is_some() {
                continue;
            }
            if let Err(error) = self.send(batch) {
                self.failure().get_or_insert(error);
            }
        }
    }

    /// Sends a batch, and what did not arrive of it again.
    fn send(&self, mut batch: Batch) -> Result<()> {
        let mut is_first = true;
        retried(RETRY_TIME_MAX, || {
            if self.failure().is_some() {
                return Ok(());
            }
            if !std::mem::take(&mut is_first) {
                let mut needed = self.still_needed(&batch.frames)?.into_iter();
                batch.frames.retain(|_| needed.next() != Some(false));
                if batch.frames.is_empty() {
                    return Ok(());
                }
            }
            let mut body = Vec::with_capacity(batch.length + 64);
            stream::write_head(&mut body);
            batch.frames.iter().for_each(|(_, stored)| stream::write_frame(stored, &mut body));
            stream::write_end(&[], &mut body);
            let answer = self.client.post_bytes(&format!("{}/frames", self.path), &body, ANSWER_MAX)?;
            let answer: Accepted = serde_json::from_slice(&answer).map_err(|error| {
                Error::corrupt(format!("{}: no answer to an upload", self.client.name())).with_source(error)
            })?;
            // What another session has sent meanwhile may be left out; more than there is cannot be taken.
            let blocks: usize = batch.frames.iter().map(|(ids, _)| ids.len()).sum();
            if answer.accepted > blocks as u64 {
                return Err(Error::corrupt(format!("{}: it took more than was sent", self.client.name())));
            }
            Ok(())
        })
    }

    /// For each frame, whether it holds something which the origin needs.
    fn still_needed(&self, frames: &[(Vec<BlockId>, Vec<u8>)]) -> Result<Vec<bool>> {
        let ids: Vec<BlockId> = frames.iter().flat_map(|(ids, _)| ids.iter().copied()).collect();
        let needed = need(&self.client, &self.path, &ids)?;
        let mut rest = &needed[..];
        let is_needed = |(ids, _): &(Vec<BlockId>, Vec<u8>)| {
            let (own, after) = rest.split_at(ids.len());
            rest = after;
            own.contains(&true)
        };
        Ok(frames.iter().map(is_needed).collect())
    }
}

/// Which of the blocks the origin needs, for the session at `path`.
///
/// # Errors
/// What the origin says; `Corrupt` when its answer is none.
pub(super) fn need(client: &Client, path: &str, ids: &[BlockId]) -> Result<Vec<bool>> {
    let mut needed = Vec::with_capacity(ids.len());
    for ids in ids.chunks(stream::NEED_IDS_MAX) {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.0).collect();
        let answer = client.post_bytes(&format!("{path}/need"), &bytes, bytes.len() as u64)?;
        needed.extend(stream::need_from_bytes(&answer, ids.len())?);
    }
    Ok(needed)
}
