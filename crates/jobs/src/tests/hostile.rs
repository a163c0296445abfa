//! Tests of origins that send wrong data: a clear error, and no wrong byte.

use platter_image::frame::{Compressor, FrameBuilder, FrameHeader, RAW_LENGTH_MAX, stream};
use platter_image::{BlockId, Domain, ErrorKind, Kind};

use super::{capture_to, install_from};
use platter_fetch::OpenStore;
use platter_testbed::Origin;
use platter_testbed::{Lab, kind};

/// Installs a version from an origin whose frame responses are modified by `spoil`. Returns the error.
fn install_spoiled(spoil: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static) -> (ErrorKind, String) {
    let lab = Lab::new();
    let disk = lab.disk("disk", 8 << 10, 0);
    capture_to(lab.here(), &disk, "lab/disk").unwrap();
    let spoil = move |path: &str, answer| if path.ends_with("/frames") { spoil(answer) } else { answer };
    let _origin = Origin { spoil: Box::new(spoil), ..Origin::new(&lab) }.run(&lab);
    let target = lab.path("target");
    let error = install_from(lab.afar(), "lab/disk", &target).unwrap_err();
    // Only right bytes may have been written.
    let (wanted, found) = (std::fs::read(&disk).unwrap(), std::fs::read(&target).unwrap_or_default());
    let wrong = found.iter().zip(&wanted).filter(|(found, wanted)| **found != 0 && found != wanted).count();
    assert_eq!(wrong, 0);
    (error.kind(), error.with_causes())
}

/// The start of a response's body.
fn body_of(answer: &[u8]) -> usize {
    answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4
}

#[test]
fn a_damaged_frame_is_corrupt() {
    let (kind, text) = install_spoiled(|mut answer| {
        let at = answer.len() - 100;
        answer[at] ^= 1;
        answer
    });
    assert_eq!(kind, ErrorKind::Corrupt, "{text}");
}

/// Other contents under the requested ids, with valid checksums: detected before they are delivered.
#[test]
fn a_forged_frame_is_corrupt() {
    let (kind, text) = install_spoiled(|answer| {
        let body = body_of(&answer);
        let header = FrameHeader::parse(&answer[body + 16..]).unwrap();
        let mut forged = FrameBuilder::new(header.kind, header.domain, RAW_LENGTH_MAX);
        header.blocks.iter().for_each(|block| forged.push(block.id, &vec![7; block.length as usize]));
        let forged = forged.encode(&mut Compressor::new(1).unwrap()).unwrap();
        let mut spoiled = answer[..body + 8].to_vec();
        stream::write_frame(&forged.stored, &mut spoiled);
        stream::write_end(&[], &mut spoiled);
        spoiled
    });
    assert_eq!(kind, ErrorKind::Corrupt, "{text}");
    assert!(text.contains("fetching frames") && text.contains("match the hash"), "{text}");
}

#[test]
fn unrequested_frames_are_corrupt_in_any_number() {
    let (kind, text) = install_spoiled(|answer| {
        // A valid frame that was not requested, a thousand times.
        let contents = vec![7; 65_536];
        let mut other = FrameBuilder::new(Kind::Data, Domain::SHARED, RAW_LENGTH_MAX);
        other.push(BlockId::of(Kind::Data, &contents), &contents);
        let other = other.encode(&mut Compressor::new(1).unwrap()).unwrap();
        let mut endless = answer[..body_of(&answer) + 8].to_vec();
        (0..1000).for_each(|_| stream::write_frame(&other.stored, &mut endless));
        endless
    });
    assert!(kind == ErrorKind::Corrupt && text.contains("was not requested"), "{text}");
}

#[test]
fn garbage_is_corrupt() {
    let (kind, text) = install_spoiled(|answer| {
        let body = body_of(&answer);
        [&answer[..body], &[0x5a; 100_000]].concat()
    });
    assert_eq!(kind, ErrorKind::Corrupt, "{text}");
    let (kind, text) = install_spoiled(|_| vec![b'x'; 300_000]);
    assert_eq!(kind, ErrorKind::Corrupt, "{text}");
}

#[test]
fn an_incomplete_end_is_corrupt() {
    let (kind, text) = install_spoiled(|answer| {
        let body = body_of(&answer);
        let mut empty = answer[..body + 8].to_vec();
        stream::write_end(&[], &mut empty);
        empty
    });
    assert_eq!(kind, ErrorKind::Corrupt, "{text}");
    assert!(text.contains("neither sent"), "{text}");
}

#[test]
fn a_failure_reported_by_the_origin_is_passed_on() {
    let (kind, text) = install_spoiled(|answer| {
        let body = body_of(&answer);
        let mut failed = answer[..body + 8].to_vec();
        stream::write_failure(&platter_image::Error::corrupt("pack 7 is damaged"), &mut failed);
        failed
    });
    assert!(kind == ErrorKind::Corrupt && text.contains("pack 7 is damaged"), "{text}");
}

#[test]
fn invalid_responses_are_corrupt() {
    for answer in
        ["HTTP/1.1 200 x\r\nconnection: close\r\n\r\n{", "HTTP/1.1 200 x\r\nconnection: close\r\n\r\n[{}]"]
    {
        let lab = Lab::new();
        let spoil = move |_: &str, _| answer.as_bytes().to_vec();
        let _origin = Origin { spoil: Box::new(spoil), ..Origin::new(&lab) }.run(&lab);
        assert_eq!(
            kind(OpenStore::open_reader(&lab.afar().into()).unwrap().images()),
            ErrorKind::Corrupt,
            "{answer}"
        );
    }
}

/// It resolves to something else than requested: another version of the name, and another score.
#[test]
fn another_version_than_the_requested_one_is_corrupt() {
    let lab = Lab::new();
    let disk = lab.disk("disk", 1 << 10, 0);
    capture_to(lab.here(), &disk, "lab/disk").unwrap();
    capture_to(lab.here(), &disk, "lab/else").unwrap();
    let spoil = |_: &str, answer: Vec<u8>| {
        String::from_utf8(answer).unwrap().replace("\"lab/disk\"", "\"lab/else\"").into_bytes()
    };
    let _origin = Origin { spoil: Box::new(spoil), ..Origin::new(&lab) }.run(&lab);
    assert_eq!(
        kind(OpenStore::open_reader(&lab.afar().into()).unwrap().resolve("lab/disk")),
        ErrorKind::Corrupt
    );
}
