//! A sender and a receiver of a probe that have met: what hostile datagrams and messages are aimed at.

use std::net::SocketAddr;
use std::time::Duration;

use platter_cast::{
    Family, JoinKey, MESSAGE_BYTES_MAX, ProbeFinding, ProbeReceiver, ProbeReceiverOptions, ProbeSender,
    ProbeSenderOptions, ProbeStep, ProbeTarget,
};

use super::cast_keys::{TAG_BYTES, open_welcome};
use super::cast_pair::{ADDRESS, CONNECTION};

const JOIN_KEY: [u8; 32] = [6; 32];
/// Low, so that the series at this rate are short.
const BITS_PER_SECOND: u64 = 400_000;
/// Datagrams and messages that are remembered.
const SAID_MAX: usize = 256;
/// Datagrams of the series for this many members, whatever the sender is told: 10 and 15, 20 for each, and 2 s at the rate and a tenth of it.
const SERIES_MAX: u32 = 10 + 15 + 20 * MEMBERS_MAX + 80;
const MEMBERS_MAX: u32 = 4;
/// Datagrams that a receiver sends, whatever arrives.
const FEEDBACK_MAX: u32 = 10;
/// Longest time that a probe takes, and the steps in which its end is awaited.
const PROBE_TIME: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(100);
/// Where a WELCOME, with its length, has the key.
const KEY_AT: usize = 10;
const PORT: u16 = 1000;

/// Both machines, a clock, and what they said.
pub struct ProbePair {
    /// The sending machine.
    pub sender: ProbeSender,
    /// The receiving machine.
    pub receiver: ProbeReceiver,
    /// The time, which only goes on.
    pub now: Duration,
    /// Datagrams of both, and messages without their lengths.
    pub datagrams: Vec<Vec<u8>>,
    /// Messages, as they were sent.
    pub messages: Vec<Vec<u8>>,
    key: [u8; 32],
    series_sent: u32,
    feedback_sent: u32,
}

impl ProbePair {
    /// Both machines after the join.
    pub fn joined(has_join_key: bool) -> Self {
        let join_key = has_join_key.then(|| JoinKey::new(JOIN_KEY));
        let address = |last: u8| SocketAddr::from(([10, 0, 0, last], 7580));
        let sender = ProbeSender::new(ProbeSenderOptions {
            seed: [3; 32],
            join_key: join_key.clone(),
            bits_per_second: BITS_PER_SECOND,
            group: ([239, 255, 1, 2], 7580).into(),
            join: address(1),
            feedback: address(2),
            receivers: 1,
            wait: Duration::from_secs(5),
        });
        let receiver =
            ProbeReceiver::new(ProbeReceiverOptions { join_key, nonce: [1; 32], name: "pc".into() });
        let now = Duration::ZERO;
        let (datagrams, messages) = (Vec::new(), Vec::new());
        let mut pair = Self {
            sender,
            receiver,
            now,
            datagrams,
            messages,
            key: [0; 32],
            series_sent: 0,
            feedback_sent: 0,
        };
        pair.receiver.handle_connected(PORT);
        let greetings = has_join_key.then(|| pair.exchange());
        let (_, mut welcome) = pair.exchange();
        if let Some((of_receiver, of_sender)) = &greetings {
            welcome = open_welcome(&JOIN_KEY, of_receiver, of_sender, &welcome);
        }
        pair.key = welcome[KEY_AT..KEY_AT + 32].try_into().expect("a WELCOME with a key");
        pair
    }

    /// Gives the sender a message of the receiver, and the receiver its answer. Returns both.
    fn exchange(&mut self) -> (Vec<u8>, Vec<u8>) {
        let asked = self.receiver.poll_message().expect("a receiver that connected asks to join");
        self.sender.handle_message(CONNECTION, ADDRESS, &asked[4..]);
        let (_, answer) = self.sender.poll_message().expect("an answer");
        self.receiver.handle_message(self.now, &answer[4..]);
        self.messages.extend([asked[4..].to_vec(), answer[4..].to_vec()]);
        (asked, answer)
    }

    /// Gives a datagram a valid tag, as if sender or receiver had made it. Nothing else in it is changed.
    pub fn retag(&self, datagram: &mut Vec<u8>) {
        datagram.truncate(datagram.len().saturating_sub(TAG_BYTES));
        let tag = blake3::keyed_hash(&self.key, datagram);
        datagram.extend_from_slice(&tag.as_bytes()[..TAG_BYTES]);
    }

    /// Delivers a datagram to the receiver, which may also take it for an announcement of another sender.
    pub fn deliver(&mut self, datagram: &[u8]) {
        let _ = self.receiver.announced(datagram);
        self.receiver.handle_datagram(datagram);
    }

    /// Delivers a message to the receiver, which does what it is told.
    pub fn tell_receiver(&mut self, message: &[u8]) {
        if let Some(ProbeStep::Report(sent)) = self.receiver.handle_message(self.now, message) {
            let counts = self.receiver.report(Some(false));
            check_findings(&ProbeFinding::of(&sent, Some(&counts)));
        }
    }

    /// Polls both machines until neither has anything to say. What they say reaches the other one.
    ///
    /// # Panics
    /// When they say more than a probe needs.
    pub fn settle(&mut self) {
        while let Some(transmit) = self.sender.poll_transmit(self.now) {
            for datagram in transmit.bytes.chunks(transmit.datagram_bytes) {
                self.series_sent += u32::from(transmit.target != ProbeTarget::Discovery);
                self.deliver(datagram);
                remember(&mut self.datagrams, datagram);
            }
        }
        while let Some((_, datagram)) = self.receiver.poll_transmit(self.now) {
            self.feedback_sent += 1;
            self.sender.handle_datagram(&datagram);
            remember(&mut self.datagrams, &datagram);
        }
        assert!(self.series_sent <= SERIES_MAX, "the sender sends more than its series");
        assert!(self.feedback_sent <= FEEDBACK_MAX, "the receiver sends more than its datagrams");
        while let Some(message) = self.receiver.poll_message() {
            check_message(&message);
            self.sender.handle_message(CONNECTION, ADDRESS, &message[4..]);
            remember(&mut self.messages, &message[4..]);
        }
        while let Some((connection, message)) = self.sender.poll_message() {
            check_message(&message);
            if connection == CONNECTION {
                self.tell_receiver(&message[4..]);
            }
            remember(&mut self.messages, &message[4..]);
        }
    }

    /// Runs the probe to its end.
    ///
    /// # Panics
    /// When it does not end, or has findings that cannot be.
    pub fn end(&mut self) {
        let until = self.now + PROBE_TIME;
        while !self.sender.is_over() {
            assert!(self.now < until, "the probe does not end");
            self.now += STEP;
            self.settle();
        }
        let receivers = self.sender.receivers();
        assert!(receivers.len() <= MEMBERS_MAX as usize, "more receivers than connections");
        for receiver in receivers {
            check_findings(&ProbeFinding::of(&receiver.sent, receiver.counts.as_ref()));
        }
    }
}

fn remember(said: &mut Vec<Vec<u8>>, bytes: &[u8]) {
    if said.len() < SAID_MAX {
        said.push(bytes.to_vec());
    }
}

fn check_findings(findings: &[ProbeFinding]) {
    for finding in findings {
        if let ProbeFinding::Lossy(share) = finding {
            assert!((0.0..=1.0).contains(share), "{share} of a series is lost");
        }
        assert!(
            !finding.code().is_empty()
                && Family::ALL.iter().all(|family| !finding.advice(*family).is_empty())
        );
    }
}

/// A message that we send is one that we would take.
fn check_message(message: &[u8]) {
    let length = u32::from_le_bytes(message[..4].try_into().expect("a length")) as usize;
    assert!(length == message.len() - 4 && length <= MESSAGE_BYTES_MAX, "a message of {length} bytes");
}
