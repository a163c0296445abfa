//! Rooms in which some receivers are far slower than the rest. They do not hold the others, finish nearly as early as alone, and
//! everybody gets the right bytes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: it fails by panicking, and prints tables"
)]

mod simulated;

use std::ops::Range;
use std::time::Duration;

use platter_cast::{Bottleneck, ReceiverState};
use simulated::{Link, Room, sender_options};

const RATE: u64 = 400_000_000;
const CHUNKS: usize = 64;
/// Fewer buffers than chunks, as for a large disk.
const BUFFERS: usize = 16;
/// Time of a chunk at [`RATE`].
const CHUNK_TIME: Duration = Duration::from_millis(22);

fn lengths() -> Vec<u32> {
    (0..CHUNKS as u32).map(|index| if index == 0 { 40_000 } else { 1_000_000 + index * 500 }).collect()
}

fn fast() -> Link {
    Link { loss: 0.001, buffer_chunks: BUFFERS, sink_time: CHUNK_TIME / 5, ..Link::default() }
}

/// Casts to these receivers. Returns when each had accepted everything, and the room at its end.
fn cast(seed: u64, links: &[Link]) -> (Vec<Duration>, Room) {
    let mut room = Room::new(seed, lengths(), sender_options(seed as u8, RATE), links);
    room.run(Duration::from_secs(120));
    room.assert_identical();
    (room.receivers.iter().map(|it| it.finished_at.unwrap()).collect(), room)
}

/// Casts to four fast receivers and `slow`. Returns the ratios of the times: the fast ones with it and without it, and the slow
/// one with them and alone.
fn ratios(seed: u64, slow: Link, bottleneck: Bottleneck) -> (f64, f64) {
    let without = cast(seed, &[fast(); 4]).0.into_iter().max().unwrap();
    let alone = cast(seed, &[slow]).0[0];
    let mut links = vec![fast(); 4];
    links.insert((seed % 5) as usize, slow);
    let (times, room) = cast(seed, &links);
    let together = times[(seed % 5) as usize];
    let others =
        times.iter().enumerate().filter(|(at, _)| *at as u64 != seed % 5).map(|(_, time)| *time).max();
    let statuses = room.sender.receivers();
    let status = statuses.iter().find(|it| it.name == format!("pc{}", seed % 5)).unwrap();
    assert_eq!(status.bottleneck, Some(bottleneck));
    let ratio = |time: Duration, to: Duration| time.as_secs_f64() / to.as_secs_f64();
    let ratios = (ratio(others.unwrap(), without), ratio(together, alone));
    println!("seed {seed}: without {without:?}, alone {alone:?}, ratios {ratios:.3?}");
    ratios
}

#[test]
fn a_slow_disk_does_not_hold_the_room() {
    slow_disks(1..2);
}

#[test]
fn a_slow_link_does_not_hold_the_room() {
    slow_links(1..2);
}

/// Many seeds. Part of `make test-full`.
#[test]
#[ignore = "minutes"]
fn many_slow_receivers_do_not_hold_the_room() {
    slow_disks(2..10);
    slow_links(2..10);
}

fn slow_disks(seeds: Range<u64>) {
    for seed in seeds {
        let slow = Link { sink_time: CHUNK_TIME * 4, ..fast() };
        let (others, own) = ratios(seed, slow, Bottleneck::Disk);
        assert!(others <= 1.05 && own <= 1.10, "{others} {own}");
    }
}

fn slow_links(seeds: Range<u64>) {
    for seed in seeds {
        let slow = Link { bits_per_second: Some(RATE / 4), ..fast() };
        let (others, own) = ratios(seed, slow, Bottleneck::Network);
        // While the others are served, it gets a part of each chunk, as many as it has buffers.
        assert!(others <= 1.05 && own <= 1.25, "{others} {own}");
    }
}

/// A disk that is slow for a while: the receiver returns before the end, and is not the last one by much.
#[test]
fn a_receiver_that_was_slow_returns() {
    let hangs = Some((Duration::from_millis(400), Duration::from_millis(700)));
    let mut links = vec![fast(); 4];
    links[0] = Link { disk_hangs: hangs, buffer_chunks: 4, ..fast() };
    let (without, _) = cast(5, &[fast(); 4]);
    let mut room = Room::new(5, lengths(), sender_options(5, RATE), &links);
    let mut states = Vec::new();
    for ms in (0..6000).step_by(20) {
        room.run(Duration::from_millis(ms));
        let receivers = room.sender.receivers();
        let state = receivers.iter().find(|it| it.name == "pc0").map(|it| it.state.clone());
        if let Some(state) = state.filter(|state| states.last() != Some(state)) {
            states.push(state);
        }
    }
    room.assert_identical();
    println!("{states:?} in {:?}", room.now);
    let place = |wanted: &ReceiverState| states.iter().position(|state| state == wanted);
    let slow = place(&ReceiverState::Slow).expect("it was slow");
    assert!(states[slow..].contains(&ReceiverState::Stalled), "it returned: {states:?}");
    let others = room.receivers[1..].iter().map(|it| it.finished_at.unwrap()).max().unwrap();
    assert!(others <= without.into_iter().max().unwrap() * 3 / 2, "{others:?}");
}

/// Receivers of many speeds: each is done about when it would be alone.
#[test]
fn receivers_of_many_speeds_all_finish() {
    let speeds = [1, 1, 1, 2, 4, 8];
    let links = speeds.map(|factor| Link { sink_time: CHUNK_TIME * factor * 9 / 10, ..fast() });
    let (times, _) = cast(6, &links);
    for (factor, time) in speeds.iter().zip(&times) {
        let alone = CHUNK_TIME * *factor * CHUNKS as u32;
        println!("{factor}: {time:?} of {alone:?}");
        assert!(*time <= alone * 13 / 10 + CHUNK_TIME * 20, "a receiver {factor} times as slow: {time:?}");
    }
}
