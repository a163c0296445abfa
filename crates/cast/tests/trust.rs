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
    CastFilter, Receiver, ReceiverEvent, ReceiverOptions, Sender, SessionDescription, Transmit, Wanted,
};
use platter_image::{BlockId, Score};
use simulated::{description, sender_options};

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
    assert!(matches!(events(&mut receiver)[..], [ReceiverEvent::Connect(_)]));
    assert_eq!(receiver.statistics().ignored_senders, 1);
}

#[test]
fn a_sender_whose_welcome_differs_from_its_announcement_is_left() {
    let (mut rogue, _) = sender(1, 4);
    let (_, right) = sender(2, 3);
    let mut receiver = receiver(third_only());
    receiver.handle_datagram(NOW, &right);
    assert!(matches!(events(&mut receiver)[..], [ReceiverEvent::Connect(_)]));
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
    assert!(matches!(events(&mut receiver)[..], [ReceiverEvent::Connect(_)]));
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
