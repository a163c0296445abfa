//! Connections that end: receivers go on without them, make others when they have something to say, and nobody else can speak for them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: it fails by panicking, and prints tables"
)]

mod simulated;

use std::net::IpAddr;
use std::time::Duration;

use platter_cast::{
    CastFilter, JoinKey, Receiver, ReceiverEvent, ReceiverOptions, ReceiverState, Sender, SenderOptions,
    Transmit, Wanted,
};
use platter_image::{BlockId, Score};
use simulated::{Forger, Link, Random, Room, description, sender_options};

const RATE: u64 = 400_000_000;
const NOW: Duration = Duration::from_millis(5);
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn lengths(count: u32) -> Vec<u32> {
    (0..count).map(|index| if index == 0 { 40_000 } else { 1_000_000 + index * 1000 }).collect()
}

/// Runs a room until all are done while connections end: each of them with that chance in a millisecond, and sometimes all. Every receiver
/// ends with the right bytes, none is lost at any time, and none has to join again.
fn run_with_ends(mut room: Room, seed: u64, chance: f64) {
    let mut random = Random(seed * 2 + 1);
    let (count, mut ends, mut until) = (room.receivers.len(), 0, Duration::ZERO);
    while !room.all_done() && room.now < Duration::from_secs(60) {
        until = until.max(room.now) + Duration::from_millis(1);
        while room.now < until && !room.all_done() {
            room.step();
        }
        let all = random.chance(chance / 4.0);
        for number in 0..count {
            if all || random.chance(chance) {
                ends += u32::from(room.receivers[number].connection.is_some());
                room.disconnect(number);
            }
        }
        let receivers = room.sender.receivers();
        let is_lost = |state: &ReceiverState| matches!(state, ReceiverState::Lost(_));
        assert!(!receivers.iter().any(|it| is_lost(&it.state)), "{:?}: {receivers:?}", room.now);
    }
    room.assert_identical();
    let receivers = room.sender.receivers();
    println!("seed {seed}, chance {chance}: {ends} connections ended in {:?}", room.now);
    assert!(ends as usize > count, "{ends} ends are no test");
    assert_eq!(receivers.len(), count, "nobody joined again: {receivers:?}");
    assert!(receivers.iter().all(|it| matches!(it.state, ReceiverState::Done(_))), "{receivers:?}");
}

#[test]
fn connections_may_end_at_any_moment() {
    for (seed, join_key) in [(1, None), (2, Some(JoinKey::new([5; 32]))), (3, None)] {
        let links: Vec<Link> = (0..6)
            .map(|number| Link { bad_chunk: Some(number * 3 % 12), loss: 0.02, ..Link::default() })
            .collect();
        let options = SenderOptions { join_key, ..sender_options(1, RATE) };
        run_with_ends(Room::new(seed, lengths(12), options, &links), seed, 0.01 * seed as f64);
    }
}

/// Every chunk is fetched over connections that end again and again.
#[test]
fn chunks_are_fetched_over_connections_that_end() {
    let mut room =
        Room::new(5, lengths(12), sender_options(1, RATE), &[Link { loss: 0.01, ..Link::default() }; 3]);
    room.forger = Some(Forger {
        every: 20,
        left: 2000,
        anywhere: false,
        lies: false,
        outdates: false,
        occupies: false,
        insider: true,
    });
    run_with_ends(room, 5, 0.02);
}

/// Without LEAVE, and without a connection at its sender.
#[test]
fn a_killed_receiver_is_lost_after_two_seconds_and_the_others_are_not_held() {
    let others = |is_killed: bool| {
        let third = Link { buffer_chunks: 4, never_ends: true, ..Link::default() };
        let links = [Link::default(), Link::default(), third];
        let mut room = Room::new(7, lengths(40), sender_options(1, RATE), &links);
        room.run(Duration::from_millis(400));
        let killed_at = room.now;
        if is_killed {
            room.receivers[2].link.crashes_at = Some(killed_at);
            let connection = room.receivers[2].connection.take().unwrap();
            room.sender.handle_disconnect(connection);
        }
        room.run(Duration::from_secs(60));
        room.assert_identical();
        let finished_at = room.receivers[..2].iter().map(|it| it.finished_at.unwrap()).max().unwrap();
        (room, killed_at, finished_at)
    };
    let (_, _, undisturbed) = others(false);
    let (mut room, killed_at, finished_at) = others(true);
    println!("{undisturbed:?} undisturbed, {finished_at:?} with one killed at {killed_at:?}");
    assert!(finished_at < undisturbed + Duration::from_millis(200), "{finished_at:?}");
    while !room.sender.is_finished(room.now) {
        assert!(room.now < Duration::from_secs(10));
        while room.sender.poll_transmit(room.now, &mut Transmit::new()) {}
        room.now = room.sender.next_deadline(room.now).max(room.now + Duration::from_micros(1));
    }
    let lost = room.sender.receivers().into_iter().find(|it| it.name == "pc2").unwrap();
    assert_eq!(lost.state, ReceiverState::Lost("the connection ended, and it is silent".into()));
    let limit = killed_at + Duration::from_millis(2_300) + Duration::from_millis(500);
    assert!(room.now < limit, "the sender ended at {:?}, killed at {killed_at:?}", room.now);
}

/// A sender and a receiver that has joined over connection 1 and lost it, with its messages over the next one: RESUME and RESULT.
fn resumed() -> (Sender, Receiver, Vec<Vec<u8>>) {
    let mut sender = Sender::new(sender_options(2, RATE), &description(vec![3000, 20_000])).unwrap();
    let mut receiver = Receiver::new(ReceiverOptions {
        seed: 1,
        wanted: Wanted::Any,
        filter: CastFilter::default(),
        join_key: None,
        nonce_seed: [4; 32],
        hello: "pc".into(),
        buffer_chunks: 4,
        everything: true,
    });
    receiver.handle_connected(NOW);
    sender.handle_message(NOW, 1, ADDRESS, &receiver.poll_message().unwrap()[4..]);
    receiver.handle_message(NOW, &sender.poll_message().unwrap().1[4..]);
    assert!(matches!(receiver.poll_event(), Some(ReceiverEvent::Joined(_))));
    sender.handle_disconnect(1);
    receiver.handle_disconnected(NOW);
    assert!(receiver.is_joined() && receiver.poll_message().is_none());
    while receiver.poll_transmit(NOW, &mut Vec::new()).is_some() {}
    assert!(receiver.poll_event().is_none(), "it has nothing to say");
    receiver.finish(NOW, Ok(Score(BlockId([3; 32]))), 1);
    while receiver.poll_transmit(NOW, &mut Vec::new()).is_some() {}
    assert!(matches!(receiver.poll_event(), Some(ReceiverEvent::Reconnect)));
    receiver.handle_connected(NOW);
    let said: Vec<_> = std::iter::from_fn(|| receiver.poll_message()).collect();
    assert_eq!(said.iter().map(|message| message[5]).collect::<Vec<_>>(), [10, 4]);
    (sender, receiver, said)
}

#[test]
fn a_forged_or_repeated_resume_changes_nothing() {
    let (mut sender, mut receiver, said) = resumed();
    let (resume, result) = (&said[0][4..], &said[1][4..]);
    let is_done = |sender: &Sender| matches!(sender.receivers()[0].state, ReceiverState::Done(_));
    for bit in 0..resume.len() * 8 {
        let mut forged = resume.to_vec();
        forged[bit / 8] ^= 1 << (bit % 8);
        // Another type of message is none of these, but says nothing, either.
        assert!(!sender.handle_message(NOW, 9, ADDRESS, &forged) || bit / 8 == 1, "bit {bit}");
        assert!(!sender.has_joined(9), "bit {bit}");
        sender.handle_message(NOW, 9, ADDRESS, result);
        assert!(!is_done(&sender), "bit {bit}");
    }
    for length in 0..resume.len() {
        assert!(!sender.handle_message(NOW, 9, ADDRESS, &resume[..length]));
    }
    // A report has the right key, and may be seen by others before it arrives.
    let mut report = Vec::new();
    let later = NOW + Duration::from_secs(1);
    receiver.poll_transmit(later, &mut report).unwrap();
    assert!(!sender.handle_message(later, 9, ADDRESS, &[&[1, 10][..], &report].concat()));
    let mut as_report = resume[2..].to_vec();
    let rejected = sender.progress().rejected;
    sender.handle_datagram(later, &as_report);
    as_report[1] = 5;
    sender.handle_datagram(later, &as_report);
    assert_eq!(sender.progress().rejected, rejected + 2, "and a RESUME is no datagram");
    while sender.poll_message().is_some() {}

    assert!(sender.handle_message(later, 2, ADDRESS, resume) && sender.has_joined(2));
    for repeated in [3, 2] {
        assert!(!sender.handle_message(later, repeated, ADDRESS, resume));
        assert!(sender.has_joined(2) && !sender.has_joined(3) && sender.poll_close().is_none());
    }
    while sender.poll_message().is_some() {}
    assert!(sender.handle_message(later, 2, ADDRESS, result) && is_done(&sender));
    receiver.handle_message(later, &sender.poll_message().unwrap().1[4..]);
    assert!(matches!(receiver.poll_event(), Some(ReceiverEvent::Acknowledged)));
}

#[test]
fn a_later_connection_replaces_an_earlier_one() {
    let (mut sender, mut receiver, said) = resumed();
    assert!(sender.handle_message(NOW, 2, ADDRESS, &said[0][4..]));
    // The sender has not seen the end of that one.
    receiver.handle_disconnected(NOW);
    while receiver.poll_transmit(NOW * 200, &mut Vec::new()).is_some() {}
    assert!(matches!(receiver.poll_event(), Some(ReceiverEvent::Reconnect)));
    receiver.handle_connected(NOW * 200);
    assert!(sender.handle_message(NOW * 200, 3, ADDRESS, &receiver.poll_message().unwrap()[4..]));
    assert_eq!((sender.poll_close(), sender.poll_close()), (Some(2), None));
    sender.handle_disconnect(2);
    assert!(sender.has_joined(3) && !sender.has_joined(2));
}

/// The sender was restarted, or has given the place to another.
#[test]
fn a_receiver_that_is_unknown_joins_anew() {
    let (mut sender, mut receiver, said) = resumed();
    let mut other = Sender::new(sender_options(3, RATE), &description(vec![3000, 20_000])).unwrap();
    assert!(!other.handle_message(NOW, 1, ADDRESS, &said[0][4..]));
    receiver.handle_message(NOW, &other.poll_message().unwrap().1[4..]);
    assert!(matches!(receiver.poll_event(), Some(ReceiverEvent::Forgotten)));
    receiver.handle_disconnected(NOW);
    assert!(!receiver.is_joined());
    let mut transmit = Transmit::new();
    assert!(sender.poll_transmit(NOW, &mut transmit));
    receiver.handle_datagram(NOW, &transmit.bytes);
    assert!(matches!(receiver.poll_event(), Some(ReceiverEvent::Connect { .. })));
}

#[test]
fn a_receiver_that_has_left_is_gone() {
    let (mut sender, mut receiver, said) = resumed();
    assert!(sender.handle_message(NOW, 2, ADDRESS, &said[0][4..]));
    sender.handle_message(NOW, 2, ADDRESS, &[1, 6]);
    assert!(matches!(sender.receivers()[0].state, ReceiverState::Lost(_)));
    let mut report = Vec::new();
    receiver.poll_transmit(NOW * 200, &mut report).unwrap();
    let rejected = sender.progress().rejected;
    sender.handle_datagram(NOW * 200, &report);
    assert_eq!(sender.progress().rejected, rejected + 1);
    assert!(matches!(sender.receivers()[0].state, ReceiverState::Lost(_)));
}
