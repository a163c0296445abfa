//! Nodes in one process over loopback, with real TLS, frames in memory, and an origin that counts.

mod hostile;
mod memory;
mod raw;
mod share_rate;
mod sharing;
mod universe;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use platter_cast::peer::NodeId;
use platter_image::frame::stream::FramesRequest;
use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::page::State;
use platter_image::recipe::{PageSource, Recipe};
use platter_image::{BlockId, Error, Extent, Kind, Result};

use super::origin::{OriginFrames, TakeFrame};
use super::{
    Directory, Fetcher, HeldChanges, Holdings, Identity, KnownNode, NetworkSource, PeerOptions, SourceOptions,
};
use universe::Universe;

const GROUP: [u8; 16] = [9; 16];
/// Long enough for any machine; only failing tests wait this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest silence of a peer in these tests.
const SILENCE: Duration = Duration::from_millis(1500);

/// Stored frames by their blocks.
type Frames = HashMap<(Kind, BlockId), Arc<[u8]>>;

/// Held frames of a node, in memory.
#[derive(Default)]
struct Memory {
    frames: Mutex<Frames>,
    added: Mutex<Vec<BlockId>>,
}

impl Memory {
    fn fill(&self, frames: &[Arc<[u8]>]) {
        for stored in frames {
            self.keep(stored, &FrameHeader::parse(stored).unwrap());
        }
    }

    fn len(&self) -> usize {
        self.frames.lock().len()
    }
}

impl Holdings for Memory {
    fn frame(&self, kind: Kind, id: &BlockId) -> Option<Arc<[u8]>> {
        self.frames.lock().get(&(kind, *id)).cloned()
    }

    fn keep(&self, stored: &[u8], header: &FrameHeader) {
        let stored: Arc<[u8]> = stored.into();
        let mut frames = self.frames.lock();
        for block in &header.blocks {
            if frames.insert((header.kind, block.id), stored.clone()).is_none() {
                self.added.lock().push(block.id);
            }
        }
    }

    fn changes(&self, since: u64) -> HeldChanges {
        let added = self.added.lock();
        let mark = added.len() as u64 + 1;
        let added = added[since.saturating_sub(1) as usize..].to_vec();
        HeldChanges { added, dropped: Vec::new(), whole: since == 0, mark }
    }

    fn own_reads(&self) -> u64 {
        0
    }
}

/// The origin of all nodes.
struct Origin {
    frames: Frames,
    is_dead: AtomicBool,
    bytes: AtomicU64,
    sent: AtomicU64,
}

impl Origin {
    fn of(universe: &Universe) -> Arc<Self> {
        let mut frames = HashMap::new();
        for stored in universe.frames.iter().chain(&universe.page_frames) {
            let header = FrameHeader::parse(stored).unwrap();
            frames.extend(header.blocks.iter().map(|block| ((header.kind, block.id), stored.clone())));
        }
        let (is_dead, bytes, sent) = Default::default();
        Arc::new(Self { frames, is_dead, bytes, sent })
    }
}

impl OriginFrames for Origin {
    fn fetch(&self, request: &FramesRequest, take: &mut TakeFrame<'_>) -> Result<Vec<BlockId>> {
        if self.is_dead.load(Ordering::SeqCst) {
            return Err(Error::transient("the origin is down"));
        }
        let (mut sent, mut missing): (Vec<Arc<[u8]>>, _) = (Vec::new(), Vec::new());
        for id in &request.ids {
            match self.frames.get(&(request.kind, *id)) {
                None => missing.push(*id),
                Some(stored) if sent.iter().any(|it| Arc::ptr_eq(it, stored)) => {}
                Some(stored) => {
                    sent.push(stored.clone());
                    let made = if request.exact { exactly(stored, &request.ids) } else { stored.clone() };
                    self.bytes.fetch_add(made.len() as u64, Ordering::SeqCst);
                    self.sent.fetch_add(1, Ordering::SeqCst);
                    take(&FrameHeader::parse(&made).unwrap(), &made)?;
                }
            }
        }
        Ok(missing)
    }
}

/// Rebuilds a frame with the requested blocks only.
fn exactly(stored: &[u8], asked: &[BlockId]) -> Arc<[u8]> {
    let mut decoder = FrameDecoder::new().unwrap();
    let (header, mut contents) = decoder.decode(stored, Verify::Hashes).unwrap();
    let mut blocks = Vec::new();
    for block in &header.blocks {
        let (own, rest) = contents.split_at(block.length as usize);
        contents = rest;
        if asked.contains(&block.id) {
            blocks.push((block.id, own));
        }
    }
    universe::frame(header.kind, &blocks)
}

/// A node.
struct Node {
    folder: tempfile::TempDir,
    peers: Arc<Fetcher>,
    known: KnownNode,
    held: Arc<Memory>,
}

fn options() -> PeerOptions {
    let listen = "127.0.0.1:0".parse().ok();
    PeerOptions { silence_max: SILENCE, ..PeerOptions::new(GROUP, listen) }
}

impl Node {
    fn new(origin: &Arc<Origin>) -> Self {
        Self::that_holds(origin, Arc::new(Memory::default()))
    }

    fn that_holds(origin: &Arc<Origin>, held: Arc<Memory>) -> Self {
        let folder = new_folder();
        let (peers, known) = start(&folder, origin, held.clone());
        Self { folder, peers, known, held }
    }

    /// The same node in another process, on another port.
    fn restarted(self, origin: &Arc<Origin>) -> Self {
        let Self { folder, peers, held, .. } = self;
        drop(peers);
        let (peers, known) = start(&folder, origin, held.clone());
        Self { folder, peers, known, held }
    }

    /// Reads the whole disk, and compares every block.
    fn read(&self, universe: &Universe) {
        let source = source(&self.peers, universe);
        let disk = Disk { source: &source, held: &self.held };
        let recipe = Recipe::open(universe.score, &disk).unwrap();
        let mut ids = Vec::new();
        for entry in recipe.entries(Extent::new(0, recipe.root().disk_length)) {
            if let State::Data { block, .. } = entry.unwrap().state {
                ids.push(block);
            }
        }
        assert_eq!(ids, universe.ids);
        for (at, id) in ids.iter().enumerate() {
            if at % 32 == 0 {
                let ahead = ids[at..ids.len().min(at + 256)].iter().copied();
                let ahead: Vec<BlockId> =
                    ahead.filter(|id| self.held.frame(Kind::Data, id).is_none()).collect();
                source.will_fetch(Kind::Data, &ahead);
            }
            assert_eq!(disk.block(Kind::Data, id).unwrap(), universe.contents(at), "block {at}");
        }
    }
}

fn source(peers: &Arc<Fetcher>, universe: &Universe) -> Arc<NetworkSource> {
    peers.source(universe.score, SourceOptions { retry_time_max: PATIENCE, exact: false })
}

fn start(
    folder: &tempfile::TempDir,
    origin: &Arc<Origin>,
    held: Arc<dyn Holdings>,
) -> (Arc<Fetcher>, KnownNode) {
    start_with(&options(), folder, origin, held)
}

fn start_with(
    options: &PeerOptions,
    folder: &tempfile::TempDir,
    origin: &Arc<Origin>,
    held: Arc<dyn Holdings>,
) -> (Arc<Fetcher>, KnownNode) {
    let identity = identity_in(folder);
    let (id, fingerprint) = (identity.id, identity.fingerprint());
    let directory = Directory::open(folder.path().join("peers.json"), GROUP, id);
    let peers = Fetcher::new(origin.clone(), Some(held));
    peers.share(options, identity, directory).unwrap();
    let address = peers.address();
    (peers, KnownNode { id, address, fingerprint })
}

/// A folder of a new node.
fn new_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let id: [u8; 16] = platter_transport::random_bytes().unwrap();
    std::fs::write(folder.path().join("id"), id).unwrap();
    folder
}

fn identity_in(folder: &tempfile::TempDir) -> Identity {
    let id = std::fs::read(folder.path().join("id")).unwrap();
    Identity::open(folder.path(), NodeId(id.try_into().unwrap())).unwrap()
}

/// Introduces all nodes to each other, and waits until they are connected.
fn introduce(nodes: &[&Node]) {
    let all: Vec<KnownNode> = nodes.iter().map(|node| node.known.clone()).collect();
    nodes.iter().for_each(|node| node.peers.learn(&all).unwrap());
    let others = nodes.len() as u64 - 1;
    sharing::wait_until(|| nodes.iter().all(|node| node.peers.counts().connected >= others));
}

/// Reads a disk like a cache above a source.
struct Disk<'a> {
    source: &'a NetworkSource,
    held: &'a Memory,
}

impl Disk<'_> {
    fn block(&self, kind: Kind, id: &BlockId) -> Result<Vec<u8>> {
        let stored = match self.held.frame(kind, id) {
            Some(stored) => Some(stored),
            None => self.source.frame(kind, id)?.map(|frame| frame.stored.clone()),
        };
        let stored = stored.ok_or_else(|| Error::missing("not found anywhere"))?;
        let header = FrameHeader::parse(&stored)?;
        let slot = header.blocks.iter().position(|block| block.id == *id).unwrap() as u32;
        Ok(FrameDecoder::new()?.decode_block(&stored, kind, slot, id)?.to_vec())
    }
}

impl PageSource for Disk<'_> {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.block(Kind::Page, id)
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        self.source.will_fetch(Kind::Page, ids);
    }
}
