//! Tests of encrypted frames: what is readable without the key, and that no change passes.

use super::{
    Cipher, Compressor, FrameBuilder, FrameDecoder, FrameHeader, HEADER_LENGTH, RAW_LENGTH_MAX,
    STORED_LENGTH_MAX, Verify, make_whole, to_packed,
};
use crate::{BlockId, Domain, DomainKeys, ErrorKind, Kind};

/// A domain whose key this process has.
fn domain() -> Domain {
    let keys = DomainKeys::derive(&[7; 32], &[1; 32]);
    let domain = keys.domain();
    keys.add_to_process().unwrap();
    domain
}

fn contents(number: usize) -> Vec<u8> {
    (0..1024).map(|at| b"the marker of this test"[(at + number) % 23]).collect()
}

const CIPHERS: [Cipher; 2] = [Cipher::XChaCha20Poly1305, Cipher::XAes256Gcm];

fn frame(cipher: Cipher, kind: Kind, domain: Domain, first: usize) -> Vec<u8> {
    builder(kind, domain, first).encode_with(cipher, &mut Compressor::new(1).unwrap()).unwrap().stored
}

fn builder(kind: Kind, domain: Domain, first: usize) -> FrameBuilder {
    let mut builder = FrameBuilder::new(kind, domain, RAW_LENGTH_MAX);
    for number in first..first + 3 {
        builder.push(domain.id_of(kind, &contents(number)).unwrap(), &contents(number));
    }
    builder
}

fn names(stored: &[u8]) -> Vec<BlockId> {
    FrameHeader::parse(stored).unwrap().blocks.iter().map(|block| block.id).collect()
}

#[test]
fn an_encrypted_frame_is_read_with_its_key() {
    let (domain, mut decoder) = (domain(), FrameDecoder::new().unwrap());
    for (cipher, kind) in CIPHERS.into_iter().flat_map(|cipher| [(cipher, Kind::Data), (cipher, Kind::Page)])
    {
        let stored = frame(cipher, kind, domain, 0);
        let header = FrameHeader::parse(&stored).unwrap();
        assert_eq!((header.cipher, header.domain), (cipher, domain));
        let raw: Vec<u8> = (0..3).flat_map(contents).collect();
        assert_eq!(decoder.decode(&stored, Verify::Hashes).unwrap().1, raw);
        let block = decoder.decode_block(&stored, kind, 1, &header.blocks[1].id).unwrap();
        assert_eq!(block, contents(1));
        assert_ne!(header.blocks[0].id, BlockId::of(kind, &contents(0)), "ids are keyed");
    }
    for (kind, encrypted) in [(Kind::Data, true), (Kind::Page, true), (Kind::Version, false)] {
        let made = builder(kind, domain, 0).encode(&mut Compressor::new(1).unwrap()).unwrap();
        let (header, _) = decoder.decode(&made.stored, Verify::Hashes).unwrap();
        assert_eq!(header.cipher != Cipher::None, encrypted, "{kind:?}");
    }
}

/// Golden vectors: frames with each cipher must always be readable. The first one was written with the crate `chacha20poly1305`.
#[test]
fn frames_with_each_cipher_are_frozen() {
    let (domain, mut decoder) = (domain(), FrameDecoder::new().unwrap());
    let samples = [
        &include_bytes!("../../golden/frame-xchacha20-poly1305.bin")[..],
        include_bytes!("../../golden/frame-xaes-256-gcm.bin"),
    ];
    for (cipher, golden) in CIPHERS.into_iter().zip(samples) {
        let (header, raw) = decoder.decode(golden, Verify::Hashes).unwrap();
        assert_eq!((header.cipher, header.domain), (cipher, domain));
        assert_eq!(raw, (0..3).flat_map(contents).collect::<Vec<u8>>());
    }
}

#[test]
fn incompressible_contents_of_the_largest_size_fit() {
    let domain = domain();
    let mut builder = FrameBuilder::new(Kind::Data, domain, RAW_LENGTH_MAX);
    let mut state = 1_u64;
    for _ in 0..super::BLOCKS_MAX {
        let block: Vec<u8> = (0..512)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        builder.push(domain.id_of(Kind::Data, &block).unwrap(), &block);
    }
    let stored = builder.encode(&mut Compressor::new(1).unwrap()).unwrap().stored;
    assert_eq!(stored.len(), STORED_LENGTH_MAX);
    assert!(FrameDecoder::new().unwrap().decode(&stored, Verify::Hashes).is_ok());
}

/// Contents cannot be found in the frame, equal frames look different, and a process without the key is told so.
#[test]
fn without_the_key_nothing_is_learnt() {
    for cipher in CIPHERS {
        let stored = frame(cipher, Kind::Data, domain(), 0);
        assert!(!stored.windows(6).any(|window| window == b"marker"));
        assert_ne!(stored[HEADER_LENGTH..], frame(cipher, Kind::Data, domain(), 0)[HEADER_LENGTH..]);
        let mut foreign = stored;
        foreign[24] ^= 1;
        let header = FrameHeader::parse_fields(&foreign[..HEADER_LENGTH + 3 * 36]).unwrap();
        assert_eq!(header.domain.keys().unwrap_err().kind(), ErrorKind::Refused);
    }
}

/// As [`super::packed`] requires of plain frames: every changed bit is found, with ids and without.
#[test]
fn every_bit_flip_is_detected() {
    CIPHERS.into_iter().for_each(every_bit_flip_is_detected_with);
}

fn every_bit_flip_is_detected_with(cipher: Cipher) {
    let stored = frame(cipher, Kind::Data, domain(), 0);
    let (header, payload) = to_packed(&stored).unwrap();
    let ids: Vec<u8> = names(&stored).iter().flat_map(|id| id.0).collect();
    let good = [ids, header, payload.to_vec()].concat();
    let mut decoder = FrameDecoder::new().unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let whole = make_whole(&mut bad, 3).and_then(|_| decoder.decode(&bad, Verify::Checksum).map(drop));
        assert_eq!(whole.unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let named = make_whole(&mut bad, 3).and_then(|_| decoder.name_blocks(&mut bad).map(drop));
        assert_eq!(named.is_ok(), at < 3 * BlockId::LEN, "byte {at}");
        assert!(named.is_err() || bad == stored);
    }
}

/// Whoever can write the store's files can recompute its checksums. Exchanged payloads, ids, lengths and kinds are found all
/// the same.
#[test]
fn a_forged_frame_is_detected() {
    CIPHERS.into_iter().for_each(a_forged_frame_is_detected_with);
}

fn a_forged_frame_is_detected_with(cipher: Cipher) {
    let domain = domain();
    let (stored, other) = (frame(cipher, Kind::Data, domain, 0), frame(cipher, Kind::Data, domain, 7));
    let mut decoder = FrameDecoder::new().unwrap();
    let mut refuse = |header: &FrameHeader, payload: &[u8], what: &str| {
        let mut header = header.clone();
        header.set_payload(payload);
        let mut forged = Vec::new();
        header.write(&mut forged);
        forged.extend_from_slice(payload);
        let error = decoder.decode(&forged, Verify::Checksum).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}");
        if header.kind == Kind::Data {
            assert!(decoder.decode_block(&forged, Kind::Data, 0, &header.blocks[0].id).is_err(), "{what}");
        }
    };
    let [header, other_header] = [&stored, &other].map(|frame| FrameHeader::parse(frame).unwrap());
    let [payload, other_payload] =
        [&stored, &other].map(|frame| FrameHeader::parse(frame).unwrap().payload(frame).unwrap());
    refuse(&header, other_payload, "the payload of another frame");
    let blocks = other_header.blocks;
    refuse(&FrameHeader { blocks, ..header.clone() }, payload, "the ids of another frame");
    let mut swapped = header.clone();
    swapped.blocks.swap(0, 2);
    refuse(&swapped, payload, "two ids exchanged");
    let mut lengths = header.clone();
    lengths.blocks[0].length -= 512;
    lengths.blocks[1].length += 512;
    refuse(&lengths, payload, "other lengths");
    refuse(&FrameHeader { kind: Kind::Page, ..header.clone() }, payload, "another kind");
    let mut changed = payload.to_vec();
    changed[30] ^= 1;
    refuse(&header, &changed, "a changed payload");
    let plain = FrameHeader { cipher: Cipher::None, ..header.clone() };
    refuse(&plain, payload, "not encrypted");
    for another in CIPHERS.into_iter().filter(|another| *another != cipher) {
        refuse(&FrameHeader { cipher: another, ..header.clone() }, payload, "another cipher");
    }
}
