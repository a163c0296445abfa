//! Golden vectors of the peer protocol, version 1: a fixed sample of every message. Encoding a sample must yield the bytes
//! in `golden/peer-v1.txt`, and parsing those bytes must yield the sample.
//!
//! Owns that file. Each line has a sample's name and its bytes in hexadecimal, with their length. Lines of a released version
//! must never change; a change needs a new version.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use platter_image::{BlockId, Domain, Kind, Score};

use super::*;

const GOLDEN: &str = include_str!("../../golden/peer-v1.txt");

fn id(number: u8) -> BlockId {
    BlockId(*blake3::hash(&[number]).as_bytes())
}

fn counting<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|index| first + index as u8)
}

fn samples() -> Vec<(&'static str, PeerMessage)> {
    let hello = Hello { group: counting(0x10), domain: Domain(counting(0x30)), node: NodeId(counting(0x50)) };
    let mut holdings = Holdings::new(0x0102_0304_0506_0708);
    (0..20).for_each(|number| holdings.insert(&id(number)));
    let whole = holdings.next_piece(&mut PieceCursor::default()).unwrap();
    let before = holdings.version();
    (20..60).for_each(|number| holdings.insert(&id(number)));
    let changes = holdings.changes_since(before).unwrap();
    let opening = FilterChanges { generation: 9, from: 1024, opens: 2048, keys: vec![u32::MAX] };
    let version = FilterVersion { generation: 0x1122_3344, additions: 0x5566_7788 };
    let ask = |kind, fetch, ids| AskMessage {
        request: 0x0a0b_0c0d,
        score: Score(BlockId(counting(0x70))),
        kind,
        fetch,
        ids,
    };
    let request = 0x0a0b_0c0d;
    vec![
        ("hello", PeerMessage::Hello(hello)),
        ("subscribe", PeerMessage::Subscribe(true)),
        ("unsubscribe", PeerMessage::Subscribe(false)),
        ("filter", PeerMessage::Filter(whole)),
        ("changes", PeerMessage::Changes(changes)),
        ("changes-opening", PeerMessage::Changes(opening)),
        ("ask", PeerMessage::Ask(ask(Kind::Data, false, vec![id(1), id(2)]))),
        ("ask-home", PeerMessage::Ask(ask(Kind::Page, true, vec![id(3)]))),
        ("frame", PeerMessage::Frame { request, frame: b"a frame as it is stored".as_slice().into() }),
        ("end", PeerMessage::End { request, version, missing: Vec::new() }),
        ("end-missing", PeerMessage::End { request, version, missing: vec![id(2)] }),
        ("busy", PeerMessage::Busy { request, retry_after: Duration::from_millis(0x0304) }),
        ("cancel", PeerMessage::Cancel { request }),
    ]
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

fn from_hex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "odd number of digits");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn golden() -> BTreeMap<&'static str, &'static str> {
    let lines: BTreeMap<_, _> = GOLDEN.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert_eq!(lines.len(), GOLDEN.lines().count(), "each name occurs once");
    lines
}

#[test]
fn encoding_matches_the_golden_bytes() {
    let golden = golden();
    let samples = samples();
    let lacking: Vec<String> = samples
        .iter()
        .filter(|(name, _)| !golden.contains_key(name))
        .map(|(name, sample)| format!("{name} {}", to_hex(&sample.to_bytes())))
        .collect();
    assert!(lacking.is_empty(), "add to the golden file:\n{}", lacking.join("\n"));
    for (name, sample) in &samples {
        assert_eq!(to_hex(&sample.to_bytes()), golden[name], "{name} is encoded differently from version 1");
    }
    assert_eq!(samples.len(), golden.len(), "a golden sample is no longer encoded");
}

#[test]
fn golden_bytes_are_parsed() {
    let golden = golden();
    let mut stream = PeerStream::default();
    for (name, sample) in samples() {
        stream.push(&from_hex(golden[name]));
        let read = stream.next_message().unwrap();
        assert_eq!(read, Some(sample), "{name} is parsed differently from version 1");
        assert_eq!(stream.next_message().unwrap(), None);
    }
}

#[test]
fn messages_are_parsed_however_the_stream_is_split() {
    let all: Vec<PeerMessage> = samples().into_iter().map(|(_, sample)| sample).collect();
    let bytes: Vec<u8> = all.iter().flat_map(PeerMessage::to_bytes).collect();
    for piece in [1, 3, 100, bytes.len()] {
        let (mut stream, mut read) = (PeerStream::default(), Vec::new());
        for bytes in bytes.chunks(piece) {
            stream.push(bytes);
            while let Some(message) = stream.next_message().unwrap() {
                read.push(message);
            }
        }
        assert_eq!(read, all);
    }
}

#[test]
fn truncated_and_extended_messages_are_refused() {
    for (name, sample) in samples() {
        let bytes = sample.to_bytes();
        let message = &bytes[4..];
        let open_ended = matches!(sample, PeerMessage::Frame { .. } | PeerMessage::Filter(_));
        for end in 0..message.len() {
            let parsed = PeerMessage::parse(&message[..end]);
            assert!(parsed.is_err() || open_ended, "{name} of {end} bytes");
        }
        let longer = [message, &[0]].concat();
        assert!(PeerMessage::parse(&longer).is_err() || open_ended, "{name} with one more byte");
    }
    let mut stream = PeerStream::default();
    stream.push(&(MESSAGE_BYTES_MAX as u32 + 1).to_le_bytes());
    assert!(stream.next_message().is_err(), "a length past the limit");
}
