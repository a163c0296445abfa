//! Tests of two exchanges with each other, and of one with a hostile peer.

use std::sync::Arc;
use std::time::Duration;

use platter_image::{BlockId, Domain, Kind, Score};

use super::*;
use crate::peer::wire::{AskMessage, Hello, PeerMessage};
use crate::peer::{Ask, NodeId, RemoteFilter, Source};

const MS: Duration = Duration::from_millis(1);

fn id(number: u32) -> BlockId {
    BlockId(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

fn node(number: u8) -> NodeId {
    NodeId([number; 16])
}

fn exchange(number: u8, share_bits_per_second: u64) -> Exchange {
    let hello = Hello { group: [9; 16], domain: Domain::SHARED, node: node(number) };
    Exchange::new(ExchangeOptions { hello, salt: u64::from(number), share_bits_per_second })
}

fn hello(number: u8) -> PeerMessage {
    PeerMessage::Hello(Hello { group: [9; 16], domain: Domain::SHARED, node: node(number) })
}

/// An exchange that a peer has joined.
fn joined(share_bits_per_second: u64) -> Exchange {
    let mut exchange = exchange(1, share_bits_per_second);
    assert!(exchange.handle_connected(node(2)));
    exchange.handle_message(node(2), hello(2)).unwrap();
    assert_eq!(exchange.poll_event(), Some(ExchangeEvent::Joined(node(2))));
    assert_eq!(exchange.poll_message(MS), Some((node(2), hello(1))));
    exchange
}

fn question(request: u32, ids: std::ops::Range<u32>) -> PeerMessage {
    let ids = ids.map(id).collect();
    PeerMessage::Ask(AskMessage { request, score: Score(id(0)), kind: Kind::Data, fetch: false, ids })
}

fn own_question(request: u32, ids: std::ops::Range<u32>) -> Ask {
    let ids = ids.map(id).collect();
    let source = Source::Peer(node(2));
    Ask { request, source, score: Score(id(0)), kind: Kind::Data, fetch: false, exact: false, ids }
}

/// Passes all messages of one exchange to the other, in encoded form. Returns whether there were any.
fn carry(now: Duration, from: (&mut Exchange, u8), to: &mut Exchange) -> bool {
    let (from, name) = from;
    let mut said = false;
    while let Some((_, message)) = from.poll_message(now) {
        let parsed = PeerMessage::parse(&message.to_bytes()[4..]).unwrap();
        assert_eq!(parsed, message);
        to.handle_message(node(name), parsed).unwrap();
        said = true;
    }
    said
}

/// Passes messages in both directions until there are none.
fn talk(now: Duration, one: &mut Exchange, other: &mut Exchange) {
    while carry(now, (one, 1), other) || carry(now, (other, 2), one) {}
}

#[test]
fn a_question_is_answered_and_a_filter_is_sent() {
    let (mut one, mut other) = (exchange(1, 1_000_000_000), exchange(2, 1_000_000_000));
    one.ask(node(2), &own_question(5, 0..3));
    one.subscribe(node(2), true);
    assert_eq!(one.poll_event(), Some(ExchangeEvent::Connect(node(2))));
    assert_eq!(one.poll_message(MS), None, "nothing is sent before there is a stream");
    assert!(one.handle_connected(node(2)) && other.handle_connected(node(1)));
    other.hold(&id(0));
    talk(MS, &mut one, &mut other);
    assert_eq!(other.poll_event(), Some(ExchangeEvent::Joined(node(1))));
    let Some(ExchangeEvent::Asked(asker, ask)) = other.poll_event() else { panic!("no question") };
    assert_eq!((asker, ask.request, ask.ids.len()), (node(1), 5, 3));
    let frame: Arc<[u8]> = vec![7; 1000].into();
    assert!(other.give(node(1), 5, Arc::clone(&frame)));
    other.finish(node(1), 5, vec![id(2)]);
    assert!(!other.give(node(1), 5, Arc::clone(&frame)), "the answer is finished");
    talk(20 * MS, &mut one, &mut other);
    assert_eq!(one.poll_event(), Some(ExchangeEvent::Joined(node(2))));
    let mut filter = RemoteFilter::default();
    let mut events = Vec::new();
    while let Some(event) = one.poll_event() {
        match event {
            ExchangeEvent::Filter(_, piece) => assert!(filter.handle_piece(piece).unwrap()),
            ExchangeEvent::Changes(_, changes) => filter.handle_changes(&changes).unwrap(),
            event => events.push(event),
        }
    }
    assert!(filter.contains(&id(0)) && !filter.contains(&id(1)));
    let version = other.holdings().version();
    assert_eq!(
        events,
        [ExchangeEvent::Frame(node(2), 5, frame), ExchangeEvent::Answered(node(2), 5, vec![id(2)], version)]
    );
    // Blocks added later are sent only at the next interval.
    other.hold(&id(1));
    talk(30 * MS, &mut one, &mut other);
    assert_eq!(one.poll_event(), None);
    let due = other.poll_timeout().unwrap();
    talk(due, &mut one, &mut other);
    let Some(ExchangeEvent::Changes(_, changes)) = one.poll_event() else { panic!("no changes") };
    filter.handle_changes(&changes).unwrap();
    assert!(filter.contains(&id(1)));
}

#[test]
fn protocol_violations_are_errors() {
    let version = exchange(2, 1).holdings().version();
    let frame = |request| PeerMessage::Frame { request, frame: vec![1].into() };
    let end = |request, missing| PeerMessage::End { request, version, missing };
    let busy = PeerMessage::Busy { request: 5, retry_after: MS };
    let wrong: Vec<Vec<PeerMessage>> = vec![
        vec![hello(2)],
        vec![frame(6)],
        vec![frame(5), frame(5), frame(5), frame(5)],
        vec![end(6, vec![])],
        vec![end(5, vec![id(77)])],
        vec![end(5, vec![]), frame(5)],
        vec![frame(5), busy],
        vec![question(1, 0..1), question(1, 0..1)],
    ];
    for messages in wrong {
        let mut exchange = joined(1_000_000_000);
        exchange.ask(node(2), &own_question(5, 0..3));
        let (last, before) = messages.split_last().unwrap();
        for message in before {
            exchange.handle_message(node(2), message.clone()).unwrap();
        }
        assert!(exchange.handle_message(node(2), last.clone()).is_err(), "{messages:?}");
    }
    let mut exchange = exchange(1, 1_000_000);
    assert!(exchange.handle_connected(node(2)));
    assert!(exchange.handle_message(node(2), question(1, 0..1)).is_err(), "HELLO must come first");
    assert!(exchange.handle_message(node(2), hello(3)).is_err(), "not the expected node");
}

#[test]
fn too_many_questions_are_refused_with_busy() {
    let mut exchange = joined(1_000_000_000);
    for request in 0..40 {
        exchange.handle_message(node(2), question(request, 0..1)).unwrap();
    }
    let mut busy = 0;
    while let Some((_, message)) = exchange.poll_message(MS) {
        busy += usize::from(matches!(message, PeerMessage::Busy { .. }));
    }
    assert_eq!(busy, 40 - ASKS_PER_PEER_MAX);
}

#[test]
fn a_cancelled_question_ends_at_once_and_its_frames_are_not_sent() {
    let mut exchange = joined(1_000_000_000);
    exchange.handle_message(node(2), question(1, 0..9)).unwrap();
    assert!(matches!(exchange.poll_event(), Some(ExchangeEvent::Asked(..))));
    for _ in 0..9 {
        assert!(exchange.give(node(2), 1, vec![0; 100_000].into()));
    }
    exchange.handle_message(node(2), PeerMessage::Cancel { request: 1 }).unwrap();
    assert_eq!(exchange.poll_event(), Some(ExchangeEvent::Cancelled(node(2), 1)));
    assert!(!exchange.give(node(2), 1, vec![0; 100_000].into()));
    let said: Vec<_> = std::iter::from_fn(|| exchange.poll_message(MS)).collect();
    assert!(matches!(said.as_slice(), [(_, PeerMessage::End { request: 1, .. })]), "{said:?}");
    exchange.handle_message(node(2), question(1, 0..9)).unwrap();
}

/// Returns the bytes sent in ten seconds if there is always something to send.
fn sent(exchange: &mut Exchange, own_traffic: bool) -> u64 {
    let mut bytes = 0;
    let mut request = 100;
    for step in 1..10_000 {
        let now = step * MS;
        if own_traffic {
            exchange.own_traffic(now);
        }
        while exchange.streams_sending() == 0 {
            exchange.handle_message(node(2), question(request, 0..4)).unwrap();
            while let Some(event) = exchange.poll_event() {
                assert!(matches!(event, ExchangeEvent::Asked(..)));
            }
            (0..4).for_each(|_| assert!(exchange.give(node(2), request, vec![0; 10_000].into())));
            exchange.finish(node(2), request, vec![]);
            request += 1;
        }
        while let Some((_, message)) = exchange.poll_message(now) {
            bytes += message.to_bytes().len() as u64;
        }
    }
    bytes
}

#[test]
fn sending_keeps_to_its_share_and_yields() {
    let share = sent(&mut joined(20_000_000), false);
    assert!((22_000_000..25_500_000).contains(&share), "{share} of 25,000,000 bytes");
    let yielded = sent(&mut joined(20_000_000), true);
    assert!((2_500_000..3_300_000).contains(&yielded), "{yielded} of 3,125,000 bytes");
}

#[test]
fn askers_take_turns() {
    let mut exchange = joined(8_000_000);
    assert!(exchange.handle_connected(node(3)));
    exchange.handle_message(node(3), hello(3)).unwrap();
    for request in 0..30 {
        exchange.handle_message(node(2), question(request, 0..4)).unwrap();
    }
    exchange.handle_message(node(3), question(0, 0..4)).unwrap();
    let mut served = Vec::new();
    while let Some(event) = exchange.poll_event() {
        if let ExchangeEvent::Asked(node, ask) = event {
            served.push(node);
            (0..4).for_each(|_| assert!(exchange.give(node, ask.request, vec![0; 10_000].into())));
            exchange.finish(node, ask.request, vec![]);
        }
    }
    assert!(served[..2].contains(&node(3)), "the second asker must be served second at the latest");
    let mut before_third = 0;
    let mut now = MS;
    let mut ended = false;
    while !ended {
        now += MS;
        while let Some((to, message)) = exchange.poll_message(now) {
            let is_end = matches!(message, PeerMessage::End { .. });
            ended |= to == node(3) && is_end;
            before_third += usize::from(to == node(2) && !ended);
        }
    }
    assert!(before_third <= 8, "{before_third} messages to the greedy asker before the other had its five");
}

#[test]
fn the_end_of_a_stream_drops_all_of_its_state() {
    let mut exchange = joined(1_000_000);
    exchange.handle_message(node(2), PeerMessage::Subscribe(true)).unwrap();
    for request in 0..5 {
        exchange.handle_message(node(2), question(request, 0..4)).unwrap();
    }
    for _ in 0..3 {
        let Some(ExchangeEvent::Asked(_, ask)) = exchange.poll_event() else { panic!("no question") };
        assert!(exchange.give(node(2), ask.request, vec![0; 1000].into()));
    }
    exchange.handle_disconnected(node(2));
    let events: Vec<_> = std::iter::from_fn(|| exchange.poll_event()).collect();
    assert_eq!(events.len(), 3, "{events:?}");
    assert_eq!(exchange.poll_message(Duration::from_secs(9)), None);
    assert!(exchange.is_idle());
}

/// A full connection does not delay others, and gets everything once it is no longer full.
#[test]
fn a_full_connection_waits_without_delaying_others() {
    let mut exchange = joined(1_000_000_000);
    assert!(exchange.handle_connected(node(3)));
    exchange.handle_message(node(3), hello(3)).unwrap();
    exchange.handle_message(node(2), PeerMessage::Subscribe(true)).unwrap();
    for asker in [2, 3] {
        exchange.handle_message(node(asker), question(1, 0..1)).unwrap();
        assert!(matches!(exchange.poll_event(), Some(ExchangeEvent::Joined(_) | ExchangeEvent::Asked(..))));
    }
    while exchange.poll_event().is_some() {}
    exchange.handle_full(node(2), true);
    for asker in [2, 3] {
        assert!(exchange.give(node(asker), 1, vec![0; 1000].into()));
        exchange.finish(node(asker), 1, vec![]);
    }
    exchange.handle_message(node(2), question(2, 0..1)).unwrap();
    assert_eq!(exchange.poll_event(), None, "no question of the full peer is started");
    let said = |exchange: &mut Exchange, to: u8, now: Duration| {
        let mut count = 0;
        while let Some((receiver, _)) = exchange.poll_message(now) {
            assert_eq!(receiver, node(to));
            count += 1;
        }
        count
    };
    assert_eq!(said(&mut exchange, 3, MS), 3, "a HELLO, a frame, an END");
    assert_eq!(said(&mut exchange, 3, 2 * MS), 0);
    exchange.handle_full(node(2), false);
    assert!(matches!(exchange.poll_event(), Some(ExchangeEvent::Asked(_, ask)) if ask.request == 2));
    assert_eq!(said(&mut exchange, 2, 3 * MS), 3, "a frame, an END, and the filter");
    exchange.hold(&id(1));
    exchange.hold_only(&[id(2), id(3)]);
    let held = [1, 2, 3].map(|number| exchange.holdings().holds(&id(number)));
    assert_eq!(held, [false, true, true]);
    assert!(said(&mut exchange, 2, Duration::from_secs(3)) > 0, "it gets the new filter");
}
