//! A peer's stream: hostile bytes, cut into messages and passed to exchange and scheduler, which have pending questions
//! in both directions.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use platter_cast::peer::{
    Exchange, ExchangeEvent, ExchangeOptions, Failure, Hello, MESSAGE_BYTES_MAX, NodeId, PeerMessage,
    PeerStream, ScheduleEvent, ScheduleOptions, Scheduler, Source, Want,
};
use platter_fuzz::bug_free;
use platter_image::{BlockId, Domain, Kind, Score};

const OWN: NodeId = NodeId([1; 16]);
const PEER: NodeId = NodeId([2; 16]);

fuzz_target!(|input: &[u8]| {
    let Some((choices, bytes)) = input.split_first() else { return };
    let messages = cut(bytes, bytes.len());
    assert_eq!(cut(bytes, usize::from(choices >> 2) + 1), messages, "pieces of another size, other messages");
    for message in &messages {
        let written = message.to_bytes();
        assert!(written.len() <= MESSAGE_BYTES_MAX + 4);
        assert_eq!(PeerMessage::parse(&written[4..]).ok().as_ref(), Some(message));
    }
    let mut pair = Pair::new();
    let hello = Hello { group: [3; 16], domain: Domain::SHARED, node: PEER };
    if choices & 1 == 0 {
        let _ = bug_free(pair.exchange.handle_message(PEER, PeerMessage::Hello(hello)));
    }
    for message in messages {
        if bug_free(pair.exchange.handle_message(PEER, message)).is_none() {
            break;
        }
        pair.settle(choices & 2 != 0);
    }
    pair.exchange.handle_disconnected(PEER);
    pair.scheduler.peer_gone(pair.now, PEER);
    pair.settle(false);
});

/// The messages of a stream that arrives in pieces of this size, up to the first invalid one.
fn cut(bytes: &[u8], piece: usize) -> Vec<PeerMessage> {
    let (mut stream, mut messages) = (PeerStream::default(), Vec::new());
    for bytes in bytes.chunks(piece.max(1)) {
        stream.push(bytes);
        loop {
            match bug_free(stream.next_message()) {
                Some(Some(message)) => messages.push(message),
                Some(None) => break,
                None => return messages,
            }
        }
    }
    messages
}

/// A node with pending questions to a peer.
struct Pair {
    now: Duration,
    scheduler: Scheduler,
    exchange: Exchange,
}

impl Pair {
    fn new() -> Self {
        let options = ScheduleOptions {
            seed: 1,
            own: OWN,
            bytes_in_flight_max: 1 << 20,
            homes: true,
            ahead_bytes_max: 1 << 20,
        };
        let hello = Hello { group: [3; 16], domain: Domain::SHARED, node: OWN };
        let exchange = ExchangeOptions { hello, salt: 9, share_bits_per_second: 1_000_000_000 };
        let mut pair = Self {
            now: Duration::from_millis(1),
            scheduler: Scheduler::new(options),
            exchange: Exchange::new(exchange),
        };
        pair.scheduler.add_peer(PEER);
        assert!(pair.exchange.handle_connected(PEER));
        pair.exchange.subscribe(PEER, true);
        for group in 0..4 {
            let ids = (0..4).map(|number| BlockId([group * 4 + number; 32])).collect();
            let want = Want {
                score: Score(BlockId([0; 32])),
                kind: Kind::Data,
                group: u64::from(group),
                ids,
                origin_only: false,
                can_wait: group == 3,
                exact: false,
                patience: platter_cast::peer::PIECE_TIME_MAX,
            };
            let _ = bug_free(pair.scheduler.want(pair.now, want));
        }
        pair.settle(false);
        pair
    }

    fn settle(&mut self, serves: bool) {
        self.now += Duration::from_millis(3);
        while let Some(event) = self.scheduler.poll_event(self.now) {
            match event {
                ScheduleEvent::Ask(ask) if ask.source == Source::Peer(PEER) => self.exchange.ask(PEER, &ask),
                ScheduleEvent::Cancel { request, .. } => self.exchange.cancel(PEER, request),
                _ => {}
            }
        }
        while let Some(event) = self.exchange.poll_event() {
            self.heed(event, serves);
        }
        for _ in 0..1000 {
            if self.exchange.poll_message(self.now).is_none() {
                break;
            }
        }
    }

    fn heed(&mut self, event: ExchangeEvent, serves: bool) {
        match event {
            ExchangeEvent::Filter(node, piece) => {
                let taken = bug_free(self.scheduler.handle_filter(node, piece));
                self.ban_unless(taken.is_some(), node);
            }
            ExchangeEvent::Changes(node, changes) => {
                let taken = bug_free(self.scheduler.handle_changes(node, &changes));
                self.ban_unless(taken.is_some(), node);
            }
            ExchangeEvent::Asked(node, ask) if serves => {
                self.exchange.give(node, ask.request, vec![1; 100].into());
                self.exchange.finish(node, ask.request, ask.ids);
            }
            ExchangeEvent::Answered(_, request, missing, version) => {
                self.scheduler.handle_answered(self.now, request, &missing, Some(version));
            }
            ExchangeEvent::Busy(_, request, after) => {
                self.scheduler.handle_failed(self.now, request, Failure::Busy(after));
            }
            _ => {}
        }
    }

    fn ban_unless(&mut self, taken: bool, node: NodeId) {
        if !taken {
            self.scheduler.ban(self.now, node);
        }
    }
}
