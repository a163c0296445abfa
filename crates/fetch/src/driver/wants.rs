//! What is wanted and not here: who waits for each block, and in which piece it is fetched. Without sockets, threads or a clock.
//!
//! Owns the joining of hints: blocks of one group that are told a few at a time become one piece, or a frame that holds some of
//! each would come once for each. What was only hinted at can wait until peers have it; as soon as somebody waits for a
//! block, its piece is hurried. Must never leave anybody waiting whose piece ended.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use platter_cast::peer::{ASK_IDS_MAX, PieceId, Scheduler, Want};
use platter_image::{BlockId, ErrorKind, Kind, Score};

use super::frame::{Key, VerifiedFrame};

/// The answer to whoever waits for a block: a frame, `None` if there is no such block, or what failed.
pub(super) type Found = Result<Option<Arc<VerifiedFrame>>, (ErrorKind, String)>;

/// Pieces of hints that have not ended; further hints are passed over.
const HINT_PIECES_MAX: usize = 2048;
/// A group that was hinted at waits so long for more of it.
const HINT_PATIENCE: Duration = Duration::from_millis(20);

/// Where a block stands, and how its reader wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) score: Score,
    pub(super) kind: Kind,
    pub(super) group: u64,
    /// As in [`Want`].
    pub(super) exact: bool,
    pub(super) patience: Duration,
}

/// Who waits for a block.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// None while it waits for more of its group.
    piece: Option<PieceId>,
    /// The origin does not have it.
    pub(super) absent: bool,
    pub(super) waiters: Vec<Sender<Found>>,
    /// Questions of peers.
    pub(super) reads: Vec<u64>,
}

#[derive(Debug)]
struct Piece {
    kind: Kind,
    ids: Vec<BlockId>,
    /// Whose hint it is.
    hinted_by: Option<u64>,
}

/// Part of a group that was hinted at.
#[derive(Debug)]
struct Pending {
    place: Place,
    ids: Vec<BlockId>,
    source: u64,
    since: Duration,
}

/// All that is wanted.
#[derive(Debug, Default)]
pub(super) struct Wants {
    wanted: HashMap<Key, Wanted>,
    pieces: HashMap<PieceId, Piece>,
    pending: VecDeque<Pending>,
    hint_pieces: usize,
}

impl Wants {
    /// Somebody waits for a block.
    pub(super) fn demand(
        &mut self,
        scheduler: &mut Scheduler,
        now: Duration,
        place: Place,
        id: BlockId,
        waiter: Sender<Found>,
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

    /// A question of a peer waits for these, which are not here. What nobody fetches is fetched from the origin alone, or two
    /// nodes could wait for each other. False when too much is being fetched.
    pub(super) fn demand_for_peer(
        &mut self,
        scheduler: &mut Scheduler,
        now: Duration,
        place: Place,
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

    /// These will be wanted.
    pub(super) fn hint(
        &mut self,
        scheduler: &mut Scheduler,
        now: Duration,
        source: u64,
        place: Place,
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
        // A reader that goes on to another group has told all of the one before.
        while self.pending.len() > 1 {
            self.begin_pending(scheduler, now, 0, false);
        }
    }

    /// Begins what waited long enough. Gives when to do so again.
    pub(super) fn begin_due(&mut self, scheduler: &mut Scheduler, now: Duration) -> Option<Duration> {
        while self.pending.front().is_some_and(|first| now >= first.since + HINT_PATIENCE) {
            self.begin_pending(scheduler, now, 0, false);
        }
        self.pending.front().map(|first| first.since + HINT_PATIENCE)
    }

    /// A frame with these blocks came: they are wanted no longer. Returns those that were wanted, with their waiters.
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

    /// A piece ended, whether all of it came or not. Returns the blocks that did not come, with their waiters.
    pub(super) fn ended(&mut self, piece: PieceId, lacking: &[BlockId]) -> Vec<(Key, Wanted)> {
        let Some(Piece { kind, hinted_by, .. }) = self.pieces.remove(&piece) else { return Vec::new() };
        self.hint_pieces -= usize::from(hinted_by.is_some());
        let keys = lacking.iter().map(|id| Key { kind, id: *id });
        let lacking = keys.filter_map(|key| self.wanted.remove(&key).map(|wanted| (key, wanted)));
        lacking.collect()
    }

    /// The origin says that it does not have these.
    pub(super) fn absent(&mut self, kind: Kind, ids: &[BlockId]) {
        for id in ids {
            if let Some(wanted) = self.wanted.get_mut(&Key { kind, id: *id }) {
                wanted.absent = true;
            }
        }
    }

    /// Whoever gave these hints reads no more: what nobody waits for is not fetched.
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

    /// All who wait, when it is over.
    pub(super) fn take_all(&mut self) -> Vec<Wanted> {
        self.pieces.clear();
        self.pending.clear();
        self.wanted.drain().map(|(_, wanted)| wanted).collect()
    }

    /// Somebody waits for what is wanted already.
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
        // Some may have come with others.
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

    /// Makes a piece of what is in `wanted`. False when too much is being fetched: whoever waits hears of it by the end of its
    /// channel.
    fn begin(
        &mut self,
        scheduler: &mut Scheduler,
        now: Duration,
        place: Place,
        ids: Vec<BlockId>,
        hinted_by: Option<u64>,
        origin_only: bool,
    ) -> bool {
        let Place { score, kind, group, exact, patience } = place;
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
