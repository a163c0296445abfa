//! Random and mutated datagrams and messages for both machines. Nothing panics, nothing false is believed, and the sender sends
//! nothing for strangers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: it fails by panicking, and prints tables"
)]

#[path = "../../../fuzz/src/cast_keys.rs"]
mod cast_keys;
mod simulated;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cast_keys::{CastKeys, TAG_BYTES, open_welcome};
use platter_cast::{
    CastFilter, JoinKey, Receiver, ReceiverEvent, ReceiverOptions, Sender, SenderOptions, Transmit, Wanted,
};
use proptest::prelude::*;
use simulated::{Random, description, packet_of, sender_options};

const NOW: Duration = Duration::from_millis(5);
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const JOIN_KEY: [u8; 32] = [6; 32];

fn message_of(bytes: &[u8]) -> Vec<u8> {
    bytes[4..].to_vec()
}

fn receiver(join_key: Option<JoinKey>, everything: bool) -> Receiver {
    Receiver::new(ReceiverOptions {
        seed: 1,
        wanted: Wanted::Any,
        filter: CastFilter::default(),
        join_key,
        nonce_seed: [1; 32],
        hello: "pc".into(),
        buffer_chunks: 4,
        everything,
    })
}

/// Gives the sender a message of the receiver, and the receiver its answer. Returns both.
fn exchange(sender: &mut Sender, receiver: &mut Receiver) -> (Vec<u8>, Vec<u8>) {
    let asked = receiver.poll_message().unwrap();
    sender.handle_message(NOW, 1, ADDRESS, &message_of(&asked));
    let answer = sender.poll_message().unwrap().1;
    receiver.handle_message(NOW, &message_of(&answer));
    (asked, answer)
}

/// A sender and a receiver that has joined and wants everything, with their keys and samples of every type of datagram that they make,
/// decrypted.
fn joined(has_join_key: bool) -> (Sender, Receiver, CastKeys, Vec<Vec<u8>>) {
    let description = description(vec![3000, 20_000, 50_000]);
    let join_key = has_join_key.then(|| JoinKey::new(JOIN_KEY));
    let options = SenderOptions { join_key: join_key.clone(), ..sender_options(1, 100_000_000) };
    let mut sender = Sender::new(options, &description).unwrap();
    let mut receiver = receiver(join_key, false);
    receiver.handle_connected(NOW);
    let greetings = has_join_key.then(|| exchange(&mut sender, &mut receiver));
    let (_, mut welcome) = exchange(&mut sender, &mut receiver);
    if let Some((of_receiver, of_sender)) = &greetings {
        welcome = open_welcome(&JOIN_KEY, of_receiver, of_sender, &welcome);
    }
    let keys = CastKeys::of_welcome(&welcome, has_join_key.then_some(&JOIN_KEY));
    let mut datagrams = Vec::new();
    let (mut transmit, mut feedback) = (Transmit::new(), Vec::new());
    for step in 1..60 {
        let now = NOW * step;
        while let Some(index) = sender.poll_chunk_needed() {
            let length = description.chunk_lengths[index as usize] as usize;
            sender.handle_chunk(index, vec![7; length].into()).unwrap();
        }
        while sender.poll_transmit(now, &mut transmit) {
            for (number, datagram) in transmit.datagrams().enumerate() {
                datagrams.push(datagram.to_vec());
                if number % 5 != 0 || step < 10 {
                    receiver.handle_datagram(now, datagram);
                }
            }
        }
        while receiver.poll_transmit(now, &mut feedback).is_some() {
            datagrams.push(feedback.clone());
            sender.handle_datagram(now, &feedback);
        }
        while let Some(event) = receiver.poll_event() {
            if let ReceiverEvent::Session(session) = event {
                receiver.want(now, &[session.all_chunks()]);
            }
        }
    }
    datagrams.iter_mut().for_each(|datagram| keys.open(datagram));
    (sender, receiver, keys, datagrams)
}

#[test]
fn mutated_datagrams_do_no_harm() {
    mutated_datagrams(false);
}

/// The bodies of these are decrypted and read.
#[test]
fn mutated_datagrams_do_no_harm_to_a_cast_with_a_join_key() {
    mutated_datagrams(true);
}

fn mutated_datagrams(has_join_key: bool) {
    let (mut sender, mut receiver, keys, datagrams) = joined(has_join_key);
    assert!(datagrams.len() > 50);
    for kind in 1..=5 {
        assert!(
            datagrams.iter().any(|datagram| datagram[1] == kind),
            "there is no datagram of type {kind} to mutate"
        );
    }
    let mut random = Random(77);
    let mut packet = datagrams.iter().map(|datagram| packet_of(datagram)).max().unwrap();
    let (mut transmit, mut feedback) = (Transmit::new(), Vec::new());
    for round in 0..60_000u32 {
        let mut datagram = datagrams[random.next() as usize % datagrams.len()].clone();
        for _ in 0..1 + random.next() % 6 {
            // Mostly at the front, where the fields are.
            let position =
                random.next() as usize % if random.next().is_multiple_of(4) { datagram.len() } else { 60 };
            if let Some(byte) = datagram.get_mut(position) {
                *byte = if random.next().is_multiple_of(3) { 0xff } else { random.next() as u8 };
            }
        }
        if random.next().is_multiple_of(8) {
            datagram.truncate(random.next() as usize % (datagram.len() + 1));
        }
        // Most have the right tag, as if their sender had sent them. Otherwise no field of them would be read.
        if !random.next().is_multiple_of(8) && datagram.len() > TAG_BYTES {
            datagram.truncate(datagram.len() - TAG_BYTES);
            if datagram.len() > 18 && !random.next().is_multiple_of(8) {
                packet += 1;
                datagram[8..14].copy_from_slice(&packet.to_le_bytes()[..6]);
            }
            keys.seal(&mut datagram);
        }
        let now = Duration::from_millis(300) + Duration::from_micros(u64::from(round) * 50);
        sender.handle_datagram(now, &datagram);
        receiver.handle_datagram(now, &datagram);
        if round % 64 == 0 {
            while sender.poll_transmit(now, &mut transmit) {}
            while sender.poll_chunk_needed().is_some() {}
            while receiver.poll_transmit(now, &mut feedback).is_some() {}
            while receiver.poll_event().is_some() {}
        }
    }
    let (sent, received) = (sender.progress(), receiver.statistics());
    assert!(
        sent.rejected > 1000 && received.rejected > 1000 && received.repeated > 100,
        "{sent:?} {received:?}"
    );
}

#[test]
fn a_flood_of_another_session_does_not_make_the_sender_send() {
    let (_, _, _, datagrams) = joined(false);
    let description = description(vec![3000, 20_000, 50_000]);
    let mut options = sender_options(1, 100_000_000);
    options.wait_receivers = 1;
    let mut sender = Sender::new(options, &description).unwrap();
    let feedback: Vec<_> =
        datagrams.into_iter().filter(|datagram| datagram[1] == 4 || datagram[1] == 5).collect();
    for datagram in &feedback {
        sender.handle_datagram(NOW, datagram);
    }
    assert_eq!(sender.progress().chunks_remaining, 0);
    assert_eq!(sender.progress().rejected, feedback.len() as u64);
}

proptest! {
    #[test]
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..1600), kind in 0u8..8) {
        let (mut sender, mut receiver, datagrams) = joined_once();
        let mut datagram = datagrams[0].clone();
        datagram.truncate(18);
        datagram[1] = kind;
        datagram.extend_from_slice(&bytes);
        for hostile in [&datagram, &bytes] {
            sender.handle_datagram(NOW, hostile);
            receiver.handle_datagram(NOW, hostile);
            sender.handle_message(NOW, 9, ADDRESS, hostile);
            receiver.handle_message(NOW, hostile);
        }
        let mut message = vec![1, kind];
        message.extend_from_slice(&bytes);
        sender.handle_message(NOW, 9, ADDRESS, &message);
        receiver.handle_message(NOW, &message);
    }
}

fn joined_once() -> (Sender, Receiver, Vec<Vec<u8>>) {
    let description = description(vec![3000]);
    let mut sender = Sender::new(sender_options(1, 100_000_000), &description).unwrap();
    let receiver = receiver(None, false);
    let mut transmit = Transmit::new();
    assert!(sender.poll_transmit(NOW, &mut transmit));
    (sender, receiver, vec![transmit.bytes])
}

/// A forged directory leaves nothing behind: no chunk is passed on before the session is known, and the right directory is fetched.
#[test]
fn a_forged_directory_is_fetched_and_no_chunk_precedes_the_session() {
    let description = description(vec![3000, 20_000]);
    let mut sender = Sender::new(sender_options(1, 100_000_000), &description).unwrap();
    let mut receiver = receiver(None, true);
    receiver.handle_connected(NOW);
    sender.handle_message(NOW, 1, ADDRESS, &message_of(&receiver.poll_message().unwrap()));
    let welcome = sender.poll_message().unwrap().1;
    receiver.handle_message(NOW, &message_of(&welcome));
    let keys = CastKeys::of_welcome(&welcome, None);
    let (mut transmit, mut feedback) = (Transmit::new(), Vec::new());
    let (mut is_forged, mut events) = (false, Vec::new());
    for step in 1..100 {
        let now = NOW * step;
        while let Some(index) = sender.poll_chunk_needed() {
            let length = description.chunk_lengths[index as usize] as usize;
            sender.handle_chunk(index, vec![7; length].into()).unwrap();
        }
        while sender.poll_transmit(now, &mut transmit) {
            for datagram in transmit.datagrams() {
                let is_directory = datagram[1] == 2 && datagram[18..22] == [0; 4];
                if !is_directory {
                    receiver.handle_datagram(now, datagram);
                } else if !std::mem::replace(&mut is_forged, true) {
                    // A table with two other lengths, of whoever has the session key.
                    let mut forged = datagram[..datagram.len() - TAG_BYTES].to_vec();
                    forged[24..40].copy_from_slice(&[2, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0]);
                    keys.seal(&mut forged);
                    receiver.handle_datagram(now, &forged);
                }
            }
        }
        // The messages to fetch the directory arrive late.
        if step > 50 {
            while let Some(message) = receiver.poll_message() {
                sender.handle_message(now, 1, ADDRESS, &message_of(&message));
            }
            while let Some((_, message)) = sender.poll_message() {
                receiver.handle_message(now, &message_of(&message));
            }
        }
        while receiver.poll_transmit(now, &mut feedback).is_some() {
            sender.handle_datagram(now, &feedback);
        }
        events.extend(std::iter::from_fn(|| receiver.poll_event()));
    }
    assert!(is_forged);
    let of_contents = events.iter().filter_map(|event| match event {
        ReceiverEvent::Session(session) => Some(session.chunk_lengths.clone()),
        ReceiverEvent::Chunk { bytes, .. } => Some(vec![bytes.len() as u32]),
        _ => None,
    });
    assert_eq!(of_contents.collect::<Vec<_>>()[..2], [vec![3000, 20_000], vec![3000]]);
}
