//! One simulated node: the driver that joins choice and exchange, its cache, its boots and its character.
//!
//! Owns what a real driver owns: which frames are held, who waits for what, verification of what comes. It is the example to
//! write a real one after.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use platter_cast::peer::{
    AskMessage, Choice, ChoiceOptions, Exchange, ExchangeOptions, Hello, NodeId, PieceId,
};
use platter_image::{BlockId, Domain};

use super::universe::Universe;

/// Frames of one read of a guest, with the read-ahead of its kernel: 256 KiB.
pub const READ_FRAMES: usize = 2;

/// What a node is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Character {
    Honest,
    /// Gives other bytes than it says.
    WrongBytes,
    /// Takes questions and never answers.
    Hangs,
    /// Says to hold everything, and has nothing.
    ClaimsAll,
}

/// Who waits for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// A guest of this node.
    Boot(usize),
    /// A peer that asks this node as a home.
    Peer(NodeId, u32),
}

/// A read that is not complete.
#[derive(Debug)]
pub struct Read {
    pub waiter: Waiter,
    pub frames: Vec<u32>,
    pub lacking: usize,
    pub failed: bool,
    pub began: Duration,
}

/// A boot: its image, and how far it is.
#[derive(Debug)]
pub struct Boot {
    pub image: usize,
    pub next: usize,
    /// Reads of it under way.
    pub reading: usize,
    pub began: Duration,
    pub ended: Option<Duration>,
}

/// One node.
pub struct Node {
    pub id: NodeId,
    pub character: Character,
    pub choice: Choice,
    pub exchange: Exchange,
    pub held: BTreeSet<u32>,
    pub boots: Vec<Boot>,
    pub reads: BTreeMap<u64, Read>,
    pub waiting: HashMap<u32, Vec<u64>>,
    pub pieces: BTreeMap<PieceId, Vec<u32>>,
    /// Of each frame that is being fetched, its piece.
    pub piece_of: HashMap<u32, PieceId>,
    pub is_up: bool,
    /// Counts its lives: what was on its way to an earlier one is lost.
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
        let (choice, exchange) = machines(id, seed, share_bits_per_second, bytes_in_flight_max, homes);
        Self {
            id,
            character,
            choice,
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

    /// Comes back after a failure: its cache is there, everything else is new.
    pub fn restart(&mut self, universe: &Universe) {
        self.life += 1;
        self.seed = self.seed.wrapping_mul(31).wrapping_add(1);
        (self.choice, self.exchange) =
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
            // What was being read is read again.
            boot.next = boot.next.saturating_sub(boot.reading * READ_FRAMES);
            boot.reading = 0;
        }
    }

    /// Begins a read of frames that are not held. Gives those that nobody is fetching yet.
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

    /// A frame is there, or will not come. Gives the reads that ended with it.
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

    /// The frames for a question that are held, and the ids that are not.
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
) -> (Choice, Exchange) {
    let choice = Choice::new(ChoiceOptions { seed, own: id, bytes_in_flight_max, homes });
    let hello = Hello { store: [7; 16], domain: Domain::SHARED, node: id };
    let exchange = Exchange::new(ExchangeOptions { hello, salt: seed ^ 0x5a17, share_bits_per_second });
    (choice, exchange)
}
