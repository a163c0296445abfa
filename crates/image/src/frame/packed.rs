//! A frame as stored in a pack: without its block ids, which are in the pack's footer
//! (`docs/formats/frame.md`).
//!
//! Apart from the ids, only the magic differs. So the payload is already in its final place when the ids are
//! read into the space before the frame. The header's checksum is that of the whole frame and covers the ids:
//! restoring a frame with wrong ids or damaged lengths gives a header that fails to parse. Nothing is
//! verified here.

use super::format::{BLOCKS_MAX, FrameHeader, HEADER_LENGTH, LISTED_LENGTH, MAGIC, peek};
use crate::{BlockId, Error, Result};

/// The first bytes of a frame in a pack; a search through a damaged pack looks for them.
pub const PACKED_MAGIC: [u8; 4] = *b"PLpr";
/// Bytes per listed block in a pack: its length.
const LISTED_PACKED_LENGTH: usize = LISTED_LENGTH - BlockId::LEN;

/// Bytes in a pack of a frame with `stored_length` bytes.
pub fn packed_length(stored_length: usize, blocks: usize) -> usize {
    stored_length.saturating_sub(blocks * BlockId::LEN)
}

/// Bytes of header and list of a whole frame: the least that [`make_whole`] needs.
pub fn whole_header_length(blocks: usize) -> usize {
    HEADER_LENGTH + blocks * LISTED_LENGTH
}

/// Converts a whole frame for a pack: the packed header, and the payload that follows it.
///
/// # Errors
/// `Corrupt` when it is not a whole frame.
pub fn to_packed(stored: &[u8]) -> Result<(Vec<u8>, &[u8])> {
    let (length, stored_length) = FrameHeader::peek_lengths(stored)?;
    let frame = stored.get(..stored_length).ok_or_else(|| Error::corrupt("frame: truncated"))?;
    let (header, payload) = frame.split_at(length);
    let (fixed, list) = header.split_at(HEADER_LENGTH);
    let mut packed = Vec::with_capacity(HEADER_LENGTH + list.len() / LISTED_LENGTH * LISTED_PACKED_LENGTH);
    packed.extend_from_slice(&PACKED_MAGIC);
    packed.extend_from_slice(&fixed[PACKED_MAGIC.len()..]);
    list.chunks_exact(LISTED_LENGTH).for_each(|listed| packed.extend_from_slice(&listed[BlockId::LEN..]));
    Ok((packed, payload))
}

/// Number of blocks, and bytes in the pack, of a packed frame that begins with `fixed`.
///
/// # Errors
/// `Corrupt` when it is not a packed frame, or a length exceeds its limit.
pub fn peek_packed(fixed: &[u8]) -> Result<(usize, usize)> {
    let (blocks, payload_length) = peek(fixed, PACKED_MAGIC)?;
    Ok((blocks, HEADER_LENGTH + blocks * LISTED_PACKED_LENGTH + payload_length))
}

/// Restores a packed frame to a whole frame, in place. `stored` begins with the ids of its `blocks` blocks,
/// followed by the packed frame, or by so much of it that `stored` has at least [`whole_header_length`]
/// bytes. Returns the length of the whole frame.
///
/// # Errors
/// `Corrupt` when it is not a packed frame or has another number of blocks; `stored` is then unchanged.
pub fn make_whole(stored: &mut [u8], blocks: usize) -> Result<usize> {
    let names = blocks.saturating_mul(BlockId::LEN);
    let (found, payload_length) = peek(stored.get(names..).unwrap_or_default(), PACKED_MAGIC)?;
    if found != blocks {
        return Err(Error::corrupt(format!("frame header: {found} blocks, but {blocks} ids")));
    }
    let length = whole_header_length(blocks);
    let Some(header) = stored.get_mut(..length) else {
        return Err(Error::corrupt("frame header: its list is truncated"));
    };
    // The parts overlap their destinations, so copy the small ones aside first.
    let mut fixed = [0; HEADER_LENGTH];
    fixed.copy_from_slice(&header[names..names + HEADER_LENGTH]);
    fixed[..MAGIC.len()].copy_from_slice(&MAGIC);
    let mut lengths = [0; BLOCKS_MAX * LISTED_PACKED_LENGTH];
    let lengths = &mut lengths[..blocks * LISTED_PACKED_LENGTH];
    lengths.copy_from_slice(&header[names + HEADER_LENGTH..]);
    // Start with the last id: ids only move towards the end, past those that are still to be moved.
    for (slot, of_block) in lengths.chunks_exact(LISTED_PACKED_LENGTH).enumerate().rev() {
        let at = HEADER_LENGTH + slot * LISTED_LENGTH;
        header.copy_within(slot * BlockId::LEN..(slot + 1) * BlockId::LEN, at);
        header[at + BlockId::LEN..at + LISTED_LENGTH].copy_from_slice(of_block);
    }
    header[..HEADER_LENGTH].copy_from_slice(&fixed);
    Ok(length + payload_length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Compressor, FrameBuilder, FrameDecoder, Verify};
    use crate::{Domain, ErrorKind, Kind};
    use proptest::prelude::*;

    /// A frame of blocks with these numbers of sectors.
    fn frame(sectors: &[usize]) -> Vec<u8> {
        let mut builder = FrameBuilder::new(Kind::Data, Domain::SHARED, 256 << 10);
        for (number, sectors) in sectors.iter().enumerate() {
            let contents: Vec<u8> = (0..sectors * 512).map(|at| (at / 3 + number * 11) as u8 | 1).collect();
            builder.push(BlockId::of(Kind::Data, &contents), &contents);
        }
        builder.encode(&mut Compressor::new(1).unwrap()).unwrap().stored
    }

    /// Lays the packed frame out as [`make_whole`] expects it, with these ids.
    fn laid(stored: &[u8], names: impl Iterator<Item = BlockId>) -> Vec<u8> {
        let (header, payload) = to_packed(stored).unwrap();
        let mut laid: Vec<u8> = names.flat_map(|name| name.0).collect();
        laid.extend_from_slice(&header);
        laid.extend_from_slice(payload);
        laid
    }

    fn names(stored: &[u8]) -> Vec<BlockId> {
        FrameHeader::parse(stored).unwrap().blocks.iter().map(|block| block.id).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// With its ids a frame is restored byte for byte; without them, the ids are computed from its
        /// contents.
        #[test]
        fn a_packed_frame_is_restored(sectors in prop::collection::vec(1..5_usize, 1..100)) {
            let stored = frame(&sectors);
            let (header, payload) = to_packed(&stored).unwrap();
            let packed = header.len() + payload.len();
            prop_assert_eq!(packed + 32 * sectors.len(), stored.len());
            prop_assert_eq!(packed, FrameHeader::parse(&stored).unwrap().packed_length());
            prop_assert_eq!(peek_packed(&header).unwrap(), (sectors.len(), packed));
            prop_assert!(FrameHeader::parse(&header).is_err() && peek_packed(&stored).is_err());
            let mut whole = laid(&stored, names(&stored).into_iter());
            prop_assert_eq!(make_whole(&mut whole, sectors.len()).unwrap(), stored.len());
            prop_assert!(whole == stored);
            let mut start = laid(&stored, names(&stored).into_iter());
            start.truncate(whole_header_length(sectors.len()));
            prop_assert_eq!(make_whole(&mut start, sectors.len()).unwrap(), stored.len());
            prop_assert!(stored.starts_with(&start));
            let mut nameless = laid(&stored, sectors.iter().map(|_| BlockId([0; 32])));
            make_whole(&mut nameless, sectors.len()).unwrap();
            prop_assert_eq!(FrameHeader::parse(&nameless).unwrap_err().kind(), ErrorKind::Corrupt);
            let header = FrameDecoder::new().unwrap().name_blocks(&mut nameless).unwrap();
            prop_assert!(nameless == stored && header == FrameHeader::parse(&stored).unwrap());
        }
    }

    #[test]
    fn the_largest_list_is_restored() {
        let stored = frame(&[1; BLOCKS_MAX]);
        let mut whole = laid(&stored, names(&stored).into_iter());
        make_whole(&mut whole, BLOCKS_MAX).unwrap();
        assert!(whole == stored);
    }

    /// A frame restored with the ids of another frame, in another order, or of another number, is reported as
    /// damaged.
    #[test]
    fn a_frame_with_wrong_ids_is_corrupt() {
        let (stored, other) = (frame(&[2, 1, 1]), frame(&[1, 1, 2]));
        let mut decoder = FrameDecoder::new().unwrap();
        let (mut swapped, right) = (names(&stored), names(&stored));
        swapped.swap(0, 1);
        for names in [names(&other), swapped] {
            let mut whole = laid(&stored, names.into_iter());
            assert_eq!(make_whole(&mut whole, 3).unwrap(), stored.len());
            let error = decoder.decode(&whole, Verify::Checksum).unwrap_err();
            assert_eq!(error.to_string(), "frame header: checksum mismatch");
        }
        for count in [0, 1, 2, 4] {
            let mut whole = laid(&stored, right.iter().chain(&right).take(count).copied());
            let before = whole.clone();
            assert_eq!(
                make_whole(&mut whole, count).unwrap_err().kind(),
                ErrorKind::Corrupt,
                "{count} names"
            );
            assert!(whole == before);
        }
    }

    /// Every bit flip is detected, both with ids and when ids are computed.
    #[test]
    fn every_bit_flip_is_detected() {
        let stored = frame(&[1, 3, 2]);
        let (good, mut decoder) = (laid(&stored, names(&stored).into_iter()), FrameDecoder::new().unwrap());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            let whole =
                make_whole(&mut bad, 3).and_then(|_| decoder.decode(&bad, Verify::Checksum).map(drop));
            assert_eq!(whole.unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            let named = make_whole(&mut bad, 3).and_then(|_| decoder.name_blocks(&mut bad));
            // Ids that are computed from the contents need not be right before.
            assert_eq!(named.is_ok(), at < 3 * BlockId::LEN, "byte {at}");
            assert!(named.is_err() || bad == stored);
            let mut short = good[..at].to_vec();
            let cut = make_whole(&mut short, 3).and_then(|_| decoder.name_blocks(&mut short).map(drop));
            assert_eq!(cut.unwrap_err().kind(), ErrorKind::Corrupt, "cut to {at}");
        }
    }
}
