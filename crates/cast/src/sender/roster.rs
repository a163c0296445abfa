//! Who takes part: joins, votes, room, loss and results of receivers.
//!
//! Owns the receiver ids and tokens. A receiver votes on the pace while it reports and makes progress. It loses its vote
//! after two seconds of silence, or after five without room and without a chunk taken; the next chunk that it takes gives
//! the vote back. It counts as lost after half a minute of silence or five minutes without progress, and takes part
//! again if it is heard while its connection stands. A receiver that was started again joins as a new one, and takes the
//! place of the one that it was in what is told. Must never let one receiver's message change another's state: a message
//! counts only with the token of its id.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use platter_image::Score;

use crate::pacing::{LossMeter, Pacer};
use crate::wire::join::ReceiverResult;
use crate::wire::report::Report;

/// A receiver that is silent for that long no longer holds the others up.
pub(crate) const VOTE_SILENCE: Duration = Duration::from_secs(2);
/// A receiver that has no room and takes no chunk for that long no longer holds the others up.
pub(crate) const VOTE_STALL: Duration = Duration::from_secs(5);
/// A receiver that has lost its vote for want of progress, and makes none for that long, is lost.
pub(crate) const LOST_STALL: Duration = Duration::from_secs(300);
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
    /// Receiving, but without room or behind, and it has taken no chunk since: it does not hold the others up.
    Stalled,
    /// Finished, with the right score.
    Done(ReceiverResult),
    /// It said that it failed, or finished with a wrong score.
    Failed(String),
    /// It went without a result, was silent for half a minute, or made no progress for five.
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
    /// Where it joined from.
    address: IpAddr,
    /// It was gone, or had failed, when a receiver of the same name and address joined: that one is told of in its place.
    is_replaced: bool,
    /// Its connection, as long as that stands.
    connection: Option<u64>,
    seen_packet: u64,
    loss: LossMeter,
    /// Since when it has had no room for the next chunk and taken none.
    full_since: Option<Duration>,
}

impl Member {
    fn is_present(&self) -> bool {
        matches!(self.status.state, ReceiverState::Active | ReceiverState::Silent | ReceiverState::Stalled)
    }

    /// Whether it may be heard: it takes part, or was given up while its connection stands.
    fn is_admitted(&self) -> bool {
        let given_up = matches!(self.status.state, ReceiverState::Lost(_));
        self.is_present() || (given_up && self.connection.is_some())
    }

    /// Whether it failed, is lost, or has been silent for so long that it may have been started again. One that has ended
    /// for good comes before one that may be heard again, and that before one that is only silent.
    fn absence(&self, now: Duration) -> Option<u8> {
        let is_silent = now.saturating_sub(self.status.heard_at) >= VOTE_SILENCE;
        match self.status.state {
            ReceiverState::Failed(_) => Some(0),
            ReceiverState::Lost(_) if self.connection.is_none() => Some(0),
            ReceiverState::Lost(_) => Some(1),
            _ => (self.is_present() && is_silent).then_some(2),
        }
    }

    /// Whether it has taken all that it knows to want: its room then says nothing.
    fn has_all(&self) -> bool {
        self.status.wanted_chunks > 0 && self.status.done_chunks == self.status.wanted_chunks
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
        (name, address): (String, IpAddr),
        buffer_chunks: u32,
        packet: u64,
    ) -> Option<(u32, u64)> {
        if self.members.len() >= RECEIVERS_MAX {
            return None;
        }
        self.leave(now, connection, "it joined again");
        self.replace(now, &name, address);
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
        let connected = Some(connection);
        self.members.push(Member {
            status,
            token,
            address,
            is_replaced: false,
            connection: connected,
            seen_packet: packet,
            loss,
            full_since: None,
        });
        self.by_connection.insert(connection, id);
        self.changed = true;
        Some((id, token))
    }

    /// A receiver of that name and address joins: if one of the same is gone, it was started again. One that is heard
    /// after all (two of a machine may have the same name) is told of again.
    fn replace(&mut self, now: Duration, name: &str, address: IpAddr) {
        let same = self
            .members
            .iter_mut()
            .filter(|member| !member.is_replaced && member.address == address && member.status.name == name);
        let gone = same.filter_map(|member| Some((member.absence(now)?, member)));
        let Some((_, gone)) = gone.min_by_key(|(absence, _)| *absence) else { return };
        gone.is_replaced = true;
        if gone.is_present() {
            gone.status.state = ReceiverState::Lost("it joined again".into());
        }
    }

    /// Whether a receiver joined over this connection and has not left.
    pub(crate) fn has_joined(&self, connection: u64) -> bool {
        self.by_connection.contains_key(&connection)
    }

    /// Whether id and token belong together and the receiver takes part.
    pub(crate) fn admits(&self, id: u32, token: u64) -> bool {
        self.member(id).is_some_and(|member| member.token == token && member.is_admitted())
    }

    /// A receiver was heard. One that was silent has its vote back when it takes a chunk: until then it is behind. One
    /// that was given up for want of progress needs progress to come back.
    pub(crate) fn heard(&mut self, now: Duration, id: u32) {
        let Some(member) = self.members.get_mut(id as usize - 1) else { return };
        member.status.heard_at = now;
        let is_back = match member.status.state {
            ReceiverState::Silent => true,
            ReceiverState::Lost(_) => {
                member.full_since.is_none_or(|since| now.saturating_sub(since) < LOST_STALL)
            }
            _ => false,
        };
        if is_back {
            member.status.state = ReceiverState::Stalled;
            member.is_replaced = false;
            member.full_since = Some(now);
            self.changed = true;
        }
    }

    /// Takes a report. The caller checked the token, and that the packet exists.
    pub(crate) fn report(&mut self, now: Duration, report: &Report, pacer: &mut Pacer) {
        self.heard(now, report.receiver);
        let Some(member) = self.members.get_mut(report.receiver as usize - 1) else { return };
        if report.seen_packet < member.seen_packet {
            return;
        }
        let progressed = report.done_chunks > member.status.done_chunks;
        member.seen_packet = report.seen_packet;
        member.status.free_chunks = report.free_chunks;
        member.status.done_chunks = report.done_chunks;
        member.status.wanted_chunks = report.wanted_chunks;
        member.status.repaired = u64::from(report.repaired);
        if member.status.state == ReceiverState::Stalled {
            // What it lost meanwhile tells nothing of the network.
            member.loss.skip_to(report.seen_packet, report.received);
        } else {
            member.loss.report(now, report.seen_packet, report.received, pacer);
        }
        if !progressed {
            return;
        }
        member.full_since = None;
        if matches!(member.status.state, ReceiverState::Stalled | ReceiverState::Lost(_)) {
            let has_room = room_of(&self.begun, member) > 0;
            member.status.state = if has_room { ReceiverState::Active } else { ReceiverState::Stalled };
            member.is_replaced = false;
            member.full_since = (!has_room).then_some(now);
            self.changed = true;
        }
    }

    /// A receiver's result. The caller checked the token.
    pub(crate) fn result(&mut self, now: Duration, id: u32, result: ReceiverResult, score: Score) {
        let Some(member) = self.members.get_mut(id as usize - 1) else { return };
        member.status.heard_at = now;
        member.is_replaced = false;
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
        member.connection = None;
        if member.is_present() {
            member.status.heard_at = now;
            member.status.state = ReceiverState::Lost(reason.to_owned());
            self.changed = true;
        }
    }

    /// Lets time pass: receivers that are silent or make no progress lose their vote, and then count as lost.
    pub(crate) fn advance(&mut self, now: Duration) {
        for member in &mut self.members {
            if !member.is_present() {
                continue;
            }
            let silence = now.saturating_sub(member.status.heard_at);
            let is_full = member.full_since.is_some() || room_of(&self.begun, member) == 0;
            let full = is_full && !member.has_all();
            member.full_since = full.then(|| member.full_since.unwrap_or(now));
            let stall = member.full_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
            let next = match member.status.state {
                _ if silence >= LOST_SILENCE => {
                    ReceiverState::Lost(format!("silent for {} s", silence.as_secs()))
                }
                ReceiverState::Stalled if stall >= LOST_STALL => {
                    ReceiverState::Lost(format!("no progress for {} s", stall.as_secs()))
                }
                ReceiverState::Active if silence >= VOTE_SILENCE => ReceiverState::Silent,
                ReceiverState::Active if stall >= VOTE_STALL => ReceiverState::Stalled,
                _ => continue,
            };
            member.status.state = next;
            self.changed = true;
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
        self.voting().map(|member| room_of(&self.begun, member)).min().unwrap_or(u32::MAX)
    }

    /// Receivers without room.
    pub(crate) fn limiting(&self, most: usize) -> Vec<u32> {
        let full = self.voting().filter(|member| room_of(&self.begun, member) == 0);
        full.map(|member| member.status.id).take(most).collect()
    }

    fn voting(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|it| it.status.state == ReceiverState::Active && !it.has_all())
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

    /// Everyone, but for those who were started again as another.
    pub(crate) fn statuses(&self) -> Vec<ReceiverStatus> {
        self.members.iter().filter(|member| !member.is_replaced).map(|member| member.status.clone()).collect()
    }

    /// Whether a state changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

/// Chunks that may begin before a receiver runs out of room.
fn room_of(begun: &VecDeque<u64>, member: &Member) -> u32 {
    let on_their_way = begun.len() - begun.partition_point(|packet| *packet <= member.seen_packet);
    member.status.free_chunks.saturating_sub(on_their_way as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_image::BlockId;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn join(roster: &mut Roster, connection: u64, buffers: u32) -> (u32, u64) {
        join_as(roster, 0, connection, ("a", 1), buffers)
    }

    /// Joins with that name, and that last byte of an address.
    fn join_as(
        roster: &mut Roster,
        at: u64,
        connection: u64,
        (name, address): (&str, u8),
        buffers: u32,
    ) -> (u32, u64) {
        let who = (name.to_owned(), IpAddr::from([10, 0, 0, address]));
        roster.join(seconds(at), connection, who, buffers, 0).unwrap()
    }

    fn result_of(outcome: Result<Score, String>) -> ReceiverResult {
        ReceiverResult { outcome, bytes_written: 0, duration_ms: 0, symbols: 0, repaired: 0, duplicates: 0 }
    }

    fn told(roster: &Roster) -> Vec<u32> {
        roster.statuses().iter().map(|status| status.id).collect()
    }

    #[test]
    fn a_receiver_that_failed_and_was_started_again_is_told_of_once() {
        let mut roster = Roster::new([1; 32]);
        let (first, token) = join_as(&mut roster, 0, 1, ("a", 1), 4);
        let (other, _) = join_as(&mut roster, 0, 2, ("b", 1), 4);
        roster.result(seconds(1), first, result_of(Err("the disk is full".into())), Score(BlockId([1; 32])));
        assert_eq!(told(&roster), [first, other], "nobody took its place yet");
        let (again, _) = join_as(&mut roster, 1, 3, ("a", 1), 4);
        assert_eq!(told(&roster), [other, again]);
        assert!(!roster.admits(first, token), "it does not come back");
    }

    #[test]
    fn a_receiver_that_was_started_again_is_told_of_once() {
        let mut roster = Roster::new([1; 32]);
        let (first, token) = join_as(&mut roster, 0, 1, ("a", 1), 4);
        let (other, _) = join_as(&mut roster, 0, 2, ("b", 2), 4);
        roster.leave(seconds(1), 1, "its connection ended");
        // Another machine, and another name on the same one.
        let (machine, _) = join_as(&mut roster, 1, 3, ("a", 2), 4);
        let (name, _) = join_as(&mut roster, 1, 4, ("c", 1), 4);
        assert_eq!(told(&roster), [first, other, machine, name]);
        let (again, again_token) = join_as(&mut roster, 1, 5, ("a", 1), 4);
        assert_eq!(told(&roster), [other, machine, name, again]);
        assert_ne!((again, again_token), (first, token));
        assert!(roster.admits(again, again_token) && !roster.admits(first, token));
        assert!(!roster.has_joined(1) && roster.has_joined(5));
        // It takes one place, not all that were like it.
        roster.leave(seconds(2), 5, "its connection ended");
        let (twin, _) = join_as(&mut roster, 2, 6, ("a", 1), 4);
        roster.leave(seconds(2), 6, "its connection ended");
        let (third, _) = join_as(&mut roster, 2, 7, ("a", 1), 4);
        let (fourth, _) = join_as(&mut roster, 2, 8, ("a", 1), 4);
        assert_eq!(told(&roster), [other, machine, name, third, fourth], "{twin} joined for {again}");
    }

    #[test]
    fn one_that_is_heard_after_all_is_told_of_again() {
        let mut roster = Roster::new([1; 32]);
        let (first, token) = join_as(&mut roster, 0, 1, ("a", 1), 4);
        // Two disks of one machine: the first receiver is there, so that this is no restart.
        let (second, _) = join_as(&mut roster, 1, 2, ("a", 1), 4);
        assert_eq!(told(&roster), [first, second]);
        roster.heard(seconds(4), second);
        let (third, _) = join_as(&mut roster, 4, 3, ("a", 1), 4);
        assert_eq!((told(&roster), roster.present()), (vec![second, third], 2));
        assert!(roster.admits(first, token), "its connection stands");
        roster.heard(seconds(5), first);
        assert_eq!((told(&roster), roster.present()), (vec![first, second, third], 3));
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
        assert_eq!(roster.room(), u32::MAX, "it may be far behind");
        roster.advance(seconds(33));
        assert_eq!(roster.present(), 0);
        roster.leave(seconds(34), 1, "its connection ended");
        assert!(!roster.admits(id, token));
    }

    #[test]
    fn the_full_lose_their_vote_until_they_take_a_chunk() {
        let mut roster = Roster::new([1; 32]);
        let mut pacer = Pacer::new(1_000_000);
        let (id, token) = join(&mut roster, 1, 1);
        roster.chunk_begins(10);
        let mut report = |roster: &mut Roster, at: u64, free_chunks, done_chunks, seen_packet| {
            let numbers =
                Report { free_chunks, done_chunks, seen_packet, wanted_chunks: 9, ..Report::default() };
            roster.report(seconds(at), &Report { receiver: id, token, ..numbers }, &mut pacer);
            roster.advance(seconds(at));
            (roster.room(), roster.statuses()[0].state.clone())
        };
        for at in 0..5 {
            assert_eq!(report(&mut roster, at, 0, 0, 10), (0, ReceiverState::Active), "second {at}");
        }
        assert_eq!(report(&mut roster, 5, 0, 0, 10), (u32::MAX, ReceiverState::Stalled));
        assert_eq!(
            report(&mut roster, 6, 1, 0, 10),
            (u32::MAX, ReceiverState::Stalled),
            "room is no progress"
        );
        roster.chunk_begins(20);
        assert_eq!(
            report(&mut roster, 7, 1, 1, 10),
            (u32::MAX, ReceiverState::Stalled),
            "it is still behind"
        );
        assert_eq!(report(&mut roster, 8, 2, 2, 20), (2, ReceiverState::Active));
        // Room that comes and goes without a chunk taken is none.
        for at in 9..14 {
            assert_eq!(
                report(&mut roster, at, 1 - (at % 2) as u32, 2, 20).1,
                ReceiverState::Active,
                "second {at}"
            );
        }
        assert_eq!(report(&mut roster, 14, 1, 2, 20).1, ReceiverState::Stalled);
        for at in 15..309 {
            assert_eq!(report(&mut roster, at, 0, 2, 20).1, ReceiverState::Stalled, "second {at}");
        }
        let lost = report(&mut roster, 309, 0, 2, 20).1;
        assert_eq!(lost, ReceiverState::Lost("no progress for 300 s".into()));
        assert_eq!(report(&mut roster, 310, 1, 2, 20).1, lost, "it is heard, and there is still no progress");
        assert_eq!(report(&mut roster, 311, 1, 3, 20).1, ReceiverState::Active);
    }

    #[test]
    fn who_was_given_up_takes_part_again_while_its_connection_stands() {
        let mut roster = Roster::new([1; 32]);
        let (id, token) = join(&mut roster, 1, 4);
        roster.advance(seconds(30));
        assert_eq!(roster.present(), 0);
        assert!(roster.admits(id, token));
        roster.heard(seconds(40), id);
        assert_eq!((roster.present(), roster.statuses()[0].state.clone()), (1, ReceiverState::Stalled));
        roster.advance(seconds(70));
        roster.leave(seconds(71), 1, "its connection ended");
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
        let result = result_of(Ok(Score(BlockId([1; 32]))));
        roster.result(seconds(1), id, result, Score(BlockId([2; 32])));
        assert!(matches!(roster.statuses()[0].state, ReceiverState::Failed(_)));
    }
}
