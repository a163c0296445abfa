//! Casts to a room of receivers on a simulated network: overhead tables, late joins, crashes, restarts. A seed reproduces every
//! run.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: it fails by panicking, and prints tables"
)]

mod simulated;

use std::time::Duration;

use platter_cast::ReceiverState;
use simulated::{Link, Random, Room, sender_options};

const RATE: u64 = 400_000_000;

/// Chunk lengths as a real cast has them: about 1 MiB, with a small recipe first and a small rest last.
fn lengths(count: usize) -> Vec<u32> {
    let mut random = Random(99);
    let mut lengths: Vec<u32> = (0..count).map(|_| 1_000_000 + (random.next() % 100_000) as u32).collect();
    lengths[0] = 40_000;
    lengths[count - 1] = 777;
    lengths
}

/// Runs a room to its end. Returns the bytes sent, relative to the minimum.
fn overhead(seed: u64, chunks: usize, links: &[Link]) -> f64 {
    let mut room = Room::new(seed, lengths(chunks), sender_options(1, RATE), links);
    room.run(Duration::from_secs(60));
    room.assert_identical();
    println!("{:?}: {:?}", room.now, room.sender.progress());
    room.group_bytes as f64 / room.least_bytes() as f64
}

fn lossy(loss: f64) -> Link {
    Link { loss, ..Link::default() }
}

#[test]
fn overhead_without_loss_is_under_three_percent() {
    let overhead = overhead(1, 24, &[lossy(0.0); 4]);
    println!("no loss, 4 receivers: {overhead:.4}");
    assert!(overhead <= 1.03, "{overhead}");
}

#[test]
fn overhead_at_one_percent_loss() {
    let overhead = overhead(2, 24, &[lossy(0.01); 16]);
    println!("1 % loss, 16 receivers: {overhead:.4}");
    assert!(overhead <= 1.05, "{overhead}");
}

#[test]
fn overhead_at_five_percent_loss() {
    let overhead = overhead(3, 24, &[lossy(0.05); 16]);
    println!("5 % loss, 16 receivers: {overhead:.4}");
    assert!(overhead <= 1.12, "{overhead}");
}

/// Constant loss is no congestion: the cast takes as long as its repair needs.
#[test]
fn constant_loss_does_not_slow_a_cast() {
    let time = |seed, loss| {
        let mut room = Room::new(seed, lengths(64), sender_options(1, RATE), &[lossy(loss); 16]);
        room.run(Duration::from_secs(60));
        room.assert_identical();
        // Not the time until each receiver has seen an announcement.
        let (started, _) = room.sender.times().unwrap();
        (room.now - started).as_secs_f64()
    };
    let without = time(17, 0.0);
    // One request that is lost near the end costs 0.04: so the mean of some casts.
    for (loss, casts, most) in [(0.01, 1, 1.04), (0.05, 1, 1.10), (0.1, 3, 1.18)] {
        let ratio = (18..18 + casts).map(|seed| time(seed, loss)).sum::<f64>() / casts as f64 / without;
        println!("{loss} lost: {ratio:.3} of the time without loss");
        assert!(ratio <= most, "{loss}: {ratio}");
    }
}

/// Threads of a busy machine are woken late. To some reports, that looks like a queue.
#[test]
fn threads_that_are_woken_late_do_not_slow_a_cast() {
    let time = |late_ms| {
        let mut room = Room::new(18, lengths(96), sender_options(1, RATE), &[lossy(0.001); 2]);
        room.late = Duration::from_millis(late_ms);
        room.run(Duration::from_secs(60));
        room.assert_identical();
        let (started, _) = room.sender.times().unwrap();
        (room.now - started).as_secs_f64()
    };
    let without = time(0);
    for late_ms in [3, 8] {
        let ratio = time(late_ms) / without;
        println!("half of all wake-ups {late_ms} ms late: {ratio:.3} of the time without");
        assert!(ratio <= 1.05, "{late_ms} ms: {ratio}");
    }
}

#[test]
fn a_cast_with_half_of_all_datagrams_lost_succeeds() {
    let overhead = overhead(4, 8, &[lossy(0.5); 3]);
    println!("50 % loss, 3 receivers: {overhead:.4}");
    assert!(overhead <= 4.0, "{overhead}");
}

#[test]
fn reordering_and_duplicates_do_no_harm() {
    let link = Link { doubled: 0.1, jitter: Duration::from_millis(1), ..lossy(0.01) };
    let overhead = overhead(5, 16, &[link; 4]);
    println!("1 % loss, 10 % doubled, reordered: {overhead:.4}");
    assert!(overhead <= 1.06, "{overhead}");
}

/// Bursts take a part of a batch, or of all chunks that are under way; each receiver has its own. Those of one receiver help no other, so
/// up to the sum of all losses is sent again.
#[test]
fn bursts_of_loss_are_repaired() {
    for burst in [50, 1000] {
        let link = Link { burst, doubled: 0.02, jitter: Duration::from_micros(500), ..lossy(0.01) };
        let overhead = overhead(19, 24, &[link; 8]);
        println!("1 % loss in bursts of {burst}, 8 receivers: {overhead:.4}");
        assert!((1.01..=1.10).contains(&overhead), "{burst}: {overhead}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = |seed| {
        let mut room = Room::new(seed, lengths(6), sender_options(1, RATE), &[lossy(0.03); 3]);
        room.run(Duration::from_secs(60));
        room.assert_identical();
        room.trace()
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

#[test]
fn late_joiners_get_what_they_missed_and_little_else_is_sent() {
    let late = Link { joins_at: Duration::from_millis(300), ..lossy(0.01) };
    let mut room = Room::new(9, lengths(32), sender_options(1, RATE), &[lossy(0.01), late, late]);
    room.run(Duration::from_secs(60));
    println!("{:?}", room.sender.progress());
    room.assert_identical();
    let overhead = room.group_bytes as f64 / room.least_bytes() as f64;
    println!("two join at 300 ms of 680: {overhead:.4}");
    // They hear of the session at the next announcement, 0 to 100 ms later. So at most 0.55 is sent again, up to four chunks
    // of which they heard only the end (0.12), and a few that are sent before they know what they want.
    assert!(overhead <= 1.75, "{overhead}");
}

/// Four groups start a quarter of the run apart. When the last one has joined, it lacks everything, and what the others lack is a part
/// of that: so the least that can be sent is what was sent until then, and each chunk once more.
#[test]
fn groups_that_join_later_share_what_they_missed() {
    let lengths = vec![100_000; 800];
    let mut links = vec![Link { buffer_chunks: 256, ..Link::default() }; 8];
    let options = sender_options(1, 100_000_000);
    let run = Duration::from_millis(6_800);
    for (number, link) in links.iter_mut().enumerate() {
        link.joins_at = run * (number as u32 / 2) / 4;
    }
    let mut room = Room::new(21, lengths, options, &links);
    while room.receivers.iter().any(|receiver| receiver.sessions == 0) {
        room.step();
    }
    let (joined_at, before) = (room.now, room.group_bytes);
    room.run(Duration::from_secs(60));
    room.assert_identical();
    let once = room.least_bytes();
    let (before, ratio) = (before as f64 / once as f64, room.group_bytes as f64 / (before + once) as f64);
    println!("the last of four groups joins at {joined_at:?}, after {before:.3}: {ratio:.4} of the least");
    assert!((0.65..0.85).contains(&before), "not a quarter apart: {before}");
    assert!(ratio <= 1.03, "{ratio}");
}

#[test]
fn only_wanted_chunks_are_sent() {
    let delta = Link { wants_from: 20, ..lossy(0.01) };
    let overhead = overhead(10, 24, &[delta; 3]);
    println!("4 of 24 chunks wanted: {overhead:.4}");
    assert!(overhead <= 0.2, "{overhead}");
}

/// A receiver alone in the room, or as slow as most others, is waited for: it drops nothing.
#[test]
fn slow_sinks_slow_the_sender_without_loss() {
    let slow = Link { sink_time: Duration::from_millis(60), buffer_chunks: 8, ..Link::default() };
    for links in [vec![slow], vec![slow, slow, slow]] {
        let mut room = Room::new(11, lengths(32), sender_options(1, RATE), &links);
        room.run(Duration::from_secs(60));
        room.assert_identical();
        let overhead = room.group_bytes as f64 / room.least_bytes() as f64;
        println!("slow sinks: {overhead:.4} in {:?}", room.now);
        assert!(overhead <= 1.03, "{overhead}");
        assert!(room.receivers.iter().all(|it| it.machine.statistics().no_room == 0));
        assert!(room.now < Duration::from_millis(32 * 60 + 500), "the sinks had to wait: {:?}", room.now);
    }
}

#[test]
fn a_crashed_receiver_does_not_stop_the_others() {
    let crashes = Link { crashes_at: Some(Duration::from_millis(200)), buffer_chunks: 4, ..Link::default() };
    let mut room = Room::new(12, lengths(32), sender_options(1, RATE), &[crashes, lossy(0.01)]);
    room.run(Duration::from_secs(60));
    room.assert_identical();
    assert!(room.now < Duration::from_secs(4), "{:?}", room.now);
    while !room.sender.is_finished(room.now) && room.now < Duration::from_secs(60) {
        room.now += Duration::from_millis(100);
        let mut transmit = platter_cast::Transmit::new();
        while room.sender.poll_transmit(room.now, &mut transmit) {}
    }
    let states: Vec<ReceiverState> = room.sender.receivers().into_iter().map(|status| status.state).collect();
    assert!(states.iter().any(|state| matches!(state, ReceiverState::Lost(_))), "{states:?}");
    assert!(states.iter().any(|state| matches!(state, ReceiverState::Done(_))), "{states:?}");
}

#[test]
fn a_restarted_receiver_leaves_no_lost_receiver() {
    let crashes = Link { crashes_at: Some(Duration::from_millis(200)), ..Link::default() };
    let again = Link { joins_at: Duration::from_secs(3), again: Some(0), ..Link::default() };
    let mut room = Room::new(14, lengths(32), sender_options(1, RATE), &[crashes, lossy(0.01), again]);
    room.run(Duration::from_secs(60));
    room.assert_identical();
    while !room.sender.is_finished(room.now) && room.now < Duration::from_secs(60) {
        room.now += Duration::from_millis(100);
        let mut transmit = platter_cast::Transmit::new();
        while room.sender.poll_transmit(room.now, &mut transmit) {}
    }
    let states: Vec<ReceiverState> = room.sender.receivers().into_iter().map(|status| status.state).collect();
    assert!(matches!(states[..], [ReceiverState::Done(_), ReceiverState::Done(_)]), "{states:?}");
    assert!(room.now < Duration::from_secs(10), "the sender waited for the old receiver: {:?}", room.now);
}

#[test]
fn a_restarted_sender_is_found_and_nothing_is_sent_twice() {
    let mut room = Room::new(13, lengths(32), sender_options(1, RATE), &[lossy(0.01); 3]);
    room.run(Duration::from_millis(600));
    assert!(!room.all_done());
    let sent_before = room.group_bytes;
    let mut options = sender_options(2, RATE);
    options.wait_receivers = 3;
    room.restart_sender(options);
    room.run(Duration::from_secs(60));
    room.assert_identical();
    assert!(room.now < Duration::from_millis(3500), "it is asked, and does not know them: {:?}", room.now);
    assert!(room.receivers.iter().all(|receiver| receiver.sessions == 2));
    let after = (room.group_bytes - sent_before) as f64 / room.least_bytes() as f64;
    let before = sent_before as f64 / room.least_bytes() as f64;
    println!("restart: {before:.3} before, {after:.3} after");
    assert!(before + after < 1.35, "{before} {after}");
}

#[test]
fn a_chunk_that_the_sink_rejects_is_sent_again() {
    let link = Link { bad_chunk: Some(5), ..lossy(0.01) };
    let mut room = Room::new(14, lengths(12), sender_options(1, RATE), &[link, lossy(0.01)]);
    room.run(Duration::from_secs(60));
    room.assert_identical();
}

/// The recipe arrives late although everything was wanted from the start: data waits for it in all buffers except one.
#[test]
fn data_waits_for_a_late_recipe() {
    for seed in 50..60 {
        let late =
            Link { bad_chunk: Some(0), buffer_chunks: 3, sink_time: Duration::from_millis(30), ..lossy(0.2) };
        let mut room = Room::new(seed, lengths(12), sender_options(1, RATE), &[late, lossy(0.01)]);
        room.run(Duration::from_secs(60));
        room.assert_identical();
    }
}

#[test]
fn tiny_chunks_and_a_single_buffer_work() {
    for seed in 20..40 {
        let link = Link { buffer_chunks: 1, ..lossy(0.3) };
        let mut room = Room::new(seed, vec![1, 1408, 1409, 5000], sender_options(1, 10_000_000), &[link; 2]);
        room.run(Duration::from_secs(60));
        room.assert_identical();
    }
}

/// A late joiner whose first request is lost still gets the directory while others request other chunks.
#[test]
fn a_few_random_rooms() {
    rooms(130..134);
}

/// Many seeds and conditions. Part of `make test-full`.
#[test]
#[ignore = "minutes"]
fn many_random_rooms() {
    rooms(100..160);
}

fn rooms(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut random = Random(seed);
        let links: Vec<Link> = (0..1 + random.next() % 12)
            .map(|_| Link {
                loss: (random.next() % 20) as f64 / 100.0,
                doubled: (random.next() % 5) as f64 / 100.0,
                jitter: Duration::from_micros(random.next() % 3000),
                buffer_chunks: 2 + (random.next() % 40) as usize,
                joins_at: Duration::from_millis(random.next() % 2 * (random.next() % 500)),
                crashes_at: random.chance(0.1).then(|| Duration::from_millis(random.next() % 500)),
                sink_time: Duration::from_millis(random.next() % 20),
                wants_from: (random.next() % 3 * 4) as u32,
                ..Link::default()
            })
            .collect();
        let mut room = Room::new(seed, lengths(20), sender_options(seed as u8, 200_000_000), &links);
        room.run(Duration::from_secs(120));
        println!("seed {seed}: {:?}", room.now);
        room.assert_identical();
    }
}
