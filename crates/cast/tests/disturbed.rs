//! Rooms that somebody disturbs: forged datagrams, a member without room, a disk that hangs, a machine that is stopped.
//! Whoever is not disturbed is not slowed, and everybody who can end ends with the right bytes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: it fails by panicking, and tells tables"
)]

mod simulated;

use std::time::Duration;

use platter_cast::ReceiverState;
use simulated::{Forger, Link, Room, sender_options};

const RATE: u64 = 400_000_000;
/// What 20 chunks of a million bytes take at that rate, and a little.
const UNDISTURBED: Duration = Duration::from_millis(800);

fn lengths(count: u32) -> Vec<u32> {
    (0..count).map(|index| if index == 0 { 40_000 } else { 1_000_000 + index * 1000 }).collect()
}

fn lossy(loss: f64) -> Link {
    Link { loss, ..Link::default() }
}

/// Three receivers of 12 chunks, and a forger: how many chunks they fetched from the sender alone.
fn forged(seed: u64, forger: Forger) -> u64 {
    let mut room = Room::new(seed, lengths(12), sender_options(1, RATE), &[lossy(0.01); 3]);
    room.forger = Some(forger);
    room.run(Duration::from_secs(60));
    room.assert_identical();
    let fetched = room.receivers.iter().map(|it| it.machine.statistics().fetched).sum();
    println!("seed {seed}: {:?}, {fetched} fetched, {:?}", room.now, room.sender.progress());
    assert!(room.now < Duration::from_secs(20), "{:?}", room.now);
    fetched
}

#[test]
fn forged_symbols_of_what_is_being_sent_end_nothing() {
    for seed in 1..3 {
        let fetched = forged(seed, Forger { every: 40, left: 200, anywhere: false, lies: false });
        assert!((1..=36).contains(&fetched), "{fetched} of 3 x 12 chunks");
    }
}

#[test]
fn forged_symbols_of_any_chunk_end_nothing() {
    for seed in 1..3 {
        forged(seed, Forger { every: 10, left: 400, anywhere: true, lies: false });
    }
}

/// Packet numbers that no sender has reached, and plans: they may cost datagrams, but end and stop nothing.
#[test]
fn forged_plans_and_packet_numbers_end_nothing() {
    for seed in 1..4 {
        forged(seed, Forger { every: 10, left: 300, anywhere: seed == 2, lies: true });
    }
}

/// With a forger who never stops every chunk comes wrong, and all of them over the reliable channel.
#[test]
fn a_forger_who_never_stops_only_slows() {
    forged(5, Forger { every: 20, left: u64::MAX, anywhere: false, lies: false });
}

/// A room of 20 chunks with one odd member: when the others were done, and the room after everybody was.
fn with_odd(odd: Link, until: Duration) -> (Duration, Room) {
    let mut room = Room::new(31, lengths(20), sender_options(1, RATE), &[lossy(0.01), lossy(0.01), odd]);
    room.run(until);
    let ends = room.receivers[..2].iter().map(|it| it.finished_at.unwrap());
    let others = ends.max().unwrap();
    println!("others done at {others:?}, all at {:?}, {:?}", room.now, room.sender.progress());
    (others, room)
}

#[test]
fn a_member_without_room_stops_nobody_for_long() {
    let (others, room) =
        with_odd(Link { buffer_chunks: 0, never_ends: true, ..Link::default() }, Duration::from_secs(60));
    assert!(others < Duration::from_secs(5) + UNDISTURBED, "{others:?}");
    let receivers = room.sender.receivers();
    let odd = receivers.iter().find(|it| it.name == "pc2").unwrap();
    assert_eq!(odd.state, ReceiverState::Stalled);
}

#[test]
fn a_disk_that_hangs_stops_nobody_for_long_and_ends_well() {
    let hangs = Some((Duration::from_millis(200), Duration::from_secs(40)));
    let (others, room) =
        with_odd(Link { disk_hangs: hangs, buffer_chunks: 8, ..lossy(0.01) }, Duration::from_secs(90));
    assert!(others < Duration::from_secs(5) + UNDISTURBED, "{others:?}");
    room.assert_identical();
    assert!(room.now < Duration::from_secs(40) + UNDISTURBED * 2, "{:?}", room.now);
    assert_eq!(room.sender.receivers().len(), 3, "nobody had to join again");
    assert!(room.sender.progress().rate_bits_per_second == RATE, "the rate is not cut");
}

#[test]
fn a_machine_that_is_stopped_slows_nobody_and_ends_well() {
    for until in [4, 40] {
        let stopped = Some((Duration::from_millis(200), Duration::from_secs(until)));
        let (others, room) =
            with_odd(Link { stopped, buffer_chunks: 8, ..lossy(0.01) }, Duration::from_secs(90));
        assert!(others < Duration::from_secs(2) + UNDISTURBED, "{others:?}");
        room.assert_identical();
        assert!(room.now < Duration::from_secs(until) + UNDISTURBED * 3, "{:?}", room.now);
    }
}
