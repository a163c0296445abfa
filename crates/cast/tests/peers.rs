//! Nodes that share blocks on a simulated network: what the origin sends, how long fetches take, what filters
//! cost, and what liars and failures do. A seed reproduces every run; results are printed as tables.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: it fails by panicking, and prints tables"
)]

mod peers_network;

use std::time::Duration;

use peers_network::{Network, Plan, Universe};
use platter_cast::peer::PIECE_TIME_MAX;

/// Maximum time of a fetch, even if a home has to fetch the blocks from the origin first.
const FETCH_TIME_MAX: Duration = PIECE_TIME_MAX;
const LIMIT: Duration = Duration::from_secs(3600);

fn head() {
    println!(
        "nodes | boots | origin MB | of one each | peers MB | filters | p50 ms | p99 ms | longest s | asks peer/home/origin | hedged | false | stale | failed | liars caught"
    );
}

fn line(network: &Network) {
    let counts = &network.counts;
    let asked = network.statistics();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    println!(
        "{:5} | {:5} | {:9.1} | {:11.3} | {:8.1} | {:6.3}% | {:6.2} | {:6.2} | {:9.3} | {}/{}/{} | {} | {} | {} | {} | {}",
        network.plan.nodes,
        counts.boots_done,
        counts.origin_bytes as f64 / 1e6,
        origin_copies(network),
        counts.peer_bytes as f64 / 1e6,
        filter_part(network) * 100.0,
        ms(network.fetch_time(500)),
        ms(network.fetch_time(990)),
        network.fetch_longest().as_secs_f64(),
        asked.peer_asks,
        asked.home_asks,
        asked.origin_asks,
        asked.hedges,
        asked.false_positives,
        asked.stale,
        asked.failures,
        asked.liars,
    );
}

/// Returns the bytes from the origin, relative to the minimum.
fn origin_copies(network: &Network) -> f64 {
    network.counts.origin_bytes as f64 / network.universe_bytes() as f64
}

/// Returns the bytes of filters, relative to the data that nodes received.
fn filter_part(network: &Network) -> f64 {
    network.counts.filter_bytes as f64 / network.counts.held_bytes as f64
}

fn run(plan: Plan, universe: Universe) -> Network {
    let mut network = Network::new(plan, universe);
    network.run(LIMIT);
    line(&network);
    network
}

/// Checks what holds in every run.
fn check(network: &Network) {
    let counts = &network.counts;
    assert_eq!(counts.wrong_frames, 0, "wrong bytes were accepted");
    assert_eq!(counts.failed_reads, 0, "the origin has everything and is available");
    assert_eq!(counts.boots_done, network.plan.nodes * network.plan.boots);
    assert!(network.fetch_longest() <= FETCH_TIME_MAX, "{:?}", network.fetch_longest());
    let part = filter_part(network);
    assert!(part <= 0.01, "filters are {:.2} % of the data", part * 100.0);
}

/// Returns the exponent with which the origin's bytes grow with the number of nodes, by least squares of the logarithms.
fn exponent(points: &[(usize, u64)]) -> f64 {
    let logs: Vec<(f64, f64)> =
        points.iter().map(|(nodes, bytes)| ((*nodes as f64).ln(), (*bytes as f64).ln())).collect();
    let count = logs.len() as f64;
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let above: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let below: f64 = logs.iter().map(|(x, _)| (x - mean_x) * (x - mean_x)).sum();
    above / below
}

fn growth(sizes: &[usize], images: usize, plan: &Plan) -> (f64, Vec<Network>) {
    head();
    let runs: Vec<Network> = sizes
        .iter()
        .map(|nodes| run(Plan { nodes: *nodes, ..plan.clone() }, Universe::of_images(3, images)))
        .collect();
    let points: Vec<(usize, u64)> =
        runs.iter().map(|network| (network.plan.nodes, network.counts.origin_bytes)).collect();
    let exponent = exponent(&points);
    println!("the origin's bytes grow with nodes to the power of {exponent:.3}");
    (exponent, runs)
}

#[test]
fn sixty_nodes_boot_ten_images() {
    head();
    let plan = Plan { lying: 0.05, failing: 0.10, through_bytes: true, ..Plan::default() };
    let network = run(plan, Universe::of_images(1, 10));
    check(&network);
    assert!(origin_copies(&network) < 1.35, "{}", origin_copies(&network));
    assert!(network.fetch_time(990) < Duration::from_millis(100), "{:?}", network.fetch_time(990));
    // Hedged requests replace a peer that hangs long before ten seconds have passed.
    assert!(network.fetch_longest() < Duration::from_secs(9), "{:?}", network.fetch_longest());
    assert!(network.statistics().liars > 0 && network.counts.failures > 0);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut network =
            Network::new(Plan { seed, nodes: 12, boots: 2, ..Plan::default() }, Universe::of_images(1, 5));
        network.run(LIMIT);
        (network.now, network.counts.origin_bytes, network.counts.fetches.clone())
    };
    assert!(run(1) == run(1));
    assert!(run(1) != run(2));
}

#[test]
fn the_origin_sends_little_more_to_more_nodes() {
    let plan = Plan { boots: 5, ..Plan::default() };
    let (exponent, runs) = growth(&[16, 32, 64], 5, &plan);
    runs.iter().for_each(check);
    assert!(exponent < 0.5, "{exponent}");
}

/// Liquid's figure 9: one to seven empty nodes fetch a disk at once. The quick test uses a quarter of all sizes.
fn boot_storm(frames: u32, part: u64) {
    println!("nodes | time s | over one copy | origin, of one image");
    let rate = 200_000_000 / part;
    let read_frames = 16 / part as usize;
    for nodes in 1..=7 {
        let universe = Universe::of_one_disk(frames);
        let plan = Plan {
            nodes,
            node_bits_per_second: rate,
            origin_bits_per_second: rate,
            delay: Duration::from_millis(1),
            boots: 1,
            boot_interval: Duration::from_millis(10),
            // As many blocks, with two per frame, as a filling node requests ahead.
            window: 8000 / read_frames,
            read_frames,
            bytes_in_flight_max: (256 << 20) / part,
            fills: true,
            failing: 0.0,
            lying: 0.0,
            ..Plan::default()
        };
        let mut network = Network::new(plan, universe);
        network.run(LIMIT);
        let bytes = network.universe_bytes();
        let one_copy = bytes as f64 * 8.0 / rate as f64;
        let took = network.now.as_secs_f64() / one_copy;
        let copies = network.counts.origin_bytes as f64 / bytes as f64;
        println!("{nodes:5} | {:6.2} | {took:13.3} | {copies:6.3}", network.now.as_secs_f64());
        assert!(took <= 1.25, "{nodes} nodes took {took} of one copy over one link");
        assert!(copies <= 1.2, "{nodes} nodes: the origin sent {copies} images");
    }
}

#[test]
fn a_boot_storm_from_empty_quick() {
    boot_storm(4096, 4);
}

/// A disk of 4 GiB.
#[test]
#[ignore = "minutes"]
fn a_boot_storm_from_empty() {
    boot_storm(32_768, 1);
}

#[test]
#[ignore = "minutes"]
fn a_thousand_nodes_boot_fifty_images() {
    let (exponent, runs) = growth(&[62, 125, 250, 500, 1000], 50, &Plan::default());
    runs.iter().for_each(check);
    assert!(exponent < 0.5, "{exponent}");
}

/// For comparison: only the filters of sixteen neighbours, without homes.
#[test]
#[ignore = "minutes"]
fn without_homes_the_origin_sends_ever_more() {
    let (exponent, runs) = growth(&[62, 125, 250], 50, &Plan { homes: false, ..Plan::default() });
    runs.iter().for_each(check);
    assert!(exponent > 0.5, "{exponent}");
}
