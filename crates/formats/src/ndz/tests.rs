//! What is written is read again, and chunks made by hand are read as the format says.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use platter_image::{ErrorKind, Extent, Extents, Result};
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
fn a_missing_chunk_is_noticed() {
    let disk = noise(5 << 20);
    let mut image = Vec::new();
    let all = Extents::from_unsorted(vec![Extent::new(0, 5 << 20)]);
    write_ndz(&disk, &all, &mut image, &|_| {}).unwrap();
    for missing in [0, 2] {
        let mut rest = image.clone();
        rest.drain(missing << 20..(missing + 1) << 20);
        let error = read_ndz(&mut &rest[..], &mut Memory(Vec::new())).unwrap_err();
        let is_told =
            error.to_string().contains(&format!("is number {} of the image, not {missing}", missing + 1));
        assert!(error.kind() == ErrorKind::Corrupt && is_told, "{error}");
    }
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

/// A chunk made field by field, without the encoder of this crate, which writes neither version 2 nor relocations.
struct ByHand<'a> {
    version: u32,
    last: u64,
    /// First sector and number of sectors.
    ranges: &'a [(u64, u64)],
    /// Type, sector, offset in the sector, size.
    relocations: &'a [(u32, u64, u32, u32)],
    data: &'a [u8],
}

impl ByHand<'_> {
    fn chunk(&self) -> Vec<u8> {
        let is_wide = self.version >= 5;
        let mut stream = ZlibEncoder::new(Vec::new(), Compression::new(4));
        stream.write_all(self.data).unwrap();
        let stream = stream.finish().unwrap();
        let mut chunk = Vec::new();
        let small = |chunk: &mut Vec<u8>, value: u64| chunk.extend((value as u32).to_le_bytes());
        let sector = |chunk: &mut Vec<u8>, value: u64| match is_wide {
            true => chunk.extend(value.to_le_bytes()),
            false => chunk.extend((value as u32).to_le_bytes()),
        };
        let (first, last) = if is_wide { (0, 0) } else { (0, self.last) };
        let counts = [self.ranges.len() as u64, first, last, self.relocations.len() as u64];
        for value in
            [u64::from(0x6969_6968 + self.version), stream.len() as u64, 0, 0, 4096].iter().chain(&counts)
        {
            small(&mut chunk, *value);
        }
        if is_wide {
            small(&mut chunk, 0); // alignment
            chunk.extend(0_u64.to_le_bytes());
            chunk.extend(self.last.to_le_bytes());
            chunk.extend([0; 16]); // the image's id
        }
        for (start, length) in self.ranges {
            sector(&mut chunk, *start);
            sector(&mut chunk, *length);
        }
        for (kind, start, inside, size) in self.relocations {
            small(&mut chunk, u64::from(*kind));
            if is_wide {
                small(&mut chunk, u64::from(*inside));
                sector(&mut chunk, *start);
            } else {
                sector(&mut chunk, *start);
                small(&mut chunk, u64::from(*inside));
            }
            small(&mut chunk, u64::from(*size));
            if is_wide {
                small(&mut chunk, 0); // alignment
            }
        }
        chunk.resize(4096, 0);
        chunk.extend(stream);
        chunk.resize(1 << 20, 0);
        chunk
    }

    fn read(&self) -> Result<(u64, Vec<u8>)> {
        let mut read = Memory(Vec::new());
        let length = read_ndz(&mut &self.chunk()[..], &mut read)?;
        Ok((length, read.0))
    }
}

#[test]
fn chunks_of_all_versions_made_by_hand() {
    let data = noise(5 * 512);
    let by_hand =
        |version| ByHand { version, last: 100, ranges: &[(3, 2), (50, 3)], relocations: &[], data: &data };
    for version in [2, 3, 5] {
        let (length, disk) = by_hand(version).read().unwrap();
        assert_eq!(length, 100 * 512, "version {version}: the free space at the end belongs to the disk");
        let mut wanted = vec![0; 53 * 512];
        wanted[3 * 512..5 * 512].copy_from_slice(&data[..1024]);
        wanted[50 * 512..].copy_from_slice(&data[1024..]);
        assert!(disk == wanted, "version {version}");
    }
    for version in [1, 4, 6] {
        let error = by_hand(version).read().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains(&format!("version {version} of the format")), "{error}");
    }
    let one = by_hand(2).chunk();
    let mut cut = &one[..one.len() - 1];
    assert_eq!(read_ndz(&mut cut, &mut Memory(Vec::new())).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// The table of LILO begins with its checksum: 16 bits, so that the XOR of all 512 words of the two sectors is 0xabcd.
#[test]
fn relocations_change_the_checksum_of_lilo_and_nothing_else() {
    let data = noise(8 * 512);
    let all =
        [(1, 1, 0, 276), (2, 2, 0, 276), (3, 3, 7, 5), (4, 4, 0, 512), (5, 5, 512 + 478, 2), (6, 9, 0, 100)];
    for version in [2, 3, 5] {
        let by_hand = |relocations| ByHand { version, last: 10, ranges: &[(2, 8)], relocations, data: &data };
        let (_, plain) = by_hand(&[]).read().unwrap();
        assert_eq!(plain[1024..], data);
        let (_, disk) = by_hand(&all).read().unwrap();
        let table = &disk[5 * 512..7 * 512];
        let sum = table.chunks(2).fold(0, |sum, word| sum ^ u16::from_le_bytes([word[0], word[1]]));
        assert_eq!(sum, 0xabcd, "version {version}");
        let changed: Vec<_> = (0..disk.len()).filter(|at| disk[*at] != plain[*at]).collect();
        assert!(changed == [5 * 512, 5 * 512 + 1], "version {version}: {changed:?}");
    }
}

#[test]
fn relocations_that_do_not_fit_are_errors() {
    let data = noise(512);
    let by_hand = |relocations| ByHand { version: 3, last: 1, ranges: &[(0, 1)], relocations, data: &data };
    let many = vec![(1, 0, 0, 2); 254];
    assert_eq!(by_hand(&many).read().unwrap_err().kind(), ErrorKind::Corrupt, "4096 bytes are not enough");
    assert!(by_hand(&many[1..]).read().is_ok(), "36 + 8 + 253 × 16 bytes fit");
    let far = [(1, 1 << 60, 0, 2)];
    let wide = ByHand { version: 5, last: 1, ranges: &[(0, 1)], relocations: &far, data: &data };
    let error = wide.read().unwrap_err();
    assert!(
        error.kind() == ErrorKind::Corrupt && error.to_string().contains("relocation at sector"),
        "{error}"
    );
}
