//! The receivers of a session: joins, votes, free buffers, loss and results.
//!
//! Owns the receiver ids and keys. A receiver votes on the pace while it reports and makes progress. It loses its vote after
//! two seconds of silence, or after five seconds without a free buffer and without an accepted chunk. The next chunk that it
//! accepts restores the vote. It counts as lost after 30 seconds of silence or five minutes without progress, and returns if it
//! is heard while its connection exists. A receiver that was restarted joins as a new one, and replaces the old one in the
//! status. Must never let one receiver's datagram change another's state: it counts only with the key of its id, and once.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use platter_image::Score;

use crate::pacing::{LossMeter, Pacer};
use crate::wire::format::{HEADER_BYTES, Header, Reader};
use crate::wire::join::ReceiverResult;
use crate::wire::protection::{DatagramKey, Freshness, ReplayWindow};
use crate::wire::report::Report;

/// A receiver that is silent for this long no longer slows the others.
pub(crate) const VOTE_SILENCE: Duration = Duration::from_secs(2);
/// A receiver that has no free buffer and accepts no chunk for this long no longer slows the others.
pub(crate) const VOTE_STALL: Duration = Duration::from_secs(5);
/// A receiver that has lost its vote and makes no progress for this long is lost.
pub(crate) const LOST_STALL: Duration = Duration::from_secs(300);
/// A receiver that is silent for this long is lost.
pub(crate) const LOST_SILENCE: Duration = Duration::from_secs(30);
/// Maximum number of receivers of a session, including those that left.
pub(crate) const RECEIVERS_MAX: usize = 16_384;
/// Words of a receiver's replay window: 256 datagrams.
const WINDOW_WORDS: usize = 4;
/// Number of started chunks that are remembered to compute free buffers. A receiver with more chunks in transit counts as full.
const BEGUN_MAX: usize = 4096;

/// State of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverState {
    /// Receiving.
    Active,
    /// Receiving, but silent for two seconds: it no longer slows the others.
    Silent,
    /// Receiving, but without a free buffer or behind, and without progress since: it does not slow the others.
    Stalled,
    /// Finished, with the right score.
    Done(ReceiverResult),
    /// It reported a failure, or finished with a wrong score.
    Failed(String),
    /// It left without a result, was silent for 30 seconds, or made no progress for five minutes.
    Lost(String),
}

/// The status of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverStatus {
    /// Its number in this session.
    pub id: u32,
    /// The name that it gave itself.
    pub name: String,
    /// Its state.
    pub state: ReceiverState,
    /// Content chunks that its sink has accepted.
    pub done_chunks: u32,
    /// Content chunks that it wants, as far as known; 0 before it knows the chunk table.
    pub wanted_chunks: u32,
    /// Free chunk buffers in its last report.
    pub free_chunks: u32,
    /// Symbols that it restored from repair symbols.
    pub repaired: u64,
    /// Time since the start of the cast at which it joined.
    pub joined_at: Duration,
    /// Time since the start of the cast at which it finished or was last heard.
    pub heard_at: Duration,
}

struct Member {
    status: ReceiverStatus,
    key: DatagramKey,
    window: ReplayWindow,
    /// The address from which it joined.
    address: IpAddr,
    /// Whether a receiver with the same name and address joined after it was gone or failed. That one replaces it in the status.
    is_replaced: bool,
    /// Its connection, while it exists.
    connection: Option<u64>,
    seen_packet: u64,
    loss: LossMeter,
    /// Since when it has had no free buffer for the next chunk and accepted none.
    full_since: Option<Duration>,
}

impl Member {
    fn is_present(&self) -> bool {
        matches!(self.status.state, ReceiverState::Active | ReceiverState::Silent | ReceiverState::Stalled)
    }

    /// Returns whether its messages count: it takes part, or is lost but its connection exists.
    fn is_admitted(&self) -> bool {
        let given_up = matches!(self.status.state, ReceiverState::Lost(_));
        self.is_present() || (given_up && self.connection.is_some())
    }

    /// Ranks receivers that may have been restarted: 0 if it failed or is lost for good, 1 if it is lost but its connection exists,
    /// 2 if it is only silent. The lowest rank is replaced first. `None` if it was evidently not restarted.
    fn absence(&self, now: Duration) -> Option<u8> {
        let is_silent = now.saturating_sub(self.status.heard_at) >= VOTE_SILENCE;
        match self.status.state {
            ReceiverState::Failed(_) => Some(0),
            ReceiverState::Lost(_) if self.connection.is_none() => Some(0),
            ReceiverState::Lost(_) => Some(1),
            _ => (self.is_present() && is_silent).then_some(2),
        }
    }

    /// Returns whether it has accepted all that it wants. Its free buffers then do not matter.
    fn has_all(&self) -> bool {
        self.status.wanted_chunks > 0 && self.status.done_chunks == self.status.wanted_chunks
    }
}

/// Why a datagram was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// It is not from a receiver of this session, or was changed.
    Forged,
    /// A datagram with its number was accepted before, or it is too old to say.
    Repeated,
}

/// All receivers that ever joined.
pub(crate) struct Roster {
    members: Vec<Member>,
    by_connection: HashMap<u64, u32>,
    begun: VecDeque<u64>,
    key_of_keys: [u8; 32],
    has_join_key: bool,
    changed: bool,
}

impl Roster {
    /// Makes an empty roster. The receivers' keys are derived from `key_of_keys`.
    pub(crate) fn new(key_of_keys: [u8; 32], has_join_key: bool) -> Self {
        Self {
            members: Vec::new(),
            by_connection: HashMap::new(),
            begun: VecDeque::new(),
            key_of_keys,
            has_join_key,
            changed: false,
        }
    }

    /// Adds a receiver. Returns its id and the key of its datagrams; `None` at the limit of receivers.
    pub(crate) fn join(
        &mut self,
        now: Duration,
        connection: u64,
        (name, address): (String, IpAddr),
        buffer_chunks: u32,
        packet: u64,
    ) -> Option<(u32, [u8; 32])> {
        if self.members.len() >= RECEIVERS_MAX {
            return None;
        }
        self.leave(now, connection, "the receiver joined again");
        self.replace(now, &name, address);
        let id = self.members.len() as u32 + 1;
        let key = *blake3::keyed_hash(&self.key_of_keys, &id.to_le_bytes()).as_bytes();
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
            key: DatagramKey::of_receiver(&key, self.has_join_key),
            window: ReplayWindow::new(WINDOW_WORDS, 0),
            address,
            is_replaced: false,
            connection: connected,
            seen_packet: packet,
            loss,
            full_since: None,
        });
        self.by_connection.insert(connection, id);
        self.changed = true;
        Some((id, key))
    }

    /// Handles the join of a receiver with that name and address: if another one with both is gone, it was restarted and is
    /// replaced. If the replaced one is heard again (two receivers of a machine may have the same name), it is listed again.
    fn replace(&mut self, now: Duration, name: &str, address: IpAddr) {
        let same = self
            .members
            .iter_mut()
            .filter(|member| !member.is_replaced && member.address == address && member.status.name == name);
        let gone = same.filter_map(|member| Some((member.absence(now)?, member)));
        let Some((_, gone)) = gone.min_by_key(|(absence, _)| *absence) else { return };
        gone.is_replaced = true;
        if gone.is_present() {
            gone.status.state = ReceiverState::Lost("the receiver joined again".into());
        }
    }

    /// Returns whether a receiver has joined over this connection and not left.
    pub(crate) fn has_joined(&self, connection: u64) -> bool {
        self.by_connection.contains_key(&connection)
    }

    /// Verifies a receiver's datagram. Returns it without its tag, decrypted; `scratch` may be used for that.
    ///
    /// # Errors
    /// `Rejected` when it is not from a receiver whose messages count, or is a repetition.
    pub(crate) fn open<'a>(
        &mut self,
        header: &Header,
        datagram: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Rejected> {
        let mut id = Reader::new(datagram.get(HEADER_BYTES..).unwrap_or_default());
        let index = id.u32().and_then(|id| (id as usize).checked_sub(1));
        let member = index.and_then(|index| self.members.get_mut(index)).filter(|it| it.is_admitted());
        let member = member.ok_or(Rejected::Forged)?;
        match member.window.freshness(header.packet) {
            Freshness::New => {}
            Freshness::Repeated | Freshness::Old => return Err(Rejected::Repeated),
            Freshness::Impossible => return Err(Rejected::Forged),
        }
        let opened = member.key.open(datagram, scratch).ok_or(Rejected::Forged)?;
        member.window.mark(header.packet);
        Ok(opened)
    }

    /// Returns the receiver that joined over this connection, if its messages count.
    pub(crate) fn admitted(&self, connection: u64) -> Option<u32> {
        let id = *self.by_connection.get(&connection)?;
        self.member(id).filter(|member| member.is_admitted()).map(|member| member.status.id)
    }

    /// Records that a receiver was heard. A silent one is then stalled, because it is behind, and regains its vote with the next
    /// chunk that it accepts. One that was lost for lack of progress needs progress to return.
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

    /// Processes a report. The caller has opened it, and checked that the packet exists.
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
            // Loss during the stall says nothing about the network.
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

    /// Processes the result of an admitted receiver.
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
            Ok(verified) => {
                ReceiverState::Failed(format!("the receiver verified {verified}, but {score} was cast"))
            }
            Err(reason) => ReceiverState::Failed(reason.clone()),
        };
        self.changed = true;
    }

    /// Handles the end of a receiver's connection.
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

    /// Updates states by time: receivers that are silent or make no progress lose their vote, and later count as lost.
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

    /// Records that a chunk starts at this packet. It will need a buffer at every receiver.
    pub(crate) fn chunk_begins(&mut self, packet: u64) {
        if self.begun.len() >= BEGUN_MAX {
            self.begun.pop_front();
        }
        self.begun.push_back(packet);
    }

    /// Returns how many chunks may start before some voting receiver runs out of buffers.
    pub(crate) fn room(&self) -> u32 {
        self.voting().map(|member| room_of(&self.begun, member)).min().unwrap_or(u32::MAX)
    }

    /// Returns up to `most` receivers without a free buffer.
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

    /// Returns the number of receivers that take part.
    pub(crate) fn present(&self) -> usize {
        self.members.iter().filter(|member| member.is_present()).count()
    }

    /// Returns when a receiver was last heard or finished.
    pub(crate) fn last_heard(&self) -> Option<Duration> {
        self.members.iter().map(|member| member.status.heard_at).max()
    }

    /// Returns the status of all receivers, except those that were replaced after a restart.
    pub(crate) fn statuses(&self) -> Vec<ReceiverStatus> {
        self.members.iter().filter(|member| !member.is_replaced).map(|member| member.status.clone()).collect()
    }

    /// Returns whether a state has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

/// Returns how many chunks may start before a receiver runs out of buffers.
fn room_of(begun: &VecDeque<u64>, member: &Member) -> u32 {
    let on_their_way = begun.len() - begun.partition_point(|packet| *packet <= member.seen_packet);
    member.status.free_chunks.saturating_sub(on_their_way as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::format::MessageType;
    use platter_image::BlockId;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn join(roster: &mut Roster, connection: u64, buffers: u32) -> (u32, [u8; 32]) {
        join_as(roster, 0, connection, ("a", 1), buffers)
    }

    /// Joins with that name, from an address with that last byte.
    fn join_as(
        roster: &mut Roster,
        at: u64,
        connection: u64,
        (name, address): (&str, u8),
        buffers: u32,
    ) -> (u32, [u8; 32]) {
        let who = (name.to_owned(), IpAddr::from([10, 0, 0, address]));
        roster.join(seconds(at), connection, who, buffers, 0).unwrap()
    }

    fn result_of(outcome: Result<Score, String>) -> ReceiverResult {
        ReceiverResult { outcome, bytes_written: 0, duration_ms: 0, symbols: 0, repaired: 0, duplicates: 0 }
    }

    fn admits(roster: &Roster, id: u32) -> bool {
        roster.member(id).is_some_and(Member::is_admitted)
    }

    fn told(roster: &Roster) -> Vec<u32> {
        roster.statuses().iter().map(|status| status.id).collect()
    }

    #[test]
    fn a_failed_receiver_that_was_restarted_is_listed_once() {
        let mut roster = Roster::new([1; 32], false);
        let (first, _) = join_as(&mut roster, 0, 1, ("a", 1), 4);
        let (other, _) = join_as(&mut roster, 0, 2, ("b", 1), 4);
        roster.result(seconds(1), first, result_of(Err("the disk is full".into())), Score(BlockId([1; 32])));
        assert_eq!(told(&roster), [first, other], "nobody has replaced it yet");
        let (again, _) = join_as(&mut roster, 1, 3, ("a", 1), 4);
        assert_eq!(told(&roster), [other, again]);
        assert!(!admits(&roster, first), "it does not return");
    }

    #[test]
    fn a_lost_receiver_that_was_restarted_is_listed_once() {
        let mut roster = Roster::new([1; 32], false);
        let (first, key) = join_as(&mut roster, 0, 1, ("a", 1), 4);
        let (other, _) = join_as(&mut roster, 0, 2, ("b", 2), 4);
        roster.leave(seconds(1), 1, "its connection ended");
        // One from another address, and one with another name from the same address.
        let (machine, _) = join_as(&mut roster, 1, 3, ("a", 2), 4);
        let (name, _) = join_as(&mut roster, 1, 4, ("c", 1), 4);
        assert_eq!(told(&roster), [first, other, machine, name]);
        let (again, again_key) = join_as(&mut roster, 1, 5, ("a", 1), 4);
        assert_eq!(told(&roster), [other, machine, name, again]);
        assert_ne!((again, again_key), (first, key));
        assert!(admits(&roster, again) && !admits(&roster, first));
        assert!(!roster.has_joined(1) && roster.has_joined(5));
        // A new receiver replaces one old receiver, not all similar ones.
        roster.leave(seconds(2), 5, "its connection ended");
        let (twin, _) = join_as(&mut roster, 2, 6, ("a", 1), 4);
        roster.leave(seconds(2), 6, "its connection ended");
        let (third, _) = join_as(&mut roster, 2, 7, ("a", 1), 4);
        let (fourth, _) = join_as(&mut roster, 2, 8, ("a", 1), 4);
        assert_eq!(told(&roster), [other, machine, name, third, fourth], "{twin} joined for {again}");
    }

    #[test]
    fn a_replaced_receiver_that_is_heard_is_listed_again() {
        let mut roster = Roster::new([1; 32], false);
        let (first, _) = join_as(&mut roster, 0, 1, ("a", 1), 4);
        // Two disks of one machine: the first receiver is present, so the second is no restart.
        let (second, _) = join_as(&mut roster, 1, 2, ("a", 1), 4);
        assert_eq!(told(&roster), [first, second]);
        roster.heard(seconds(4), second);
        let (third, _) = join_as(&mut roster, 4, 3, ("a", 1), 4);
        assert_eq!((told(&roster), roster.present()), (vec![second, third], 2));
        assert!(admits(&roster, first), "its connection exists");
        roster.heard(seconds(5), first);
        assert_eq!((told(&roster), roster.present()), (vec![first, second, third], 3));
    }

    #[test]
    fn free_buffers_account_for_chunks_in_transit() {
        let mut roster = Roster::new([1; 32], false);
        let mut pacer = Pacer::new(1_000_000);
        assert_eq!(roster.room(), u32::MAX);
        let (id, _) = join(&mut roster, 1, 4);
        join(&mut roster, 2, 9);
        for packet in [10, 20, 30] {
            roster.chunk_begins(packet);
        }
        assert_eq!(roster.room(), 1);
        let report = Report { receiver: id, seen_packet: 25, free_chunks: 2, ..Report::default() };
        roster.report(seconds(1), &report, &mut pacer);
        assert_eq!(roster.room(), 1, "two accepted, one in transit");
        roster.chunk_begins(40);
        assert_eq!((roster.room(), roster.limiting(9)), (0, vec![id]));
    }

    #[test]
    fn silent_receivers_lose_their_vote_and_then_are_lost() {
        let mut roster = Roster::new([1; 32], false);
        let (id, _) = join(&mut roster, 1, 0);
        assert_eq!(roster.room(), 0);
        roster.advance(seconds(2));
        assert_eq!(roster.room(), u32::MAX);
        roster.heard(seconds(3), id);
        assert_eq!(roster.room(), u32::MAX, "it may be far behind");
        roster.advance(seconds(33));
        assert_eq!(roster.present(), 0);
        roster.leave(seconds(34), 1, "its connection ended");
        assert!(!admits(&roster, id));
    }

    #[test]
    fn full_receivers_lose_their_vote_until_they_accept_a_chunk() {
        let mut roster = Roster::new([1; 32], false);
        let mut pacer = Pacer::new(1_000_000);
        let (id, _) = join(&mut roster, 1, 1);
        roster.chunk_begins(10);
        let mut report = |roster: &mut Roster, at: u64, free_chunks, done_chunks, seen_packet| {
            let numbers =
                Report { free_chunks, done_chunks, seen_packet, wanted_chunks: 9, ..Report::default() };
            roster.report(seconds(at), &Report { receiver: id, ..numbers }, &mut pacer);
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
            "a free buffer is no progress"
        );
        roster.chunk_begins(20);
        assert_eq!(
            report(&mut roster, 7, 1, 1, 10),
            (u32::MAX, ReceiverState::Stalled),
            "it is still behind"
        );
        assert_eq!(report(&mut roster, 8, 2, 2, 20), (2, ReceiverState::Active));
        // A free buffer without an accepted chunk does not count.
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
        assert_eq!(report(&mut roster, 310, 1, 2, 20).1, lost, "it is heard, but still without progress");
        assert_eq!(report(&mut roster, 311, 1, 3, 20).1, ReceiverState::Active);
    }

    #[test]
    fn a_lost_receiver_returns_while_its_connection_exists() {
        let mut roster = Roster::new([1; 32], false);
        let (id, _) = join(&mut roster, 1, 4);
        roster.advance(seconds(30));
        assert_eq!(roster.present(), 0);
        assert!(admits(&roster, id));
        roster.heard(seconds(40), id);
        assert_eq!((roster.present(), roster.statuses()[0].state.clone()), (1, ReceiverState::Stalled));
        roster.advance(seconds(70));
        roster.leave(seconds(71), 1, "its connection ended");
        assert!(!admits(&roster, id));
    }

    #[test]
    fn only_the_receivers_own_datagrams_count_and_only_once() {
        let mut roster = Roster::new([1; 32], false);
        let ((id, key), (_, other)) = (join(&mut roster, 1, 1), join(&mut roster, 2, 1));
        let mut scratch = Vec::new();
        let mut open = |key: &[u8; 32], id: u32, packet| {
            let header = Header { message: MessageType::Report, session: 1, packet, sent_us: 0 };
            let mut bytes = Vec::new();
            Report { receiver: id, ..Report::default() }.write(&header, &mut bytes);
            DatagramKey::of_receiver(key, false).seal(&mut bytes, 0);
            roster.open(&header, &bytes, &mut scratch).map(|_| ())
        };
        assert_eq!(open(&other, id, 1), Err(Rejected::Forged), "another receiver's key");
        assert_eq!(open(&key, 0, 1), Err(Rejected::Forged));
        assert_eq!(open(&key, 9, 1), Err(Rejected::Forged));
        assert_eq!(open(&key, id, 7), Ok(()));
        assert_eq!(open(&key, id, 7), Err(Rejected::Repeated));
        assert_eq!(open(&key, id, 6), Ok(()), "overtaken");
    }

    #[test]
    fn a_wrong_score_is_a_failure() {
        let mut roster = Roster::new([1; 32], false);
        let (id, _) = join(&mut roster, 1, 1);
        let result = result_of(Ok(Score(BlockId([1; 32]))));
        roster.result(seconds(1), id, result, Score(BlockId([2; 32])));
        assert!(matches!(roster.statuses()[0].state, ReceiverState::Failed(_)));
    }
}
