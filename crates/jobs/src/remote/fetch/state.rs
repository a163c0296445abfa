//! What a source knows of its frames: here, on their way, wanted. All decisions of fetching, without sockets, threads or
//! a clock: time is an argument, since a start.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use platter_image::frame::FrameHeader;
use platter_image::{BlockId, BlockPlace, Error, ErrorKind, Kind, Result};

use super::flight::{Flight, Outcome};
use super::queue::{Key, Queue, Room};
use super::shelf::Shelf;
use super::window::{Sent, Window};
use crate::remote::client::next_pause;

/// Requests under way at once that nobody waits for. A few more may be: who waits is not kept waiting by them.
const AHEAD_REQUESTS_MAX: usize = 8;
/// Stored bytes of a block, before any came.
const BLOCK_LENGTH_GUESS: u64 = 16 << 10;
/// Everything that changes.
pub(super) struct State {
    queue: Queue,
    pub(super) shelf: Shelf,
    window: Window,
    flights: HashMap<Key, Arc<Flight>>,
    /// Estimated bytes of requests under way that have not come.
    under_way: u64,
    ahead_requests: usize,
    /// Stored bytes that came for an id, on average.
    block_length: u64,
    ahead_max: u64,
    retry_time_max: Duration,
    trouble: Option<Trouble>,
    pub(super) closed: bool,
}

/// The origin fails.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    since: Duration,
    pause: Duration,
    next_try: Duration,
}

/// A request for frames.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    /// In the order in which they are asked for.
    pub(super) ids: Vec<BlockId>,
    /// Those that have not come.
    left: HashSet<BlockId>,
    sent: Sent,
    /// Estimated bytes that have not come.
    expected: u64,
    came: u64,
    ahead: bool,
}

impl Request {
    /// Whether a frame has something of what was asked for and has not come.
    pub(super) fn wants(&self, header: &FrameHeader) -> bool {
        header.kind == self.kind && header.blocks.iter().any(|block| self.left.contains(&block.id))
    }
}

/// What a thread does next.
pub(super) enum Next {
    Ask(Request),
    /// There is nothing to do; for so long at most, if that is set.
    Wait(Option<Duration>),
    End,
}

/// Where something is.
pub(super) enum Look {
    Here(BlockPlace),
    OnItsWay(Arc<Flight>),
}

impl State {
    /// A shelf of that many bytes. Of what nobody waits for, `ahead_max` may be under way or lie there unread.
    pub(super) fn new(bytes_max: u64, ahead_max: u64, retry_time_max: Duration) -> Self {
        Self {
            queue: Queue::default(),
            shelf: Shelf::new(bytes_max),
            window: Window::default(),
            flights: HashMap::new(),
            under_way: 0,
            ahead_requests: 0,
            block_length: BLOCK_LENGTH_GUESS,
            ahead_max,
            retry_time_max,
            trouble: None,
            closed: false,
        }
    }

    /// Looks for what somebody waits for.
    pub(super) fn look(&mut self, key: Key) -> Look {
        if let Some(place) = self.shelf.find(key) {
            return Look::Here(place);
        }
        self.queue.demand(key);
        Look::OnItsWay(self.flights.entry(key).or_default().clone())
    }

    /// Notes what will be wanted.
    pub(super) fn hint(&mut self, kind: Kind, ids: &[BlockId]) {
        for id in ids {
            let key = Key { kind, id: *id };
            if self.shelf.find(key).is_none() {
                self.queue.hint(key);
            }
        }
    }

    /// Bytes that can be under way, and so must be wanted for that.
    pub(super) fn ahead_length(&self) -> u64 {
        self.window.length() + self.window.request_length()
    }

    /// The next request, if there is one to be sent now.
    pub(super) fn next(&mut self, now: Duration) -> Next {
        if self.closed {
            return Next::End;
        }
        if let Some(trouble) = self.trouble.filter(|trouble| trouble.next_try > now) {
            return Next::Wait(Some(trouble.next_try - now));
        }
        let length = self.window.request_length();
        let ids = (length / self.block_length.max(1)).max(1) as usize;
        let has_room = self.under_way < self.window.length();
        let room = match has_room && self.ahead_requests < AHEAD_REQUESTS_MAX {
            true if self.under_way + self.shelf.unread_bytes() < self.ahead_max => Room::ForHints,
            _ if has_room => Room::ForHinted,
            _ => Room::None,
        };
        let Some((kind, ids)) = self.queue.next(ids, room) else { return Next::Wait(None) };
        let ahead = !ids.iter().any(|id| self.flights.contains_key(&Key { kind, id: *id }));
        let expected = self.block_length * ids.len() as u64;
        self.under_way += expected;
        self.ahead_requests += usize::from(ahead);
        let left = ids.iter().copied().collect();
        Next::Ask(Request { kind, ids, left, sent: self.window.sent(now), expected, came: 0, ahead })
    }

    /// Leaves out of a request that is not sent yet what comes in another way and nobody waits for here. Gives what is left.
    pub(super) fn narrow(&mut self, request: &mut Request, comes: &dyn Fn(&BlockId) -> bool) -> Vec<BlockId> {
        let kind = request.kind;
        for id in std::mem::take(&mut request.ids) {
            let key = Key { kind, id };
            if self.flights.contains_key(&key) || !comes(&id) {
                request.ids.push(id);
            } else {
                request.left.remove(&id);
                self.queue.remove(key);
            }
        }
        let expected = self.block_length * request.ids.len() as u64;
        self.under_way -= request.expected - expected;
        request.expected = expected;
        request.ids.clone()
    }

    /// Takes a frame that a request brought, decoded and hashed. If it is kept elsewhere, where readers look first, it is put on the
    /// shelf only for those who wait for it.
    ///
    /// # Errors
    /// `Corrupt` when nobody asked for any of its blocks: who sends such frames could send them for ever.
    pub(super) fn take(
        &mut self,
        request: &mut Request,
        header: &FrameHeader,
        stored: &[u8],
        is_kept: bool,
        now: Duration,
    ) -> Result<()> {
        if !request.wants(header) {
            return Err(Error::corrupt("the origin sent a frame that was not asked for"));
        }
        for block in &header.blocks {
            request.left.remove(&block.id);
        }
        if request.came == 0 {
            self.window.answered(request.sent, now);
        }
        let length = stored.len() as u64;
        request.came += length;
        self.window.received(length);
        let expected = request.expected.min(length);
        request.expected -= expected;
        self.under_way -= expected;
        // One that answers at all is not the one that failed.
        self.trouble = None;
        let keys = header.blocks.iter().map(|block| Key { kind: header.kind, id: block.id });
        if is_kept && !keys.clone().any(|key| self.flights.contains_key(&key)) {
            keys.for_each(|key| self.queue.remove(key));
            return Ok(());
        }
        for (key, place) in self.shelf.insert(header, Arc::from(stored)) {
            self.settle(key, &Outcome::Here(place));
        }
        Ok(())
    }

    /// Ends a request: with what was not found, or by an error.
    pub(super) fn end(&mut self, request: Request, result: Result<Vec<BlockId>>, now: Duration) {
        self.under_way -= request.expected;
        self.ahead_requests -= usize::from(request.ahead);
        let kind = request.kind;
        let asked = request.ids.len() as u64;
        match result {
            Ok(not_found) => {
                self.trouble = None;
                if request.came > 0 {
                    self.window.ended(request.sent, now);
                    self.block_length = (self.block_length * 7 + request.came / asked).div_ceil(8);
                }
                let not_found: HashSet<BlockId> = not_found.into_iter().collect();
                for id in request.left {
                    let outcome = match not_found.contains(&id) {
                        true => Outcome::Missing,
                        false => Outcome::Failed(
                            ErrorKind::Corrupt,
                            format!("the origin neither sent {kind:?} {id} nor said that it is not there"),
                        ),
                    };
                    self.settle(Key { kind, id }, &outcome);
                }
            }
            Err(error) if error.kind() == ErrorKind::Transient => self.put_off(&request, &error, now),
            Err(error) => {
                let outcome = failed(&error);
                for id in request.left {
                    self.settle(Key { kind, id }, &outcome);
                }
            }
        }
    }

    /// What the request did not bring is asked for again after a while, unless that went on for too long.
    fn put_off(&mut self, request: &Request, error: &Error, now: Duration) {
        let kind = request.kind;
        for id in request.ids.iter().rev().filter(|id| request.left.contains(id)) {
            let key = Key { kind, id: *id };
            let demanded = self.flights.contains_key(&key);
            self.queue.give_back(key, demanded);
        }
        let trouble = self.trouble.unwrap_or(Trouble { since: now, pause: Duration::ZERO, next_try: now });
        // Requests that were under way together fail together: one pause is enough for them.
        if trouble.next_try <= now {
            let pause = next_pause(trouble.pause);
            self.trouble = Some(Trouble { pause, next_try: now + pause, ..trouble });
        }
        if now.saturating_sub(trouble.since) > self.retry_time_max {
            self.queue.clear();
            let outcome = failed(error);
            self.flights.drain().for_each(|(_, flight)| flight.end(outcome.clone()));
            self.trouble = None;
        }
    }

    fn settle(&mut self, key: Key, outcome: &Outcome) {
        self.queue.remove(key);
        if let Some(flight) = self.flights.remove(&key) {
            flight.end(outcome.clone());
        }
    }
}

/// An error for all who wait, with its causes.
fn failed(error: &Error) -> Outcome {
    let mut what = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        what = format!("{what}: {cause}");
        source = cause.source();
    }
    Outcome::Failed(error.kind(), what)
}

#[cfg(test)]
mod tests {
    use platter_image::Domain;
    use platter_image::frame::{Compressor, FrameBuilder};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(n: u8) -> Key {
        Key { kind: Kind::Data, id: BlockId::of(Kind::Data, &[n; 512]) }
    }

    fn frame(numbers: &[u8]) -> (FrameHeader, Arc<[u8]>) {
        let mut builder = FrameBuilder::new(Kind::Data, Domain::SHARED, 1 << 16);
        numbers.iter().for_each(|n| builder.push(key(*n).id, &[*n; 512]));
        let encoded = builder.encode(&mut Compressor::new(1).unwrap()).unwrap();
        (FrameHeader::parse(&encoded.stored).unwrap(), encoded.stored.into())
    }

    fn state() -> State {
        State::new(64 << 20, 32 << 20, 10 * SECOND)
    }

    fn ask(state: &mut State, now: Duration) -> Request {
        match state.next(now) {
            Next::Ask(request) => request,
            Next::Wait(time) => panic!("waits {time:?}"),
            Next::End => panic!("ended"),
        }
    }

    fn look(state: &mut State, n: u8) -> Arc<Flight> {
        match state.look(key(n)) {
            Look::OnItsWay(flight) => flight,
            Look::Here(place) => panic!("is at {place:?}"),
        }
    }

    fn is_idle(state: &mut State, now: Duration) -> bool {
        matches!(state.next(now), Next::Wait(None))
    }

    #[test]
    fn one_frame_answers_all_who_want_its_blocks() {
        let mut state = state();
        let flights = [look(&mut state, 1), look(&mut state, 1), look(&mut state, 2)];
        let mut request = ask(&mut state, SECOND);
        assert_eq!(request.ids, [key(1).id, key(2).id]);
        let late = look(&mut state, 3);
        let (header, stored) = frame(&[1, 2, 3]);
        state.take(&mut request, &header, &stored, false, SECOND).unwrap();
        state.end(request, Ok(Vec::new()), SECOND);
        for flight in flights.iter().chain([&late]) {
            assert!(flight.wait().unwrap().is_some());
        }
        assert!(is_idle(&mut state, SECOND), "what came with another is not asked for");
        assert!(matches!(state.look(key(3)), Look::Here(place) if place.slot == 2));
        assert_eq!((state.under_way, state.ahead_requests), (0, 0));
    }

    #[test]
    fn what_is_kept_elsewhere_and_nobody_waits_for_takes_no_memory() {
        let mut state = state();
        state.hint(Kind::Data, &[key(1).id, key(2).id]);
        let mut request = ask(&mut state, SECOND);
        let flight = look(&mut state, 2);
        for n in [1, 2] {
            let (header, stored) = frame(&[n]);
            state.take(&mut request, &header, &stored, true, SECOND).unwrap();
        }
        state.end(request, Ok(Vec::new()), SECOND);
        assert!(flight.wait().unwrap().is_some());
        assert_eq!((state.shelf.find(key(1)), state.shelf.find(key(2)).is_some()), (None, true));
        look(&mut state, 1);
        assert_eq!(ask(&mut state, SECOND).ids, [key(1).id], "who lost it elsewhere asks again");
    }

    #[test]
    fn what_comes_in_another_way_is_asked_for_only_if_somebody_waits() {
        let mut state = state();
        state.hint(Kind::Data, &[1, 2, 3].map(|n| key(n).id));
        let mut request = ask(&mut state, SECOND);
        let flight = look(&mut state, 3);
        let comes = [key(1).id, key(3).id];
        assert_eq!(state.narrow(&mut request, &|id| comes.contains(id)), [key(2).id, key(3).id]);
        let (header, stored) = frame(&[2, 3]);
        state.take(&mut request, &header, &stored, false, SECOND).unwrap();
        state.end(request, Ok(Vec::new()), SECOND);
        assert!(flight.wait().unwrap().is_some());
        assert_eq!((state.under_way, state.ahead_requests), (0, 0));
        look(&mut state, 1);
        assert_eq!(ask(&mut state, SECOND).ids, [key(1).id], "when it did not come");
    }

    #[test]
    fn what_is_not_there_is_missing_and_what_is_left_out_corrupt() {
        let mut state = state();
        let (missing, left_out) = (look(&mut state, 1), look(&mut state, 2));
        let request = ask(&mut state, SECOND);
        state.end(request, Ok(vec![key(1).id, key(9).id]), SECOND);
        assert!(missing.wait().unwrap().is_none());
        assert_eq!(left_out.wait().unwrap_err().kind(), ErrorKind::Corrupt);
        look(&mut state, 1);
        assert!(!is_idle(&mut state, SECOND), "whoever asks again, asks the origin again");
    }

    #[test]
    fn a_frame_that_nobody_asked_for_is_refused() {
        let mut state = state();
        let flight = look(&mut state, 1);
        let mut request = ask(&mut state, SECOND);
        let (header, stored) = frame(&[7]);
        let error = state.take(&mut request, &header, &stored, false, SECOND).unwrap_err();
        state.end(request, Err(error), SECOND);
        assert_eq!(flight.wait().unwrap_err().kind(), ErrorKind::Corrupt);
        // Nor the same one twice, or it would go on for ever.
        look(&mut state, 7);
        let mut request = ask(&mut state, SECOND);
        state.take(&mut request, &header, &stored, false, SECOND).unwrap();
        assert!(state.take(&mut request, &header, &stored, false, SECOND).is_err());
    }

    #[test]
    fn a_cut_request_is_asked_again_for_what_did_not_come() {
        let mut state = state();
        let flights = [look(&mut state, 1), look(&mut state, 2)];
        let mut request = ask(&mut state, SECOND);
        let (header, stored) = frame(&[1]);
        state.take(&mut request, &header, &stored, false, SECOND).unwrap();
        state.end(request, Err(Error::transient("cut")), SECOND);
        assert!(flights[0].wait().unwrap().is_some());
        assert!(matches!(state.next(SECOND), Next::Wait(Some(_))), "but not at once");
        let mut request = ask(&mut state, 2 * SECOND);
        assert_eq!(request.ids, [key(2).id]);
        let (header, stored) = frame(&[2]);
        state.take(&mut request, &header, &stored, false, 2 * SECOND).unwrap();
        state.end(request, Ok(Vec::new()), 2 * SECOND);
        assert!(flights[1].wait().unwrap().is_some());
    }

    #[test]
    fn an_origin_that_stays_away_is_believed_in_the_end() {
        let mut state = state();
        let flight = look(&mut state, 1);
        state.hint(Kind::Data, &[key(2).id]);
        let (mut now, mut tries) = (SECOND, 0);
        loop {
            match state.next(now) {
                Next::Ask(request) => {
                    tries += 1;
                    state.end(request, Err(Error::transient("away")), now);
                }
                Next::Wait(Some(time)) => now += time,
                Next::Wait(None) | Next::End => break,
            }
        }
        assert_eq!(flight.wait().unwrap_err().kind(), ErrorKind::Transient);
        assert!(now > 11 * SECOND && now < 15 * SECOND && (5..50).contains(&tries), "{tries} tries, {now:?}");
        assert!(is_idle(&mut state, now), "hints are forgotten with it");
        look(&mut state, 1);
        assert!(!is_idle(&mut state, now), "whoever comes later is tried for again");
    }

    #[test]
    fn hints_wait_for_room_and_nobody_waits_for_hints() {
        let mut state = State::new(2 << 20, 1 << 20, SECOND);
        let ids: Vec<BlockId> = (0..200).map(|n| key(n).id).collect();
        state.hint(Kind::Data, &ids);
        let first = ask(&mut state, SECOND);
        assert_eq!(first.ids.len(), 64, "of 16 KiB each");
        assert!(is_idle(&mut state, SECOND), "as much as may be is on its way");
        look(&mut state, 250);
        let demanded = ask(&mut state, SECOND);
        assert_eq!(demanded.ids, [key(250).id]);
        state.end(first, Ok(Vec::new()), SECOND);
        assert!(!is_idle(&mut state, SECOND));
    }
}
