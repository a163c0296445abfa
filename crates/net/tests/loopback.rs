//! Casts over real sockets on the loopback interface: one sender, several receivers, and packet loss where
//! nftables is available.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: it fails by panicking, and tells tables"
)]

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use platter_image::{BlockId, Error, Result, Score};
use platter_net::{
    CastPorts, ChunkSink, ChunkSource, ChunkVerdict, Family, ReceiveEvent, ReceiveOptions, ReceiveSummary,
    ReceiverState, Segment, SendEvent, SendOptions, SendSummary, SessionDescription, SinkOutcome, ToldSender,
    Wanted, receive, send, unscoped,
};

const SCORE: Score = Score(BlockId([5; 32]));

struct Contents(Vec<Arc<[u8]>>);

impl Contents {
    fn new(chunks: usize) -> Self {
        let mut state = 1u64;
        let chunk = |index: usize| -> Arc<[u8]> {
            let length = if index == 0 { 3000 } else { 1_000_000 + index * 1000 };
            let mut bytes = vec![0; length];
            for byte in bytes.chunks_mut(8) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                byte.copy_from_slice(&state.to_le_bytes()[..byte.len()]);
            }
            bytes.into()
        };
        Self((0..chunks).map(chunk).collect())
    }

    fn description(&self) -> SessionDescription {
        let chunk_lengths: Vec<u32> = self.0.iter().map(|bytes| bytes.len() as u32).collect();
        SessionDescription {
            secret: Default::default(),
            offer: Vec::new(),
            score: SCORE,
            name: "lab/test".into(),
            segment_length: 1 << 36,
            segments: vec![Segment { chunks: chunk_lengths.len() as u32, recipe_chunks: 1 }],
            chunk_lengths,
        }
    }
}

impl ChunkSource for Contents {
    fn read(&self, index: u32) -> Result<Arc<[u8]>> {
        Ok(Arc::clone(&self.0[index as usize]))
    }
}

/// Wants the recipe first and, once it has the recipe, the rest, as jobs do. It rejects one chunk once, and
/// may fail.
struct Sink {
    expected: Vec<blake3::Hash>,
    got: Vec<bool>,
    first_bad: bool,
    fails_at: Option<u32>,
    /// How many senders had another recipe.
    left: u32,
}

impl Sink {
    fn new(contents: &Contents) -> Self {
        let expected: Vec<_> = contents.0.iter().map(|bytes| blake3::hash(bytes)).collect();
        Self { got: vec![false; expected.len()], expected, first_bad: false, fails_at: None, left: 0 }
    }
}

impl ChunkSink for Sink {
    fn session(&mut self, description: &SessionDescription) -> Result<Vec<Range<u32>>> {
        assert_eq!(description.chunk_lengths.len(), self.expected.len());
        Ok(std::iter::once(description.recipe_chunks(0)).collect())
    }

    fn chunk(&mut self, index: u32, bytes: &[u8]) -> Result<ChunkVerdict> {
        if self.fails_at == Some(index) {
            return Err(Error::refused("the target is full"));
        }
        if index == 3 && !self.first_bad {
            self.first_bad = true;
            return Ok(ChunkVerdict::Bad("as a test".into()));
        }
        if index == 0 && blake3::hash(bytes) != self.expected[0] {
            self.left += 1;
            return Ok(ChunkVerdict::Unusable("another recipe".into()));
        }
        assert_eq!(blake3::hash(bytes), self.expected[index as usize], "chunk {index}");
        assert!(!std::mem::replace(&mut self.got[index as usize], true), "chunk {index} arrived twice");
        if index == 0 {
            return Ok(ChunkVerdict::AcceptedWant(std::iter::once(1..self.expected.len() as u32).collect()));
        }
        Ok(ChunkVerdict::Accepted)
    }

    fn finish(&mut self) -> Result<SinkOutcome> {
        assert!(self.got.iter().all(|got| *got));
        Ok(SinkOutcome { score: SCORE, bytes_written: 123 })
    }
}

/// A port for announcements that no other test uses.
fn discovery() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id() * 8 + NEXT.fetch_add(1, Ordering::Relaxed);
    20_000 + (number % 40_000) as u16
}

/// Names the interface of a namespace with IPv6 only; `in_a_namespace` sets it.
const INTERFACE: &str = "PLATTER_TEST_INTERFACE";

fn interface() -> Option<String> {
    Some(std::env::var(INTERFACE).unwrap_or_else(|_| "127.0.0.1".into()))
}

fn send_options(port: u16, receivers: u32) -> SendOptions {
    SendOptions {
        interface: interface(),
        port,
        join_port: 0,
        rate_bits_per_second: 800_000_000,
        wait_receivers: receivers,
        wait: Duration::from_secs(20),
        linger: Duration::from_millis(100),
        give_up: Some(Duration::from_secs(20)),
        ..SendOptions::default()
    }
}

fn receive_options(port: u16, number: usize) -> ReceiveOptions {
    ReceiveOptions {
        interface: interface(),
        wanted: Wanted::Name("lab/test".into()),
        port,
        hello: format!("pc{number}"),
        buffer_chunks: 24,
        give_up: Some(Duration::from_secs(20)),
        ..ReceiveOptions::default()
    }
}

/// Runs a cast with one receiver for each sink.
fn cast(contents: &Contents, sinks: Vec<Sink>) -> (Result<SendSummary>, Vec<Result<ReceiveSummary>>) {
    let discovery = discovery();
    thread::scope(|scope| {
        let options = send_options(discovery, sinks.len() as u32);
        let sender = scope.spawn(move || send(&options, &contents.description(), contents, |_| {}));
        let receivers: Vec<_> = sinks
            .into_iter()
            .enumerate()
            .map(|(number, mut sink)| {
                scope.spawn(move || receive(&receive_options(discovery, number), &mut sink, |_| {}))
            })
            .collect();
        let received = receivers.into_iter().map(|thread| thread.join().unwrap()).collect();
        (sender.join().unwrap(), received)
    })
}

fn check_all_done(contents: &Contents, receivers: usize, least_repaired: u64) {
    let (sent, received) = cast(contents, (0..receivers).map(|_| Sink::new(contents)).collect());
    let sent = sent.unwrap();
    let mut repaired = 0;
    for summary in received {
        let summary = summary.unwrap();
        assert!(summary.acknowledged);
        assert_eq!(summary.outcome, SinkOutcome { score: SCORE, bytes_written: 123 });
        repaired += summary.repaired;
    }
    assert_eq!(sent.receivers.len(), receivers);
    for status in &sent.receivers {
        assert!(matches!(status.state, ReceiverState::Done(_)), "{status:?}");
    }
    assert!(repaired >= least_repaired, "{repaired}");
    println!("{receivers} receivers in {:?}: {:?}, {repaired} repaired", sent.duration, sent.progress);
}

#[test]
fn four_receivers_get_everything() {
    check_all_done(&Contents::new(20), 4, 0);
}

#[test]
fn a_sender_that_cannot_be_used_is_left_for_another_one() {
    let (contents, port) = (Contents::new(12), discovery());
    let mut others = Contents::new(12);
    others.0[0] = vec![1; 3000].into();
    let stop = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let options = SendOptions { stop: stop.clone(), give_up: None, ..send_options(port, 1) };
        let rogue = scope.spawn(|| {
            let options = options;
            send(&options, &others.description(), &others, |_| {})
        });
        let (joined, has_joined) = mpsc::channel();
        let mut sink = Sink::new(&contents);
        let receiver = scope.spawn(move || {
            let received = receive(&receive_options(port, 0), &mut sink, |event| {
                if let ReceiveEvent::Joined { .. } = event {
                    let _ = joined.send(());
                }
            });
            (received, sink.left)
        });
        has_joined.recv_timeout(Duration::from_secs(20)).unwrap();
        let sent = send(&send_options(port, 1), &contents.description(), &contents, |_| {}).unwrap();
        let (received, left) = receiver.join().unwrap();
        assert_eq!((received.unwrap().outcome.bytes_written, left), (123, 1));
        assert!(matches!(sent.receivers[0].state, ReceiverState::Done(_)), "{sent:?}");
        stop.store(true, Ordering::Relaxed);
        let failed = rogue.join().unwrap().unwrap().receivers.remove(0).state;
        assert!(
            matches!(&failed, ReceiverState::Failed(reason) if reason.contains("another recipe")),
            "{failed:?}"
        );
    });
}

#[test]
fn a_failing_sink_is_reported_to_the_sender_and_the_others_go_on() {
    let contents = Contents::new(12);
    let failing = Sink { fails_at: Some(5), ..Sink::new(&contents) };
    let (sent, received) = cast(&contents, vec![failing, Sink::new(&contents)]);
    assert!(received[0].as_ref().unwrap_err().to_string().contains("the target is full"));
    assert!(received[1].is_ok());
    let states: Vec<ReceiverState> = sent.unwrap().receivers.into_iter().map(|status| status.state).collect();
    assert!(states.contains(&ReceiverState::Failed("the target is full".into())), "{states:?}");
    assert!(states.iter().any(|state| matches!(state, ReceiverState::Done(_))), "{states:?}");
}

/// Each fetches a chunk over its connection, and sends its result, but only two have one at a time.
#[test]
fn more_receivers_than_connections_are_kept_all_finish() {
    let (contents, port, count) = (Contents::new(12), discovery(), 8);
    thread::scope(|scope| {
        let contents = &contents;
        let options = SendOptions { connections_max: 2, ..send_options(port, count as u32) };
        let sender = scope.spawn(move || send(&options, &contents.description(), contents, |_| {}));
        let receivers: Vec<_> = (0..count)
            .map(|number| {
                let mut sink = Sink::new(contents);
                scope.spawn(move || receive(&receive_options(port, number), &mut sink, |_| {}))
            })
            .collect();
        for receiver in receivers {
            let summary = receiver.join().unwrap().unwrap();
            assert!(summary.acknowledged && summary.fetched_chunks > 0);
        }
        let receivers = sender.join().unwrap().unwrap().receivers;
        assert_eq!(receivers.len(), count, "nobody joined twice: {receivers:?}");
        assert!(receivers.iter().all(|it| matches!(it.state, ReceiverState::Done(_))), "{receivers:?}");
    });
}

/// Many connections over which no receiver joins: they displace each other, and a receiver from the same
/// address still gets everything.
#[test]
fn connections_without_a_receiver_do_not_keep_receivers_out() {
    let contents = Contents::new(4);
    let discovery = discovery();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let (contents, options) = (&contents, send_options(discovery, 1));
        let sender = scope.spawn(move || {
            send(&options, &contents.description(), contents, |event| {
                if let SendEvent::Ready { place, .. } = event {
                    tell.send(place.address).unwrap();
                }
            })
        });
        let join = told.recv().unwrap();
        let crowd: Vec<TcpStream> = (0..200)
            .map(|_| {
                let mut stream = TcpStream::connect(join).unwrap();
                // A message of another version.
                stream.write_all(&[2, 0, 0, 0, 99, 99]).unwrap();
                stream
            })
            .collect();
        let mut first = &crowd[0];
        first.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let end = first.read_to_end(&mut Vec::new());
        let is_reset = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionReset;
        assert!(end.as_ref().err().is_none_or(is_reset), "the oldest must be displaced: {end:?}");
        let mut sink = Sink::new(contents);
        let summary = receive(&receive_options(discovery, 0), &mut sink, |_| {}).unwrap();
        assert_eq!(summary.outcome, SinkOutcome { score: SCORE, bytes_written: 123 });
        assert_eq!(sender.join().unwrap().unwrap().receivers.len(), 1);
    });
}

#[test]
fn a_receiver_of_another_image_is_told_which_casts_there_are() {
    let contents = Contents::new(2);
    let discovery = discovery();
    thread::scope(|scope| {
        let stop = Arc::new(AtomicBool::new(false));
        let options = SendOptions { stop: stop.clone(), ..send_options(discovery, 1) };
        let contents = &contents;
        let sender = scope.spawn(move || send(&options, &contents.description(), contents, |_| {}));
        let wanted = Wanted::Name("lab/other".into());
        let give_up = Some(Duration::from_secs(3));
        let options = ReceiveOptions { wanted, give_up, ..receive_options(discovery, 0) };
        let error = receive(&options, &mut Sink::new(contents), |_| {}).unwrap_err();
        assert!(error.to_string().ends_with("casts found: lab/test"), "{error}");
        stop.store(true, Ordering::Relaxed);
        assert!(sender.join().unwrap().is_err());
    });
}

/// Two processes of one machine: the second one takes another port, and each receiver gets its own disk.
#[test]
fn casts_of_two_processes_on_one_machine() {
    let contents = [Contents::new(6), Contents::new(9)];
    let discovery = discovery();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let mut join_port = 0;
        for (contents, name) in contents.iter().zip(["lab/test", "lab/second"]) {
            let options = SendOptions { join_port, ..send_options(discovery, 1) };
            let tell = tell.clone();
            let description = SessionDescription { name: name.into(), ..contents.description() };
            scope.spawn(move || {
                let summary = send(&options, &description, contents, |event| {
                    if let SendEvent::Ready { place, .. } = event {
                        tell.send(place.address.port()).unwrap();
                    }
                });
                assert_eq!(summary.unwrap().receivers.len(), 1, "{name}");
            });
            let port = told.recv_timeout(Duration::from_secs(20)).unwrap();
            assert!(
                join_port == 0 || (join_port + 1..join_port + 100).contains(&port),
                "{port} after {join_port}"
            );
            join_port = port;
        }
        for (contents, name) in contents.iter().zip(["lab/test", "lab/second"]) {
            scope.spawn(move || {
                let wanted = Wanted::Name(name.into());
                let options = ReceiveOptions { wanted, ..receive_options(discovery, 0) };
                // A sink accepts only the chunks of its own contents.
                receive(&options, &mut Sink::new(contents), |_| {}).unwrap();
            });
        }
    });
}

/// Casts of one process share a port: each receiver gets its own disk, whether it has heard the cast or was told of it.
#[test]
fn casts_of_one_process_share_a_port() {
    let contents = [Contents::new(6), Contents::new(9), Contents::new(3)];
    let names = ["lab/test", "lab/second", "lab/third"];
    let (discovery, ports) = (discovery(), Arc::<CastPorts>::default());
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let stop = Arc::new(AtomicBool::new(false));
        let mut senders = Vec::new();
        for (contents, name) in contents.iter().zip(names) {
            let (ports, stop, tell) = (Arc::clone(&ports), Arc::clone(&stop), tell.clone());
            let options =
                SendOptions { ports, stop, linger: Duration::from_secs(5), ..send_options(discovery, 2) };
            let description = SessionDescription { name: name.into(), ..contents.description() };
            senders.push(scope.spawn(move || {
                send(&options, &description, contents, |event| {
                    if let SendEvent::Ready { place, .. } = event {
                        tell.send((name, place)).unwrap();
                    }
                })
                .unwrap()
            }));
        }
        let places: HashMap<_, _> =
            names.iter().map(|_| told.recv_timeout(Duration::from_secs(20)).unwrap()).collect();
        assert_eq!(places.len(), 3);
        let join = places[names[0]].address;
        assert!(places.values().all(|place| place.address == join), "{places:?}");
        let named = ReceiveOptions { sender: Some(join), ..receive_options(discovery, 0) };
        let error = receive(&named, &mut Sink::new(&contents[0]), |_| {}).unwrap_err().to_string();
        assert!(error.contains("3 casts use this port"), "{error}");
        let receivers: Vec<_> = contents
            .iter()
            .zip(names)
            .flat_map(|(contents, name)| {
                let heard =
                    ReceiveOptions { wanted: Wanted::Name(name.into()), ..receive_options(discovery, 0) };
                let known = Arc::new(ToldSender::default());
                known.set(places[name]);
                // Its port of announcements is silent.
                let port = self::discovery();
                let of_origin = ReceiveOptions { port, told: Some(known), ..heard.clone() };
                [heard, of_origin].map(|options| {
                    scope.spawn(move || receive(&options, &mut Sink::new(contents), |_| {}).unwrap())
                })
            })
            .collect();
        for receiver in receivers {
            let summary = receiver.join().unwrap();
            assert!(summary.acknowledged, "{summary:?}");
        }
        stop.store(true, Ordering::Relaxed);
        for sender in senders {
            assert_eq!(sender.join().unwrap().receivers.len(), 2);
        }
    });
}

/// A cast on demand: who was told of it gets it, nobody else learns what it is, and it waits for whom it was told to wait for.
#[test]
fn an_unlisted_cast_admits_only_who_was_told() {
    let contents = Contents::new(4);
    let discovery = discovery();
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let give_up = Some(Duration::ZERO);
        let stop = Arc::new(AtomicBool::new(false));
        let options =
            SendOptions { is_unlisted: true, give_up, stop: stop.clone(), ..send_options(discovery, 1) };
        let control = Arc::clone(&options.control);
        assert!(control.keep(Instant::now() + Duration::from_secs(600)));
        let contents = &contents;
        let sender = scope.spawn(move || {
            send(&options, &contents.description(), contents, |event| {
                if let SendEvent::Ready { place, .. } = event {
                    tell.send(place).unwrap();
                }
            })
        });
        let place = told.recv_timeout(Duration::from_secs(20)).unwrap();
        let join = place.address;
        let strangers = [(Wanted::Any, Some(join)), (Wanted::Name("lab/test".into()), Some(join))];
        for (wanted, sender) in strangers.into_iter().chain([(Wanted::Score(SCORE), None)]) {
            let give_up = Some(Duration::from_secs(2));
            let options = ReceiveOptions { wanted, sender, give_up, ..receive_options(discovery, 0) };
            let error = receive(&options, &mut Sink::new(contents), |_| {}).unwrap_err().to_string();
            assert!(!error.contains("lab/test"), "{error}");
        }
        let known = Arc::new(ToldSender::default());
        let options = ReceiveOptions {
            wanted: Wanted::Score(SCORE),
            told: Some(Arc::clone(&known)),
            ..receive_options(discovery, 0)
        };
        let receiver = scope.spawn(move || receive(&options, &mut Sink::new(contents), |_| {}));
        assert!(!known.is_joined());
        known.set(place);
        receiver.join().unwrap().unwrap();
        assert!(control.keep(Instant::now()), "it waits for others");
        stop.store(true, Ordering::Relaxed);
        assert_eq!(sender.join().unwrap().unwrap().receivers.len(), 1);
    });
}

#[test]
fn a_missing_peer_is_an_error_on_both_sides_and_a_stop_is_obeyed() {
    let contents = Contents::new(2);
    let mut options = send_options(discovery(), 1);
    options.give_up = Some(Duration::from_millis(200));
    let error = send(&options, &contents.description(), &contents, |_| {}).unwrap_err();
    assert!(error.to_string().contains("no receiver joined"), "{error}");
    let mut options = receive_options(discovery(), 0);
    options.give_up = Some(Duration::from_millis(200));
    let error = receive(&options, &mut Sink::new(&contents), |_| {}).unwrap_err();
    assert!(error.to_string().contains("no sender of this image was heard within 0 s"), "{error}");
    assert!(!error.to_string().contains("casts found"), "{error}");
    options.give_up = None;
    options.stop = Arc::new(AtomicBool::new(true));
    let error = receive(&options, &mut Sink::new(&contents), |_| {}).unwrap_err();
    assert!(error.to_string().contains("stopped"), "{error}");
}

/// Runs a test of this file in its own network namespace after a script; skips it where that is not possible.
fn in_a_namespace(test: &str, (variable, value): (&str, &str), script: &str) {
    let prepared = Command::new("unshare").args(["-n", "nft", "list", "tables"]).output();
    if !prepared.is_ok_and(|output| output.status.success()) {
        println!("skipped: needs root, unshare and nft");
        return;
    }
    let script = format!("{script} && exec \"$0\" --exact {test} --nocapture");
    let output = Command::new("unshare")
        .args(["-n", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(variable, value)
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    println!("{text}");
}

/// Drops 3 % of all datagrams.
const LOSS: &str = "nft add table inet t && nft add chain inet t input '{ type filter hook input priority 0; }' && \
    nft add rule inet t input meta l4proto udp numgen random mod 100 '<' 3 drop";

#[test]
fn three_percent_loss_in_a_namespace() {
    let script =
        format!("ip link set lo up && {{ ethtool -K lo tx-udp-segmentation off || true; }} && {LOSS}");
    in_a_namespace("under_loss", (LOSSY, "1"), &script);
}

/// The loopback device has no multicast over IPv6. The address of the other device is new: it cannot be used for a second or two.
#[test]
fn ipv6_with_loss_in_a_namespace() {
    let script = format!(
        "ip link set lo up && ip link add e0 type veth peer name e1 && ip link set e1 up && ip link set e0 up && \
         {{ ethtool -K e0 tx-udp-segmentation off || true; }} && {LOSS}"
    );
    in_a_namespace("over_ipv6", (INTERFACE, "e0"), &script);
}

/// Does nothing on its own: `ipv6_with_loss_in_a_namespace` runs it.
#[test]
fn over_ipv6() {
    if std::env::var_os(INTERFACE).is_none() {
        return;
    }
    check_all_done(&Contents::new(20), 4, 1);
    // The sender is named, as an origin names it: without the interface.
    let (contents, port) = (Contents::new(3), discovery());
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let (contents, options) = (&contents, send_options(port, 1));
        let sender = scope.spawn(move || {
            send(&options, &contents.description(), contents, |event| {
                if let SendEvent::Ready { place, group } = event {
                    tell.send((unscoped(place.address), group)).unwrap();
                }
            })
        });
        let (join, group) = told.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(join.to_string().starts_with("[fe80::") && !join.to_string().contains('%'), "{join}");
        assert!(group.to_string().starts_with("[ff12::efff:"), "{group}");
        let options = ReceiveOptions { sender: Some(join), ..receive_options(port, 0) };
        receive(&options, &mut Sink::new(contents), |_| {}).unwrap();
        assert_eq!(sender.join().unwrap().unwrap().receivers.len(), 1);
        // A machine with IPv6 only does not wait for ever for a sender of IPv4.
        let give_up = Some(Duration::from_secs(1));
        let sender = Some("10.0.0.1:7580".parse().unwrap());
        let options = ReceiveOptions { sender, give_up, ..receive_options(port, 0) };
        let error = receive(&options, &mut Sink::new(contents), |_| {}).unwrap_err().to_string();
        assert!(error.contains("no IPv4 address on interface e0"), "{error}");
    });
}

/// A family that the interface lacks, or another one than that of the group, is refused by a sender at once.
#[test]
fn a_sender_does_not_mix_families() {
    let contents = Contents::new(1);
    for (group, family, reason) in [
        (Some("ff12::8000:1"), None, "127.0.0.1 is an IPv4 address"),
        (None, Some(Family::Ipv6), "127.0.0.1 is an IPv4 address"),
        (Some("239.255.1.1"), Some(Family::Ipv6), "another family"),
    ] {
        let group = group.map(|text| text.parse().unwrap());
        let options = SendOptions { group, family, ..send_options(discovery(), 1) };
        let error = send(&options, &contents.description(), &contents, |_| {}).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

/// An interface that does not exist is waited for as long as a sender would be.
#[test]
fn a_missing_interface_is_told_and_waited_for() {
    let give_up = Some(Duration::from_millis(700));
    let options =
        ReceiveOptions { interface: Some("none-such".into()), give_up, ..receive_options(discovery(), 0) };
    let (contents, mut told, began) = (Contents::new(1), Vec::new(), Instant::now());
    let error = receive(&options, &mut Sink::new(&contents), |event| {
        if let ReceiveEvent::Trouble(reason) = event {
            told.push(reason);
        }
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("none-such does not exist"), "{error}");
    assert!(began.elapsed() >= Duration::from_millis(700));
    assert_eq!(told.len(), 1, "{told:?}");
}

/// Set where datagrams are dropped.
const LOSSY: &str = "PLATTER_TEST_LOSSY";

/// Does nothing on its own: `three_percent_loss_in_a_namespace` runs it.
#[test]
fn under_loss() {
    if std::env::var_os(LOSSY).is_none() {
        return;
    }
    check_all_done(&Contents::new(20), 4, 1);
}
