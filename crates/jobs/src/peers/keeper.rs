//! The thread that writes what comes into what this node holds, and tells the machine what is held.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use platter_image::{IoContext, Result};

use super::holdings::Holdings;
use super::machine::{Event, VerifiedFrame};

/// Frames that wait to be kept; what comes on top is not kept: whoever wanted it has it.
const WAITING_MAX: usize = 256;
/// How often it is looked what is held.
const PAUSE: Duration = Duration::from_millis(100);

/// Keeps frames.
pub(super) struct Keeper(Sender<VerifiedFrame>);

impl Keeper {
    /// # Errors
    /// `Io` when no thread can be started.
    pub(super) fn start(holdings: Arc<dyn Holdings>, events: Sender<Event>) -> Result<Self> {
        let (sender, frames) = bounded(WAITING_MAX);
        thread::Builder::new()
            .name("peers-keeper".to_owned())
            .spawn(move || run(&*holdings, &frames, &events))
            .context(|| "starting a thread that keeps frames".to_owned())?;
        Ok(Self(sender))
    }

    /// False when it is not kept: there is too much to keep.
    pub(super) fn keep(&self, frame: VerifiedFrame) -> bool {
        !matches!(self.0.try_send(frame), Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))
    }
}

fn run(holdings: &dyn Holdings, frames: &Receiver<VerifiedFrame>, events: &Sender<Event>) {
    let mut mark = 0;
    loop {
        match frames.recv_timeout(PAUSE) {
            Ok(first) => {
                holdings.keep(&first.stored, &first.header);
                // All that wait, so that what changed is asked for once.
                for frame in frames.try_iter().take(WAITING_MAX) {
                    holdings.keep(&frame.stored, &frame.header);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let changes = holdings.changes(mark);
        mark = changes.mark;
        let is_news = changes.whole || !changes.added.is_empty() || !changes.dropped.is_empty();
        if is_news && events.send(Event::Held(changes)).is_err() {
            return;
        }
    }
}
