//! Many peers that do not answer: how long readers wait for them, how often they are asked, and that they return.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use platter_image::{BlockId, Kind, Score};

use super::*;
use crate::peer::NodeId;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const PEERS: u16 = 200;

/// How the peers behave.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Peers {
    /// A connection to them is not answered, and given up after 5 s.
    Off,
    /// They are connected, and send nothing.
    Frozen,
    /// They reply after 3 ms.
    Answer,
}

fn node(number: u16) -> NodeId {
    let mut id = [7; 16];
    id[..2].copy_from_slice(&number.to_le_bytes());
    NodeId(id)
}

/// A node that reads one group after another from its homes and an origin that replies after 2 ms.
struct Reader {
    scheduler: Scheduler,
    now: Duration,
    groups: u64,
    /// Replies and broken connections to come: when, from whom, and the request.
    due: BinaryHeap<Reverse<(Duration, Option<u16>, u32)>>,
    asked: BTreeMap<u32, Vec<BlockId>>,
    /// Connections that are being opened.
    dialing: Vec<u16>,
    linked: Vec<u16>,
    /// Requests to peers.
    peer_asks: usize,
}

impl Reader {
    fn new() -> Self {
        let mut scheduler = Scheduler::new(ScheduleOptions {
            seed: 1,
            own: node(0),
            bytes_in_flight_max: 64 << 20,
            homes: true,
            ahead_bytes_max: 64 << 20,
        });
        (1..=PEERS).for_each(|number| scheduler.add_peer(node(number)));
        Self {
            scheduler,
            now: MS,
            groups: 0,
            due: BinaryHeap::new(),
            asked: BTreeMap::new(),
            dialing: Vec::new(),
            linked: Vec::new(),
            peer_asks: 0,
        }
    }

    fn ask(&mut self, peers: Peers, ask: Ask) {
        let Source::Peer(NodeId(id)) = ask.source else {
            self.asked.insert(ask.request, ask.ids);
            self.due.push(Reverse((self.now + 2 * MS, None, ask.request)));
            return;
        };
        self.peer_asks += 1;
        let number = u16::from_le_bytes([id[0], id[1]]);
        match peers {
            Peers::Answer => {
                self.scheduler.peer_came(self.now, node(number));
                self.asked.insert(ask.request, ask.ids);
                self.due.push(Reverse((self.now + 3 * MS, Some(number), ask.request)));
            }
            Peers::Off if !self.dialing.contains(&number) => {
                self.dialing.push(number);
                self.due.push(Reverse((self.now + 5 * SECOND, Some(number), u32::MAX)));
            }
            Peers::Frozen if !self.linked.contains(&number) => {
                self.linked.push(number);
                self.scheduler.peer_came(self.now, node(number));
            }
            Peers::Off | Peers::Frozen => {}
        }
    }

    /// Reads one group. Returns how long that took.
    fn read(&mut self, peers: Peers) -> Duration {
        let began = self.now;
        self.groups += 1;
        // Some are large.
        let length = if self.groups.is_multiple_of(4) { 40 } else { 8 };
        let id = |number: u64| BlockId(*blake3::hash(&number.to_le_bytes()).as_bytes());
        let wanted = Want {
            score: Score(id(0)),
            kind: Kind::Data,
            group: u64::from_le_bytes(id(self.groups).0[..8].try_into().unwrap()),
            ids: (0..length).map(|number| id(self.groups * 100 + number)).collect(),
            origin_only: false,
            can_wait: false,
            exact: false,
            patience: PIECE_TIME_MAX,
        };
        let piece = self.scheduler.want(self.now, wanted).unwrap();
        loop {
            match self.scheduler.poll_event(self.now) {
                Some(ScheduleEvent::Ask(ask)) => self.ask(peers, ask),
                Some(ScheduleEvent::Cancel { request, .. }) => _ = self.asked.remove(&request),
                Some(ScheduleEvent::Done(done)) if done == piece => return self.now - began,
                Some(other) => panic!("{other:?}"),
                None => self.sleep(),
            }
        }
    }

    fn sleep(&mut self) {
        let timeout = self.scheduler.poll_timeout().unwrap().max(self.now);
        let Some(Reverse((at, from, request))) = self.due.peek().copied().filter(|due| due.0.0 <= timeout)
        else {
            self.now = timeout;
            return;
        };
        self.due.pop();
        self.now = self.now.max(at);
        if let (Some(number), u32::MAX) = (from, request) {
            self.dialing.retain(|dialing| *dialing != number);
            self.scheduler.peer_gone(self.now, node(number));
        } else if let Some(ids) = self.asked.remove(&request) {
            self.scheduler.handle_arrived(self.now, request, &ids);
        }
    }

    /// Reads during that time, ten times a second. Returns the sum of the waits.
    fn read_for(&mut self, time: Duration, peers: Peers) -> Duration {
        let until = self.now + time;
        let mut waited = Duration::ZERO;
        while self.now < until {
            waited += self.read(peers);
            self.now += 100 * MS;
        }
        waited
    }
}

#[test]
fn many_silent_peers_cost_a_reader_seconds_and_not_a_timeout_each() {
    for peers in [Peers::Off, Peers::Frozen] {
        let mut reader = Reader::new();
        let waits: Vec<Duration> = (0..1000).map(|_| reader.read(peers)).collect();
        let total: Duration = waits.iter().sum();
        // A timeout for each of them would be 400 s.
        assert!(total < 45 * SECOND, "{peers:?}: {total:?}");
        let late = waits[300..].iter().filter(|wait| **wait > 20 * MS).count();
        assert!(late < 20, "{peers:?}: {late} of 700 waits");
    }
}

#[test]
fn silent_peers_are_asked_less_and_less_often_and_return_when_they_answer() {
    for peers in [Peers::Off, Peers::Frozen] {
        let mut reader = Reader::new();
        reader.read_for(1200 * SECOND, peers);
        let before = reader.peer_asks;
        let waited = reader.read_for(1800 * SECOND, peers);
        let asks = (reader.peer_asks - before) / usize::from(PEERS);
        assert!(asks <= 12, "{peers:?}: each was asked {asks} times in half an hour");
        assert!(waited < 240 * SECOND, "{peers:?}: {waited:?} of half an hour");
        // They answer again: no longer than the longest pause later, nearly all groups come from them.
        reader.read_for(400 * SECOND, Peers::Answer);
        let (before, groups) = (reader.peer_asks, reader.groups);
        reader.read_for(20 * SECOND, Peers::Answer);
        let (asks, groups) = (reader.peer_asks - before, reader.groups - groups);
        assert!(asks as u64 * 20 > groups * 19, "{peers:?}: {asks} of {groups} were requested from peers");
    }
}
