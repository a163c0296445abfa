//! Golden vectors of wire format 1: a fixed sample of every datagram and of every message of the reliable channel. Encoding
//! a sample must yield the bytes in `golden/wire-v1.txt`, and parsing those bytes must yield the sample.
//!
//! Owns that file. Each line has a sample's name and its bytes in hexadecimal: a whole datagram, or a message with its length.
//! Lines of a released version must never change; a change needs a new version.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use platter_image::{BlockId, Score};

use super::announce::{Announce, FeedbackTimers};
use super::data::Data;
use super::format::{Header, MessageType};
use super::join::{JoinMessage, MessageBuffer, ReceiverResult, SessionKeys, Wanted};
use super::plan::{Plan, PlanEntry};
use super::protection::DatagramKey;
use super::report::Report;
use super::request::{Request, RequestItem};
use super::resume::Resume;
use crate::marks::Mark;
use crate::session::{SYMBOL_BYTES, Segment, SessionId};
use crate::stage::SinkStage;

const GOLDEN: &str = include_str!("../../golden/wire-v1.txt");
const SESSION: SessionId = SessionId(*b"0123456789abcdef");
const RECEIVER: u32 = 0x1122_3344;
const SEEN_PACKET: u64 = 0xa1a2_a3a4_a5a6;

/// A datagram or a message.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there are few of them, in a test")]
enum Sample {
    /// With the key that seals it.
    Datagram(Header, Body, Sealed),
    Message(JoinMessage),
}

/// How a datagram is protected. Every key is [`counting`] from 0x80.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sealed {
    Tagged,
    Encrypted,
}

impl Sealed {
    fn key(self, message: MessageType) -> DatagramKey {
        let (key, has_join_key) = (counting(0x80), self == Self::Encrypted);
        match message {
            MessageType::Announce => DatagramKey::of_announcements(key, has_join_key),
            MessageType::Data | MessageType::Plan => DatagramKey::of_sender(&key, has_join_key),
            MessageType::Request | MessageType::Report | MessageType::Resume => {
                DatagramKey::of_receiver(&key, has_join_key)
            }
        }
    }
}

/// The body of a datagram.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there are few of them, in a test")]
enum Body {
    Announce(Announce),
    Data { chunk: u32, symbol: u16, bytes: Vec<u8> },
    Plan(Plan),
    Request(Request),
    Report(Report),
    Resume(Resume),
}

impl Sample {
    fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Datagram(header, Body::Announce(announce), _) => announce.write(header, &mut to),
            Self::Datagram(header, Body::Data { chunk, symbol, bytes }, _) => {
                // The encoder must write the zeros at the end.
                let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                Data::append(header, *chunk, *symbol, &bytes[..length], &mut to);
            }
            Self::Datagram(header, Body::Plan(plan), _) => plan.write(header, &mut to),
            Self::Datagram(header, Body::Request(request), _) => request.write(header, &mut to),
            Self::Datagram(header, Body::Report(report), _) => report.write(header, &mut to),
            Self::Datagram(header, Body::Resume(resume), _) => resume.write(header, &mut to),
            Self::Message(message) => to = message.to_bytes(),
        }
        if let Self::Datagram(header, _, sealed) = self {
            sealed.key(header.message).seal(&mut to, 0);
        }
        to
    }

    /// Parses bytes as a datagram or a message, whichever this sample is.
    fn decode_like(&self, bytes: &[u8]) -> Option<Self> {
        let Self::Datagram(header, _, sealed) = self else {
            let mut buffer = MessageBuffer::default();
            assert!(buffer.push(bytes));
            let message = buffer.next_message()?;
            assert_eq!(message.len() + 4, bytes.len(), "the length counts the bytes after it");
            return JoinMessage::parse(&message).map(Self::Message);
        };
        let mut scratch = Vec::new();
        let bytes = sealed.key(header.message).open(bytes, &mut scratch)?;
        let (header, rest) = Header::parse(bytes)?;
        let body = match header.message {
            MessageType::Announce => Body::Announce(Announce::parse(rest)?),
            MessageType::Data => {
                let Data { chunk, symbol, bytes } = Data::parse(rest)?;
                Body::Data { chunk, symbol, bytes: bytes.to_vec() }
            }
            MessageType::Plan => Body::Plan(Plan::parse(rest)?),
            MessageType::Request => Body::Request(Request::parse(rest)?),
            MessageType::Report => Body::Report(Report::parse(rest)?),
            MessageType::Resume => Body::Resume(Resume::parse(rest)?),
        };
        Some(Self::Datagram(header, body, *sealed))
    }
}

/// 32 distinct bytes.
fn counting(first: u8) -> [u8; 32] {
    std::array::from_fn(|index| first + index as u8)
}

fn announce() -> Announce {
    Announce {
        session: SESSION,
        score: Score(BlockId(counting(0x10))),
        name: "lab/débian@7".into(),
        offer: Vec::new(),
        secret: crate::session::SessionSecret::default(),
        content_chunks: 0x0011_0203,
        segments: 0x0607,
        first_segment: Segment { chunks: 0x0008_090a, recipe_chunks: 0x0405 },
        segment_length: 0x1112_1314_1516,
        directory_hash: counting(0x40),
        group: "239.255.80.76:7580".parse().unwrap(),
        join: "[2001:db8::1:7]:7581".parse().unwrap(),
        feedback: "10.1.2.3:7582".parse().unwrap(),
        timers: FeedbackTimers { spokesmen_us: 10_000, backoff_us_max: 400_000, others_us: 0x6162_6364 },
        mark: Mark { index: 0x0000_a1b2, value: counting(0x60) },
    }
}

fn announce_of_ipv6() -> Announce {
    Announce {
        group: "[ff12::efff:504c]:7580".parse().unwrap(),
        join: "[fe80::1:7]:7581".parse().unwrap(),
        feedback: "[fe80::1:7]:7581".parse().unwrap(),
        ..announce()
    }
}

fn data(symbol: u16, content: impl Iterator<Item = u8>) -> Body {
    let mut bytes: Vec<u8> = content.collect();
    bytes.resize(SYMBOL_BYTES, 0);
    Body::Data { chunk: 0x0001_1170, symbol, bytes }
}

fn plan() -> Plan {
    let entry = |chunk, end_packet, repair_sent, repair_planned| PlanEntry {
        chunk,
        end_packet,
        repair_sent,
        repair_planned,
    };
    Plan {
        pending: 0x0102_0304,
        last_data_packet: 0xb1b2_b3b4_b5b6,
        entries: vec![entry(7, 0xc1c2_c3c4_c5c6, 3, 256), entry(0x0001_1170, 9, 0, 17)],
        least_free: 0x7172_7374,
        spokesmen: vec![RECEIVER, 5, 6],
    }
}

fn request() -> Request {
    let items = vec![
        RequestItem::Count { chunk: 0x0001_1170, lacks: 0x0102 },
        RequestItem::Chunks { first: 0x0a0b_0c0d, count: 0x0e0f_1011 },
        RequestItem::Symbols { chunk: 9, first: 0x03fe, count: 0x0201 },
    ];
    Request { receiver: RECEIVER, seen_packet: SEEN_PACKET, items }
}

fn report() -> Report {
    Report {
        receiver: RECEIVER,
        seen_packet: SEEN_PACKET,
        echo_us: 0xd1d2_d3d4,
        echo_delay_us: 0x0000_1234,
        received: 0xe1e2_e3e4_e5e6,
        free_chunks: 0x41,
        done_chunks: 0x0001_0002,
        wanted_chunks: 0x0001_0203,
        repaired: 0x0506_0708,
        waiting_chunks: 0x0a0b_0c0d,
        busy_percent: 87,
        stage: SinkStage::Decoding,
    }
}

fn result(outcome: Result<Score, String>) -> JoinMessage {
    let result = ReceiverResult {
        outcome,
        bytes_written: 0x1112_1314_1516_1718,
        duration_ms: 0x2122,
        symbols: 0x3132_3334_3536,
        repaired: 0x4142_4344,
        duplicates: 0x5152,
    };
    JoinMessage::Result { result }
}

fn samples() -> Vec<(&'static str, Sample)> {
    let sealed = |message, body, sealed| {
        let header =
            Header { message, session: SESSION.short(), packet: 0xf1f2_f3f4_f5f6, sent_us: 0x8182_8384 };
        Sample::Datagram(header, body, sealed)
    };
    let datagram = |message, body| sealed(message, body, Sealed::Tagged);
    let encrypted = |message, body| sealed(message, body, Sealed::Encrypted);
    let join = |wanted| {
        Sample::Message(JoinMessage::Join { wanted, hello: "pc-ü1".into(), buffer_chunks: 0x0102_0340 })
    };
    let score = Score(BlockId(counting(0x10)));
    let keys = SessionKeys { receiver: counting(0xa0), sender: counting(0xc0) };
    let welcome = JoinMessage::Welcome {
        receiver: RECEIVER,
        keys,
        packet: SEEN_PACKET,
        announce: Box::new(announce()),
    };
    let fetch = JoinMessage::Fetch { chunk: 0x0001_1170, offset: 0x0002_0304, length: 0x8001 };
    let piece = JoinMessage::Piece { chunk: 0x0001_1170, offset: 0x0002_0304, bytes: b"a piece".to_vec() };
    let resume = datagram(MessageType::Resume, Body::Resume(Resume { receiver: RECEIVER }));
    let full_symbol = (0..SYMBOL_BYTES).map(|index| (index % 251) as u8 + 1);
    vec![
        ("announce", datagram(MessageType::Announce, Body::Announce(announce()))),
        ("data-source", datagram(MessageType::Data, data(0x0102, full_symbol))),
        ("data-padded", datagram(MessageType::Data, data(1024, b"the end".iter().copied()))),
        ("plan", datagram(MessageType::Plan, Body::Plan(plan()))),
        ("plan-idle", datagram(MessageType::Plan, Body::Plan(Plan::default()))),
        ("request", datagram(MessageType::Request, Body::Request(request()))),
        ("report", datagram(MessageType::Report, Body::Report(report()))),
        ("join-any", join(Wanted::Any)),
        ("join-score", join(Wanted::Score(score))),
        ("join-name", join(Wanted::Name("lab/débian".into()))),
        ("welcome", Sample::Message(welcome)),
        ("refused", Sample::Message(JoinMessage::Refused { reason: "the room is füll".into() })),
        ("result-verified", Sample::Message(result(Ok(score)))),
        ("result-failed", Sample::Message(result(Err("the disk is full".into())))),
        ("result-ok", Sample::Message(JoinMessage::ResultOk)),
        ("leave", Sample::Message(JoinMessage::Leave)),
        ("fetch", Sample::Message(fetch)),
        ("piece", Sample::Message(piece)),
        ("greeting", Sample::Message(JoinMessage::Greeting { nonce: counting(0xd0) })),
        ("resume-datagram", resume.clone()),
        ("resume", Sample::Message(JoinMessage::Resume { datagram: resume.encode() })),
        ("gone", Sample::Message(JoinMessage::Gone)),
        ("resume-encrypted", encrypted(MessageType::Resume, Body::Resume(Resume { receiver: RECEIVER }))),
        ("announce-ipv6", datagram(MessageType::Announce, Body::Announce(announce_of_ipv6()))),
        ("announce-join-key", encrypted(MessageType::Announce, Body::Announce(announce()))),
        ("data-encrypted", encrypted(MessageType::Data, data(1024, b"the end".iter().copied()))),
        ("plan-encrypted", encrypted(MessageType::Plan, Body::Plan(plan()))),
        ("request-encrypted", encrypted(MessageType::Request, Body::Request(request()))),
        ("report-encrypted", encrypted(MessageType::Report, Body::Report(report()))),
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

/// The name and hexadecimal bytes of every golden sample.
fn golden() -> BTreeMap<&'static str, &'static str> {
    let lines: BTreeMap<_, _> = GOLDEN.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert_eq!(lines.len(), GOLDEN.lines().count(), "each name occurs once");
    lines
}

#[test]
fn encoding_matches_the_golden_bytes() {
    let written: BTreeMap<_, _> =
        samples().into_iter().map(|(name, sample)| (name, to_hex(&sample.encode()))).collect();
    let golden = golden();
    for (name, hex) in &written {
        let frozen = golden.get(name).unwrap_or_else(|| panic!("add to the golden file: {name} {hex}"));
        assert_eq!(hex, frozen, "{name} is encoded differently from version 1");
    }
    assert_eq!(written.len(), golden.len(), "a golden sample is no longer encoded");
}

#[test]
fn golden_bytes_are_parsed() {
    let golden = golden();
    for (name, sample) in samples() {
        let read = sample.decode_like(&from_hex(golden[name]));
        assert_eq!(read, Some(sample), "{name} is parsed differently from version 1");
    }
}
