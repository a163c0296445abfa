//! The owner's side of a filter: the blocks that this node holds, its filter, and what each reader of the filter lacks.
//!
//! Owns the set of keys, the log of additions in this generation, and the decision to make a new filter. Must never
//! remove a block from a filter, because blocks share bits. Evicted blocks stay claimed until the next generation. A peer that
//! asks for one is told that it is missing, with the filter's version.

use std::collections::HashSet;

use platter_image::BlockId;

use super::changes::{CHANGES_MAX, FilterChanges};
use super::layer::{BITS_PER_BLOCK, FILTER_BYTES_MAX, LAYERS_MAX, Layer, LayerSize};
use super::remote::{FilterPiece, PIECE_BYTES_MAX};
use super::{FilterVersion, key_of};

/// Minimum capacity of a filter in blocks.
const CAPACITY_MIN: u32 = 1024;
/// Maximum capacity of a filter with one layer, in blocks. A node that holds more announces only this many.
const CAPACITY_MAX: u32 = (FILTER_BYTES_MAX * 8 / BITS_PER_BLOCK) as u32;

/// The blocks that a node holds, with the filter for its peers.
#[derive(Debug)]
pub struct Holdings {
    salt: u64,
    held: HashSet<u64>,
    version: FilterVersion,
    layers: Vec<Layer>,
    /// Keys added in this generation, in order: 4 bytes per block.
    log: Vec<u32>,
    /// The numbers of additions in this generation at which a layer was opened.
    opened: Vec<u32>,
    /// Number of blocks that were evicted in this generation and are still claimed.
    evicted: usize,
}

impl Holdings {
    /// Makes an empty set. The salt must be random and different each time, so that nobody can choose blocks that
    /// collide.
    pub fn new(salt: u64) -> Self {
        Self {
            salt,
            held: HashSet::new(),
            version: FilterVersion { generation: 1, additions: 0 },
            layers: vec![Layer::new(CAPACITY_MIN)],
            log: Vec::new(),
            opened: Vec::new(),
            evicted: 0,
        }
    }

    /// Returns the number of blocks held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns whether no block is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the current version of the filter.
    pub fn version(&self) -> FilterVersion {
        self.version
    }

    /// Returns whether a block is held.
    pub fn holds(&self, id: &BlockId) -> bool {
        self.held.contains(&key_of(self.salt, id))
    }

    /// Adds a block.
    pub fn insert(&mut self, id: &BlockId) {
        let key = key_of(self.salt, id);
        if !self.held.insert(key) {
            return;
        }
        if self.layers.last().is_none_or(Layer::is_full) && !self.open_layer() {
            if self.held.len() <= CAPACITY_MAX as usize {
                self.renew();
            }
            return;
        }
        if let Some(layer) = self.layers.last_mut() {
            layer.insert(key as u32);
            self.log.push(key as u32);
            self.version.additions += 1;
        }
    }

    /// Removes an evicted block.
    pub fn remove(&mut self, id: &BlockId) {
        if !self.held.remove(&key_of(self.salt, id)) {
            return;
        }
        self.evicted += 1;
        // A new filter is sent whole to every peer, so it must be rare. Evicted blocks were not used for long and are seldom
        // requested.
        if self.evicted > self.held.len() + CAPACITY_MIN as usize {
            self.renew();
        }
    }

    /// Replaces all blocks.
    pub fn replace(&mut self, ids: &[BlockId]) {
        self.held = ids.iter().map(|id| key_of(self.salt, id)).collect();
        self.renew();
    }

    /// Opens a layer. Returns whether there was room for it.
    fn open_layer(&mut self) -> bool {
        let capacity = self.layers.iter().map(|layer| layer.size.capacity).sum::<u32>().saturating_mul(2);
        let size = LayerSize { capacity, blocks: 0 };
        let bytes: u64 = self.layers.iter().map(|layer| layer.size.bytes()).sum();
        if self.layers.len() == LAYERS_MAX || !size.is_possible() || bytes + size.bytes() > FILTER_BYTES_MAX {
            return false;
        }
        self.layers.push(Layer::new(capacity));
        self.opened.push(self.version.additions);
        true
    }

    /// Makes a new filter of the blocks held, with a capacity of 1.5 times as many.
    fn renew(&mut self) {
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        let mut layer = Layer::new(held.saturating_add(held / 2).clamp(CAPACITY_MIN, CAPACITY_MAX));
        for key in self.held.iter().take(layer.size.capacity as usize) {
            layer.insert(*key as u32);
        }
        self.layers = vec![layer];
        self.version = FilterVersion { generation: self.version.generation.wrapping_add(1), additions: 0 };
        self.log.clear();
        self.opened.clear();
        self.evicted = 0;
    }

    /// Returns additions that a reader at `version` lacks, in one message; there may be more. `None`: nothing, or the whole
    /// filter.
    pub fn changes_since(&self, version: FilterVersion) -> Option<FilterChanges> {
        if version.generation != self.version.generation || version.additions >= self.version.additions {
            return None;
        }
        let from = version.additions;
        // A message never spans the opening of a layer.
        let border = self.opened.iter().copied().find(|opened| *opened > from);
        let end = border.unwrap_or(self.version.additions).min(from.saturating_add(CHANGES_MAX as u32));
        let opens = self.opened.iter().position(|opened| *opened == from);
        // The layers opened in this generation are the last ones.
        let first_opened = self.layers.len() - self.opened.len();
        let opens = opens.map_or(0, |index| self.layers[first_opened + index].size.capacity);
        let mut keys = self.log.get(from as usize..end as usize)?.to_vec();
        keys.sort_unstable();
        Some(FilterChanges { generation: version.generation, from, opens, keys })
    }

    /// Returns the next piece of the whole filter. `None` after the last one.
    ///
    /// Blocks may be added between pieces: bits are only ever set, so the version of the first piece counts.
    /// If a layer was opened in between, the pieces start over.
    pub fn next_piece(&self, cursor: &mut PieceCursor) -> Option<FilterPiece> {
        let layers: Vec<LayerSize> = self.layers.iter().map(|layer| layer.size).collect();
        let made_of = (self.version.generation, layers.len());
        if cursor.made_of != Some(made_of) {
            *cursor = PieceCursor { made_of: Some(made_of), offset: 0, version: self.version };
        }
        let start = cursor.offset;
        let (mut bytes, mut layer_start) = (Vec::new(), 0);
        for layer in &self.layers {
            let end = layer_start + layer.size.bytes();
            let from = start.clamp(layer_start, end);
            let to = (start + PIECE_BYTES_MAX as u64).clamp(from, end);
            layer.put_bytes(from - layer_start..to - layer_start, &mut bytes);
            layer_start = end;
        }
        cursor.offset = start + bytes.len() as u64;
        let (salt, version) = (self.salt, self.version);
        (!bytes.is_empty()).then_some(FilterPiece { salt, version, layers, offset: start as u32, bytes })
    }
}

/// A reader's progress in reading the whole filter.
#[derive(Clone, Copy, Debug, Default)]
pub struct PieceCursor {
    /// Generation and number of layers of the filter that is being read.
    made_of: Option<(u32, usize)>,
    offset: u64,
    version: FilterVersion,
}

impl PieceCursor {
    /// Returns the version that the reader has after all pieces. Changes continue from there.
    pub fn version(&self) -> FilterVersion {
        self.version
    }
}
