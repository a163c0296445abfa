//! What the machine does when time passes: a piece whose answer is late is also asked for elsewhere, a request
//! without an answer fails, and a piece that took too long ends.
//!
//! Owns how many hedges there may be. Must never leave a piece without a deadline.

use std::time::Duration;

use super::event::ScheduleEvent;
use super::piece::{Failure, PieceId, Source, UnderWay};
use super::scheduler::Scheduler;

/// A request without any progress for that long has failed. With nobody but the origin it may take longer: there is nobody else to
/// ask, and frames of other requests may be before its own on a slow link.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const SILENCE_ALONE_MAX: Duration = Duration::from_secs(60);
/// Questions under way for one piece.
pub(super) const ASKS_MAX: usize = 3;
/// Each question earns a sixteenth of a hedge, so that a slow network is not asked for everything twice; when the credit is
/// used up, only who is silent for [`HEDGE_ALWAYS`] is hedged.
const HEDGE_COST: u32 = 16;
pub(super) const HEDGE_CREDIT_MAX: u32 = 16 * HEDGE_COST;
const HEDGE_ALWAYS: Duration = Duration::from_secs(2);
/// As that, for a piece that nobody waits for: answers of busy peers come that late, and each hedge of them takes of their time.
const HEDGE_WAITING: Duration = Duration::from_secs(6);
/// A piece of more ids is hedged at the origin only when all are silent for that long: the origin would send it all twice, for its home
/// is being sent it.
const ORIGIN_HEDGE_IDS_MAX: usize = 16;

impl Scheduler {
    /// How long that question may go on without progress before somebody else is asked.
    pub(super) fn patience(&self, request: u32) -> Duration {
        match self.under_way.get(&request) {
            Some(UnderWay { source: Source::Peer(_), fetch, .. }) => {
                if *fetch {
                    self.home_patience.limit()
                } else {
                    self.peer_patience.limit()
                }
            }
            _ => self.silence_max(),
        }
    }

    fn silence_max(&self) -> Duration {
        if self.is_alone() { SILENCE_ALONE_MAX } else { SILENCE_MAX }
    }

    pub(super) fn handle_deadline(&mut self, now: Duration, id: PieceId) {
        let Some(piece) = self.pieces.get(&id) else { return };
        if now >= piece.ends_at {
            // What comes for others on a slow link is progress, too: who waits for it waits in vain only when nothing comes.
            let ends_at = self.origin.progress_at + piece.want.patience;
            if !self.is_alone() || now >= ends_at || self.origin.progress_at == Duration::ZERO {
                self.fail_piece(id);
                return;
            }
            if let Some(piece) = self.pieces.get_mut(&id) {
                piece.ends_at = ends_at;
            }
            self.set_deadline(id, ends_at);
            return;
        }
        self.is_stuck = false;
        let silence_max = self.silence_max();
        for request in piece.asks.clone() {
            let silent = self.under_way.get(&request).filter(|ask| now >= ask.progress_at + silence_max);
            if let Some(source) = silent.map(|ask| ask.source) {
                self.events.push_back(ScheduleEvent::Cancel { source, request });
                self.handle_failed(now, request, Failure::Gone);
            }
        }
        let Some(piece) = self.pieces.get(&id) else { return };
        let next = if piece.asks.is_empty() {
            // It waits in `ready`.
            if now < piece.not_before { piece.not_before } else { piece.ends_at }
        } else {
            self.hedge(now, id)
        };
        self.set_deadline(id, next.max(now + Duration::from_millis(1)));
    }

    /// Asks somebody else for the rest of a piece, if that may be now. Gives the piece's next deadline.
    fn hedge(&mut self, now: Duration, id: PieceId) -> Duration {
        let Some(piece) = self.pieces.get(&id) else { return now };
        let asks: Vec<&UnderWay> =
            piece.asks.iter().filter_map(|request| self.under_way.get(request)).collect();
        let progress = asks.iter().map(|ask| ask.progress_at);
        let (first, last) = (progress.clone().min().unwrap_or(now), progress.max().unwrap_or(now));
        // There is nobody behind the origin.
        if asks.len() >= ASKS_MAX || asks.iter().any(|ask| ask.source == Source::Origin) {
            return first + self.silence_max();
        }
        // The slowest of the kinds that were asked decides.
        let limit = piece.asks.iter().map(|request| self.patience(*request)).max().unwrap_or_default();
        let (can_wait, piece_length) = (piece.want.can_wait, piece.want.ids.len());
        let always_at = last + if can_wait { HEDGE_WAITING } else { HEDGE_ALWAYS };
        let may_hedge = self.hedge_credit >= HEDGE_COST && !can_wait;
        if now < last + limit || (!may_hedge && now < always_at) {
            return if may_hedge { last + limit } else { always_at };
        }
        // What can wait is no reason to ask the origin for it.
        let source = match self.pick_holder(now, id) {
            Some(Some(node)) => Some((Source::Peer(node), false)),
            _ if can_wait => None,
            _ => self.pick(now, id),
        };
        let Some((source, fetch)) = source else {
            return (now + HEDGE_ALWAYS).min(first + self.silence_max());
        };
        if source == Source::Origin && piece_length > ORIGIN_HEDGE_IDS_MAX && now < always_at {
            return always_at;
        }
        self.hedge_credit = self.hedge_credit.saturating_sub(HEDGE_COST);
        self.statistics.hedges += 1;
        self.ask(now, vec![id], source, fetch);
        self.pieces.get(&id).map_or(now, |piece| piece.deadline)
    }

    pub(super) fn set_deadline(&mut self, id: PieceId, deadline: Duration) {
        if let Some(piece) = self.pieces.get_mut(&id) {
            self.deadlines.remove(&(piece.deadline, id));
            piece.deadline = deadline.min(piece.ends_at);
            self.deadlines.insert((piece.deadline, id));
        }
    }
}
