//! Requests to the origin, by threads with one request each at a time.
//!
//! Threads start when there are requests, and end with the fetcher. Must never pass on a frame that was not requested:
//! an origin could send such frames forever.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use platter_image::frame::FrameHeader;
use platter_image::frame::stream::FramesRequest;
use platter_image::{BlockId, Error, Kind, Result};

use super::fetcher::Shared;
use super::frame::VerifiedFrame;
use super::groups::Groups;

/// Most concurrent requests to the origin: enough to fill a link with a long round trip, with some left for urgent
/// ones.
const THREADS_MAX: usize = 20;

/// Receives a decoded and hashed frame. An error ends the response.
pub(crate) type TakeFrame<'a> = dyn FnMut(&FrameHeader, &[u8]) -> Result<()> + 'a;

/// A source of all frames.
pub(crate) trait OriginFrames: Send + Sync {
    /// Passes frames with these blocks or pages of a recipe to `take`, each verified on this machine. Returns the ids
    /// that were not found.
    ///
    /// # Errors
    /// `Transient` when it is down; its other errors.
    fn fetch(&self, request: &FramesRequest, take: &mut TakeFrame<'_>) -> Result<Vec<BlockId>>;
}

/// A request to send.
struct Question {
    number: u32,
    request: FramesRequest,
    is_cancelled: Arc<AtomicBool>,
}

/// A request under way.
struct Asked {
    kind: Kind,
    /// Ids that have not arrived.
    left: HashSet<BlockId>,
    is_cancelled: Arc<AtomicBool>,
}

/// Sends requests to the origin. The scheduler limits their number.
pub(super) struct Origin {
    asker: Asker,
    /// `None` after the end.
    questions: Option<Sender<Question>>,
    running: usize,
    under_way: HashMap<u32, Asked>,
}

impl Origin {
    pub(super) fn new(frames: Arc<dyn OriginFrames>, groups: Arc<Groups>, shared: Weak<Shared>) -> Self {
        let (questions, asked) = unbounded();
        let asker = Asker { frames, groups, asked, shared, idle: Arc::default() };
        Self { asker, questions: Some(questions), running: 0, under_way: HashMap::new() }
    }

    pub(super) fn ask(&mut self, number: u32, request: FramesRequest) {
        let Some(questions) = &self.questions else { return };
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let left = request.ids.iter().copied().collect();
        self.under_way.insert(number, Asked { kind: request.kind, left, is_cancelled: is_cancelled.clone() });
        let _ = questions.send(Question { number, request, is_cancelled });
        if questions.len() > self.asker.idle.load(Ordering::SeqCst) && self.running < THREADS_MAX {
            let asker = self.asker.clone();
            // If no thread can be started, a running thread takes the request later; without any, it fails at its
            // deadline.
            let started = thread::Builder::new().name("fetch".to_owned()).spawn(move || asker.run());
            self.running += usize::from(started.is_ok());
        }
    }

    /// Notes a received frame of a request.
    ///
    /// # Errors
    /// `Corrupt` when it has none of the requested, missing blocks; `Refused` when nobody wants it any more.
    pub(super) fn came(&mut self, number: u32, frame: &VerifiedFrame) -> Result<()> {
        let asked = self.under_way.get_mut(&number);
        let asked = asked.ok_or_else(|| Error::refused("no longer wanted"))?;
        let is_wanted = frame.header.kind == asked.kind && frame.ids().any(|id| asked.left.contains(id));
        frame.ids().for_each(|id| _ = asked.left.remove(id));
        match is_wanted {
            true => Ok(()),
            false => Err(Error::corrupt("the origin sent a frame that was not requested")),
        }
    }

    /// The response is no longer needed.
    pub(super) fn cancel(&mut self, number: u32) {
        if let Some(asked) = self.under_way.remove(&number) {
            asked.is_cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// The response ended. Returns false if it was cancelled before.
    pub(super) fn ended(&mut self, number: u32) -> bool {
        self.under_way.remove(&number).is_some()
    }

    /// Ends all threads, each as soon as its request returns.
    pub(super) fn close(&mut self) {
        self.questions = None;
        let asked = std::mem::take(&mut self.under_way);
        asked.values().for_each(|asked| asked.is_cancelled.store(true, Ordering::Relaxed));
    }
}

#[derive(Clone)]
struct Asker {
    frames: Arc<dyn OriginFrames>,
    groups: Arc<Groups>,
    asked: Receiver<Question>,
    shared: Weak<Shared>,
    /// Number of threads that wait for requests.
    idle: Arc<AtomicUsize>,
}

impl Asker {
    fn run(&self) {
        loop {
            self.idle.fetch_add(1, Ordering::SeqCst);
            let question = self.asked.recv();
            self.idle.fetch_sub(1, Ordering::SeqCst);
            let Ok(Question { number, request, is_cancelled }) = question else { return };
            if is_cancelled.load(Ordering::Relaxed) {
                continue;
            }
            let asked = catch_unwind(AssertUnwindSafe(|| self.ask(number, &request, &is_cancelled)));
            // Its readers must not wait forever.
            let result = asked.unwrap_or_else(|_| Err(Error::bug("a fetching thread panicked")));
            let Some(shared) = self.shared.upgrade() else { return };
            shared.act(|machine, now| machine.handle_origin_ended(now, number, result));
        }
    }

    fn ask(&self, number: u32, request: &FramesRequest, is_cancelled: &AtomicBool) -> Result<Vec<BlockId>> {
        let over = || Error::refused("no longer wanted");
        self.frames.fetch(request, &mut |header, stored| {
            if is_cancelled.load(Ordering::Relaxed) {
                return Err(over());
            }
            if header.kind == Kind::Page {
                self.groups.learn_stored(stored);
            }
            let frame = VerifiedFrame::new(header.clone(), Arc::from(stored));
            let shared = self.shared.upgrade().ok_or_else(over)?;
            let taken = shared.act(|machine, now| machine.take_from_origin(now, number, &frame));
            taken.unwrap_or_else(|| Err(over()))
        })
    }
}
