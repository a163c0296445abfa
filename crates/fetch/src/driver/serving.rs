//! The threads that read held frames for requests of peers.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use platter_cast::peer::{AskMessage, NodeId};
use platter_image::frame::FrameHeader;
use platter_image::{BlockId, IoContext, Result};

use super::fetcher::Shared;
use super::holdings::Holdings;

/// Requests processed at a time.
const THREADS: usize = 2;
/// Most bytes of frames in one reply; the peer requests the rest elsewhere. A group of large blocks has 16 MiB before
/// compression.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A request of a peer.
pub(super) struct Asked {
    /// Unique, unlike the request's own number.
    pub(super) number: u64,
    pub(super) node: NodeId,
    pub(super) ask: AskMessage,
}

/// The held frames for it.
pub(super) struct Answer {
    pub(super) asked: Asked,
    pub(super) frames: Vec<Arc<[u8]>>,
    pub(super) missing: Vec<BlockId>,
}

/// Reads frames for requests. The exchange limits their number.
pub(super) struct Serving(Sender<Asked>);

impl Serving {
    /// # Errors
    /// `Io` when threads cannot be started.
    pub(super) fn start(holdings: &Arc<dyn Holdings>, shared: &Weak<Shared>) -> Result<Self> {
        let (sender, questions) = unbounded();
        for _ in 0..THREADS {
            let (holdings, questions, shared) = (holdings.clone(), questions.clone(), shared.clone());
            thread::Builder::new()
                .name("peers-serving".to_owned())
                .spawn(move || run(&*holdings, &questions, &shared))
                .context(|| "starting a thread that serves peers".to_owned())?;
        }
        Ok(Self(sender))
    }

    pub(super) fn read(&self, asked: Asked) {
        // The threads end only after this is dropped.
        let _ = self.0.send(asked);
    }
}

fn run(holdings: &dyn Holdings, questions: &Receiver<Asked>, shared: &Weak<Shared>) {
    for asked in questions {
        let (frames, missing) = look_up(holdings, &asked.ask);
        let Some(shared) = shared.upgrade() else { return };
        let answer = Answer { asked, frames, missing };
        if shared.act(|machine, now| machine.handle_served(now, answer)).is_none() {
            return;
        }
    }
}

/// Returns the frames with these blocks, each once, in the order of the request; and the blocks that are not held.
fn look_up(holdings: &dyn Holdings, ask: &AskMessage) -> (Vec<Arc<[u8]>>, Vec<BlockId>) {
    let (mut frames, mut missing, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut covered: HashSet<BlockId> = HashSet::new();
    for id in &ask.ids {
        if covered.contains(id) {
            continue;
        }
        if bytes >= ANSWER_BYTES_MAX {
            break;
        }
        let held = holdings.frame(ask.kind, id);
        let header = held.as_deref().and_then(|stored| FrameHeader::parse(stored).ok());
        match (held, header) {
            (Some(stored), Some(header)) => {
                covered.extend(header.blocks.iter().map(|block| block.id));
                bytes += stored.len();
                frames.push(stored);
            }
            _ => missing.push(*id),
        }
    }
    missing.retain(|id| !covered.contains(id));
    (frames, missing)
}
