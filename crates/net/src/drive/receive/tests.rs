//! Tests of the receiver's loop in parts.

use std::net::UdpSocket;

use super::*;
use crate::options::ToldSender;

/// A receiver at the loopback device, at a port that only its test uses.
fn options(number: u16, told: Option<&Arc<ToldSender>>) -> ReceiveOptions {
    ReceiveOptions {
        interface: Some("127.0.0.1".into()),
        port: 62_080 + number * 1_000 + (std::process::id() % 1_000) as u16,
        told: told.cloned(),
        ..ReceiveOptions::default()
    }
}

#[test]
fn only_failures_at_the_address_that_the_origin_names_count() {
    let told = Arc::<ToldSender>::default();
    let options = options(0, Some(&told));
    let mut driver = Driver::open(&options, bounded(1).0, Arc::default()).unwrap();
    let [named, announced] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let refusal = Error::refused("no");
    for _ in 0..2 * UNREACHED_MAX {
        told.set(JoinPlace { address: named, session: None });
        driver.connected_to = Some(announced);
        driver.refuse(Duration::ZERO, &refusal).unwrap();
    }
    driver.connected_to = Some(named);
    for _ in 1..UNREACHED_MAX {
        told.set(JoinPlace { address: named, session: None });
        // The second one is no news: the origin has not been asked since.
        (0..2).for_each(|_| driver.refuse(Duration::ZERO, &refusal).unwrap());
    }
    told.set(JoinPlace { address: named, session: None });
    assert_eq!(driver.refuse(Duration::ZERO, &refusal).unwrap_err().kind(), ErrorKind::Transient);
}

#[test]
fn a_sender_whose_group_cannot_be_used_is_refused() {
    let options = options(1, None);
    let mut driver = Driver::open(&options, bounded(1).0, Arc::default()).unwrap();
    // Another program has the port for itself.
    let taken = UdpSocket::bind("0.0.0.0:0").unwrap();
    let group = SocketAddr::from(([239, 255, 1, 1], taken.local_addr().unwrap().port()));
    driver.connected_to = Some(SocketAddr::from(([127, 0, 0, 1], 1)));
    assert!(!driver.listens_or_refuses(Duration::ZERO, group).unwrap());
    assert!(
        driver.refusal.as_ref().unwrap().contains("127.0.0.1:1 cannot be joined"),
        "{:?}",
        driver.refusal
    );
    // Such an error after its address came back does not end a joined receiver, either.
    (driver.is_joined, driver.is_cut_off, driver.joined_group) = (true, true, Some(group));
    driver.look_for_addresses(Duration::ZERO).unwrap();
    assert!(driver.is_cut_off && driver.group.is_none());
    drop(taken);
    driver.look_for_addresses(Duration::ZERO).unwrap();
    assert!(!driver.is_cut_off && driver.group.is_some());
}

fn description(name: &str) -> SessionDescription {
    SessionDescription {
        score: platter_image::Score(platter_image::BlockId([1; 32])),
        name: name.into(),
        offer: Vec::new(),
        secret: Default::default(),
        segment_length: 1 << 36,
        segments: Vec::new(),
        chunk_lengths: Vec::new(),
    }
}

#[test]
fn of_many_sessions_a_busy_sink_gets_the_newest_one() {
    let (options, (jobs, queue)) = (options(0, None), bounded(OTHER_JOBS));
    let mut driver = Driver::open(&options, jobs, Arc::default()).unwrap();
    for number in 0..100 {
        driver.next_session = Some(description(&number.to_string()));
        driver.pass_session().unwrap();
    }
    driver.take_answer(Duration::ZERO, SinkAnswer::Wanted(Ok(Vec::new())));
    let names = queue.try_iter().map(|job| match job {
        SinkJob::Session(description) => description.name,
        SinkJob::Chunk { .. } | SinkJob::Finish => "another job".into(),
    });
    assert_eq!(names.collect::<Vec<_>>(), ["0", "99"]);
}

#[test]
fn the_answer_about_an_earlier_session_does_not_finish_the_next_one() {
    let (options, (jobs, queue)) = (options(0, None), bounded(OTHER_JOBS));
    let mut driver = Driver::open(&options, jobs, Arc::default()).unwrap();
    driver.next_session = Some(description("earlier"));
    driver.pass_session().unwrap();
    assert!(matches!(queue.recv().unwrap(), SinkJob::Session(_)));
    // Meanwhile another sender was joined, of which the chunks are not known yet.
    driver.take_answer(Duration::ZERO, SinkAnswer::Wanted(Ok(Vec::new())));
    assert!(!driver.wants_known && !driver.finishing && queue.is_empty());
}
