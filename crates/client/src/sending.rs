//! Sends frames to an origin with several concurrent requests. Requests are full; only while few are under way, smaller
//! ones are sent at once, so that no link is idle while frames wait (as Nagle's rule, RFC 896, does for bytes).

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use platter_image::frame::{EncodedFrame, STORED_LENGTH_MAX, stream};
use platter_image::{BlockId, Error, IoContext, Result};
use serde::Deserialize;

use crate::client::{Client, retried};

/// Most bytes of frames in one request, except for its last frame.
const REQUEST_LENGTH: usize = 2 << 20;
/// Requests under way.
const REQUESTS_MAX: usize = 4;
/// With fewer requests under way, one starts even if it is not full: one travels while another is answered.
const REQUESTS_MIN: usize = 2;
/// With more waiting bytes, callers that add frames wait too.
const WAITING_MAX: usize = 2 * REQUEST_LENGTH;
/// How long a request is retried while the origin is down.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);
/// Most bytes of a response.
const ANSWER_MAX: u64 = 64 << 10;

// Even with the frame that exceeds the limit, a body is never longer than an origin accepts.
const _: () = assert!(REQUEST_LENGTH + 2 * STORED_LENGTH_MAX < stream::UPLOAD_LENGTH_MAX);

/// A frame as stored, and its blocks.
type Frame = (Vec<BlockId>, Vec<u8>);

/// The queue of frames to send.
#[derive(Default)]
struct Waiting {
    frames: VecDeque<Frame>,
    length: usize,
    /// Requests under way.
    under_way: usize,
    /// No more frames will be added.
    is_last: bool,
    /// The error of the first failed request. Nothing is sent after it.
    failure: Option<Error>,
}

/// The response to a request.
#[derive(Deserialize)]
struct Accepted {
    accepted: u64,
}

/// The state that the threads share.
struct UploadQueue {
    client: Arc<Client>,
    /// The session's path.
    path: String,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// The threads that send.
pub(super) struct Sending {
    way: Arc<UploadQueue>,
    threads: Vec<JoinHandle<()>>,
}

impl Sending {
    pub(super) fn start(client: Arc<Client>, path: String) -> Result<Self> {
        let way = UploadQueue { client, path, waiting: Mutex::default(), changed: Condvar::new() };
        let mut sending = Self { way: Arc::new(way), threads: Vec::new() };
        for _ in 0..REQUESTS_MAX {
            let way = sending.way.clone();
            let thread = thread::Builder::new().name("upload".to_owned()).spawn(move || way.send_all());
            sending.threads.push(thread.context(|| "starting a sending thread".to_owned())?);
        }
        Ok(sending)
    }

    /// Adds a frame; waits while too much is queued.
    ///
    /// # Errors
    /// The first failure of a request.
    pub(super) fn push(&self, frame: &EncodedFrame) -> Result<()> {
        let is_full = |waiting: &mut Waiting| waiting.length >= WAITING_MAX && waiting.failure.is_none();
        let mut waiting = self.way.waiting();
        self.way.changed.wait_while(&mut waiting, is_full);
        waiting.check()?;
        let ids = frame.blocks.iter().map(|block| block.id).collect();
        waiting.frames.push_back((ids, frame.stored.clone()));
        waiting.length += frame.stored.len();
        drop(waiting);
        self.way.changed.notify_all();
        Ok(())
    }

    /// Sends the rest, and waits until the origin has accepted everything.
    ///
    /// # Errors
    /// The first failure of a request.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.way.waiting().is_last = true;
        self.way.changed.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                self.way.fail(Error::bug("a sending thread panicked"));
            }
        }
        self.way.waiting().check()
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            // Unsent frames are no longer wanted.
            self.way.fail(Error::refused("the upload was abandoned"));
            let _ = self.finish();
        }
    }
}

impl Waiting {
    /// Returns the error of the first failed request.
    fn check(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |error| Err(Error::new(error.kind(), error.to_string())))
    }

    /// Whether a request should start now, or none will start any more.
    fn is_ready(&self) -> bool {
        let is_worth_it = self.length >= REQUEST_LENGTH || self.under_way < REQUESTS_MIN;
        self.is_last || self.failure.is_some() || !self.frames.is_empty() && is_worth_it
    }

    /// Takes the frames of one request; empty when there are no more.
    fn take(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut length = 0;
        while length < REQUEST_LENGTH
            && let Some(frame) = self.frames.pop_front()
        {
            length += frame.1.len();
            frames.push(frame);
        }
        self.length -= length;
        frames
    }
}

impl UploadQueue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }

    fn fail(&self, error: Error) {
        let mut waiting = self.waiting();
        waiting.failure.get_or_insert(error);
        waiting.frames.clear();
        waiting.length = 0;
        drop(waiting);
        self.changed.notify_all();
    }

    /// Sends until nothing is left, or a request fails.
    fn send_all(&self) {
        loop {
            let mut waiting = self.waiting();
            self.changed.wait_while(&mut waiting, |waiting| !waiting.is_ready());
            let frames = waiting.take();
            if frames.is_empty() {
                return;
            }
            waiting.under_way += 1;
            drop(waiting);
            self.changed.notify_all();
            if let Err(error) = self.send(frames) {
                self.fail(error);
            }
            self.waiting().under_way -= 1;
            self.changed.notify_all();
        }
    }

    /// Sends frames, and on a retry only those that did not arrive.
    fn send(&self, mut frames: Vec<Frame>) -> Result<()> {
        let mut is_first = true;
        retried(RETRY_TIME_MAX, || {
            if self.waiting().failure.is_some() {
                return Ok(());
            }
            if !std::mem::take(&mut is_first) {
                let mut needed = self.still_needed(&frames)?.into_iter();
                frames.retain(|_| needed.next() != Some(false));
                if frames.is_empty() {
                    return Ok(());
                }
            }
            let length: usize = frames.iter().map(|(_, stored)| stored.len()).sum();
            let mut body = Vec::with_capacity(length + 64);
            stream::write_head(&mut body);
            frames.iter().for_each(|(_, stored)| stream::write_frame(stored, &mut body));
            stream::write_end(&[], &mut body);
            let answer = self.client.post_bytes(&format!("{}/frames", self.path), &body, ANSWER_MAX)?;
            let answer: Accepted = serde_json::from_slice(&answer).map_err(|error| {
                Error::corrupt(format!("{}: invalid response to an upload", self.client.name()))
                    .with_source(error)
            })?;
            // Frames that another session has sent meanwhile may be left out, but no more blocks can be accepted than
            // were sent.
            let blocks: usize = frames.iter().map(|(ids, _)| ids.len()).sum();
            if answer.accepted > blocks as u64 {
                return Err(Error::corrupt(format!(
                    "{}: it accepted more than was sent",
                    self.client.name()
                )));
            }
            Ok(())
        })
    }

    /// Returns for each frame whether the origin needs any of its blocks.
    fn still_needed(&self, frames: &[Frame]) -> Result<Vec<bool>> {
        let ids: Vec<BlockId> = frames.iter().flat_map(|(ids, _)| ids.iter().copied()).collect();
        let needed = need(&self.client, &self.path, &ids)?;
        let mut rest = &needed[..];
        let is_needed = |(ids, _): &Frame| {
            let (own, after) = rest.split_at(ids.len());
            rest = after;
            own.contains(&true)
        };
        Ok(frames.iter().map(is_needed).collect())
    }
}

/// Returns which of the blocks the origin needs, for the session at `path`.
///
/// # Errors
/// The origin's errors; `Corrupt` when its response is invalid.
pub(super) fn need(client: &Client, path: &str, ids: &[BlockId]) -> Result<Vec<bool>> {
    let mut needed = Vec::with_capacity(ids.len());
    for ids in ids.chunks(stream::NEED_IDS_MAX) {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.0).collect();
        let answer = client.post_bytes(&format!("{path}/need"), &bytes, bytes.len() as u64)?;
        needed.extend(stream::need_from_bytes(&answer, ids.len())?);
    }
    Ok(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(frames: usize, under_way: usize) -> Waiting {
        let frames: VecDeque<Frame> = (0..frames).map(|_| (Vec::new(), vec![0; 100_000])).collect();
        Waiting { length: frames.len() * 100_000, frames, under_way, ..Waiting::default() }
    }

    #[test]
    fn a_link_is_not_idle_while_frames_wait_and_requests_are_full_while_it_is_busy() {
        assert!(waiting(1, 0).is_ready() && waiting(1, REQUESTS_MIN - 1).is_ready());
        assert!(!waiting(1, REQUESTS_MIN).is_ready() && !waiting(20, REQUESTS_MIN).is_ready());
        assert!(waiting(21, REQUESTS_MIN).is_ready(), "a full request");
        assert!(!waiting(0, 0).is_ready());
        for frames in [0, 1] {
            assert!(Waiting { is_last: true, ..waiting(frames, REQUESTS_MIN) }.is_ready());
        }
        assert!(Waiting { failure: Some(Error::refused("no")), ..waiting(0, 3) }.is_ready());
    }

    #[test]
    fn a_request_takes_waiting_frames_up_to_its_length() {
        let mut waiting = waiting(50, 0);
        let taken: Vec<usize> = std::iter::repeat_with(|| waiting.take().len()).take(4).collect();
        assert_eq!(taken, [21, 21, 8, 0]);
        assert_eq!(waiting.length, 0);
    }
}
