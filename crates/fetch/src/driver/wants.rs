//! Blocks that are wanted and missing: who waits for each, and in which piece it is fetched. Without sockets, threads
//! or a clock.
//!
//! Joins hints: blocks of one group that are announced a few at a time become one piece; otherwise a frame with several
//! of them would be sent several times. Blocks that were only hinted at can wait until peers have them; once a reader
//! waits for a block, its piece becomes urgent. Must never leave a reader waiting whose piece ended.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use platter_cast::peer::{ASK_IDS_MAX, PieceId, Scheduler, Want};
use platter_image::{BlockId, ErrorKind, Kind, Score};

use super::frame::{Key, VerifiedFrame};

/// The result for a waiting reader: a frame, `None` if there is no such block, or the error.
pub(super) type FetchResult = Result<Option<Arc<VerifiedFrame>>, (ErrorKind, String)>;

/// Most unfinished pieces of hints; further hints are ignored.
const HINT_PIECES_MAX: usize = 2048;
/// How long a hinted group waits for further blocks.
const HINT_PATIENCE: Duration = Duration::from_millis(20);

/// The recipe and kind of a block, and its reader's requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WantKey {
    pub(super) score: Score,
    pub(super) kind: Kind,
    pub(super) group: u64,
    /// As in [`Want`].
    pub(super) exact: bool,
    pub(super) patience: Duration,
}

/// The waiting readers of a block.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// `None` while it waits for further blocks of its group.
    piece: Option<PieceId>,
    /// The origin does not have it.
    pub(super) absent: bool,
    pub(super) waiters: Vec<Sender<FetchResult>>,
    /// Requests of peers.
    pub(super) reads: Vec<u64>,
}

#[derive(Debug)]
struct Piece {
    kind: Kind,
    ids: Vec<BlockId>,
    /// The source of the hint.
    hinted_by: Option<u64>,
}

/// Blocks of a hinted group.
#[derive(Debug)]
struct Pending {
    place: WantKey,
    ids: Vec<BlockId>,
    source: u64,
    since: Duration,
}

/// All wanted blocks.
#[derive(Debug, Default)]
pub(super) struct Wants {
    wanted: HashMap<Key, Wanted>,
    pieces: HashMap<PieceId, Piece>,
    pending: VecDeque<Pending>,
    hint_pieces: usize,
}

impl Wants {
    /// A reader waits for a block.
    pub(super) fn demand(
        &mut self,
        scheduler: &mut Scheduler,
        now: Duration,
        place: WantKey,
        id: BlockId,
        waiter: Sender<FetchResult>,
    ) {
        let key = Key { kind: place.kind, id };
        if let Some(wanted) = self.wanted.get_mut(&key) {
            wanted.waiters.push(waiter);
            self.hurry(scheduler, now, key);
            return;
        }
        self.wanted.insert(key, Wanted { waiters: vec![waiter], ..Wanted::default() });
        self.begin(scheduler, now, place, vec![id], None, false);
    }

    /// A request of a peer waits for these missing blocks. Those that are not being fetched yet are fetched from the
    /// origin only; otherwise two nodes could wait for each other. Returns false when too much is being fetched.
    pub(super) fn demand_for_peer(
        &mut self,
        scheduler: &mut Scheduler,
        now: Duration,
        place: WantKey,
        ids: &[BlockId],
        read: u64,
    ) -> bool {
        let mut unasked = Vec::new();
        for id in ids {
            let key = Key { kind: place.kind, id: *id };
            match self.wanted.get_mut(&key) {
                Some(wanted) => {
                    wanted.reads.push(read);
                    self.hurry(scheduler, now, key);
                }
                None => {
                    self.wanted.insert(key, Wanted { reads: vec![read], ..Wanted::default() });
                    unasked.push(*id);
                }
            }
        }
        unasked.is_empty() || self.begin(scheduler, now, place, unasked, None, true)
    }

    /// Takes a hint: these blocks will be wanted.
    pub(super) fn hint(
        &mut self,
        scheduler: &mut Scheduler,
        now: Duration,
        source: u64,
        place: WantKey,
        ids: impl Iterator<Item = BlockId>,
    ) {
        for id in ids {
            let key = Key { kind: place.kind, id };
            if self.hint_pieces + self.pending.len() >= HINT_PIECES_MAX {
                return;
            }
            if self.wanted.contains_key(&key) {
                continue;
            }
            self.wanted.insert(key, Wanted::default());
            match self.pending.back_mut() {
                Some(last)
                    if last.place == place && last.source == source && last.ids.len() < ASK_IDS_MAX =>
                {
                    last.ids.push(id);
                }
                _ => self.pending.push_back(Pending { place, ids: vec![id], source, since: now }),
            }
        }
        // A reader that continues with another group has announced all of the previous one.
        while self.pending.len() > 1 {
            self.begin_pending(scheduler, now, 0, false);
        }
    }

    /// Starts pieces of groups that waited long enough. Returns when to do so again.
    pub(super) fn begin_due(&mut self, scheduler: &mut Scheduler, now: Duration) -> Option<Duration> {
        while self.pending.front().is_some_and(|first| now >= first.since + HINT_PATIENCE) {
            self.begin_pending(scheduler, now, 0, false);
        }
        self.pending.front().map(|first| first.since + HINT_PATIENCE)
    }

    /// A frame with these blocks arrived: they are no longer wanted. Returns those that were wanted, with their
    /// waiters.
    pub(super) fn came<'a>(
        &mut self,
        scheduler: &mut Scheduler,
        kind: Kind,
        ids: impl Iterator<Item = &'a BlockId>,
    ) -> Vec<Wanted> {
        let mut struck: HashMap<PieceId, Vec<BlockId>> = HashMap::new();
        let mut came = Vec::new();
        for id in ids {
            let Some(wanted) = self.wanted.remove(&Key { kind, id: *id }) else { continue };
            if let Some(piece) = wanted.piece {
                struck.entry(piece).or_default().push(*id);
            }
            came.push(wanted);
        }
        struck.iter().for_each(|(piece, ids)| scheduler.strike(*piece, ids));
        came
    }

    /// A piece ended, complete or not. Returns the blocks that did not arrive, with their waiters.
    pub(super) fn ended(&mut self, piece: PieceId, lacking: &[BlockId]) -> Vec<(Key, Wanted)> {
        let Some(Piece { kind, hinted_by, .. }) = self.pieces.remove(&piece) else { return Vec::new() };
        self.hint_pieces -= usize::from(hinted_by.is_some());
        let keys = lacking.iter().map(|id| Key { kind, id: *id });
        let lacking = keys.filter_map(|key| self.wanted.remove(&key).map(|wanted| (key, wanted)));
        lacking.collect()
    }

    /// The origin does not have these blocks.
    pub(super) fn absent(&mut self, kind: Kind, ids: &[BlockId]) {
        for id in ids {
            if let Some(wanted) = self.wanted.get_mut(&Key { kind, id: *id }) {
                wanted.absent = true;
            }
        }
    }

    /// The source of these hints has ended: blocks that nobody waits for are not fetched.
    pub(super) fn forget(&mut self, scheduler: &mut Scheduler, source: u64) {
        let wanted = &mut self.wanted;
        self.pending.retain(|pending| {
            let stays = pending.source != source;
            if !stays {
                let key = |id: &BlockId| Key { kind: pending.place.kind, id: *id };
                pending.ids.iter().for_each(|id| drop(wanted.remove(&key(id))));
            }
            stays
        });
        let left = self.pieces.iter().filter(|(_, piece)| piece.hinted_by == Some(source));
        let mut unwanted = Vec::new();
        for (number, piece) in left {
            let is_idle = |id: &&BlockId| {
                let wanted = wanted.get(&Key { kind: piece.kind, id: **id });
                wanted.is_none_or(|wanted| wanted.waiters.is_empty() && wanted.reads.is_empty())
            };
            if piece.ids.iter().all(|id| is_idle(&id)) {
                unwanted.push((*number, piece.kind, piece.ids.clone()));
            }
        }
        for (number, kind, ids) in unwanted {
            ids.iter().for_each(|id| drop(wanted.remove(&Key { kind, id: *id })));
            scheduler.strike(number, &ids);
        }
    }

    /// Takes all waiters, at the end.
    pub(super) fn take_all(&mut self) -> Vec<Wanted> {
        self.pieces.clear();
        self.pending.clear();
        self.wanted.drain().map(|(_, wanted)| wanted).collect()
    }

    /// A reader waits for an already wanted block: makes its piece urgent.
    fn hurry(&mut self, scheduler: &mut Scheduler, now: Duration, key: Key) {
        match self.wanted.get(&key).and_then(|wanted| wanted.piece) {
            Some(piece) => scheduler.hurry(now, piece),
            None => {
                let holds = |it: &Pending| it.place.kind == key.kind && it.ids.contains(&key.id);
                if let Some(at) = self.pending.iter().position(holds) {
                    self.begin_pending(scheduler, now, at, true);
                }
            }
        }
    }

    fn begin_pending(&mut self, scheduler: &mut Scheduler, now: Duration, at: usize, is_urgent: bool) {
        let Some(pending) = self.pending.remove(at) else { return };
        let Pending { place, mut ids, source, .. } = pending;
        // Some may have arrived with other blocks.
        let mut seen = HashSet::new();
        ids.retain(|id| {
            let wanted = self.wanted.get(&Key { kind: place.kind, id: *id });
            wanted.is_some_and(|wanted| wanted.piece.is_none()) && seen.insert(*id)
        });
        if !ids.is_empty() {
            let source = (!is_urgent).then_some(source);
            self.begin(scheduler, now, place, ids, source, false);
        }
    }

    /// Creates a piece of blocks in `wanted`. Returns false when too much is being fetched: waiters notice it by the
    /// end of their channels.
    fn begin(
        &mut self,
        scheduler: &mut Scheduler,
        now: Duration,
        place: WantKey,
        ids: Vec<BlockId>,
        hinted_by: Option<u64>,
        origin_only: bool,
    ) -> bool {
        let WantKey { score, kind, group, exact, patience } = place;
        let can_wait = hinted_by.is_some();
        let want = Want { score, kind, group, ids: ids.clone(), origin_only, can_wait, exact, patience };
        let begun = scheduler.want(now, want);
        let keys = ids.iter().map(|id| Key { kind, id: *id });
        let Ok(piece) = begun else {
            keys.for_each(|key| drop(self.wanted.remove(&key)));
            return false;
        };
        for key in keys {
            if let Some(wanted) = self.wanted.get_mut(&key) {
                wanted.piece = Some(piece);
            }
        }
        self.hint_pieces += usize::from(can_wait);
        self.pieces.insert(piece, Piece { kind, ids, hinted_by });
        true
    }
}
