//! Manifests of a hoard's cast. The input is a list, parsed below a matching top, and again as a top whose pieces are
//! the input as well.

#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use platter_fuzz::bug_free;
use platter_image::frame::{FrameDecoder, Verify};
use platter_image::{BlockId, Kind, Score};
use platter_store::HoardManifest;

const PIECE_LENGTH: usize = 64 << 10;

fuzz_target!(|input: &[u8]| {
    let (name, blocks) = with_top(input);
    check(name, &blocks);
    let own = BlockId::of(Kind::BootSet, input);
    check(own, &HashMap::from([(own, input.to_vec())]));
});

fn check(name: BlockId, blocks: &HashMap<BlockId, Vec<u8>>) {
    let Some(manifest) = bug_free(HoardManifest::assemble(Score(name), blocks)) else { return };
    // Its text may have another form, but encoding it gives the same manifest.
    let (again, frames) = manifest.frames().expect("what was read can be written");
    let (mut decoder, mut made) = (FrameDecoder::new().expect("a decoder"), HashMap::new());
    for frame in &frames {
        let (header, mut rest) = decoder.decode(&frame.stored, Verify::Hashes).expect("a sound frame");
        for block in &header.blocks {
            let (bytes, after) = rest.split_at(block.length as usize);
            made.insert(block.id, bytes.to_vec());
            rest = after;
        }
    }
    assert_eq!(HoardManifest::assemble(again, &made).expect("what was made is one"), manifest);
}

/// The top of a list, and all blocks by id.
fn with_top(list: &[u8]) -> (BlockId, HashMap<BlockId, Vec<u8>>) {
    let mut top = b"PLht\x01\0\0\0".to_vec();
    top.extend_from_slice(&(list.len() as u64).to_le_bytes());
    let mut blocks = HashMap::new();
    for piece in list.chunks(PIECE_LENGTH) {
        let id = BlockId::of(Kind::BootSet, piece);
        top.extend_from_slice(&id.0);
        blocks.insert(id, piece.to_vec());
    }
    let name = BlockId::of(Kind::BootSet, &top);
    blocks.insert(name, top);
    (name, blocks)
}
