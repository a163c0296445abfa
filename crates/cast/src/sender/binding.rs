//! Which connection of the reliable channel is whose.
//!
//! A receiver has at most one, and needs none while it is heard: it connects again when it has something to say. Must never bind a
//! connection to a receiver without a datagram of it that was never sent before, nor end a receiver because its connection has ended.

use std::net::IpAddr;
use std::time::Duration;

use platter_image::Score;

use super::census::Census;
use super::member::{Member, ReceiverState, VOTE_SILENCE};
use super::places::NoPlace;
use super::roster::Roster;
use crate::wire::format::{HEADER_BYTES, Header, Reader};
use crate::wire::join::ReceiverResult;
use crate::wire::protection::Freshness;
use crate::wire::resume::Resume;

/// Why a datagram was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// It is not from a receiver of this session, or was changed.
    Forged,
    /// A datagram with its number was accepted before, or it is too old to say.
    Repeated,
}

/// Why a receiver cannot go on over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotResumed {
    /// It has left, or its place was given to another one.
    Gone,
    Rejected(Rejected),
}

impl Roster {
    /// Adds a receiver. Returns its id and the key of its datagrams.
    ///
    /// # Errors
    /// Why it gets no place.
    pub(crate) fn join(
        &mut self,
        now: Duration,
        connection: u64,
        who: (String, IpAddr),
        buffer_chunks: u32,
        packet: u64,
    ) -> Result<(u32, [u8; 32]), NoPlace> {
        self.places.silence = VOTE_SILENCE.max(self.timers.silence());
        let joined = self.places.join(now, connection, who, buffer_chunks, packet);
        // Another one may have been replaced, even if there is no place for this one.
        self.census = Census::of(&self.places.members);
        let joined = joined?;
        self.timers.update(now, self.census.present);
        self.last_heard = Some(now);
        if let Some(index) = self.places.index(joined.0) {
            self.spokesmen.forget(index);
            self.spokesmen.add_sample(now, index, &mut self.places.members);
        }
        self.changed = true;
        Ok(joined)
    }

    /// Returns whether a receiver has joined over this connection.
    pub(crate) fn has_joined(&self, connection: u64) -> bool {
        self.places.of_connection(connection).is_some()
    }

    /// Makes this the connection of the receiver that sealed the datagram. Returns the one that it had, which must be closed.
    ///
    /// # Errors
    /// `NotResumed` when there is no such receiver, or the datagram does not count.
    pub(crate) fn resume(
        &mut self,
        now: Duration,
        connection: u64,
        header: &Header,
        datagram: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<Option<u64>, NotResumed> {
        let id = id_in(datagram).ok_or(NotResumed::Rejected(Rejected::Forged))?;
        let is_taken = self.places.of_connection(connection).is_some();
        let member = self.places.get_mut(id).filter(|member| !member.has_left).ok_or(NotResumed::Gone)?;
        if is_taken {
            return Err(NotResumed::Rejected(Rejected::Forged));
        }
        member.open(header, datagram, scratch).map_err(NotResumed::Rejected)?;
        let is_admitted = member.is_admitted();
        let before = self.places.bind(connection, id);
        if is_admitted {
            self.heard(now, id);
        }
        Ok(before)
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
        let member = id_in(datagram).and_then(|id| self.places.get_mut(id)).filter(|it| it.is_admitted());
        member.ok_or(Rejected::Forged)?.open(header, datagram, scratch)
    }

    /// Returns the receiver of this connection, if its messages count.
    pub(crate) fn admitted(&self, connection: u64) -> Option<u32> {
        let id = self.places.of_connection(connection)?;
        self.places.get(id).filter(|member| member.is_admitted()).map(|member| member.status.id)
    }

    /// Processes the result of this connection's receiver. Returns whether to confirm it: it counts, or an earlier one does.
    pub(crate) fn take_result(
        &mut self,
        now: Duration,
        connection: u64,
        result: ReceiverResult,
        score: Score,
    ) -> bool {
        let Some(member) = self.places.of_connection(connection).and_then(|id| self.places.get(id)) else {
            return false;
        };
        if member.is_admitted() {
            self.result(now, member.status.id, result, score);
            return true;
        }
        matches!(member.status.state, ReceiverState::Done(_) | ReceiverState::Failed(_))
    }

    /// Handles that a receiver says that it leaves. Its connection may still exist, and nobody else can join over it.
    pub(crate) fn leave(&mut self, now: Duration, connection: u64) {
        let Some(id) = self.places.of_connection(connection) else { return };
        let Some(index) = self.places.index(id) else { return };
        let member = &mut self.places.members[index];
        (member.connection, member.has_left) = (None, true);
        if member.is_present() {
            self.change(index, |member| {
                member.status.heard_at = now;
                member.status.state = ReceiverState::Lost("the receiver left without a result".into());
            });
            self.last_heard = Some(now);
            (self.changed, self.ended) = (true, true);
        }
    }

    /// Handles the end of a connection. Its receiver needs none as long as it is heard.
    pub(crate) fn disconnected(&mut self, now: Duration, connection: u64) {
        let id = self.places.of_connection(connection);
        self.places.forget(connection);
        let Some(index) = id.and_then(|id| self.places.index(id)) else { return };
        let member = &mut self.places.members[index];
        (member.connection, member.parted_at) = (None, Some(now));
        self.spokesmen.parted(index);
    }
}

impl Member {
    /// Verifies a datagram that names this receiver. Returns it without its tag, decrypted; `scratch` may be used for that.
    fn open<'a>(
        &mut self,
        header: &Header,
        datagram: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Rejected> {
        match self.window.freshness(header.packet) {
            Freshness::New => {}
            Freshness::Repeated | Freshness::Old => return Err(Rejected::Repeated),
            Freshness::Impossible => return Err(Rejected::Forged),
        }
        let opened = self.key.open(datagram, scratch).ok_or(Rejected::Forged)?;
        self.window.mark(header.packet);
        Ok(opened)
    }
}

/// Returns the id in a receiver's datagram. Every type of them has it at the same place.
fn id_in(datagram: &[u8]) -> Option<u32> {
    Resume::parse(Reader::new(datagram.get(HEADER_BYTES..)?)).map(|resume| resume.receiver)
}

#[cfg(test)]
mod tests {
    use super::super::verdicts::Work;
    use super::*;
    use crate::wire::format::MessageType;
    use crate::wire::protection::DatagramKey;
    use crate::wire::report::Report;
    use platter_image::BlockId;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// Joins with that name, from an address with that last byte.
    fn join_as(
        roster: &mut Roster,
        at: u64,
        connection: u64,
        (name, address): (&str, u8),
    ) -> (u32, [u8; 32]) {
        let who = (name.to_owned(), IpAddr::from([10, 0, 0, address]));
        roster.join(seconds(at), connection, who, 4, 0).unwrap()
    }

    fn advance(roster: &mut Roster, at: u64) {
        let _ = roster.advance(seconds(at), Duration::ZERO, Work::Some);
    }

    fn result_of(outcome: Result<Score, String>) -> ReceiverResult {
        ReceiverResult { outcome, bytes_written: 0, duration_ms: 0, symbols: 0, repaired: 0, duplicates: 0 }
    }

    fn admits(roster: &Roster, id: u32) -> bool {
        roster.places.get(id).is_some_and(Member::is_admitted)
    }

    fn told(roster: &Roster) -> Vec<u32> {
        roster.statuses().iter().map(|status| status.id).collect()
    }

    /// Goes on over a connection with this packet number, as receiver `id` with this key.
    fn resume(
        roster: &mut Roster,
        at: u64,
        connection: u64,
        (id, key): (u32, &[u8; 32]),
        packet: u64,
    ) -> Result<Option<u64>, NotResumed> {
        let header = Header { message: MessageType::Resume, session: 1, packet, sent_us: 0 };
        let mut bytes = Vec::new();
        Resume { receiver: id }.write(&header, &mut bytes);
        DatagramKey::of_receiver(key, false).seal(&mut bytes, 0);
        roster.resume(seconds(at), connection, &header, &bytes, &mut Vec::new())
    }

    #[test]
    fn a_failed_receiver_that_was_restarted_is_listed_once() {
        let mut roster = Roster::new([1; 32], false);
        let (first, _) = join_as(&mut roster, 0, 1, ("a", 1));
        let (other, _) = join_as(&mut roster, 0, 2, ("b", 1));
        roster.result(seconds(1), first, result_of(Err("the disk is full".into())), Score(BlockId([1; 32])));
        assert_eq!(told(&roster), [first, other], "nobody has replaced it yet");
        let (again, _) = join_as(&mut roster, 1, 3, ("a", 1));
        assert_eq!(told(&roster), [other, again]);
        assert!(!admits(&roster, first), "it does not return");
    }

    #[test]
    fn a_lost_receiver_that_was_restarted_is_listed_once() {
        let mut roster = Roster::new([1; 32], false);
        let (first, key) = join_as(&mut roster, 0, 1, ("a", 1));
        let (other, _) = join_as(&mut roster, 0, 2, ("b", 2));
        roster.leave(seconds(1), 1);
        roster.disconnected(seconds(0), 1);
        // One from another address, and one with another name from the same address.
        let (machine, _) = join_as(&mut roster, 1, 3, ("a", 2));
        let (name, _) = join_as(&mut roster, 1, 4, ("c", 1));
        assert_eq!(told(&roster), [first, other, machine, name]);
        let (again, again_key) = join_as(&mut roster, 1, 5, ("a", 1));
        assert_eq!(told(&roster), [other, machine, name, again]);
        assert_ne!((again, again_key), (first, key));
        assert!(admits(&roster, again) && !admits(&roster, first));
        assert!(!roster.has_joined(1) && roster.has_joined(5));
        // A new receiver replaces one old receiver, not all similar ones.
        roster.leave(seconds(2), 5);
        let (twin, _) = join_as(&mut roster, 2, 6, ("a", 1));
        roster.leave(seconds(2), 6);
        let (third, _) = join_as(&mut roster, 2, 7, ("a", 1));
        let (fourth, _) = join_as(&mut roster, 2, 8, ("a", 1));
        assert_eq!(told(&roster), [other, machine, name, third, fourth], "{twin} joined for {again}");
    }

    #[test]
    fn a_replaced_receiver_that_is_heard_is_listed_again() {
        let mut roster = Roster::new([1; 32], false);
        let (first, _) = join_as(&mut roster, 0, 1, ("a", 1));
        // Two disks of one machine: the first receiver is present, so the second is no restart.
        let (second, _) = join_as(&mut roster, 1, 2, ("a", 1));
        assert_eq!(told(&roster), [first, second]);
        roster.heard(seconds(4), second);
        let (third, _) = join_as(&mut roster, 4, 3, ("a", 1));
        assert_eq!((told(&roster), roster.present()), (vec![second, third], 2));
        assert!(admits(&roster, first), "its connection exists");
        roster.heard(seconds(5), first);
        assert_eq!((told(&roster), roster.present()), (vec![first, second, third], 3));
    }

    #[test]
    fn a_receiver_goes_on_without_a_connection_and_over_another_one() {
        let mut roster = Roster::new([1; 32], false);
        let (id, key) = join_as(&mut roster, 0, 1, ("a", 1));
        let (other, other_key) = join_as(&mut roster, 0, 2, ("b", 2));
        roster.disconnected(seconds(0), 1);
        roster.heard(seconds(1), id);
        advance(&mut roster, 2);
        assert_eq!((roster.present(), roster.admitted(1)), (2, None));
        // It is not bound by another receiver, nor by a datagram that was sent before.
        let forged = Err(NotResumed::Rejected(Rejected::Forged));
        assert_eq!(resume(&mut roster, 2, 3, (id, &other_key), 1), forged);
        assert_eq!(resume(&mut roster, 2, 2, (id, &key), 1), forged, "the connection of another receiver");
        assert_eq!(resume(&mut roster, 2, 3, (id, &key), 1), Ok(None));
        let repeated = Err(NotResumed::Rejected(Rejected::Repeated));
        assert_eq!(resume(&mut roster, 2, 4, (id, &key), 1), repeated);
        assert_eq!((roster.admitted(3), roster.admitted(4)), (Some(id), None));
        // The later connection counts, whatever becomes of the earlier one.
        assert_eq!(resume(&mut roster, 2, 5, (id, &key), 2), Ok(Some(3)));
        roster.disconnected(seconds(0), 3);
        assert_eq!(
            (roster.admitted(3), roster.admitted(5), roster.admitted(2)),
            (None, Some(id), Some(other))
        );
        assert_eq!(resume(&mut roster, 2, 6, (9, &key), 3), Err(NotResumed::Gone));
        roster.leave(seconds(2), 5);
        assert_eq!(resume(&mut roster, 2, 6, (id, &key), 3), Err(NotResumed::Gone), "it has left");
    }

    #[test]
    fn without_a_connection_two_seconds_of_silence_end_a_receiver() {
        let mut roster = Roster::new([1; 32], false);
        let (id, key) = join_as(&mut roster, 0, 1, ("a", 1));
        let (connected, _) = join_as(&mut roster, 0, 2, ("b", 2));
        roster.disconnected(seconds(0), 1);
        advance(&mut roster, 0);
        advance(&mut roster, 1);
        assert_eq!(roster.present(), 2);
        advance(&mut roster, 2);
        let states = roster.statuses().into_iter().map(|status| status.state);
        let lost = ReceiverState::Lost("the connection ended, and it is silent".into());
        assert_eq!(states.collect::<Vec<_>>(), [lost, ReceiverState::Silent]);
        // It was only away.
        assert!(admits(&roster, id));
        assert_eq!(resume(&mut roster, 3, 3, (id, &key), 1), Ok(None));
        roster.heard(seconds(3), connected);
        assert_eq!(roster.present(), 2);
    }

    #[test]
    fn a_result_is_confirmed_however_often_it_is_said_and_the_first_one_counts() {
        let mut roster = Roster::new([1; 32], false);
        let (id, key) = join_as(&mut roster, 0, 1, ("a", 1));
        let score = Score(BlockId([1; 32]));
        assert!(roster.take_result(seconds(1), 1, result_of(Ok(score)), score));
        roster.disconnected(seconds(0), 1);
        assert!(!roster.take_result(seconds(1), 1, result_of(Ok(score)), score), "nobody's connection");
        assert_eq!(resume(&mut roster, 5, 2, (id, &key), 1), Ok(None));
        assert!(roster.take_result(seconds(5), 2, result_of(Err("late".into())), score));
        assert!(matches!(roster.statuses()[0].state, ReceiverState::Done(_)));
        assert_eq!(roster.last_heard(), Some(seconds(1)), "the end of the cast");
    }

    #[test]
    fn a_receiver_that_was_killed_and_started_at_once_is_listed_once() {
        let mut roster = Roster::new([1; 32], false);
        let (first, _) = join_as(&mut roster, 0, 1, ("a", 1));
        roster.disconnected(seconds(0), 1);
        let (again, _) = join_as(&mut roster, 1, 2, ("a", 1));
        assert_eq!(told(&roster), [first, again], "it may need no connection");
        advance(&mut roster, 0);
        roster.heard(seconds(2), again);
        advance(&mut roster, 2);
        assert_eq!(told(&roster), [again]);
        // One that is heard was not restarted.
        roster.disconnected(seconds(2), 2);
        let (third, _) = join_as(&mut roster, 3, 3, ("a", 1));
        roster.heard(seconds(3), again);
        advance(&mut roster, 5);
        assert_eq!(told(&roster), [again, third]);
    }

    #[test]
    fn who_is_present_is_counted_even_if_a_join_is_refused() {
        let mut roster = Roster::new([1; 32], false);
        let mut ids = Vec::new();
        for connection in 1..=256 {
            ids.push(join_as(&mut roster, 0, connection, (&format!("pc{connection}"), 1)).0);
        }
        roster.heard(seconds(99), ids[1]);
        for at in 100..103 {
            let who = ("pc1".to_owned(), IpAddr::from([10, 0, 0, 1]));
            assert_eq!(roster.join(seconds(at), 1000, who, 4, 0).err(), Some(NoPlace::FullForAddress));
            assert_eq!(roster.present(), 255, "it may have been restarted");
            roster.heard(seconds(at), ids[0]);
            assert_eq!(roster.present(), 256);
            roster.change(0, |member| member.status.heard_at = seconds(0));
        }
    }

    #[test]
    fn a_receiver_that_was_killed_is_noticed_although_something_of_it_was_on_the_way() {
        let mut roster = Roster::new([1; 32], false);
        let ids: Vec<u32> =
            (1..=200).map(|at| join_as(&mut roster, 0, at, (&format!("pc{at}"), 1)).0).collect();
        roster.start(seconds(0));
        let at = |ms| seconds(1) + Duration::from_millis(ms);
        roster.disconnected(at(0), 100);
        roster.disconnected(at(0), 101);
        roster.heard(at(40), ids[99]);
        roster.heard(at(400), ids[100]);
        for ms in (0..2500).step_by(25) {
            let _ = roster.advance(at(ms), Duration::ZERO, Work::Some);
        }
        let is_lost = |number: usize| matches!(roster.statuses()[number].state, ReceiverState::Lost(_));
        assert!(is_lost(99) && !is_lost(100));
    }

    #[test]
    fn only_the_receivers_own_datagrams_count_and_only_once() {
        let mut roster = Roster::new([1; 32], false);
        let ((id, key), (_, other)) =
            (join_as(&mut roster, 0, 1, ("a", 1)), join_as(&mut roster, 0, 2, ("b", 2)));
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
}
