//! The origin: asked by threads of their own, each for one request at a time.
//!
//! Threads start when there is something to ask, and end with the fetcher. Must never pass on a frame that was not requested: an
//! origin that sends such frames could send them for ever.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use platter_image::frame::stream::FramesRequest;
use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::{BlockId, Error, Kind, Result};

use super::fetcher::Shared;
use super::frame::VerifiedFrame;
use super::groups::Groups;

/// Requests under way at the origin: so many fill a long link to it, with some left for those that somebody waits for.
const THREADS_MAX: usize = 20;

/// Takes a frame that was decoded and hashed. An error ends the answer.
pub(crate) type TakeFrame<'a> = dyn FnMut(&FrameHeader, &[u8]) -> Result<()> + 'a;

/// Where all frames can be had.
pub(crate) trait OriginFrames: Send + Sync {
    /// Gives frames that hold these blocks or pages of a recipe, each verified on this machine, and says which are not there.
    ///
    /// # Errors
    /// `Transient` when it is away; what else it says.
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
    /// What has not come.
    left: HashSet<BlockId>,
    is_cancelled: Arc<AtomicBool>,
}

/// Asks the origin. The scheduler bounds how many requests there are.
pub(super) struct Origin {
    asker: Asker,
    /// None once it is over.
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
            // Without a new thread, those that run take it in turn; without any, it fails by its deadline.
            let started = thread::Builder::new().name("fetch".to_owned()).spawn(move || asker.run());
            self.running += usize::from(started.is_ok());
        }
    }

    /// Notes a frame that came for a request.
    ///
    /// # Errors
    /// `Corrupt` when it has nothing of what was requested and has not come; `Refused` when nobody wants it any more.
    pub(super) fn came(&mut self, number: u32, frame: &VerifiedFrame) -> Result<()> {
        let asked = self.under_way.get_mut(&number);
        let asked = asked.ok_or_else(|| Error::refused("nobody wants it any more"))?;
        let is_wanted = frame.header.kind == asked.kind && frame.ids().any(|id| asked.left.contains(id));
        frame.ids().for_each(|id| _ = asked.left.remove(id));
        match is_wanted {
            true => Ok(()),
            false => Err(Error::corrupt("the origin sent a frame that was not asked for")),
        }
    }

    /// The answer is not needed any more.
    pub(super) fn cancel(&mut self, number: u32) {
        if let Some(asked) = self.under_way.remove(&number) {
            asked.is_cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// The answer came to its end; false if it was cancelled before.
    pub(super) fn ended(&mut self, number: u32) -> bool {
        self.under_way.remove(&number).is_some()
    }

    /// Ends all threads, each as soon as what it has asked for says something.
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
    /// Threads that wait for something to ask.
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
            // Whoever waits for it must not wait for ever.
            let result = asked.unwrap_or_else(|_| Err(Error::bug("a thread that fetches panicked")));
            let Some(shared) = self.shared.upgrade() else { return };
            shared.act(|machine, now| machine.handle_origin_ended(now, number, result));
        }
    }

    fn ask(&self, number: u32, request: &FramesRequest, is_cancelled: &AtomicBool) -> Result<Vec<BlockId>> {
        let over = || Error::refused("nobody wants it any more");
        self.frames.fetch(request, &mut |header, stored| {
            if is_cancelled.load(Ordering::Relaxed) {
                return Err(over());
            }
            if header.kind == Kind::Page
                && let Ok((header, contents)) = FrameDecoder::new()?.decode(stored, Verify::Checksum)
            {
                self.groups.learn_frame(&header, contents);
            }
            let frame = VerifiedFrame::new(header.clone(), Arc::from(stored));
            let shared = self.shared.upgrade().ok_or_else(over)?;
            let taken = shared.act(|machine, now| machine.take_from_origin(now, number, &frame));
            taken.unwrap_or_else(|| Err(over()))
        })
    }
}
