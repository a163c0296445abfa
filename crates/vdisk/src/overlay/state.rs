//! What is known of each block, in memory: a few bits, kept for the parts of the disk that were written.
//!
//! Owns the difference between a block that recovery may drop and one it never drops. `fresh`: recorded since the last
//! flush. `unsettled`: flushed, but the record that says so is not durable yet. Neither: settled.

use std::collections::{HashMap, HashSet};

use platter_image::{Extent, Extents};

use super::format::BLOCK;

/// Blocks of one part: 4 MiB of the disk.
const PART_BLOCKS: u64 = 1024;
const WORDS: usize = PART_BLOCKS as usize / 64;

type Bits = [u64; WORDS];

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    /// Never written: the base shows.
    Absent,
    /// In the file.
    Present,
    /// Zeros.
    Zero,
}

#[derive(Debug)]
struct Part {
    present: Bits,
    zero: Bits,
    fresh: Bits,
    unsettled: Bits,
    /// Blocks whose checksums are known, and these: 64 together.
    known: Bits,
    checksums: [Option<Box<[u32; 64]>>; WORDS],
}

const EMPTY: Part = Part {
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
    parts: HashMap<u64, Box<Part>>,
    /// Parts that may have fresh blocks, and unsettled ones.
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

    /// Whether some block of these is flushed, and would be dropped by a recovery now if it were changed.
    pub(super) fn any_unsettled(&self, mut blocks: std::ops::Range<u64>) -> bool {
        !self.unsettled.is_empty()
            && blocks.any(|block| {
                let (part, word, bit) = place(block);
                self.parts.get(&part).is_some_and(|part| part.unsettled[word] & bit != 0)
            })
    }

    /// What a block in the file must have, if that is known.
    pub(super) fn checksum(&self, block: u64) -> Option<u32> {
        let (number, word, bit) = place(block);
        let part = self.parts.get(&number).filter(|part| part.known[word] & bit != 0)?;
        part.checksums[word].as_ref().map(|checksums| checksums[bit.trailing_zeros() as usize])
    }

    /// Notes what blocks in the file have, from `first` on.
    pub(super) fn set_checksums(&mut self, first: u64, checksums: &[u32]) {
        for (block, checksum) in (first..).zip(checksums) {
            let (number, word, bit) = place(block);
            let part = self.parts.entry(number).or_insert_with(|| Box::new(EMPTY));
            part.known[word] |= bit;
            let known = part.checksums[word].get_or_insert_with(|| Box::new([0; 64]));
            known[bit.trailing_zeros() as usize] = *checksum;
        }
    }

    /// What these blocks have is not known any more.
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

    /// The same of all blocks.
    pub(super) fn forget_all_checksums(&mut self) {
        for part in self.parts.values_mut() {
            (part.known, part.checksums) = (EMPTY.known, EMPTY.checksums);
        }
    }

    /// Notes what blocks became, by a record that is not flushed.
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

    /// A sync has returned: the records that said of others that they are flushed are durable.
    pub(super) fn settle(&mut self) {
        for number in std::mem::take(&mut self.unsettled) {
            if let Some(part) = self.parts.get_mut(&number) {
                part.unsettled = [0; WORDS];
            }
        }
    }

    /// A sync has returned, and a record that says so is written: what was fresh is flushed.
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

    /// The run of one state that begins at `block`, inside `end`.
    pub(super) fn run(&self, block: u64, end: u64) -> (BlockState, u64) {
        let state = self.get(block);
        let mut next = block + 1;
        while next < end {
            // Where no part is, all is absent.
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

    /// Runs of blocks that are not absent, ascending: first, end, state.
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

    /// Everything that is not absent, in bytes of a disk of that length.
    pub(super) fn dirty(&self, disk_length: u64) -> Extents {
        let runs = self.runs();
        let extent = |first: u64, end: u64| Extent::between(first * BLOCK, (end * BLOCK).min(disk_length));
        Extents::from_unsorted(runs.into_iter().map(|(first, end, _)| extent(first, end)).collect())
    }
}
