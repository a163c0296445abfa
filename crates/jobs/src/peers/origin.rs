//! The origin as the last source: asked by threads of their own, each for one question at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use platter_image::frame::stream::FramesRequest;
use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::{BlockId, Error, IoContext, Kind, Result};

use super::groups::Groups;
use super::machine::{Event, VerifiedFrame};
use crate::remote::RemoteStore;

/// Questions under way at the origin: so many fill a long way to it.
const THREADS: usize = 16;

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

/// A question.
struct Question {
    number: u32,
    request: FramesRequest,
    cancelled: Arc<AtomicBool>,
}

/// Asks the origin. [`super::machine`] bounds how many questions there are.
pub(super) struct Origin {
    questions: Sender<Question>,
    under_way: HashMap<u32, Arc<AtomicBool>>,
}

impl Origin {
    /// # Errors
    /// `Io` when threads cannot be started.
    pub(super) fn start(
        frames: &Arc<dyn OriginFrames>,
        groups: &Arc<Groups>,
        events: &Sender<Event>,
    ) -> Result<Self> {
        let (questions, asked) = unbounded();
        for _ in 0..THREADS {
            let asker = Asker {
                frames: frames.clone(),
                groups: groups.clone(),
                asked: asked.clone(),
                events: events.clone(),
            };
            thread::Builder::new()
                .name("peers-origin".to_owned())
                .spawn(move || asker.run())
                .context(|| "starting a thread that asks the origin".to_owned())?;
        }
        Ok(Self { questions, under_way: HashMap::new() })
    }

    pub(super) fn ask(&mut self, number: u32, request: FramesRequest) {
        let cancelled = Arc::new(AtomicBool::new(false));
        self.under_way.insert(number, cancelled.clone());
        // The threads end only when this is gone.
        let _ = self.questions.send(Question { number, request, cancelled });
    }

    /// The answer is not needed any more.
    pub(super) fn cancel(&mut self, number: u32) {
        if let Some(cancelled) = self.under_way.remove(&number) {
            cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// The answer came to its end.
    pub(super) fn ended(&mut self, number: u32) {
        self.under_way.remove(&number);
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.under_way.values().for_each(|cancelled| cancelled.store(true, Ordering::Relaxed));
    }
}

struct Asker {
    frames: Arc<dyn OriginFrames>,
    groups: Arc<Groups>,
    asked: Receiver<Question>,
    events: Sender<Event>,
}

impl Asker {
    fn run(&self) {
        for Question { number, request, cancelled } in &self.asked {
            if cancelled.load(Ordering::Relaxed) {
                continue;
            }
            let result = self.frames.fetch(&request, &mut |header, stored| {
                if cancelled.load(Ordering::Relaxed) {
                    return Err(Error::refused("nobody wants it any more"));
                }
                if header.kind == Kind::Page
                    && let Ok((header, contents)) = FrameDecoder::new()?.decode(stored, Verify::Checksum)
                {
                    self.groups.learn_frame(&header, contents);
                }
                let frame = VerifiedFrame { header: header.clone(), stored: Arc::from(stored) };
                let sent = self.events.send(Event::OriginFrame { number, frame });
                sent.map_err(|_| Error::refused("nobody is there any more"))
            });
            if self.events.send(Event::OriginEnded { number, result }).is_err() {
                return;
            }
        }
    }
}

impl OriginFrames for RemoteStore {
    fn fetch(&self, request: &FramesRequest, take: &mut TakeFrame<'_>) -> Result<Vec<BlockId>> {
        RemoteStore::fetch(self, request, take)
    }
}
