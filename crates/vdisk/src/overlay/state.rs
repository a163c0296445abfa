//! The state of each block, in memory: a few bits per block, allocated only for written parts of the disk.
//!
//! It distinguishes blocks that recovery may drop from those it never drops. `fresh`: recorded since the last
//! flush. `unsettled`: flushed, but the `Flushed` record itself is not durable yet. Neither: settled.

use std::collections::{HashMap, HashSet};

use platter_image::{Extent, Extents};

use super::format::BLOCK;

/// Blocks in one part: 4 MiB of the disk.
const PART_BLOCKS: u64 = 1024;
const WORDS: usize = PART_BLOCKS as usize / 64;

type Bits = [u64; WORDS];

/// Where a block's contents come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    /// Never written: read from the base.
    Absent,
    /// Written: read from the overlay's file.
    Present,
    /// Reads as zeros.
    Zero,
}

#[derive(Debug)]
struct BitmapPart {
    present: Bits,
    zero: Bits,
    fresh: Bits,
    unsettled: Bits,
    /// Which blocks have a known checksum. The checksums below are stored in groups of 64.
    known: Bits,
    checksums: [Option<Box<[u32; 64]>>; WORDS],
}

const EMPTY: BitmapPart = BitmapPart {
    present: [0; WORDS],
    zero: [0; WORDS],
    fresh: [0; WORDS],
    unsettled: [0; WORDS],
    known: [0; WORDS],
    checksums: [const { None }; WORDS],
};

/// The states of all blocks.
#[derive(Debug, Default)]
pub(super) struct States {
    parts: HashMap<u64, Box<BitmapPart>>,
    /// Parts that may contain fresh blocks, and parts that may contain unsettled blocks.
    fresh: HashSet<u64>,
    unsettled: HashSet<u64>,
}

fn place(block: u64) -> (u64, usize, u64) {
    let within = block % PART_BLOCKS;
    (block / PART_BLOCKS, (within / 64) as usize, 1 << (within % 64))
}

impl States {
    pub(super) fn get(&self, block: u64) -> BlockState {
        let (part, word, bit) = place(block);
        match self.parts.get(&part) {
            Some(part) if part.present[word] & bit != 0 => BlockState::Present,
            Some(part) if part.zero[word] & bit != 0 => BlockState::Zero,
            _ => BlockState::Absent,
        }
    }

    /// Whether the block is in the file and recovery never drops it.
    pub(super) fn is_settled(&self, block: u64) -> bool {
        let (part, word, bit) = place(block);
        self.parts.get(&part).is_some_and(|part| {
            part.present[word] & bit != 0 && (part.fresh[word] | part.unsettled[word]) & bit == 0
        })
    }

    /// Whether any of these blocks is flushed but not settled: if changed now, recovery could drop it.
    pub(super) fn any_unsettled(&self, mut blocks: std::ops::Range<u64>) -> bool {
        !self.unsettled.is_empty()
            && blocks.any(|block| {
                let (part, word, bit) = place(block);
                self.parts.get(&part).is_some_and(|part| part.unsettled[word] & bit != 0)
            })
    }

    /// The checksum that a block in the file must have, if known.
    pub(super) fn checksum(&self, block: u64) -> Option<u32> {
        let (number, word, bit) = place(block);
        let part = self.parts.get(&number).filter(|part| part.known[word] & bit != 0)?;
        part.checksums[word].as_ref().map(|checksums| checksums[bit.trailing_zeros() as usize])
    }

    /// Stores the checksums of consecutive blocks, starting at block `first`.
    pub(super) fn set_checksums(&mut self, first: u64, checksums: &[u32]) {
        for (block, checksum) in (first..).zip(checksums) {
            let (number, word, bit) = place(block);
            let part = self.parts.entry(number).or_insert_with(|| Box::new(EMPTY));
            part.known[word] |= bit;
            let known = part.checksums[word].get_or_insert_with(|| Box::new([0; 64]));
            known[bit.trailing_zeros() as usize] = *checksum;
        }
    }

    /// Marks the checksums of these blocks as unknown.
    pub(super) fn forget_checksums(&mut self, blocks: std::ops::Range<u64>) {
        for block in blocks {
            let (number, word, bit) = place(block);
            let Some(part) = self.parts.get_mut(&number) else { continue };
            part.known[word] &= !bit;
            if part.known[word] == 0 {
                part.checksums[word] = None;
            }
        }
    }

    /// Marks the checksums of all blocks as unknown.
    pub(super) fn forget_all_checksums(&mut self) {
        for part in self.parts.values_mut() {
            (part.known, part.checksums) = (EMPTY.known, EMPTY.checksums);
        }
    }

    /// Sets the state of blocks whose record has been written but not flushed. Their checksums become
    /// unknown.
    pub(super) fn set(&mut self, blocks: std::ops::Range<u64>, state: BlockState) {
        self.forget_checksums(blocks.clone());
        for block in blocks {
            let (number, word, bit) = place(block);
            let part = self.parts.entry(number).or_insert_with(|| Box::new(EMPTY));
            for (bits, is_set) in [
                (&mut part.present, state == BlockState::Present),
                (&mut part.zero, state == BlockState::Zero),
                (&mut part.fresh, state == BlockState::Present),
                (&mut part.unsettled, false),
            ] {
                bits[word] = if is_set { bits[word] | bit } else { bits[word] & !bit };
            }
            self.fresh.insert(number);
        }
    }

    /// Called after a sync: the `Flushed` records before it are durable, so all unsettled blocks become
    /// settled.
    pub(super) fn settle(&mut self) {
        for number in std::mem::take(&mut self.unsettled) {
            if let Some(part) = self.parts.get_mut(&number) {
                part.unsettled = [0; WORDS];
            }
        }
    }

    /// Called after a sync and its `Flushed` record: all fresh blocks become unsettled.
    pub(super) fn flushed(&mut self) {
        for number in std::mem::take(&mut self.fresh) {
            if let Some(part) = self.parts.get_mut(&number) {
                for (unsettled, fresh) in part.unsettled.iter_mut().zip(&mut part.fresh) {
                    *unsettled |= std::mem::take(fresh);
                }
                self.unsettled.insert(number);
            }
        }
    }

    /// The state of `block`, and the end of the run of blocks with that state, at most `end`.
    pub(super) fn run(&self, block: u64, end: u64) -> (BlockState, u64) {
        let state = self.get(block);
        let mut next = block + 1;
        while next < end {
            // A missing part consists of absent blocks.
            if state == BlockState::Absent
                && next.is_multiple_of(PART_BLOCKS)
                && !self.parts.contains_key(&(next / PART_BLOCKS))
            {
                next = (next + PART_BLOCKS).min(end);
                continue;
            }
            if self.get(next) != state {
                break;
            }
            next += 1;
        }
        (state, next)
    }

    /// All runs of blocks that are not absent, in ascending order: first block, end, state.
    pub(super) fn runs(&self) -> Vec<(u64, u64, BlockState)> {
        let mut numbers: Vec<u64> = self.parts.keys().copied().collect();
        numbers.sort_unstable();
        let mut runs: Vec<(u64, u64, BlockState)> = Vec::new();
        for number in numbers {
            let (mut block, end) = (number * PART_BLOCKS, (number + 1) * PART_BLOCKS);
            while block < end {
                let (state, next) = self.run(block, end);
                match runs.last_mut() {
                    Some(last) if last.1 == block && last.2 == state => last.1 = next,
                    _ if state != BlockState::Absent => runs.push((block, next, state)),
                    _ => {}
                }
                block = next;
            }
        }
        runs
    }

    /// All blocks that are not absent, as byte ranges of a disk of that length.
    pub(super) fn dirty(&self, disk_length: u64) -> Extents {
        let runs = self.runs();
        let extent = |first: u64, end: u64| Extent::between(first * BLOCK, (end * BLOCK).min(disk_length));
        Extents::from_unsorted(runs.into_iter().map(|(first, end, _)| extent(first, end)).collect())
    }
}
