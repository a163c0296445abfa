//! The frames of one recipe, from peers and, when they have none, from the origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};
use platter_image::{BlockId, Error, ErrorKind, Kind, Result, Score};

use super::handle::Shared;
use super::machine::Command;
use super::wants::Place;
use crate::node::Upstream;

/// Bytes of a disk that a sequential reader should tell of ahead.
const HINT_LENGTH: u64 = 64 << 20;
/// Between two tries, when nobody gave it.
const PAUSE: Duration = Duration::from_millis(200);
/// How often who waits looks whether the machine is still there.
const ENDED_LOOK: Duration = Duration::from_millis(500);

/// One recipe. Asked by many threads at once; what several want is fetched once.
pub(crate) struct PeerSource {
    shared: Arc<Shared>,
    score: Score,
    number: u64,
    retry_time_max: Duration,
    /// Pages that were held before are looked at when the first block is asked for whose page did not come lately.
    has_looked: AtomicBool,
}

impl PeerSource {
    pub(super) fn new(shared: Arc<Shared>, score: Score, number: u64, retry_time_max: Duration) -> Self {
        Self { shared, score, number, retry_time_max, has_looked: AtomicBool::new(false) }
    }

    /// A verified frame, as it is stored, that holds that block or page; `None` when the origin says that there is none. Waits
    /// for it, for as long as was said.
    ///
    /// # Errors
    /// `Transient` when neither a peer nor the origin could be asked; what else the origin says.
    pub(crate) fn frame(&self, kind: Kind, id: &BlockId) -> Result<Option<Arc<[u8]>>> {
        let started = Instant::now();
        loop {
            let found = self.ask(kind, id);
            let is_worth_a_try = started.elapsed() + PAUSE < self.retry_time_max;
            match found {
                Err(error) if error.kind() == ErrorKind::Transient && is_worth_a_try => thread::sleep(PAUSE),
                found => return found,
            }
        }
    }

    /// These will be asked for soon, likely in this order. Does not wait.
    pub(crate) fn will_need(&self, kind: Kind, ids: &[BlockId]) {
        if ids.is_empty() {
            return;
        }
        let places = ids.iter().map(|id| (self.place(kind, id), *id)).collect();
        // When too much is asked, hints are the first to go.
        let _ = self.shared.commands.try_send(Command::Hint { source: self.number, places });
    }

    fn ask(&self, kind: Kind, id: &BlockId) -> Result<Option<Arc<[u8]>>> {
        let (waiter, found) = bounded(1);
        let command = Command::Want { place: self.place(kind, id), id: *id, waiter };
        let ended = || Error::transient("this node does not share any more, or has too much to fetch");
        self.shared.commands.send(command).map_err(|_| ended())?;
        loop {
            match found.recv_timeout(ENDED_LOOK) {
                Ok(found) => return found.map_err(|(kind, what)| Error::new(kind, what)),
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
                // What the machine had not taken when it ended stays in its queue.
                Err(RecvTimeoutError::Timeout) if self.shared.has_ended.load(Ordering::SeqCst) => {
                    return Err(ended());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn place(&self, kind: Kind, id: &BlockId) -> Place {
        if kind == Kind::Data
            && self.shared.groups.find(id).is_none()
            && !self.has_looked.swap(true, Ordering::Relaxed)
        {
            self.shared.groups.learn_held(self.score, &*self.shared.holdings);
        }
        Place { score: self.score, kind, group: self.shared.groups.of(kind, id) }
    }
}

impl Upstream for PeerSource {
    fn fetch(&self, kind: Kind, id: &BlockId) -> Result<Option<Arc<[u8]>>> {
        self.frame(kind, id)
    }

    fn will_fetch(&self, kind: Kind, ids: &[BlockId]) {
        self.will_need(kind, ids);
    }

    fn keeps_hints(&self) -> bool {
        true
    }

    fn hint_length(&self) -> u64 {
        HINT_LENGTH
    }
}

impl Drop for PeerSource {
    fn drop(&mut self) {
        // A machine that has ended has forgotten it.
        let _ = self.shared.commands.send(Command::Forget(self.number));
    }
}
