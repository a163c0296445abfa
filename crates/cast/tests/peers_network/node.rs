//! A simulated node: the driver that connects scheduler and exchange, its cache, its boots and its character.
//!
//! Owns what a real driver owns: the held frames, the waiting reads, and the verification of received frames. It is an example
//! for writing a real driver.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use platter_cast::peer::{
    AskMessage, Exchange, ExchangeOptions, Hello, NodeId, PieceId, ScheduleOptions, Scheduler,
};
use platter_image::{BlockId, Domain};

use super::universe::Universe;

/// Number of frames in one read of a guest, including its kernel's read-ahead: 256 KiB.
pub const READ_FRAMES: usize = 2;

/// Behaviour of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Character {
    Honest,
    /// Sends wrong bytes.
    WrongBytes,
    /// Accepts questions and never answers.
    Hangs,
    /// Claims to hold everything, and holds nothing.
    ClaimsAll,
}

/// The reader that waits for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// A guest of this node.
    Boot(usize),
    /// A peer that asks this node as a home.
    Peer(NodeId, u32),
}

/// A read that is not yet complete.
#[derive(Debug)]
pub struct Read {
    pub waiter: Waiter,
    pub frames: Vec<u32>,
    pub lacking: usize,
    pub failed: bool,
    pub began: Duration,
}

/// A boot: its image and its progress.
#[derive(Debug)]
pub struct Boot {
    pub image: usize,
    pub next: usize,
    /// Number of its reads in progress.
    pub reading: usize,
    pub began: Duration,
    pub ended: Option<Duration>,
}

/// A simulated node.
pub struct Node {
    pub id: NodeId,
    pub character: Character,
    pub scheduler: Scheduler,
    pub exchange: Exchange,
    pub held: BTreeSet<u32>,
    pub boots: Vec<Boot>,
    pub reads: BTreeMap<u64, Read>,
    pub waiting: HashMap<u32, Vec<u64>>,
    pub pieces: BTreeMap<PieceId, Vec<u32>>,
    /// The piece of each frame that is being fetched.
    pub piece_of: HashMap<u32, PieceId>,
    pub is_up: bool,
    /// Counts restarts. Messages to an earlier life are lost.
    pub life: u32,
    pub wake_at: Option<Duration>,
    seed: u64,
    share_bits_per_second: u64,
    bytes_in_flight_max: u64,
    homes: bool,
    next_read: u64,
}

impl Node {
    pub fn new(
        number: usize,
        seed: u64,
        share_bits_per_second: u64,
        bytes_in_flight_max: u64,
        homes: bool,
        character: Character,
    ) -> Self {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let id = NodeId(id);
        let (scheduler, exchange) = machines(id, seed, share_bits_per_second, bytes_in_flight_max, homes);
        Self {
            id,
            character,
            scheduler,
            exchange,
            held: BTreeSet::new(),
            boots: Vec::new(),
            reads: BTreeMap::new(),
            waiting: HashMap::new(),
            pieces: BTreeMap::new(),
            piece_of: HashMap::new(),
            is_up: true,
            life: 0,
            wake_at: None,
            seed,
            share_bits_per_second,
            bytes_in_flight_max,
            homes,
            next_read: 0,
        }
    }

    /// Restarts the node after a failure: it keeps its cache and loses all other state.
    pub fn restart(&mut self, universe: &Universe) {
        self.life += 1;
        self.seed = self.seed.wrapping_mul(31).wrapping_add(1);
        (self.scheduler, self.exchange) =
            machines(self.id, self.seed, self.share_bits_per_second, self.bytes_in_flight_max, self.homes);
        self.reads.clear();
        self.waiting.clear();
        self.pieces.clear();
        self.piece_of.clear();
        self.is_up = true;
        self.wake_at = None;
        for frame in &self.held {
            universe.ids_of(*frame).iter().for_each(|id| self.exchange.hold(id));
        }
        if self.character == Character::ClaimsAll {
            universe.ids.iter().for_each(|id| self.exchange.hold(id));
        }
        for boot in &mut self.boots {
            // Reads in progress are repeated.
            boot.next = boot.next.saturating_sub(boot.reading * READ_FRAMES);
            boot.reading = 0;
        }
    }

    /// Starts a read of frames, some of which are not held. Returns those that are not yet being fetched.
    pub fn begin_read(&mut self, now: Duration, waiter: Waiter, frames: Vec<u32>) -> Vec<u32> {
        let number = self.next_read;
        self.next_read += 1;
        let lacking: Vec<u32> = frames.iter().copied().filter(|frame| !self.held.contains(frame)).collect();
        let mut unasked = Vec::new();
        for frame in &lacking {
            let waiters = self.waiting.entry(*frame).or_default();
            if waiters.is_empty() {
                unasked.push(*frame);
            }
            waiters.push(number);
        }
        let read = Read { waiter, frames, lacking: lacking.len(), failed: false, began: now };
        self.reads.insert(number, read);
        unasked
    }

    /// Handles that a frame has arrived or failed. Returns the reads that this completes.
    pub fn end_frame(&mut self, frame: u32, failed: bool) -> Vec<Read> {
        let mut ended = Vec::new();
        for number in self.waiting.remove(&frame).unwrap_or_default() {
            let Some(read) = self.reads.get_mut(&number) else { continue };
            read.lacking -= 1;
            read.failed |= failed;
            if read.lacking == 0 {
                ended.extend(self.reads.remove(&number));
            }
        }
        ended
    }

    /// Returns the held frames for a question, and the ids that are not held.
    pub fn look_up(&self, ask: &AskMessage, universe: &Universe) -> (Vec<u32>, Vec<BlockId>) {
        let (mut frames, mut missing) = (BTreeSet::new(), Vec::new());
        for id in &ask.ids {
            match universe.frame_of(id).filter(|frame| self.held.contains(frame)) {
                Some(frame) => _ = frames.insert(frame),
                None => missing.push(*id),
            }
        }
        (frames.into_iter().collect(), missing)
    }
}

fn machines(
    id: NodeId,
    seed: u64,
    share_bits_per_second: u64,
    bytes_in_flight_max: u64,
    homes: bool,
) -> (Scheduler, Exchange) {
    let scheduler = Scheduler::new(ScheduleOptions {
        seed,
        own: id,
        bytes_in_flight_max,
        homes,
        ahead_bytes_max: bytes_in_flight_max,
    });
    let hello = Hello { group: [7; 16], domain: Domain::SHARED, node: id };
    let exchange = Exchange::new(ExchangeOptions { hello, salt: seed ^ 0x5a17, share_bits_per_second });
    (scheduler, exchange)
}
