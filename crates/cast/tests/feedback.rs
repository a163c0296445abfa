//! How many reports receivers send, and what a cast costs: tables by number of receivers, rate, buffers and disks.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: it fails by panicking, and prints tables"
)]

mod simulated;

use std::time::Duration;

use simulated::{Link, Room, sender_options};

const CHUNK_BYTES: u32 = 1_400_000;

/// The disks of a room, as the time of a chunk relative to its time on the wire.
#[derive(Clone, Copy, Debug)]
enum Disks {
    /// Five times as fast as the wire.
    Fast,
    /// All about 1.6 times slower than the wire, 5 % apart.
    Slow,
}

/// What a cast cost.
#[derive(Debug)]
struct Cost {
    seconds: f64,
    /// Bytes sent, relative to the least.
    traffic: f64,
    /// Symbols dropped for lack of buffers, of each receiver.
    no_room: u64,
    /// Reports and requests of all receivers, per second.
    reports: f64,
    requests: f64,
}

fn cast(receivers: usize, megabits: u64, buffers: usize, disks: Disks) -> Cost {
    let chunks = (megabits * 2 / 15).clamp(24, 99) as usize;
    let wire = Duration::from_nanos(u64::from(CHUNK_BYTES) * 8 * 1050 / megabits);
    let links: Vec<Link> = (0..receivers)
        .map(|number| {
            let spread = 950 + 100 * number as u32 / receivers as u32;
            let sink_time = match disks {
                Disks::Fast => wire / 5,
                Disks::Slow => wire * 16 / 10 * spread / 1000,
            };
            Link { loss: 0.002, buffer_chunks: buffers, sink_time, ..Link::default() }
        })
        .collect();
    let mut lengths = vec![CHUNK_BYTES; chunks];
    lengths[0] = 40_000;
    let mut room = Room::new(5, lengths, sender_options(1, megabits * 1_000_000), &links);
    room.run(Duration::from_secs(120));
    room.assert_identical();
    let (started, _) = room.sender.times().unwrap();
    let seconds = (room.now - started).as_secs_f64();
    let no_room = room.receivers.iter().map(|it| it.machine.statistics().no_room).sum::<u64>();
    let cost = Cost {
        seconds,
        traffic: room.group_bytes as f64 / room.least_bytes() as f64,
        no_room: no_room / receivers as u64,
        reports: room.reports as f64 / seconds,
        requests: room.requests as f64 / seconds,
    };
    let Cost { seconds, traffic, no_room, reports, requests } = cost;
    println!(
        "{receivers:3} receivers, {megabits:4} Mbit/s, {buffers:3} buffers, {disks:?}: {seconds:.3} s, traffic \
         {traffic:.4}, no room {no_room}, reports {reports:.0}/s, requests {requests:.0}/s"
    );
    cost
}

/// Reports a second of all receivers: 50, and those of the start.
#[test]
fn reports_do_not_become_more_with_more_receivers() {
    for receivers in [1, 4, 12] {
        let cost = cast(receivers, 100, 64, Disks::Fast);
        assert!(cost.reports <= 60.0 && cost.no_room == 0 && cost.traffic <= 1.02, "{cost:?}");
    }
}

/// A table of many rooms. Part of `make test-full`.
#[test]
#[ignore = "minutes"]
fn tables_of_feedback() {
    for megabits in [100, 1000] {
        for (buffers, disks) in
            [(64, Disks::Fast), (64, Disks::Slow), (180, Disks::Slow), (8, Disks::Fast), (8, Disks::Slow)]
        {
            for receivers in [1, 4, 16, 64] {
                cast(receivers, megabits, buffers, disks);
            }
        }
    }
}
