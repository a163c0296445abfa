//! Whom a receiver believes: which senders it joins, and which datagrams and messages it accepts.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: it fails by panicking, and prints tables"
)]

mod simulated;

use std::time::Duration;

use platter_cast::{
    CastFilter, JoinKey, Receiver, ReceiverEvent, ReceiverOptions, ReceiverState, Sender, SenderOptions,
    SessionDescription, Transmit, Wanted,
};
use platter_image::{BlockId, Score};
use simulated::{description, packet_of, sender_options};

const NOW: Duration = Duration::from_millis(5);

/// A sender of a disk with this score, and its announcement.
fn sender(seed: u8, score: u8) -> (Sender, Vec<u8>) {
    let description =
        SessionDescription { score: Score(BlockId([score; 32])), ..description(vec![3000, 20_000]) };
    let mut sender = Sender::new(sender_options(seed, 100_000_000), &description).unwrap();
    let mut transmit = Transmit::new();
    assert!(sender.poll_transmit(NOW, &mut transmit));
    (sender, transmit.bytes)
}

fn receiver(filter: CastFilter) -> Receiver {
    Receiver::new(ReceiverOptions {
        seed: 1,
        wanted: Wanted::Name("lab/x".into()),
        filter,
        join_key: None,
        nonce_seed: [1; 32],
        hello: "pc".into(),
        buffer_chunks: 4,
        everything: false,
    })
}

fn events(receiver: &mut Receiver) -> Vec<ReceiverEvent> {
    std::iter::from_fn(|| receiver.poll_event()).collect()
}

fn third_only() -> CastFilter {
    CastFilter::new(|announce| match announce.score.0.0[0] {
        3 => Ok(()),
        _ => Err("not the disk".into()),
    })
}

/// The first value of each type counts, so this changes the group and nothing else; only a join key would prove it.
#[test]
fn a_cast_that_mixes_families_is_ignored() {
    let (_, mut mixed) = sender(1, 3);
    let address = [&[6][..], &7580u16.to_le_bytes(), &[0xff, 0x12], &[0; 13], &[1]].concat();
    mixed.splice(18..18, [7, 0, address.len() as u8, 0].into_iter().chain(address));
    let mut receiver = receiver(CastFilter::default());
    receiver.handle_datagram(NOW, &mixed);
    let said = events(&mut receiver);
    assert!(
        matches!(&said[..], [ReceiverEvent::Ignored { reason, .. }] if reason.contains("mixes address families")),
        "{said:?}"
    );
    let options =
        SenderOptions { feedback: "[fe80::1]:9000".parse().unwrap(), ..sender_options(3, 100_000_000) };
    let error = Sender::new(options, &description(vec![3000])).err().unwrap().to_string();
    assert!(error.contains("mixes address families"), "{error}");
}

#[test]
fn a_sender_of_another_disk_is_reported_once_and_the_right_one_joined() {
    let (_, rogue) = sender(1, 4);
    let (_, right) = sender(2, 3);
    let mut receiver = receiver(third_only());
    for _ in 0..5 {
        receiver.handle_datagram(NOW, &rogue);
    }
    let reported = events(&mut receiver);
    assert!(
        matches!(&reported[..], [ReceiverEvent::Ignored { name, reason, .. }] if name == "lab/x" && reason == "not the disk")
    );
    receiver.handle_datagram(NOW, &right);
    assert!(matches!(events(&mut receiver)[..], [ReceiverEvent::Connect { .. }]));
    assert_eq!(receiver.statistics().ignored_senders, 1);
}

#[test]
fn a_sender_whose_welcome_differs_from_its_announcement_is_left() {
    let (mut rogue, _) = sender(1, 4);
    let (_, right) = sender(2, 3);
    let mut receiver = receiver(third_only());
    receiver.handle_datagram(NOW, &right);
    assert!(matches!(events(&mut receiver)[..], [ReceiverEvent::Connect { .. }]));
    receiver.handle_connected(NOW);
    let join = receiver.poll_message().unwrap();
    rogue.handle_message(NOW, 1, [10, 0, 0, 9].into(), &join[4..]);
    receiver.handle_message(NOW, &rogue.poll_message().unwrap().1[4..]);
    assert!(
        matches!(&events(&mut receiver)[..], [ReceiverEvent::Refused(reason)] if reason == "not the disk")
    );
    receiver.handle_disconnected(NOW);
    // The address is left alone for a while, and tried again later.
    receiver.handle_datagram(NOW, &right);
    assert!(events(&mut receiver).is_empty());
    receiver.handle_datagram(NOW + Duration::from_secs(2), &right);
    assert!(matches!(events(&mut receiver)[..], [ReceiverEvent::Connect { .. }]));
}

#[test]
fn a_rival_that_starts_later_is_reported() {
    let (mut first, right) = sender(2, 3);
    let (_, rogue) = sender(1, 4);
    let mut receiver = receiver(CastFilter::default());
    receiver.handle_datagram(NOW, &right);
    receiver.handle_connected(NOW);
    first.handle_message(NOW, 1, [10, 0, 0, 9].into(), &receiver.poll_message().unwrap()[4..]);
    receiver.handle_message(NOW, &first.poll_message().unwrap().1[4..]);
    events(&mut receiver);
    receiver.handle_datagram(NOW, &rogue);
    receiver.handle_datagram(NOW, &rogue);
    assert!(matches!(&events(&mut receiver)[..], [ReceiverEvent::Ignored { .. }]));
}

#[test]
fn a_sender_of_the_same_disk_without_the_join_key_is_reported() {
    let key = Some(JoinKey::new([5; 32]));
    let mut pair = Pair::new(key.clone(), key);
    pair.connect();
    events(&mut pair.receiver);
    let (_, rogue) = sender(1, 3);
    pair.receiver.handle_datagram(NOW, &rogue);
    pair.receiver.handle_datagram(NOW, &rogue);
    let reported = events(&mut pair.receiver);
    let reasons = reported.iter().filter_map(|event| match event {
        ReceiverEvent::Ignored { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    assert_eq!(reasons.collect::<Vec<_>>(), ["it casts without a key file"]);
}

/// A receiver that joined over a connection with these messages, or the reason why not.
struct Pair {
    sender: Sender,
    receiver: Receiver,
    /// All messages of both sides, in order.
    messages: Vec<Vec<u8>>,
}

impl Pair {
    fn new(sender_key: Option<JoinKey>, receiver_key: Option<JoinKey>) -> Self {
        let options = SenderOptions { join_key: sender_key, ..sender_options(2, 100_000_000) };
        let sender = Sender::new(options, &description(vec![3000, 20_000])).unwrap();
        let receiver = Receiver::new(ReceiverOptions {
            seed: 1,
            wanted: Wanted::Name("lab/x".into()),
            filter: CastFilter::default(),
            join_key: receiver_key,
            nonce_seed: [4; 32],
            hello: "pc".into(),
            buffer_chunks: 4,
            everything: true,
        });
        Self { sender, receiver, messages: Vec::new() }
    }

    /// Connects, and exchanges messages until both are silent.
    fn connect(&mut self) {
        self.receiver.handle_connected(NOW);
        loop {
            if let Some(message) = self.receiver.poll_message() {
                self.sender.handle_message(NOW, 1, [10, 0, 0, 9].into(), &message[4..]);
                self.messages.push(message);
            } else if let Some((_, message)) = self.sender.poll_message() {
                self.receiver.handle_message(NOW, &message[4..]);
                self.messages.push(message);
            } else {
                return;
            }
        }
    }

    fn announcement(&mut self) -> Vec<u8> {
        let mut transmit = Transmit::new();
        assert!(self.sender.poll_transmit(NOW, &mut transmit));
        transmit.bytes
    }
}

#[test]
fn with_a_join_key_nothing_but_nonces_is_readable() {
    let key = Some(JoinKey::new([5; 32]));
    let mut pair = Pair::new(key.clone(), key);
    let announcement = pair.announcement();
    pair.receiver.handle_datagram(NOW, &announcement);
    assert!(matches!(events(&mut pair.receiver)[..], [ReceiverEvent::Connect { .. }]));
    pair.connect();
    assert!(matches!(events(&mut pair.receiver)[..], [ReceiverEvent::Joined(_)]));
    assert_eq!(pair.messages.len(), 4);
    for message in &pair.messages {
        assert!(!message.windows(5).any(|bytes| bytes == b"lab/x"));
    }
}

#[test]
fn a_join_needs_the_same_key_on_both_sides() {
    let (key, other) = (JoinKey::new([5; 32]), JoinKey::new([6; 32]));
    for (of_sender, of_receiver, why) in [
        (Some(&key), None, "needs a key file"),
        (None, Some(&key), "without a key file"),
        (Some(&other), Some(&key), "another key file"),
    ] {
        let mut pair = Pair::new(of_sender.cloned(), of_receiver.cloned());
        let announcement = pair.announcement();
        pair.receiver.handle_datagram(NOW, &announcement);
        let said = events(&mut pair.receiver);
        assert!(
            matches!(&said[..], [ReceiverEvent::Ignored { reason, .. }] if reason.contains(why)),
            "{said:?}"
        );
        // Also when it connects without an announcement.
        pair.connect();
        let said = events(&mut pair.receiver);
        let are_refused = said.iter().all(|event| matches!(event, ReceiverEvent::Refused(_)));
        assert!(!said.is_empty() && are_refused, "{said:?}");
        assert!(pair.sender.receivers().is_empty());
        let rejected = pair.sender.progress().rejected + pair.receiver.statistics().rejected;
        assert!(rejected > 0 || !said.is_empty());
    }
}

#[test]
fn a_recorded_join_cannot_be_repeated() {
    let key = Some(JoinKey::new([5; 32]));
    let mut pair = Pair::new(key.clone(), key);
    pair.connect();
    assert_eq!(pair.sender.receivers().len(), 1);
    // An attacker sends again what the receiver sent, and then what the sender sent.
    for message in [&pair.messages[0], &pair.messages[2]] {
        pair.sender.handle_message(NOW, 7, [10, 0, 0, 9].into(), &message[4..]);
    }
    assert_eq!(pair.sender.receivers().len(), 1);
    pair.receiver.handle_disconnected(NOW);
    events(&mut pair.receiver);
    pair.receiver.handle_connected(NOW);
    for message in [&pair.messages[1], &pair.messages[3]] {
        pair.receiver.handle_message(NOW, &message[4..]);
    }
    assert!(matches!(&events(&mut pair.receiver)[..], [ReceiverEvent::Refused(_)]));
}

/// Forged, repeated, truncated datagrams and those of another session are counted, and change nothing.
#[test]
fn bad_datagrams_cost_a_counter() {
    for join_key in [None, Some(JoinKey::new([5; 32]))] {
        let mut pair = Pair::new(join_key.clone(), join_key);
        pair.connect();
        events(&mut pair.receiver);
        let (mut transmit, mut datagrams, mut feedback) = (Transmit::new(), Vec::new(), Vec::new());
        for step in 1..40 {
            let now = NOW * step;
            while let Some(index) = pair.sender.poll_chunk_needed() {
                let length = [3000, 20_000][index as usize];
                pair.sender.handle_chunk(index, vec![7; length].into()).unwrap();
            }
            while pair.receiver.poll_transmit(now, &mut feedback).is_some() {
                pair.sender.handle_datagram(now, &feedback);
            }
            while pair.sender.poll_transmit(now, &mut transmit) {
                datagrams.extend(transmit.datagrams().map(<[u8]>::to_vec));
            }
        }
        assert!(datagrams.len() > 10, "{}", datagrams.len());
        let now = NOW * 40;
        let count = datagrams.len() as u64;
        for datagram in &datagrams {
            for changed in [
                [&datagram[..datagram.len() - 1], &[datagram[datagram.len() - 1] ^ 1]].concat(),
                datagram[..datagram.len() - 1].to_vec(),
                [&datagram[..4], &[datagram[4] ^ 1], &datagram[5..]].concat(),
                [&datagram[..8], &[9, 9, 9, 9, 9, 9], &datagram[14..]].concat(),
            ] {
                pair.receiver.handle_datagram(now, &changed);
            }
        }
        let announcements = datagrams.iter().filter(|datagram| datagram[1] == 1).count() as u64;
        let statistics = pair.receiver.statistics();
        // Announcements of other sessions are normal.
        assert_eq!(statistics.rejected, count * 4 - announcements, "{statistics:?}");
        assert_eq!((statistics.symbols, statistics.repeated), (0, 0));
        for datagram in &datagrams {
            pair.receiver.handle_datagram(now, datagram);
        }
        let right = pair.receiver.statistics();
        assert!(right.symbols > 0 && right.repeated == 0, "{right:?}");
        for datagram in &datagrams {
            pair.receiver.handle_datagram(now, datagram);
        }
        let again = pair.receiver.statistics();
        assert_eq!(again.symbols, right.symbols, "a repeated one is at most redundant");
        assert_eq!(again.repeated, count - announcements);
        assert_eq!(again.rejected, right.rejected);
    }
}

/// Feedback of another receiver, or sent twice, does not count.
#[test]
fn feedback_counts_once_and_only_with_its_own_key() {
    let mut pair = Pair::new(None, None);
    pair.connect();
    let mut report = Vec::new();
    pair.receiver.poll_transmit(NOW, &mut report).unwrap();
    pair.sender.handle_datagram(NOW, &report);
    assert_eq!((pair.sender.progress().rejected, pair.sender.progress().repeated), (0, 0));
    pair.sender.handle_datagram(NOW, &report);
    assert_eq!((pair.sender.progress().rejected, pair.sender.progress().repeated), (0, 1));
    report[18] ^= 3;
    pair.sender.handle_datagram(NOW, &report);
    assert_eq!((pair.sender.progress().rejected, pair.sender.progress().repeated), (1, 1));
}

/// The sender knows nothing of the numbers under an earlier key, and rejects numbers far above 0.
#[test]
fn a_receiver_that_joins_again_numbers_its_feedback_anew() {
    for join_key in [None, Some(JoinKey::new([5; 32]))] {
        let mut pair = Pair::new(join_key.clone(), join_key);
        let (mut report, mut first) = (Vec::new(), Vec::new());
        for now in [NOW, NOW * 50] {
            pair.connect();
            pair.receiver.poll_transmit(now, &mut report).unwrap();
            first.push(packet_of(&report));
            pair.sender.handle_datagram(now, &report);
            while pair.receiver.poll_transmit(now, &mut report).is_some() {
                pair.sender.handle_datagram(now, &report);
            }
            pair.sender.handle_disconnect(1);
            pair.receiver.forgo();
            pair.receiver.handle_disconnected(NOW);
        }
        assert_eq!(first, [1, 1]);
        assert_eq!(pair.sender.progress().rejected, 0);
    }
}

/// An answer to an announcement is shorter than the announcement.
#[test]
fn a_join_is_shorter_than_the_announcement() {
    let (_, announcement) = sender(2, 3);
    let mut receiver = Receiver::new(ReceiverOptions {
        seed: 1,
        wanted: Wanted::Name("lab/x".into()),
        filter: CastFilter::default(),
        join_key: None,
        nonce_seed: [4; 32],
        hello: "n".repeat(10_000),
        buffer_chunks: 4,
        everything: false,
    });
    receiver.handle_datagram(NOW, &announcement);
    receiver.handle_connected(NOW);
    assert!(receiver.poll_message().unwrap().len() < announcement.len());
}

#[test]
fn a_sender_that_does_not_answer_a_join_is_left() {
    let (_, announcement) = sender(2, 3);
    let mut receiver = receiver(CastFilter::default());
    receiver.handle_datagram(NOW, &announcement);
    events(&mut receiver);
    receiver.handle_connected(NOW);
    let later = receiver.next_deadline().unwrap();
    assert!(
        receiver.poll_transmit(later - NOW, &mut Vec::new()).is_none() && events(&mut receiver).is_empty()
    );
    assert!(receiver.poll_transmit(later, &mut Vec::new()).is_none());
    assert!(matches!(events(&mut receiver)[..], [ReceiverEvent::Refused(_)]));
    receiver.handle_disconnected(later);
    receiver.handle_datagram(later, &announcement);
    assert!(events(&mut receiver).is_empty(), "another sender gets a chance");
}

#[test]
fn a_sender_whose_data_is_corrupt_is_left_for_another_one() {
    let mut pair = Pair::new(None, None);
    let announcement = pair.announcement();
    pair.receiver.handle_datagram(NOW, &announcement);
    pair.connect();
    events(&mut pair.receiver);
    pair.receiver.leave_sender(NOW, "corrupt");
    let result = pair.receiver.poll_message().unwrap();
    pair.sender.handle_message(NOW, 1, [10, 0, 0, 9].into(), &result[4..]);
    assert!(
        matches!(&pair.sender.receivers()[0].state, ReceiverState::Failed(reason) if reason == "corrupt")
    );
    pair.receiver.handle_disconnected(NOW);
    let later = NOW + Duration::from_secs(30);
    pair.receiver.handle_datagram(later, &announcement);
    assert!(events(&mut pair.receiver).is_empty());
    let options = SenderOptions { join: "10.0.0.2:7580".parse().unwrap(), ..sender_options(3, 100_000_000) };
    pair.sender = Sender::new(options, &description(vec![3000, 20_000])).unwrap();
    let announcement = pair.announcement();
    pair.receiver.handle_datagram(later, &announcement);
    assert!(matches!(events(&mut pair.receiver)[..], [ReceiverEvent::Connect { .. }]));
    pair.connect();
    assert!(matches!(events(&mut pair.receiver)[..], [ReceiverEvent::Joined(_)]));
}
