//! Cuts a stream of data into blocks, without knowing where it comes from.

use platter_image::SECTOR;

/// Zeros of this many bytes, aligned, end a block that is cut by contents; they are no data.
const PAGE: usize = 4096;

/// Calls `visit` with each block of `data`, which begins at a multiple of `block_bytes` of the disk. Blocks that are zero are
/// left out, and so are zero sectors at the ends of others.
pub(super) fn cut_aligned(data: &[u8], block_bytes: usize, visit: &mut dyn FnMut(&[u8])) {
    for block in data.chunks(block_bytes.max(1)) {
        let block = trimmed(block);
        if !block.is_empty() {
            visit(block);
        }
    }
}

/// A block without the zero sectors at its end.
fn trimmed(block: &[u8]) -> &[u8] {
    let sector = SECTOR as usize;
    let used = block.chunks(sector).rposition(|sector| !is_zero(sector));
    &block[..used.map_or(0, |last| ((last + 1) * sector).min(block.len()))]
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().fold(0, |bits, word| bits | u128::from_ne_bytes(*word)) == 0
        && rest.iter().all(|byte| *byte == 0)
}

/// Cuts where a hash of the last 64 bytes is small (a gear hash: Xia et al. 2016). Blocks have a quarter of the mean length to
/// four times of it, except where data ends.
#[derive(Debug)]
pub(super) struct ContentCutter {
    shortest: usize,
    longest: usize,
    /// A block ends where the hash is at most this.
    limit: u64,
    gear: Box<[u64; 256]>,
    hash: u64,
    block: Vec<u8>,
}

impl ContentCutter {
    /// Blocks of this mean length.
    pub(super) fn new(mean: usize) -> Self {
        let mean = mean.max(64);
        let mut gear = Box::new([0; 256]);
        for (number, value) in (0_u64..).zip(gear.iter_mut()) {
            *value = mixed(number + 1);
        }
        let shortest = mean / 4;
        let limit = u64::MAX / (mean - shortest).max(1) as u64;
        Self { shortest, longest: mean * 4, limit, gear, hash: 0, block: Vec::new() }
    }

    /// Cuts data that follows what came before. `visit` gets each finished block.
    pub(super) fn cut(&mut self, data: &[u8], visit: &mut dyn FnMut(&[u8])) {
        for page in data.chunks(PAGE) {
            if is_zero(page) {
                self.end(visit);
                continue;
            }
            let mut rest = page;
            while let Some(length) = self.next_end(rest) {
                let (own, following) = rest.split_at(length);
                self.block.extend_from_slice(own);
                self.end(visit);
                rest = following;
            }
            self.block.extend_from_slice(rest);
        }
    }

    /// The data has a gap here.
    pub(super) fn end(&mut self, visit: &mut dyn FnMut(&[u8])) {
        if !self.block.is_empty() {
            visit(&self.block);
        }
        self.block.clear();
        self.hash = 0;
    }

    /// How many of these bytes end the block that has begun; `None` if it goes on.
    fn next_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let begun = self.block.len();
        for (at, byte) in bytes.iter().enumerate() {
            self.hash = (self.hash << 1).wrapping_add(self.gear[usize::from(*byte)]);
            let length = begun + at + 1;
            if length >= self.longest || (length >= self.shortest && self.hash <= self.limit) {
                return Some(at + 1);
            }
        }
        None
    }
}

/// A number whose bits look random (splitmix64). The same in all versions, so that results can be compared.
fn mixed(number: u64) -> u64 {
    let mut value = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn random(length: usize, seed: u64) -> Vec<u8> {
        (0..length as u64 / 8).flat_map(|at| mixed(seed * 1_000_003 + at).to_le_bytes()).collect()
    }

    fn aligned(data: &[u8], size: usize) -> Vec<Vec<u8>> {
        let mut blocks = Vec::new();
        cut_aligned(data, size, &mut |block| blocks.push(block.to_vec()));
        blocks
    }

    fn by_contents(pieces: &[&[u8]], mean: usize) -> Vec<Vec<u8>> {
        let mut blocks = Vec::new();
        let mut cutter = ContentCutter::new(mean);
        pieces.iter().for_each(|piece| cutter.cut(piece, &mut |block| blocks.push(block.to_vec())));
        cutter.end(&mut |block| blocks.push(block.to_vec()));
        blocks
    }

    #[test]
    fn aligned_blocks_have_no_zeros_at_their_ends() {
        let mut data = random(8192, 1);
        data[1024..4096].fill(0);
        data[4096 + 2000..8192].fill(0);
        assert_eq!(aligned(&data, 4096), [data[..1024].to_vec(), data[4096..4096 + 2048].to_vec()]);
        assert_eq!(aligned(&data, 512).len(), 6);
        assert!(aligned(&[0; 4096], 512).is_empty());
    }

    #[test]
    fn contents_decide_whatever_came_before() {
        let data = random(1 << 20, 2);
        let mean = 8192;
        let blocks = by_contents(&[&data], mean);
        assert_eq!(blocks.concat(), data);
        let average = data.len() / blocks.len();
        assert!((mean * 3 / 4..mean * 5 / 4).contains(&average), "{average}");
        assert!(blocks.iter().rev().skip(1).all(|block| (mean / 4..=mean * 4).contains(&block.len())));
        // The same in pieces of any multiple of a page, and most blocks again after something was put before them.
        let pieces: Vec<&[u8]> = data.chunks(3 * PAGE).collect();
        assert_eq!(by_contents(&pieces, mean), blocks);
        let moved = by_contents(&[&random(PAGE + 1000, 3), &data], mean);
        let known: HashSet<&Vec<u8>> = blocks.iter().collect();
        let again = moved.iter().filter(|block| known.contains(block)).count();
        assert!(again * 10 > blocks.len() * 9, "{again} of {}", blocks.len());
    }

    #[test]
    fn zeros_are_no_data() {
        let mut data = random(1 << 16, 4);
        data[8192..32768].fill(0);
        let blocks = by_contents(&[&data], 8192);
        assert_eq!(blocks.concat().len(), data.len() - (32768 - 8192));
        assert!(blocks.iter().all(|block| !is_zero(block)));
    }
}
