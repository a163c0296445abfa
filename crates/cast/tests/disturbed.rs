//! Casts that somebody disturbs: forged datagrams, a receiver without buffers, a disk that hangs, a suspended machine. The other
//! receivers are not slowed, and every receiver that can finish gets the right bytes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: it fails by panicking, and prints tables"
)]

mod simulated;

use std::time::Duration;

use platter_cast::{JoinKey, ReceiverState, SenderOptions};
use simulated::{Forger, Link, Room, sender_options};

const RATE: u64 = 400_000_000;
/// Slightly more than the time that 20 chunks of a million bytes take at that rate.
const UNDISTURBED: Duration = Duration::from_millis(800);
/// How long others may wait for a receiver until it counts as far slower.
const BRIEFLY: Duration = Duration::from_millis(200);

fn lengths(count: u32) -> Vec<u32> {
    (0..count).map(|index| if index == 0 { 40_000 } else { 1_000_000 + index * 1000 }).collect()
}

fn lossy(loss: f64) -> Link {
    Link { loss, ..Link::default() }
}

/// Casts 12 chunks to three receivers with a forger. Returns how many chunks they fetched over the reliable channel.
fn forged(seed: u64, forger: Forger) -> u64 {
    let mut room = Room::new(seed, lengths(12), sender_options(1, RATE), &[lossy(0.01); 3]);
    room.forger = Some(forger);
    room.run(Duration::from_secs(60));
    room.assert_identical();
    let fetched = room.receivers.iter().map(|it| it.machine.statistics().fetched).sum();
    println!("seed {seed}: {:?}, {fetched} fetched, {:?}", room.now, room.sender.progress());
    // Undisturbed, it takes 0.3 s.
    assert!(room.now < Duration::from_millis(1500), "{:?}", room.now);
    fetched
}

/// Without the session key, nobody forges anything that counts.
#[test]
fn what_a_stranger_forges_is_rejected() {
    for join_key in [None, Some(JoinKey::new([5; 32]))] {
        let options = SenderOptions { join_key, ..sender_options(1, RATE) };
        let mut times = Vec::new();
        for forger in [
            None,
            Some(Forger {
                every: 2,
                left: u64::MAX,
                anywhere: true,
                lies: true,
                outdates: false,
                occupies: false,
                insider: false,
            }),
        ] {
            let mut room = Room::new(3, lengths(12), options.clone(), &[lossy(0.01); 3]);
            room.forger = forger;
            room.run(Duration::from_secs(60));
            room.assert_identical();
            for receiver in &room.receivers {
                let statistics = receiver.machine.statistics();
                assert_eq!(statistics.fetched, 0);
                assert_eq!(statistics.rejected > 1000, forger.is_some(), "{statistics:?}");
            }
            times.push(room.now);
        }
        assert!(times[1] < times[0] * 21 / 20, "{times:?}");
    }
}

/// Somebody with the session key cannot make the sender's plans look old.
#[test]
fn a_few_forged_packet_numbers_do_not_slow_a_cast() {
    let forger = Forger {
        every: 500,
        left: 8,
        anywhere: false,
        lies: false,
        outdates: true,
        occupies: false,
        insider: true,
    };
    let times = [None, Some(forger)].map(|forger| {
        let mut room = Room::new(3, lengths(12), sender_options(1, RATE), &[lossy(0.01); 3]);
        room.forger = forger;
        room.run(Duration::from_secs(60));
        room.assert_identical();
        room.now
    });
    assert!(times[1] < times[0] * 21 / 20, "{times:?}");
}

#[test]
fn forged_symbols_of_active_chunks_do_not_stop_a_cast() {
    for seed in 1..3 {
        let fetched = forged(
            seed,
            Forger {
                every: 40,
                left: 200,
                anywhere: false,
                lies: false,
                outdates: false,
                occupies: false,
                insider: true,
            },
        );
        assert!((1..=36).contains(&fetched), "{fetched} of 3 x 12 chunks");
    }
}

#[test]
fn forged_symbols_of_any_chunk_do_not_stop_a_cast() {
    for seed in 1..3 {
        forged(
            seed,
            Forger {
                every: 10,
                left: 400,
                anywhere: true,
                lies: false,
                outdates: false,
                occupies: false,
                insider: true,
            },
        );
    }
}

/// Forged packet numbers that no sender has reached, and forged plans. They may cost datagrams but must not end or stop a cast.
#[test]
fn forged_plans_and_packet_numbers_do_not_stop_a_cast() {
    for seed in 1..4 {
        forged(
            seed,
            Forger {
                every: 10,
                left: 300,
                anywhere: seed == 2,
                lies: true,
                outdates: false,
                occupies: false,
                insider: true,
            },
        );
    }
}

/// With a permanent forger, every chunk is corrupt and is fetched over the reliable channel.
#[test]
fn a_permanent_forger_only_slows_a_cast() {
    forged(
        5,
        Forger {
            every: 20,
            left: u64::MAX,
            anywhere: false,
            lies: false,
            outdates: false,
            occupies: false,
            insider: true,
        },
    );
}

/// Somebody with the session key uses each packet number before the sender does.
#[test]
fn a_cast_whose_numbers_are_used_by_another_goes_on() {
    forged(
        6,
        Forger {
            every: 1,
            left: u64::MAX,
            anywhere: false,
            lies: false,
            outdates: false,
            occupies: true,
            insider: true,
        },
    );
}

/// One datagram with a number that the sender reaches much later.
#[test]
fn a_forged_number_is_forgotten() {
    let time = |left| {
        let mut room = Room::new(7, lengths(40), sender_options(1, RATE), &[lossy(0.01); 3]);
        let (every, occupies, insider) = (1000, true, true);
        room.forger =
            Some(Forger { every, left, anywhere: false, lies: false, outdates: true, occupies, insider });
        room.run(Duration::from_secs(60));
        room.assert_identical();
        room.now
    };
    let (without, with) = (time(0), time(1));
    assert!(with < without * 11 / 10, "{with:?}, {without:?} without it");
}

/// Somebody has the same symbols sent again and again, as often as the chunks themselves.
#[test]
fn a_receiver_that_requests_without_end_does_not_stop_a_cast() {
    let demands = Link { demands: true, never_ends: true, ..Link::default() };
    let (others, _) = with_third(demands, Duration::from_secs(10));
    assert!(others < UNDISTURBED * 5 / 2, "{others:?}");
}

/// Casts 20 chunks to two normal receivers and `third`. Returns when the two had finished, and the room at its end.
fn with_third(third: Link, until: Duration) -> (Duration, Room) {
    let mut room = Room::new(31, lengths(20), sender_options(1, RATE), &[lossy(0.01), lossy(0.01), third]);
    room.run(until);
    let ends = room.receivers[..2].iter().map(|it| it.finished_at.unwrap());
    let others = ends.max().unwrap();
    println!("others done at {others:?}, all at {:?}, {:?}", room.now, room.sender.progress());
    (others, room)
}

#[test]
fn a_receiver_without_buffers_hardly_delays_the_others() {
    let third = Link { buffer_chunks: 0, never_ends: true, ..Link::default() };
    let (others, _) = with_third(third, Duration::from_secs(60));
    assert!(others < UNDISTURBED + BRIEFLY, "{others:?}");
    // When the others have all, nobody is slower than them.
    let mut room = Room::new(31, lengths(20), sender_options(1, RATE), &[lossy(0.01), lossy(0.01), third]);
    room.run(UNDISTURBED / 2);
    let receivers = room.sender.receivers();
    let third = receivers.iter().find(|it| it.name == "pc2").unwrap();
    assert_eq!(third.state, ReceiverState::Slow);
}

#[test]
fn a_disk_that_hangs_hardly_delays_the_others_and_finishes() {
    let hangs = Some((Duration::from_millis(200), Duration::from_secs(40)));
    let (others, room) =
        with_third(Link { disk_hangs: hangs, buffer_chunks: 8, ..lossy(0.01) }, Duration::from_secs(90));
    assert!(others < UNDISTURBED + BRIEFLY, "{others:?}");
    room.assert_identical();
    assert!(room.now < Duration::from_secs(40) + UNDISTURBED * 2, "{:?}", room.now);
    assert_eq!(room.sender.receivers().len(), 3, "no receiver had to join again");
    assert!(room.sender.progress().rate_bits_per_second == RATE, "the rate is not cut");
}

#[test]
fn a_suspended_machine_delays_nobody_and_finishes() {
    for until in [4, 40] {
        let stopped = Some((Duration::from_millis(200), Duration::from_secs(until)));
        let (others, room) =
            with_third(Link { stopped, buffer_chunks: 8, ..lossy(0.01) }, Duration::from_secs(90));
        assert!(others < UNDISTURBED + BRIEFLY, "{others:?}");
        room.assert_identical();
        assert!(room.now < Duration::from_secs(until) + UNDISTURBED * 3, "{:?}", room.now);
    }
}
