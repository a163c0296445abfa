//! Very large rooms in which some receivers are slow, crash, join late or lie: every honest receiver is verified, with little traffic and few
//! reports.
//!
//! `PLATTER_CAST_SEEDS` is the last seed, from 1 or `PLATTER_CAST_FIRST`. 10,000 receivers fit into memory only with the feature `short-symbols`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: it fails by panicking, and prints tables"
)]

mod crowd;
mod simulated;

use std::time::{Duration, Instant};

use crowd::{Crowd, FORGED_NAMES, Role, joins_during_cast};

/// Reports a second of all receivers, until the normal ones are done, and in any second. Receivers that forged plans name report, too.
/// Most seeds have up to 160; those whose liars report now no space and now much have up to 390.
const REPORTS_MEAN_MAX: f64 = 400.0;
const REPORTS_MAX: f64 = 600.0;
/// Data datagrams of each chunk until it is sent from its start again, for late and slow receivers, or 99 % of the normal ones are
/// done; and bytes of
/// all other datagrams until then; relative to each symbol sent once.
const TRAFFIC_MAX: f64 = 1.06;
/// The same if receivers join while it is sent: they lack a part of the chunks that are being sent, which are a large part of this image.
const TRAFFIC_LATE_MAX: f64 = 1.25;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

fn cast(seed: u64, receivers: usize, chunks: usize) {
    let began = Instant::now();
    let mut crowd = Crowd::new(seed, receivers, chunks);
    crowd.run(Duration::from_secs(60));
    let counts = &crowd.counts;
    let (data, other) = counts.traffic(chunks);
    let traffic = data + other;
    let most =
        |tenths: &[u32]| tenths.windows(10).map(|second| second.iter().sum::<u32>()).max().unwrap_or(0);
    let normal = crowd.last_done(|role| role == Role::Normal);
    let slow = crowd.last_done(|role| matches!(role, Role::SlowLink | Role::SlowDisk));
    let normal_time = normal.as_secs_f64();
    let tenths = normal.as_millis() as usize / 100 + 1;
    let mean = f64::from(counts.reports.iter().take(tenths).sum::<u32>()) / normal_time;
    let forged = f64::from(counts.forged_plans * FORGED_NAMES) / normal_time;
    println!(
        "seed {seed}: {receivers} receivers, others {normal:?} ({} late), slow {slow:?}, all {:?}: traffic {data:.4} + {other:.4}, reports {mean:.0} a \
         second, {} at most, {forged:.0} forged names, requests {}, sender {:?} a step; {:?}",
        crowd.stragglers(),
        crowd.now,
        most(&counts.reports),
        most(&counts.requests),
        counts.sender_time / counts.sender_steps as u32,
        began.elapsed(),
    );
    crowd.assert_verified();
    let traffic_max = if joins_during_cast(seed) { TRAFFIC_LATE_MAX } else { TRAFFIC_MAX };
    assert!(traffic <= traffic_max, "seed {seed}: {traffic}");
    assert!(crowd.stragglers() <= receivers / 50, "seed {seed}");
    assert!(mean <= REPORTS_MEAN_MAX + forged, "seed {seed}: {mean}");
    assert!(f64::from(most(&counts.reports)) <= REPORTS_MAX + forged, "seed {seed}");
}

#[test]
fn a_room_with_mixed_faults() {
    for seed in 1..=number("PLATTER_CAST_SEEDS", 1) {
        cast(seed, number("PLATTER_CAST_RECEIVERS", 100) as usize, 24);
    }
}

/// Part of `make test-full`, with the feature `short-symbols`.
#[cfg(feature = "short-symbols")]
#[test]
#[ignore = "minutes, and gigabytes of memory"]
fn ten_thousand_receivers_with_mixed_faults() {
    for seed in number("PLATTER_CAST_FIRST", 1)..=number("PLATTER_CAST_SEEDS", 20) {
        cast(seed, number("PLATTER_CAST_RECEIVERS", 10_000) as usize, 32);
    }
}
