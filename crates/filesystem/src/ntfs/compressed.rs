//! Compressed contents: LZNT1, in units of usually 16 clusters.
//!
//! A unit whose clusters all exist is stored as it is, one without clusters is zeros, and any other is compressed in the clusters
//! that it has. Compressed bytes are chunks for 4,096 bytes each: a header with the length less one (12 bits) and whether the chunk
//! is compressed (the highest bit), then groups of a byte of flags and eight items. An item is a byte, or a reference to bytes
//! before it in the chunk, in 16 bits: the distance takes more of them the further the chunk is.

use std::ops::Range;

use platter_image::{Error, Result};

use super::runs::Run;
use super::stream::Stream;
use crate::clusters::Clusters;
use crate::fields::le16;
use crate::files::{Piece, Visit};

/// Bytes that a chunk decodes to.
const CHUNK: usize = 4096;
const COMPRESSED: u16 = 0x8000;
/// A unit has at most 64 KiB; larger ones do not occur.
const UNIT_LENGTH_MAX: u64 = 1 << 20;

/// Passes the part in `range` of the first `size` bytes of contents that are compressed in units of two to the power of `unit` clusters to `visit`.
///
/// # Errors
/// `Corrupt` if they are invalid; errors of reading the disk and of `visit`.
pub(super) fn visit_units(
    stream: &Stream,
    clusters: &Clusters<'_>,
    unit: u16,
    (range, size): (Range<u64>, u64),
    visit: Visit<'_>,
) -> Result<()> {
    let Stream::Extended { runs, .. } = stream else {
        return Err(Error::bug("compressed contents without runs"));
    };
    let unit_clusters = 1_u64.checked_shl(unit.into()).unwrap_or(0);
    let length =
        unit_clusters.checked_mul(clusters.size()).filter(|length| (1..=UNIT_LENGTH_MAX).contains(length));
    let length =
        length.ok_or_else(|| Error::corrupt(format!("it is compressed in units of 2^{unit} clusters")))?;
    let first_unit = range.start / length;
    let before = |(at, run): &(u64, Run)| at.saturating_add(run.count) <= first_unit * unit_clusters;
    let mut first_run = runs.partition_point(before);
    for number in first_unit..range.end.min(size).div_ceil(length) {
        let (offset, start) = (number * length, number * unit_clusters);
        let wanted = length.min(size - offset) as usize;
        // The clusters of this unit that exist; they come first.
        let mut bytes = Vec::new();
        while runs.get(first_run).is_some_and(|(at, run)| at + run.count <= start) {
            first_run += 1;
        }
        for (at, run) in runs[first_run..].iter().take_while(|(at, _)| *at < start + unit_clusters) {
            let Some(cluster) = run.cluster else { continue };
            let (from, to) = ((*at).max(start), (at + run.count).min(start + unit_clusters));
            let have = bytes.len();
            bytes.resize(have + ((to - from) * clusters.size()) as usize, 0);
            clusters.read(cluster + (from - at), 0, &mut bytes[have..])?;
        }
        let is_plain = bytes.len() as u64 == length;
        if bytes.is_empty() {
            visit(offset, Piece::Zeros(wanted as u64))?;
            continue;
        }
        if !is_plain {
            bytes = decode(&bytes, wanted)
                .map_err(|error| error.within(format!("the compressed bytes at offset {offset}")))?;
        }
        visit(offset, Piece::Bytes(&bytes[..wanted]))?;
    }
    Ok(())
}

/// Decodes chunks until `wanted` bytes or the end; what lacks are zeros.
fn decode(mut bytes: &[u8], wanted: usize) -> Result<Vec<u8>> {
    let mut decoded = Vec::with_capacity(wanted.next_multiple_of(CHUNK));
    while decoded.len() < wanted && bytes.len() >= 2 {
        let header = le16(bytes, 0);
        if header == 0 {
            break;
        }
        let length = usize::from(header & 0xfff) + 1;
        let chunk = bytes.get(2..2 + length).ok_or_else(|| Error::corrupt("a chunk is cut off"))?;
        let start = decoded.len();
        match header & COMPRESSED != 0 {
            true => decode_chunk(chunk, &mut decoded)?,
            false => decoded.extend_from_slice(chunk),
        }
        if decoded.len() - start > CHUNK {
            return Err(Error::corrupt("a chunk is too long"));
        }
        decoded.resize(start + CHUNK, 0);
        bytes = &bytes[2 + length..];
    }
    decoded.resize(decoded.len().max(wanted), 0);
    Ok(decoded)
}

fn decode_chunk(chunk: &[u8], decoded: &mut Vec<u8>) -> Result<()> {
    let start = decoded.len();
    let mut rest = chunk.iter().copied();
    while let Some(flags) = rest.next() {
        for bit in 0..8 {
            let Some(first) = rest.next() else { return Ok(()) };
            let position = decoded.len() - start;
            if flags >> bit & 1 == 0 {
                if position >= CHUNK {
                    return Err(Error::corrupt("a chunk is too long"));
                }
                decoded.push(first);
                continue;
            }
            let second = rest.next().ok_or_else(|| Error::corrupt("a reference is cut off"))?;
            let reference = usize::from(first) | usize::from(second) << 8;
            // The distance has four bits, and one more each time that the position doubles from 16 on.
            let mut length_bits = 12;
            while position > 1 << (16 - length_bits) && length_bits > 4 {
                length_bits -= 1;
            }
            let distance = (reference >> length_bits) + 1;
            let length = (reference & ((1 << length_bits) - 1)) + 3;
            if distance > position || position + length > CHUNK {
                return Err(Error::corrupt("a reference leads out of its chunk"));
            }
            for at in decoded.len() - distance..decoded.len() - distance + length {
                decoded.push(decoded[at]);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_decoded() {
        // From the description of the format by Microsoft ([MS-XCA], 3.3): 1,003 bytes of a text that repeats itself.
        let encoded = b"\x38\xb0\x88\x46\x23\x20\x00\x20\x47\x20\x41\x00\x10\xa2\x47\x01\xa0\x45\x20\x44\x00\x08\x45\x01\x50\x79\x00\xc0\x45\x20\x05\x24\x13\x88\x05\xb4\x02\x4a\x44\xef\x03\x58\x02\x8c\x09\x16\x01\x48\x45\x00\xbe\x00\x9e\x00\x04\x01\x18\x90\x00";
        let expected = b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G F# D E F# G F# E D E A F# F# G A A G F# E D D E F# E D D\0";
        assert_eq!(decode(encoded, expected.len()).unwrap(), &[&expected[..], &[0; CHUNK]].concat()[..CHUNK]);
    }

    #[test]
    fn plain_chunks_and_ends() {
        let decoded = decode(b"\x02\x30abc\0\0", 8000).unwrap();
        assert_eq!((&decoded[..4], decoded.len()), (&b"abc\0"[..], 8000));
        assert_eq!(decode(b"", 10).unwrap(), [0; 10]);
    }

    #[test]
    fn hostile_chunks_are_errors() {
        for (bytes, expected) in [
            (&b"\x10\x30ab"[..], "cut off"),
            (b"\x02\xb0\x01\x00\x00", "out of its chunk"),
            (b"\x01\xb0\x01\x00", "reference is cut off"),
            (b"\x03\xb0\x02a\xff\x0f\0\0", "out of its chunk"),
        ] {
            let error = decode(bytes, 4096).unwrap_err().to_string();
            assert!(error.contains(expected), "{bytes:x?}: {error}");
        }
    }
}
