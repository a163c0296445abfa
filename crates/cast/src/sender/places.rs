//! The places of a session's receivers: their ids and keys, and who gives up a place to another.
//!
//! A connection is that of one receiver. A receiver that was restarted joins as a new one, and replaces the old one in the status.
//! When all places are taken, the place of a receiver that is gone is given to the next one, those of finished ones last, so that nobody
//! can close a cast to others by joining again and again. Must never use an id twice: its key would make datagrams of the earlier
//! receiver count for the later one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use super::member::{Absence, Member, Naming, ReceiverState, ReceiverStatus, VOTE_SILENCE};
use super::path::Path;
use super::slowness::Slowness;
use crate::pacing::LossMeter;
use crate::stage::Bottlenecks;
use crate::wire::protection::{DatagramKey, ReplayWindow};

/// Number of places of a session.
pub(super) const RECEIVERS_MAX: usize = 16_384;
/// Number of places that receivers of one address can hold. Whoever holds one without a connection only has to send a datagram now
/// and then.
const RECEIVERS_OF_ONE_MAX: usize = 256;
/// Words of a receiver's replay window: 256 datagrams.
const WINDOW_WORDS: usize = 4;

/// Why a receiver gets no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// One has joined over its connection before.
    SecondJoin,
    /// All places are taken by receivers that take part.
    Full,
    /// Those of its address are.
    FullForAddress,
}

/// All places that were ever taken.
pub(super) struct Places {
    /// A receiver with id `i` has place `(i - 1) % RECEIVERS_MAX`; each receiver that gets a place anew has an id higher by
    /// [`RECEIVERS_MAX`].
    pub(super) members: Vec<Member>,
    /// The ids of the receivers that joined or went on over each open connection, also of those that left.
    by_connection: HashMap<u64, u32>,
    /// A receiver that is silent for so long may have been restarted.
    pub(super) silence: Duration,
    key_of_keys: [u8; 32],
    has_join_key: bool,
}

impl Places {
    /// Starts without receivers. Their keys are derived from `key_of_keys`.
    pub(super) fn new(key_of_keys: [u8; 32], has_join_key: bool) -> Self {
        Self {
            members: Vec::new(),
            by_connection: HashMap::new(),
            silence: VOTE_SILENCE,
            key_of_keys,
            has_join_key,
        }
    }

    /// Gives a receiver a place. Returns its id and the key of its datagrams.
    ///
    /// # Errors
    /// Why there is none for it.
    pub(super) fn join(
        &mut self,
        now: Duration,
        connection: u64,
        (name, address): (String, IpAddr),
        buffers: u32,
        packet: u64,
    ) -> Result<(u32, [u8; 32]), NoPlace> {
        if self.by_connection.contains_key(&connection) {
            return Err(NoPlace::SecondJoin);
        }
        self.replace(now, &name, address);
        let of_one = self.members.iter().filter(|member| member.address == address && !member.is_gone());
        if of_one.count() >= RECEIVERS_OF_ONE_MAX {
            return Err(NoPlace::FullForAddress);
        }
        let (index, id) = self.next_place().ok_or(NoPlace::Full)?;
        let key = *blake3::keyed_hash(&self.key_of_keys, &id.to_le_bytes()).as_bytes();
        let status = ReceiverStatus {
            id,
            name,
            state: ReceiverState::Active,
            done_chunks: 0,
            wanted_chunks: 0,
            free_chunks: buffers,
            repaired: 0,
            bottleneck: None,
            joined_at: now,
            heard_at: now,
        };
        let member = Member {
            status,
            key: DatagramKey::of_receiver(&key, self.has_join_key),
            window: ReplayWindow::new(WINDOW_WORDS),
            address,
            is_replaced: false,
            may_be_replaced: false,
            connection: Some(connection),
            parted_at: None,
            has_left: false,
            joined_packet: packet,
            hears_group: false,
            seen_packet: packet,
            loss: LossMeter::starting_at(packet),
            path: Path::starting_at(packet),
            buffers,
            waiting_chunks: 0,
            busy_percent: 0,
            slowness: Slowness::default(),
            bottlenecks: Bottlenecks::default(),
            progressed_at: now,
            full_since: None,
            naming: Naming::joined(now),
        };
        match self.members.get_mut(index) {
            Some(place) => *place = member,
            None => self.members.push(member),
        }
        self.by_connection.insert(connection, id);
        Ok((id, key))
    }

    /// Handles the join of a receiver with that name and address: if another one with both is gone, it was restarted and is
    /// replaced. If the replaced one is heard again (two receivers of a machine may have the same name), it is listed again.
    fn replace(&mut self, now: Duration, name: &str, address: IpAddr) {
        let silence = self.silence;
        let same = self
            .members
            .iter_mut()
            .filter(|member| !member.is_replaced && member.address == address && member.status.name == name);
        let gone = same.filter_map(|member| Some((member.absence(now, silence)?, member)));
        let Some((absence, gone)) = gone.min_by_key(|(absence, _)| *absence) else { return };
        if absence == Absence::Unconnected {
            gone.may_be_replaced = true;
            return;
        }
        gone.is_replaced = true;
        if gone.is_present() {
            gone.status.state = ReceiverState::Lost("the receiver joined again".into());
        }
    }

    /// Returns the index and the id of the next receiver's place: a new one, or that of a receiver that is gone, of those that were
    /// replaced if there are any. That of a finished one, which then is in no report any more, is the last.
    fn next_place(&self) -> Option<(usize, u32)> {
        if self.members.len() < RECEIVERS_MAX {
            return Some((self.members.len(), self.members.len() as u32 + 1));
        }
        let gone = self.members.iter().enumerate().filter(|(_, member)| member.is_gone());
        let is_done = |it: &Member| matches!(it.status.state, ReceiverState::Done(_));
        let (index, member) =
            gone.min_by_key(|(_, it)| (is_done(it), !it.is_replaced, it.status.heard_at))?;
        Some((index, member.status.id.checked_add(RECEIVERS_MAX as u32)?))
    }

    /// Returns the index of a receiver, if it has a place.
    pub(super) fn index(&self, id: u32) -> Option<usize> {
        let index = (id as usize).checked_sub(1)? % RECEIVERS_MAX;
        self.members.get(index).is_some_and(|member| member.status.id == id).then_some(index)
    }

    /// Returns a receiver, if it has a place.
    pub(super) fn get(&self, id: u32) -> Option<&Member> {
        self.index(id).map(|index| &self.members[index])
    }

    /// Returns a receiver, if it has a place.
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Member> {
        self.index(id).map(|index| &mut self.members[index])
    }

    /// Returns the id of the receiver of this connection. It may have left.
    pub(super) fn of_connection(&self, connection: u64) -> Option<u32> {
        self.by_connection.get(&connection).copied()
    }

    /// Makes this the connection of a receiver. Returns the one that it had.
    pub(super) fn bind(&mut self, connection: u64, id: u32) -> Option<u64> {
        let member = self.get_mut(id)?;
        member.parted_at = None;
        let before = member.connection.replace(connection);
        before.inspect(|before| self.forget(*before));
        self.by_connection.insert(connection, id);
        before
    }

    /// Forgets a connection that has ended.
    pub(super) fn forget(&mut self, connection: u64) {
        self.by_connection.remove(&connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::join::ReceiverResult;
    use platter_image::{BlockId, Score};

    /// Joins with that name, from an address with that last byte.
    fn join(
        places: &mut Places,
        connection: u64,
        name: &str,
        address: u8,
    ) -> Result<(u32, [u8; 32]), NoPlace> {
        let who = (name.to_owned(), IpAddr::from([10, 0, 0, address]));
        places.join(Duration::ZERO, connection, who, 4, 0)
    }

    fn leave(places: &mut Places, connection: u64) {
        let member = places.of_connection(connection).and_then(|id| places.get_mut(id)).unwrap();
        member.connection = None;
        member.status.state = ReceiverState::Lost("the connection ended".into());
        places.forget(connection);
    }

    #[test]
    fn one_receiver_joins_over_a_connection() {
        let mut places = Places::new([1; 32], false);
        join(&mut places, 1, "a", 1).unwrap();
        assert_eq!(join(&mut places, 1, "b", 1), Err(NoPlace::SecondJoin));
        assert_eq!(places.members.len(), 1);
        leave(&mut places, 1);
        assert!(join(&mut places, 1, "b", 1).is_ok(), "a new connection with that number");
    }

    #[test]
    fn at_the_limit_places_of_receivers_that_are_gone_are_given_to_others() {
        let mut places = Places::new([1; 32], false);
        let (first, first_key) = join(&mut places, 1, "first", 1).unwrap();
        let names = ["second", "third"];
        for (name, connection) in names.iter().zip(2..) {
            join(&mut places, connection, name, 1).unwrap();
        }
        for connection in 4..=RECEIVERS_MAX as u64 {
            let who = ("stranger".to_owned(), IpAddr::from([10, 1, (connection / 200) as u8, 1]));
            places.join(Duration::ZERO, connection, who, 4, 0).unwrap();
        }
        assert_eq!(join(&mut places, 1 << 20, "late", 3), Err(NoPlace::Full), "nobody is gone");
        leave(&mut places, 1);
        let (late, late_key) = join(&mut places, 1 << 20, "late", 3).unwrap();
        assert_eq!(late, first + RECEIVERS_MAX as u32);
        assert_ne!(late_key, first_key);
        assert!(places.get(first).is_none() && places.get(0).is_none());
        assert_eq!(places.get(late).unwrap().status.name, "late");
        assert_eq!(places.members.len(), RECEIVERS_MAX);
        // One that was restarted gives up its own place.
        leave(&mut places, 2);
        leave(&mut places, 3);
        let (again, _) = join(&mut places, 1 << 21, "third", 1).unwrap();
        assert_eq!(again, 3 + RECEIVERS_MAX as u32);
        assert_eq!(places.get(2).unwrap().status.name, "second", "nobody else lost a place");
    }

    /// Whoever joins can say that he has the disk.
    #[test]
    fn finished_receivers_give_up_their_places_last() {
        let mut places = Places::new([1; 32], false);
        for connection in 1..=RECEIVERS_MAX as u64 {
            join(&mut places, connection, "stranger", 2).unwrap();
            let member = places.of_connection(connection).and_then(|id| places.get_mut(id)).unwrap();
            let score = Score(BlockId([1; 32]));
            let result = ReceiverResult {
                outcome: Ok(score),
                bytes_written: 0,
                duration_ms: 0,
                symbols: 0,
                repaired: 0,
                duplicates: 0,
            };
            member.status.state = ReceiverState::Done(result);
            member.connection = None;
            places.forget(connection);
        }
        let (late, _) = join(&mut places, 1 << 20, "late", 3).unwrap();
        leave(&mut places, 1 << 20);
        let (next, _) = join(&mut places, 1 << 21, "next", 4).unwrap();
        assert_eq!(next, late + RECEIVERS_MAX as u32, "the lost one is not reported, the finished ones are");
    }

    #[test]
    fn one_address_cannot_take_all_places() {
        let mut places = Places::new([1; 32], false);
        for connection in 1..=RECEIVERS_OF_ONE_MAX as u64 {
            join(&mut places, connection, "a", 1).unwrap();
        }
        assert_eq!(join(&mut places, 1000, "a", 1), Err(NoPlace::FullForAddress));
        join(&mut places, 1001, "a", 2).unwrap();
        leave(&mut places, 7);
        join(&mut places, 1002, "b", 1).unwrap();
        assert_eq!(join(&mut places, 1003, "b", 1), Err(NoPlace::FullForAddress));
    }
}
