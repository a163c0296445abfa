//! Tests of sharing between honest nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use platter_image::{ErrorKind, Kind};

use super::*;

#[test]
fn nodes_that_read_the_same_disk_fetch_about_one_copy_from_the_origin() {
    let universe = &Universe::new(1, 1000);
    let origin = Origin::of(universe);
    let nodes: Vec<Node> = (0..4).map(|_| Node::new(&origin)).collect();
    introduce(&nodes.iter().collect::<Vec<_>>());
    thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(move || node.read(universe));
        }
    });
    let copies = origin.bytes.load(Ordering::SeqCst) as f64 / universe.bytes() as f64;
    assert!((1.0..1.5).contains(&copies), "{copies} copies came from the origin");
    let counts: Vec<_> = nodes.iter().map(|node| node.peers.counts()).collect();
    assert!(counts.iter().all(|counts| counts.frames_received > 0 && counts.liars == 0), "{counts:?}");
    let sent: u64 = counts.iter().map(|counts| counts.frame_bytes_sent).sum();
    assert!(sent >= universe.bytes() * 2, "{counts:?}");
    // A node that joins late needs nothing new from the origin.
    let late = Node::new(&origin);
    let before = origin.bytes.load(Ordering::SeqCst);
    introduce(&nodes.iter().chain([&late]).collect::<Vec<_>>());
    late.read(universe);
    let more = (origin.bytes.load(Ordering::SeqCst) - before) as f64 / universe.bytes() as f64;
    assert!(more < 0.5, "{more} more copies for a late node");
}

#[test]
fn a_single_node_fetches_everything_from_the_origin_once() {
    let universe = Universe::new(2, 300);
    let origin = Origin::of(&universe);
    let node = Node::new(&origin);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| node.read(&universe));
        }
    });
    let frames = (universe.frames.len() + universe.page_frames.len()) as u64;
    let sent = origin.sent.load(Ordering::SeqCst);
    // A frame on the border of two groups is sent in parts.
    assert!((frames..frames * 2).contains(&sent), "{sent} of {frames} frames");
    assert_eq!(node.held.len(), 300 + universe.page_frames.iter().map(|it| blocks_of(it)).sum::<usize>());
}

fn blocks_of(stored: &[u8]) -> usize {
    FrameHeader::parse(stored).unwrap().blocks.len()
}

/// Only one of four nodes has the disk, and got it while they were connected: without updates of its filter, nobody
/// would ask it for blocks with other homes.
#[test]
fn without_an_origin_an_empty_node_reads_from_a_peer_with_the_disk() {
    let universe = Universe::new(3, 600);
    let origin = Origin::of(&universe);
    origin.is_dead.store(true, Ordering::SeqCst);
    let nodes: Vec<Node> = (0..4).map(|_| Node::new(&origin)).collect();
    introduce(&nodes.iter().collect::<Vec<_>>());
    wait_until(|| nodes.iter().all(|node| node.peers.counts().filter_bytes_sent > 0));
    nodes[1].held.fill(&universe.frames);
    nodes[1].held.fill(&universe.page_frames);
    nodes[0].read(&universe);
    assert_eq!(origin.sent.load(Ordering::SeqCst), 0);
}

#[test]
fn nodes_are_found_again_after_a_restart_without_an_origin() {
    let universe = Universe::new(4, 200);
    let origin = Origin::of(&universe);
    origin.is_dead.store(true, Ordering::SeqCst);
    let (full, empty) = (Node::new(&origin), Node::new(&origin));
    full.held.fill(&universe.frames);
    full.held.fill(&universe.page_frames);
    introduce(&[&full, &empty]);
    let empty = empty.restarted(&origin);
    empty.read(&universe);
    assert_eq!(origin.sent.load(Ordering::SeqCst), 0);
}

/// A peer that restarts on another port is recognized by its fingerprint, and linked again.
#[test]
fn a_peer_that_comes_back_is_asked_again() {
    let universe = Universe::new(5, 200);
    let origin = Origin::of(&universe);
    origin.is_dead.store(true, Ordering::SeqCst);
    let (full, reader) = (Node::new(&origin), Node::new(&origin));
    full.held.fill(&universe.page_frames);
    full.held.fill(&universe.frames);
    introduce(&[&full, &reader]);
    let source = source(&reader.peers, &universe);
    assert!(source.frame(Kind::Data, &universe.ids[0]).unwrap().is_some());
    let full = full.restarted(&origin);
    introduce(&[&full, &reader]);
    reader.read(&universe);
}

#[test]
fn an_unknown_block_is_missing_and_an_unreachable_one_fails_within_the_limit() {
    let universe = Universe::new(6, 100);
    let origin = Origin::of(&universe);
    let nodes = [Node::new(&origin), Node::new(&origin)];
    introduce(&[&nodes[0], &nodes[1]]);
    let source = source(&nodes[0].peers, &universe);
    let nothing = BlockId([7; 32]);
    assert!(source.frame(Kind::Data, &nothing).unwrap().is_none());
    assert!(source.frame(Kind::Page, &universe.ids[0]).unwrap().is_none(), "a block is not a page");
    drop(source);
    origin.is_dead.store(true, Ordering::SeqCst);
    let folder = new_folder();
    let identity = identity_in(&folder);
    let directory = Directory::open(folder.path().join("peers.json"), GROUP, identity.id);
    let options = PeerOptions { listen: None, ..options() };
    let held: Arc<Memory> = Arc::default();
    let peers = Fetcher::new(origin.clone(), Some(held));
    peers.share(&options, identity, directory).unwrap();
    let impatient = SourceOptions { retry_time_max: Duration::from_millis(300), exact: false };
    let source = peers.source(universe.score, impatient);
    // On a busy machine, the origin may reply later than this limit.
    wait_until(|| {
        let error = source.frame(Kind::Data, &universe.ids[0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Transient);
        error.to_string().contains("the origin is down")
    });
}

/// Waits for an event; fails after the patience of all tests.
pub(super) fn wait_until(is_so: impl Fn() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "the condition did not become true");
        thread::sleep(Duration::from_millis(5));
    }
}
