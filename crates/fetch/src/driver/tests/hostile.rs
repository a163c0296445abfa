//! Peers that send wrong data, hang, disconnect, or announce too much: readers still get the right bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use platter_cast::peer::{AskMessage, PeerMessage};
use platter_image::Kind;

use super::raw::{Answer, RawPeer, connect};
use super::sharing::wait_until;
use super::universe::frame;
use super::*;
use crate::PeerCounts;

/// The frame that is sent for a block.
type Gives = dyn Fn(Kind, &BlockId) -> Option<Arc<[u8]>> + Send + Sync;

/// What a liar announces, and what it sends instead.
struct Liar {
    claimed: Vec<BlockId>,
    gives: Box<Gives>,
}

impl Holdings for Liar {
    fn frame(&self, kind: Kind, id: &BlockId) -> Option<Arc<[u8]>> {
        (self.gives)(kind, id)
    }

    fn keep(&self, _stored: &[u8], _header: &FrameHeader) {}

    fn changes(&self, since: u64) -> HeldChanges {
        let added = if since == 0 { self.claimed.clone() } else { Vec::new() };
        HeldChanges { added, dropped: Vec::new(), whole: since == 0, mark: 1 }
    }

    fn own_reads(&self) -> u64 {
        0
    }
}

/// Two honest nodes and a liar that announces everything: an honest node wants blocks while the origin is down, until
/// its counters show the liar; then both read the disk. Returns its counters.
fn with_liar(
    universe: &Universe,
    gives: impl Fn(Kind, &BlockId) -> Option<Arc<[u8]>> + Send + Sync + 'static,
    is_met: impl Fn(&PeerCounts) -> bool,
) -> PeerCounts {
    let origin = Origin::of(universe);
    let honest = [Node::new(&origin), Node::new(&origin)];
    let folder = new_folder();
    let liar = Liar { claimed: universe.ids.clone(), gives: Box::new(gives) };
    let (liar, known) = start(&folder, &origin, Arc::new(liar));
    let all = [honest[0].known.clone(), honest[1].known.clone(), known];
    [&honest[0].peers, &honest[1].peers, &liar].iter().for_each(|peers| peers.learn(&all).unwrap());
    want_from_peers(&honest[0], &origin, universe, is_met);
    thread::scope(|scope| {
        honest.iter().for_each(|node| drop(scope.spawn(move || node.read(universe))));
    });
    let held = |id: &BlockId| honest[0].held.frame(Kind::Data, id);
    let genuine = |stored: Arc<[u8]>| FrameDecoder::new().unwrap().decode(&stored, Verify::Hashes).is_ok();
    assert!(universe.ids.iter().all(|id| held(id).is_none_or(genuine)), "no wrong frame is stored");
    honest[0].peers.counts()
}

/// A node wants some blocks while only peers could send them. Once its counters show what the test waits for, the
/// origin is up again, and all blocks arrive.
fn want_from_peers(node: &Node, origin: &Origin, universe: &Universe, is_met: impl Fn(&PeerCounts) -> bool) {
    let source = &source(&node.peers, universe);
    origin.is_dead.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        for id in universe.ids.iter().step_by(universe.ids.len() / 16) {
            scope.spawn(move || assert!(source.frame(Kind::Data, id).unwrap().is_some()));
        }
        wait_until(|| is_met(&node.peers.counts()));
        origin.is_dead.store(false, Ordering::SeqCst);
    });
}

#[test]
fn frames_with_wrong_contents_are_rejected_and_their_sender_is_dropped() {
    let universe = Universe::new(11, 400);
    let wrong = |kind, id: &BlockId| Some(frame(kind, &[(*id, &[7; 4096][..])]));
    let counts = with_liar(&universe, wrong, |counts| counts.liars > 0);
    assert_eq!(counts.liars, 1, "{counts:?}");
}

#[test]
fn damaged_frames_are_rejected_and_their_sender_is_dropped() {
    let universe = Universe::new(12, 400);
    let origin = Origin::of(&universe);
    let damaged = move |kind, id: &BlockId| {
        let mut stored = origin.frames.get(&(kind, *id))?.to_vec();
        *stored.last_mut()? ^= 1;
        Some(stored.into())
    };
    let counts = with_liar(&universe, damaged, |counts| counts.liars > 0);
    assert_eq!(counts.liars, 1, "{counts:?}");
}

#[test]
fn an_unrequested_frame_is_rejected_although_it_is_genuine() {
    let universe = Universe::new(13, 400);
    let other = Universe::new(14, 1).frames[0].clone();
    let counts = with_liar(&universe, move |_, _| Some(other.clone()), |counts| counts.liars > 0);
    assert_eq!(counts.liars, 1, "{counts:?}");
}

#[test]
fn a_peer_that_announces_everything_and_has_nothing_is_detected_by_its_filter() {
    let universe = Universe::new(15, 1000);
    let counts = with_liar(&universe, |_, _| None, |counts| counts.false_positives > 0);
    assert_eq!(counts.liars, 0, "{counts:?}");
}

/// Its serving threads hang forever.
#[test]
fn a_peer_that_never_answers_is_not_waited_for() {
    let universe = Universe::new(16, 400);
    let asked = Arc::new(AtomicBool::new(false));
    let was_asked = asked.clone();
    let hangs = move |_, _: &BlockId| {
        asked.store(true, Ordering::SeqCst);
        loop {
            thread::park();
        }
    };
    let counts = with_liar(&universe, hangs, |_| was_asked.load(Ordering::SeqCst));
    assert!(counts.hedges + counts.silent > 0, "{counts:?}");
}

/// A node whose only peer is the home of some blocks and answers requests with `answer`: it wants blocks from the peer
/// until its counters show what the test waits for, and then reads the disk. Returns its counters.
fn with_raw_peer(
    seed: u64,
    answer: impl Fn(&AskMessage) -> (Vec<u8>, bool) + Send + Sync + 'static,
    is_met: impl Fn(&PeerCounts) -> bool,
) -> PeerCounts {
    let universe = Universe::new(seed, 1000);
    let origin = Origin::of(&universe);
    let node = Node::new(&origin);
    let answer: Arc<Answer> = Arc::new(answer);
    let peer = RawPeer::start(std::slice::from_ref(&node.known), answer);
    node.peers.learn(std::slice::from_ref(&peer.known)).unwrap();
    want_from_peers(&node, &origin, &universe, is_met);
    node.read(&universe);
    node.peers.counts()
}

#[test]
fn invalid_messages_drop_their_sender_permanently() {
    let counts = with_raw_peer(17, |_| (vec![0xa5; 100], true), |counts| counts.liars > 0);
    assert_eq!((counts.liars, counts.connected), (1, 0), "{counts:?}");
}

#[test]
fn a_peer_that_disconnects_within_a_frame_is_asked_again_later() {
    let universe = Universe::new(18, 8);
    let stored = universe.frames[0].clone();
    let asked = Arc::new(AtomicU64::new(0));
    let times = asked.clone();
    let half = move |ask: &AskMessage| {
        asked.fetch_add(1, Ordering::SeqCst);
        let whole = PeerMessage::Frame { request: ask.request, frame: stored.clone() }.to_bytes();
        (whole[..whole.len() / 2].to_vec(), false)
    };
    // It answers once per connection.
    let counts = with_raw_peer(18, half, |_| times.load(Ordering::SeqCst) > 1);
    assert_eq!(counts.liars, 0, "{counts:?}");
}

#[test]
fn a_peer_that_stalls_within_a_frame_is_dropped_after_the_limit() {
    let universe = Universe::new(19, 8);
    let stored = universe.frames[0].clone();
    let begun = AtomicBool::new(false);
    let stalls = move |ask: &AskMessage| {
        let whole = PeerMessage::Frame { request: ask.request, frame: stored.clone() }.to_bytes();
        let is_first = !begun.swap(true, Ordering::SeqCst);
        (if is_first { whole[..whole.len() / 2].to_vec() } else { Vec::new() }, true)
    };
    let counts = with_raw_peer(19, stalls, |counts| counts.silent > 0);
    assert_eq!(counts.liars, 0, "{counts:?}");
}

#[test]
fn a_stranger_does_not_even_get_a_greeting() {
    let universe = Universe::new(20, 8);
    let origin = Origin::of(&universe);
    let node = Node::new(&origin);
    let folder = new_folder();
    let stranger = identity_in(&folder);
    let heard = |identity: &Identity, to: &KnownNode| {
        let mut stream = connect(identity, to)?;
        stream.read(&mut [0; 64])
    };
    assert!(heard(&stranger, &node.known).is_err(), "the node does not know it");
    let known = KnownNode { id: stranger.id, address: None, fingerprint: stranger.fingerprint() };
    node.peers.learn(&[known]).unwrap();
    assert!(heard(&stranger, &node.known).unwrap() > 0, "a node in the registry gets a greeting");
    // Nor is a node trusted whose certificate differs from the registry's fingerprint.
    let wrong = KnownNode { fingerprint: platter_transport::Fingerprint([1; 32]), ..node.known.clone() };
    assert!(connect(&stranger, &wrong).is_err());
}

/// Far more silent connections than there are places for strangers: a known node is admitted, and connected nodes stay.
#[test]
fn idle_connections_lock_no_node_out() {
    let universe = Universe::new(22, 8);
    let origin = Origin::of(&universe);
    let (node, other) = (Node::new(&origin), Node::new(&origin));
    introduce(&[&node, &other]);
    let folder = new_folder();
    let late = identity_in(&folder);
    let known = KnownNode { id: late.id, address: None, fingerprint: late.fingerprint() };
    node.peers.learn(&[known]).unwrap();
    let idle: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(node.known.address.unwrap()).unwrap()).collect();
    let mut stream = connect(&late, &node.known).unwrap();
    assert!(stream.read(&mut [0; 64]).unwrap() > 0, "it gets a greeting");
    let first = &idle[0];
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!((&mut &*first).read(&mut [0; 64]).unwrap(), 0, "the oldest was displaced by another one");
    // On a busy machine, two nodes may lose each other for a moment.
    wait_until(|| other.peers.counts().connected == 1);
}

/// It requests much and reads nothing: other peers are served meanwhile, and it is dropped in the end.
#[test]
fn a_peer_that_does_not_read_replies_delays_nobody() {
    let universe = Universe::new(21, 4000);
    let origin = Origin::of(&universe);
    let (full, reader) = (Node::new(&origin), Node::new(&origin));
    full.held.fill(&universe.frames);
    full.held.fill(&universe.page_frames);
    let peer = RawPeer::start(&[], Arc::new(|_| (Vec::new(), true)));
    let identity = identity_in(&peer.folder);
    let all = [full.known.clone(), reader.known.clone(), KnownNode { address: None, ..peer.known.clone() }];
    full.peers.learn(&all).unwrap();
    reader.peers.learn(&all).unwrap();
    let mut stream = connect(&identity, &full.known).unwrap();
    stream.write_all(&super::raw::hello(identity.id)).unwrap();
    for (request, ids) in universe.ids.chunks(256).cycle().take(32).enumerate() {
        let (request, ids) = (request as u32, ids.to_vec());
        let ask = AskMessage { request, score: universe.score, kind: Kind::Data, fetch: false, ids };
        stream.write_all(&PeerMessage::Ask(ask).to_bytes()).unwrap();
    }
    stream.flush().unwrap();
    origin.is_dead.store(true, Ordering::SeqCst);
    reader.read(&universe);
    wait_until(|| full.peers.counts().connected == 1);
    drop(stream);
}
