//! Who takes part: joins, votes, room, loss and results of receivers.
//!
//! Owns the receiver ids and tokens. A receiver votes on the pace while it reports; who is silent for two seconds
//! loses its vote, and who is silent for half a minute counts as lost. Must never let one receiver's message change
//! another's state: a message counts only with the token of its id.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use platter_image::Score;

use crate::pacing::{LossMeter, Pacer};
use crate::wire::join::ReceiverResult;
use crate::wire::report::Report;

/// A receiver that is silent for that long no longer holds the others up.
pub(crate) const VOTE_SILENCE: Duration = Duration::from_secs(2);
/// A receiver that is silent for that long is lost.
pub(crate) const LOST_SILENCE: Duration = Duration::from_secs(30);
/// Most receivers of a session, those that left included.
pub(crate) const RECEIVERS_MAX: usize = 16_384;
/// Begun chunks remembered for the receivers' room; a receiver with more of them on their way counts as full.
const BEGUN_MAX: usize = 4096;

/// Where a receiver stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverState {
    /// Receiving.
    Active,
    /// Receiving, but silent for two seconds: it no longer holds the others up.
    Silent,
    /// Finished, with the right score.
    Done(ReceiverResult),
    /// It said that it failed, or finished with a wrong score.
    Failed(String),
    /// It went without a result, or has been silent for half a minute.
    Lost(String),
}

/// What the sender knows of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverStatus {
    /// Its number in this session.
    pub id: u32,
    /// What it calls itself.
    pub name: String,
    /// Where it stands.
    pub state: ReceiverState,
    /// Content chunks taken by its sink.
    pub done_chunks: u32,
    /// Content chunks it wants, as far as it knows; 0 before it knows the table.
    pub wanted_chunks: u32,
    /// Chunk buffers that it had free when it last reported.
    pub free_chunks: u32,
    /// Symbols it made from repair symbols.
    pub repaired: u64,
    /// Time since the start of the cast at which it joined, and at which it ended (or was last heard).
    pub joined_at: Duration,
    /// See `joined_at`.
    pub heard_at: Duration,
}

struct Member {
    status: ReceiverStatus,
    token: u64,
    seen_packet: u64,
    loss: LossMeter,
}

impl Member {
    fn is_present(&self) -> bool {
        matches!(self.status.state, ReceiverState::Active | ReceiverState::Silent)
    }
}

/// All receivers that ever joined.
pub(crate) struct Roster {
    members: Vec<Member>,
    by_connection: HashMap<u64, u32>,
    begun: VecDeque<u64>,
    token_key: [u8; 32],
    changed: bool,
}

impl Roster {
    /// Nobody; tokens derive from the key.
    pub(crate) fn new(token_key: [u8; 32]) -> Self {
        Self {
            members: Vec::new(),
            by_connection: HashMap::new(),
            begun: VecDeque::new(),
            token_key,
            changed: false,
        }
    }

    /// A receiver joins: its id and token. `None` when there is no more room.
    pub(crate) fn join(
        &mut self,
        now: Duration,
        connection: u64,
        name: String,
        buffer_chunks: u32,
        packet: u64,
    ) -> Option<(u32, u64)> {
        if self.members.len() >= RECEIVERS_MAX {
            return None;
        }
        self.leave(now, connection, "it joined again");
        let id = self.members.len() as u32 + 1;
        let hash = blake3::keyed_hash(&self.token_key, &id.to_le_bytes());
        let token = hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let status = ReceiverStatus {
            id,
            name,
            state: ReceiverState::Active,
            done_chunks: 0,
            wanted_chunks: 0,
            free_chunks: buffer_chunks,
            repaired: 0,
            joined_at: now,
            heard_at: now,
        };
        let loss = LossMeter::starting_at(packet);
        self.members.push(Member { status, token, seen_packet: packet, loss });
        self.by_connection.insert(connection, id);
        self.changed = true;
        Some((id, token))
    }

    /// Whether id and token belong together and the receiver takes part.
    pub(crate) fn admits(&self, id: u32, token: u64) -> bool {
        self.member(id).is_some_and(|member| member.token == token && member.is_present())
    }

    /// A receiver was heard.
    pub(crate) fn heard(&mut self, now: Duration, id: u32) {
        let Some(member) = self.members.get_mut(id as usize - 1) else { return };
        member.status.heard_at = now;
        if member.status.state == ReceiverState::Silent {
            member.status.state = ReceiverState::Active;
            self.changed = true;
        }
    }

    /// Takes a report. The caller checked the token.
    pub(crate) fn report(&mut self, now: Duration, report: &Report, pacer: &mut Pacer) {
        self.heard(now, report.receiver);
        let Some(member) = self.members.get_mut(report.receiver as usize - 1) else { return };
        if report.seen_packet < member.seen_packet {
            return;
        }
        member.seen_packet = report.seen_packet;
        member.status.free_chunks = report.free_chunks;
        member.status.done_chunks = report.done_chunks;
        member.status.wanted_chunks = report.wanted_chunks;
        member.status.repaired = u64::from(report.repaired);
        member.loss.report(now, report.seen_packet, report.received, pacer);
    }

    /// A receiver's result. The caller checked the token.
    pub(crate) fn result(&mut self, now: Duration, id: u32, result: ReceiverResult, score: Score) {
        let Some(member) = self.members.get_mut(id as usize - 1) else { return };
        member.status.heard_at = now;
        member.status.repaired = result.repaired;
        member.status.state = match &result.outcome {
            Ok(verified) if *verified == score => {
                member.status.done_chunks = member.status.wanted_chunks;
                ReceiverState::Done(result)
            }
            Ok(verified) => ReceiverState::Failed(format!("it verified {verified}, cast was {score}")),
            Err(reason) => ReceiverState::Failed(reason.clone()),
        };
        self.changed = true;
    }

    /// A receiver's connection ended.
    pub(crate) fn leave(&mut self, now: Duration, connection: u64, reason: &str) {
        let Some(id) = self.by_connection.remove(&connection) else { return };
        let Some(member) = self.members.get_mut(id as usize - 1) else { return };
        if member.is_present() {
            member.status.heard_at = now;
            member.status.state = ReceiverState::Lost(reason.to_owned());
            self.changed = true;
        }
    }

    /// Lets time pass: silent receivers lose their vote, then count as lost.
    pub(crate) fn advance(&mut self, now: Duration) {
        for member in &mut self.members {
            let silence = now.saturating_sub(member.status.heard_at);
            if member.is_present() && silence >= LOST_SILENCE {
                member.status.state = ReceiverState::Lost(format!("silent for {} s", silence.as_secs()));
                self.changed = true;
            } else if member.status.state == ReceiverState::Active && silence >= VOTE_SILENCE {
                member.status.state = ReceiverState::Silent;
                self.changed = true;
            }
        }
    }

    /// A chunk begins at this packet: it will take a buffer of everyone.
    pub(crate) fn chunk_begins(&mut self, packet: u64) {
        if self.begun.len() >= BEGUN_MAX {
            self.begun.pop_front();
        }
        self.begun.push_back(packet);
    }

    /// Chunks that may begin before some voting receiver runs out of room.
    pub(crate) fn room(&self) -> u32 {
        self.voting().map(|member| self.room_of(member)).min().unwrap_or(u32::MAX)
    }

    /// Receivers without room.
    pub(crate) fn limiting(&self, most: usize) -> Vec<u32> {
        let full = self.voting().filter(|member| self.room_of(member) == 0);
        full.map(|member| member.status.id).take(most).collect()
    }

    fn room_of(&self, member: &Member) -> u32 {
        let on_their_way =
            self.begun.len() - self.begun.partition_point(|packet| *packet <= member.seen_packet);
        member.status.free_chunks.saturating_sub(on_their_way as u32)
    }

    fn voting(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.status.state == ReceiverState::Active)
    }

    fn member(&self, id: u32) -> Option<&Member> {
        self.members.get((id as usize).checked_sub(1)?)
    }

    /// Receivers that are still at it.
    pub(crate) fn present(&self) -> usize {
        self.members.iter().filter(|member| member.is_present()).count()
    }

    /// When somebody was last heard or ended.
    pub(crate) fn last_heard(&self) -> Option<Duration> {
        self.members.iter().map(|member| member.status.heard_at).max()
    }

    /// Everyone.
    pub(crate) fn statuses(&self) -> Vec<ReceiverStatus> {
        self.members.iter().map(|member| member.status.clone()).collect()
    }

    /// Whether a state changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::BlockId;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn join(roster: &mut Roster, connection: u64, buffers: u32) -> (u32, u64) {
        roster.join(seconds(0), connection, "a".into(), buffers, 0).unwrap()
    }

    #[test]
    fn room_counts_what_is_on_its_way() {
        let mut roster = Roster::new([1; 32]);
        let mut pacer = Pacer::new(1_000_000);
        assert_eq!(roster.room(), u32::MAX);
        let (id, token) = join(&mut roster, 1, 4);
        join(&mut roster, 2, 9);
        for packet in [10, 20, 30] {
            roster.chunk_begins(packet);
        }
        assert_eq!(roster.room(), 1);
        let report = Report { receiver: id, token, seen_packet: 25, free_chunks: 2, ..Report::default() };
        roster.report(seconds(1), &report, &mut pacer);
        assert_eq!(roster.room(), 1, "two taken, one on its way");
        roster.chunk_begins(40);
        assert_eq!((roster.room(), roster.limiting(9)), (0, vec![id]));
    }

    #[test]
    fn the_silent_lose_their_vote_and_then_their_place() {
        let mut roster = Roster::new([1; 32]);
        let (id, token) = join(&mut roster, 1, 0);
        assert_eq!(roster.room(), 0);
        roster.advance(seconds(2));
        assert_eq!(roster.room(), u32::MAX);
        roster.heard(seconds(3), id);
        assert_eq!(roster.room(), 0);
        roster.advance(seconds(33));
        assert_eq!(roster.present(), 0);
        assert!(!roster.admits(id, token));
    }

    #[test]
    fn a_wrong_token_admits_nobody_and_a_wrong_score_is_a_failure() {
        let mut roster = Roster::new([1; 32]);
        let (id, token) = join(&mut roster, 1, 1);
        assert!(
            roster.admits(id, token)
                && !roster.admits(id, token ^ 1)
                && !roster.admits(0, 0)
                && !roster.admits(9, token)
        );
        let result = ReceiverResult {
            outcome: Ok(Score(BlockId([1; 32]))),
            bytes_written: 0,
            duration_ms: 0,
            symbols: 0,
            repaired: 0,
            duplicates: 0,
        };
        roster.result(seconds(1), id, result, Score(BlockId([2; 32])));
        assert!(matches!(roster.statuses()[0].state, ReceiverState::Failed(_)));
    }
}
