//! What is written is read again.

use std::io;

use platter_image::{Extent, Extents};
use proptest::prelude::*;

use super::{read_ndz, write_ndz};
use crate::spool::Spool;

struct Memory(Vec<u8>);

impl Spool for Memory {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset as usize + bytes.len();
        self.0.resize(self.0.len().max(end), 0);
        self.0[end - bytes.len()..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read_exact_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        buffer.copy_from_slice(&self.0[offset as usize..offset as usize + buffer.len()]);
        Ok(())
    }
}

/// Bytes that cannot be compressed.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

fn round_trip(disk: &Vec<u8>, kept: &Extents) -> usize {
    let mut image = Vec::new();
    write_ndz(disk, kept, &mut image, &|_| {}).unwrap();
    let mut read = Memory(Vec::new());
    let length = read_ndz(&mut &image[..], &mut read).unwrap();
    assert_eq!(length, disk.len() as u64);
    read.0.resize(disk.len(), 0);
    let mut wanted = vec![0; disk.len()];
    for range in kept {
        let range = range.offset as usize..range.end() as usize;
        wanted[range.clone()].copy_from_slice(&disk[range]);
    }
    assert!(read.0 == wanted);
    image.len() >> 20
}

#[test]
fn noise_fills_several_chunks_and_zeros_one() {
    let all = Extents::from_unsorted(vec![Extent::new(0, 5 << 20)]);
    assert_eq!(round_trip(&noise(5 << 20), &all), 6);
    assert_eq!(round_trip(&vec![0; 5 << 20], &all), 1);
    assert_eq!(round_trip(&vec![7; 1 << 20], &Extents::new()), 1, "an empty disk has a chunk");
}

#[test]
fn more_ranges_than_a_chunk_can_have() {
    let ranges: Extents = (0..2000).map(|index| Extent::new(index * 1024, 512)).collect();
    assert_eq!(round_trip(&noise(2000 << 10), &ranges), 4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_ranges(ranges in proptest::collection::vec((0_u64..8000, 1_u64..900), 0..40)) {
        let ranges = ranges.into_iter().map(|(start, length)| Extent::new(start * 512, length.min(8192 - start) * 512));
        round_trip(&noise(4 << 20), &Extents::from_unsorted(ranges.collect()));
    }
}
