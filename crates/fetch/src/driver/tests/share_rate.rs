//! The rate at which a node sends to peers: at most its limit, and less while its own disks read. Bytes are counted
//! over some seconds; a slow machine sends less, but never more.

use std::time::Instant;

use super::*;

/// Burst allowance: 20 ms at the rate, and the frame that exceeded it.
const AT_ONCE: u64 = 50_000;

/// Held frames of a node whose own disks read all the time.
struct Reading {
    held: Arc<Memory>,
    reads: AtomicU64,
}

impl Holdings for Reading {
    fn frame(&self, kind: Kind, id: &BlockId) -> Option<Arc<[u8]>> {
        self.held.frame(kind, id)
    }

    fn keep(&self, stored: &[u8], header: &FrameHeader) {
        self.held.keep(stored, header);
    }

    fn changes(&self, since: u64) -> HeldChanges {
        self.held.changes(since)
    }

    fn own_reads(&self) -> u64 {
        self.reads.fetch_add(1, Ordering::SeqCst)
    }
}

/// Lets a node with this limit send this many bytes, and checks that it never exceeds `most` bytes per second.
fn sends_no_faster(
    held: &Arc<dyn Holdings>,
    universe: &Universe,
    bits_per_second: u64,
    most: u64,
    bytes: u64,
) {
    let origin = Origin::of(universe);
    origin.is_dead.store(true, Ordering::SeqCst);
    let folder = new_folder();
    let options = PeerOptions { share_bits_per_second: bits_per_second, ..options() };
    let (peers, known) = start_with(&options, &folder, &origin, held.clone());
    let giver = Node { folder, peers, known, held: Arc::default() };
    let taker = Node::new(&origin);
    let began = Instant::now();
    introduce(&[&giver, &taker]);
    let source = source(&taker.peers, universe);
    source.will_fetch(Kind::Data, &universe.ids);
    sharing::wait_until(|| {
        let sent = giver.peers.counts().frame_bytes_sent;
        let allowed = (began.elapsed().as_secs_f64() * most as f64) as u64 + AT_ONCE;
        assert!(sent <= allowed, "{sent} bytes were sent, but {allowed} are allowed");
        sent >= bytes
    });
    sharing::wait_until(|| taker.peers.counts().frame_bytes_received > 0);
}

fn filled(universe: &Universe) -> Arc<Memory> {
    let held = Arc::new(Memory::default());
    held.fill(&universe.frames);
    held.fill(&universe.page_frames);
    held
}

#[test]
fn a_node_sends_no_more_than_its_share() {
    let universe = Universe::new(11, 400);
    let held: Arc<dyn Holdings> = filled(&universe);
    sends_no_faster(&held, &universe, 4_000_000, 500_000, 1_200_000);
}

#[test]
fn a_node_whose_own_disks_read_sends_an_eighth_of_its_share() {
    let universe = Universe::new(12, 400);
    let held = Reading { held: filled(&universe), reads: AtomicU64::new(0) };
    let held: Arc<dyn Holdings> = Arc::new(held);
    sends_no_faster(&held, &universe, 4_000_000, 62_500, 250_000);
}
