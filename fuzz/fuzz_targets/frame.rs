//! Frames: header, payload, blocks. The input is a stored frame, parsed unchanged and again with checksums and ids
//! corrected, so that the checks behind them are reached. A frame in the form of packs is completed first; and every
//! valid complete frame must be restored after conversion to the form of packs.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_fuzz::{bug_free, xxh3};
use platter_image::BlockId;
use platter_image::frame::{
    FrameDecoder, FrameHeader, HEADER_LENGTH, PACKED_MAGIC, STORED_LENGTH_MAX, Verify, make_whole,
    peek_packed, to_packed, whole_header_length,
};

const LISTED_LENGTH: usize = 36;
const BLOCKS_TRIED: usize = 4;

fuzz_target!(|input: &[u8]| {
    let mut decoder = FrameDecoder::new().expect("a decoder");
    check(&mut decoder, input);
    let mut stored = match input.starts_with(&PACKED_MAGIC) {
        true => check_packed(&mut decoder, input),
        false => input.to_vec(),
    };
    if make_checksums_right(&mut stored) {
        check(&mut decoder, &stored);
        if make_ids_right(&mut decoder, &mut stored) {
            check(&mut decoder, &stored);
        }
    }
});

fn check(decoder: &mut FrameDecoder, stored: &[u8]) {
    let Some(header) = bug_free(FrameHeader::parse(stored)) else {
        assert!(decoder.decode(stored, Verify::Checksum).is_err(), "decoded without a header");
        return;
    };
    let peeked = FrameHeader::peek_lengths(stored).expect("parsed");
    assert_eq!(peeked, (header.length(), header.stored_length()));
    assert!(header.stored_length() <= STORED_LENGTH_MAX);
    let total: usize = header.blocks.iter().map(|block| block.length as usize).sum();
    assert_eq!(total, header.raw_length as usize);
    let unverified = bug_free(decoder.decode(stored, Verify::Checksum)).map(|(_, raw)| raw.to_vec());
    let verified = bug_free(decoder.decode(stored, Verify::Hashes)).map(|(_, raw)| raw.to_vec());
    check_packing(decoder, &stored[..header.stored_length().min(stored.len())], &header, verified.is_some());
    if let Some(raw) = &unverified {
        assert_eq!(raw.len(), total);
    }
    assert!(verified.is_none() || verified == unverified, "verifying changed the contents");
    let mut start = 0;
    for (slot, block) in header.blocks.iter().enumerate().take(BLOCKS_TRIED) {
        let end = start + block.length as usize;
        let alone =
            bug_free(decoder.decode_block(stored, header.kind, slot as u32, &block.id)).map(<[u8]>::to_vec);
        if let Some(whole) = &verified {
            assert_eq!(
                alone.as_deref(),
                Some(&whole[start..end]),
                "a block alone is not the block in its frame"
            );
        }
        if let Some(alone) = alone {
            assert_eq!(BlockId::of(header.kind, &alone), block.id);
        }
        start = end;
    }
    assert!(decoder.decode_block(stored, header.kind, u32::MAX, &BlockId([0; 32])).is_err());
}

/// Completes a frame with a valid header from its form in packs: with its ids and, if it is fully valid, without them.
fn check_packing(decoder: &mut FrameDecoder, stored: &[u8], header: &FrameHeader, is_right: bool) {
    let blocks = header.blocks.len();
    let Some((packed, payload)) = bug_free(to_packed(stored)) else {
        assert!(stored.len() < header.stored_length(), "not packed");
        return;
    };
    assert_eq!(peek_packed(&packed).expect("packed by us"), (blocks, header.packed_length()));
    let lay = |ids: Vec<u8>| [&ids[..], &packed, payload].concat();
    let mut whole = lay(header.blocks.iter().flat_map(|block| block.id.0).collect());
    assert_eq!(make_whole(&mut whole, blocks).expect("packed by us"), stored.len());
    assert!(whole == stored, "another frame came out of the pack");
    let mut nameless = lay(vec![0; blocks * BlockId::LEN]);
    make_whole(&mut nameless, blocks).expect("packed by us");
    let named = bug_free(decoder.name_blocks(&mut nameless));
    assert_eq!(named.is_some(), is_right, "names from the contents");
    assert!(named.is_none_or(|named| named == *header && nameless == stored));
}

/// Completes a hostile frame in the form of packs: without ids, or as it is.
fn check_packed(decoder: &mut FrameDecoder, input: &[u8]) -> Vec<u8> {
    let Some((blocks, packed_length)) = bug_free(peek_packed(input)) else { return input.to_vec() };
    let ids = blocks * BlockId::LEN;
    assert!(ids + packed_length <= STORED_LENGTH_MAX);
    let mut stored = [&vec![0; ids][..], &input[..packed_length.min(input.len())]].concat();
    for wrong in [blocks + 1, blocks.wrapping_sub(1)] {
        bug_free(make_whole(&mut stored.clone(), wrong));
    }
    let Some(length) = bug_free(make_whole(&mut stored, blocks)) else {
        assert!(stored.len() < whole_header_length(blocks), "not made whole");
        return input.to_vec();
    };
    assert_eq!(length, ids + packed_length);
    let mut named = stored.clone();
    if bug_free(decoder.name_blocks(&mut named)).is_some() {
        assert!(decoder.decode(&named, Verify::Hashes).is_ok(), "named, and wrong");
    }
    stored
}

/// Sets both checksums to those of the bytes.
fn make_checksums_right(stored: &mut [u8]) -> bool {
    let Ok((length, stored_length)) = FrameHeader::peek_lengths(stored) else { return false };
    let Some(payload) = stored.get(length..stored_length) else { return false };
    let sum = xxh3(&[payload]);
    stored[40..48].copy_from_slice(&sum.to_le_bytes());
    let sum = xxh3(&[&stored[..48], &stored[HEADER_LENGTH..length]]);
    stored[48..56].copy_from_slice(&sum.to_le_bytes());
    true
}

/// Sets the listed ids to those of the contents.
fn make_ids_right(decoder: &mut FrameDecoder, stored: &mut [u8]) -> bool {
    let Ok((header, raw)) = decoder.decode(stored, Verify::Checksum) else { return false };
    let mut start = 0;
    for (block, listed) in header.blocks.iter().zip(stored[HEADER_LENGTH..].chunks_exact_mut(LISTED_LENGTH)) {
        let end = start + block.length as usize;
        listed[..BlockId::LEN].copy_from_slice(&BlockId::of(header.kind, &raw[start..end]).0);
        start = end;
    }
    make_checksums_right(stored)
}
