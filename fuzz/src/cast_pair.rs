//! A sender and a receiver that have met: what hostile datagrams and messages are aimed at.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use platter_cast::{
    CastFilter, JoinKey, MESSAGE_BYTES_MAX, Receiver, ReceiverEvent, ReceiverOptions, Segment, Sender,
    SenderOptions, SessionDescription, Transmit, Wanted,
};
use platter_image::{BlockId, Score};

use super::cast_keys::{CastKeys, TAG_BYTES, open_welcome};

/// The connection of the receiver that joined.
pub const CONNECTION: u64 = 1;
/// Where receivers join from.
pub const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Times that a machine may have something to say at one instant: more would be a loop without end.
const POLLS_MAX: usize = 10_000;
/// Steps of the cast before it is attacked: enough for every type of datagram.
const MEETING_STEPS: usize = 40;
/// Most bytes of a datagram before its tag.
const BODY_BYTES_MAX: usize = 1432;
const STEP: Duration = Duration::from_millis(5);
/// Content chunks that the receiver has room for.
const BUFFER_CHUNKS: usize = 4;
const JOIN_KEY: [u8; 32] = [6; 32];

/// Both machines, a clock, and what they said last.
pub struct CastPair {
    /// The sending machine.
    pub sender: Sender,
    /// The receiving machine.
    pub receiver: Receiver,
    /// The time, which only goes on.
    pub now: Duration,
    /// Datagrams that they made while they met, decrypted.
    pub said: Vec<Vec<u8>>,
    lengths: Vec<u32>,
    transmit: Transmit,
    /// The keys that the receiver got at the join.
    keys: Option<CastKeys>,
    /// The last packet number of a datagram that was given a valid tag.
    packet: u64,
}

impl CastPair {
    /// Both machines, before anything was said, with a join key or without.
    pub fn apart(has_join_key: bool) -> Self {
        let join_key = has_join_key.then(|| JoinKey::new(JOIN_KEY));
        let lengths = vec![3000, 6000];
        let description = SessionDescription {
            secret: Default::default(),
            offer: Vec::new(),
            score: Score(BlockId([3; 32])),
            name: "lab/x".into(),
            segment_length: 1 << 36,
            segments: vec![Segment { chunks: lengths.len() as u32, recipe_chunks: 1 }],
            chunk_lengths: lengths.clone(),
        };
        let options = SenderOptions {
            seed: [1; 32],
            join_key: join_key.clone(),
            rate_bits_per_second: 100_000_000,
            group: ([239, 255, 1, 1], 7580).into(),
            join: ([10, 0, 0, 1], 7580).into(),
            feedback: ([10, 0, 0, 1], 9000).into(),
            wait_receivers: 1,
            wait: Duration::from_secs(5),
            linger: Duration::from_millis(500),
            give_up: Some(Duration::from_secs(60)),
            is_unlisted: false,
        };
        let sender = Sender::new(options, &description).expect("a session within its limits");
        let receiver = Receiver::new(ReceiverOptions {
            seed: 1,
            wanted: Wanted::Any,
            filter: CastFilter::default(),
            join_key,
            nonce_seed: [1; 32],
            hello: "pc".into(),
            buffer_chunks: BUFFER_CHUNKS,
            everything: false,
        });
        Self {
            sender,
            receiver,
            now: STEP,
            said: Vec::new(),
            lengths,
            transmit: Transmit::new(),
            keys: None,
            packet: 0,
        }
    }

    /// Both machines in the middle of a cast, every fifth datagram lost.
    pub fn joined(has_join_key: bool) -> Self {
        let mut pair = Self::apart(has_join_key);
        pair.receiver.handle_connected(pair.now);
        let greetings = has_join_key.then(|| pair.exchange());
        let (_, mut welcome) = pair.exchange();
        if let Some((of_receiver, of_sender)) = &greetings {
            welcome = open_welcome(&JOIN_KEY, of_receiver, of_sender, &welcome);
        }
        let keys = CastKeys::of_welcome(&welcome, has_join_key.then_some(&JOIN_KEY));
        for _ in 0..MEETING_STEPS {
            pair.now += STEP;
            let from = pair.said.len();
            pair.settle(true);
            for number in from..pair.said.len() {
                let datagram = pair.said[number].clone();
                if number % 5 != 4 {
                    pair.receiver.handle_datagram(pair.now, &datagram);
                    pair.sender.handle_datagram(pair.now, &datagram);
                }
            }
        }
        pair.said.iter_mut().for_each(|datagram| keys.open(datagram));
        pair.keys = Some(keys);
        let is_said = |kind: u8| pair.said.iter().any(|datagram| datagram[1] == kind);
        assert!(
            (1..=5).all(is_said),
            "not every type of datagram was said: the cast is too short to be mutated"
        );
        pair.packet = 1 << 20;
        pair
    }

    /// Gives the sender a message of the receiver, and the receiver its answer. Returns both.
    fn exchange(&mut self) -> (Vec<u8>, Vec<u8>) {
        let asked = self.receiver.poll_message().expect("a receiver that connected asks to join");
        self.sender.handle_message(self.now, CONNECTION, ADDRESS, &asked[4..]);
        let (_, answer) = self.sender.poll_message().expect("an answer");
        self.receiver.handle_message(self.now, &answer[4..]);
        (asked, answer)
    }

    /// Gives a datagram the next packet number and a valid tag, encrypted if the cast is, as if the sender or the receiver had made it.
    /// Nothing else in it is changed.
    pub fn retag(&mut self, datagram: &mut Vec<u8>) {
        datagram.truncate(datagram.len().saturating_sub(TAG_BYTES).min(BODY_BYTES_MAX));
        let Some(number) = datagram.get_mut(8..14) else { return };
        self.packet += 1;
        number.copy_from_slice(&self.packet.to_le_bytes()[..6]);
        if let Some(keys) = &self.keys {
            keys.seal(datagram);
        }
    }

    /// Polls both machines until neither has anything to say, as a driver would.
    ///
    /// # Panics
    /// When one of them does not come to rest, or asks for or gives what cannot be.
    pub fn settle(&mut self, remember: bool) {
        let mut polls = 0;
        let mut count = || {
            polls += 1;
            assert!(polls < POLLS_MAX, "the machines do not come to rest");
        };
        while let Some(index) = self.sender.poll_chunk_needed() {
            count();
            let length = self.lengths[index as usize] as usize;
            self.sender.handle_chunk(index, vec![7; length].into()).expect("the length that was described");
        }
        while self.sender.poll_transmit(self.now, &mut self.transmit) {
            count();
            assert!(!self.transmit.bytes.is_empty(), "a batch of nothing");
            if remember {
                self.said.extend(self.transmit.datagrams().map(<[u8]>::to_vec));
            }
        }
        let mut feedback = Vec::new();
        while self.receiver.poll_transmit(self.now, &mut feedback).is_some() {
            count();
            assert!(!feedback.is_empty(), "a datagram of nothing");
            if remember {
                self.said.push(feedback.clone());
            }
        }
        while let Some(message) = self.receiver.poll_message() {
            count();
            check_message(&message);
        }
        while let Some((_, message)) = self.sender.poll_message() {
            count();
            check_message(&message);
        }
        while let Some(connection) = self.sender.poll_close() {
            count();
            self.sender.handle_disconnect(connection);
        }
        while let Some(event) = self.receiver.poll_event() {
            count();
            self.handle_event(event);
        }
        let _ =
            (self.sender.next_deadline(self.now), self.sender.is_finished(self.now), self.sender.receivers());
        let _ = (self.receiver.next_deadline(), self.receiver.statistics());
    }

    /// What a driver does with an event; chunks turn out good and bad by turns.
    fn handle_event(&mut self, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Session(session) => {
                session.check().expect("a session within its limits");
                self.receiver.want(self.now, &[session.all_chunks()]);
            }
            ReceiverEvent::Chunk { generation, index, bytes } => {
                assert!(!bytes.is_empty());
                if index % 2 == 0 {
                    self.receiver.chunk_accepted(generation, index, bytes);
                } else {
                    // Gives up with an error after a few: that is the driver's to tell.
                    let _ = self.receiver.chunk_bad(self.now, generation, index, bytes);
                }
            }
            ReceiverEvent::SenderLost | ReceiverEvent::Forgotten => {
                self.receiver.handle_disconnected(self.now);
            }
            ReceiverEvent::Connect { .. } | ReceiverEvent::Reconnect => {
                self.receiver.handle_connected(self.now);
            }
            ReceiverEvent::Refused(_) => self.receiver.handle_disconnected(self.now),
            ReceiverEvent::Joined(_)
            | ReceiverEvent::Ignored { .. }
            | ReceiverEvent::Unusable(_)
            | ReceiverEvent::Acknowledged => {}
        }
    }
}

/// A message that we send is one that we would take.
fn check_message(message: &[u8]) {
    let length = u32::from_le_bytes(message[..4].try_into().expect("a length")) as usize;
    assert_eq!(length, message.len() - 4);
    assert!(length <= MESSAGE_BYTES_MAX, "a message of {length} bytes is too long to be read");
}
