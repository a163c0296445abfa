//! Probes over a simulated network: what each kind of network makes the machines say.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test: it fails by panicking")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use platter_cast::{
    Family, JoinKey, MessageBuffer, ProbeFinding, ProbeReceiver, ProbeReceiverOptions, ProbeSender,
    ProbeSenderOptions, ProbeSeries, ProbeStep, ProbeTarget, ProbeTransmit, ProbedReceiver,
};

/// Decides about one datagram of the sender: how many copies arrive at receiver `usize`.
type Network = fn(usize, &ProbeTarget, &[u8], u32) -> u32;

const CONNECTIONS: u64 = 100;

struct Room {
    sender: ProbeSender,
    receivers: Vec<(ProbeReceiver, Option<ProbeStep>)>,
    network: Network,
    feedback_works: bool,
    sent_bytes: u64,
    count: u32,
}

fn key(byte: u8) -> Option<JoinKey> {
    Some(JoinKey::new([byte; 32]))
}

/// Group and sender.
const IPV4: [&str; 2] = ["239.255.1.2:7580", "10.0.0.200:7580"];
const IPV6: [&str; 2] = ["[ff12::efff:102]:7580", "[fe80::200]:7580"];

fn address(receiver: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, receiver as u8 + 1])
}

impl Room {
    fn new(count: usize, network: Network) -> Self {
        Self::with_keys(count, network, None, None)
    }

    fn with_keys(
        count: usize,
        network: Network,
        of_sender: Option<&JoinKey>,
        of_receivers: Option<&JoinKey>,
    ) -> Self {
        Self::at(IPV4, count, network, of_sender, of_receivers)
    }

    fn at(
        [group, sender]: [&str; 2],
        count: usize,
        network: Network,
        of_sender: Option<&JoinKey>,
        of_receivers: Option<&JoinKey>,
    ) -> Self {
        let sender = ProbeSender::new(ProbeSenderOptions {
            seed: [3; 32],
            join_key: of_sender.cloned(),
            bits_per_second: 20_000_000,
            group: group.parse().unwrap(),
            join: sender.parse().unwrap(),
            feedback: sender.parse().unwrap(),
            receivers: count as u32,
            wait: Duration::from_secs(5),
        });
        let receiver = |index: usize| {
            let options = ProbeReceiverOptions {
                join_key: of_receivers.cloned(),
                nonce: [index as u8; 32],
                name: format!("pc{index}"),
            };
            (ProbeReceiver::new(options), None)
        };
        let receivers = (0..count).map(receiver).collect();
        Self { sender, receivers, network, feedback_works: true, sent_bytes: 0, count: 0 }
    }

    /// Runs to the end.
    fn run(mut self) -> Vec<ProbedReceiver> {
        self.receivers.iter_mut().for_each(|(receiver, _)| receiver.handle_connected(1000));
        let mut now = Duration::ZERO;
        while !self.sender.is_over() {
            assert!(now < Duration::from_secs(60), "the probe does not end");
            while let Some(transmit) = self.sender.poll_transmit(now) {
                self.deliver(&transmit);
            }
            self.exchange(now);
            now += Duration::from_millis(1);
        }
        assert!(self.sent_bytes < 20_000_000, "{} bytes", self.sent_bytes);
        self.sender.receivers()
    }

    fn deliver(&mut self, transmit: &ProbeTransmit) {
        for datagram in transmit.bytes.chunks(transmit.datagram_bytes) {
            assert!(datagram.len() <= 1448);
            self.sent_bytes += datagram.len() as u64;
            self.count += 1;
            for (index, (receiver, _)) in self.receivers.iter_mut().enumerate() {
                let is_for_it = match transmit.target {
                    ProbeTarget::Unicast(to) | ProbeTarget::Neighbour(to) => {
                        to == SocketAddr::new(address(index), 1000)
                    }
                    _ => true,
                };
                let copies = (self.network)(index, &transmit.target, datagram, self.count);
                (0..copies * u32::from(is_for_it)).for_each(|_| receiver.handle_datagram(datagram));
            }
        }
    }

    fn exchange(&mut self, now: Duration) {
        for (index, (receiver, refused)) in self.receivers.iter_mut().enumerate() {
            while let Some(bytes) = receiver.poll_message() {
                self.sender.handle_message(CONNECTIONS + index as u64, address(index), &bytes[4..]);
            }
            while let Some((_, datagram)) = receiver.poll_transmit(now) {
                self.sender.handle_datagram(if self.feedback_works { &datagram } else { &[] });
            }
            if refused.is_some() {
                self.sender.handle_disconnect(CONNECTIONS + index as u64);
            }
        }
        while let Some((connection, bytes)) = self.sender.poll_message() {
            let mut buffer = MessageBuffer::default();
            assert!(buffer.push(&bytes));
            let (receiver, refused) = &mut self.receivers[(connection - CONNECTIONS) as usize];
            match receiver.handle_message(now, &buffer.next_message().unwrap()) {
                Some(ProbeStep::Report(_)) => drop(receiver.report(Some(true))),
                Some(step @ ProbeStep::Refused(_)) => *refused = Some(step),
                _ => {}
            }
        }
    }
}

fn findings(receiver: &ProbedReceiver) -> Vec<ProbeFinding> {
    ProbeFinding::of(&receiver.sent, receiver.counts.as_ref())
}

/// What both of two receivers of such a network say; the second one is in a good network.
fn finding_in(network: Network) -> Vec<ProbeFinding> {
    let receivers = Room::new(2, network).run();
    assert_eq!(receivers.len(), 2);
    assert_eq!(findings(&receivers[1]), vec![], "the other receiver");
    findings(&receivers[0])
}

#[test]
fn a_good_network_has_no_findings() {
    for keys in [None, key(7)] {
        for receiver in Room::with_keys(3, |_, _, _, _| 1, keys.as_ref(), keys.as_ref()).run() {
            assert_eq!(findings(&receiver), vec![]);
            let counts = receiver.counts.unwrap();
            assert_eq!(counts.packet_bytes_max, 1476);
            assert_eq!(receiver.sent.feedback_received, 10);
            for series in [ProbeSeries::LinkLocal, ProbeSeries::Unicast, ProbeSeries::Neighbour] {
                assert_eq!((receiver.sent.of(series), counts.of(series).received), (10, 10));
            }
            let full = receiver.sent.of(ProbeSeries::Full);
            assert!(full > 3000 && counts.of(ProbeSeries::Full).received == full);
            let rate = receiver.sent.bits_per_second;
            assert!((19_000_000..21_000_000).contains(&rate), "{rate}");
        }
    }
}

/// The same datagrams are 20 bytes longer as packets.
#[test]
fn a_good_network_over_ipv6_has_no_findings() {
    for receiver in Room::at(IPV6, 2, |_, _, _, _| 1, None, None).run() {
        assert_eq!(findings(&receiver), vec![]);
        assert_eq!((receiver.counts.unwrap().packet_bytes_max, receiver.sent.family), (1496, Family::Ipv6));
    }
    let short: Network = |_, _, datagram, _| u32::from(datagram.len() <= 1300);
    let found = findings(&Room::at(IPV6, 1, short, None, None).run()[0]);
    assert_eq!(found, vec![ProbeFinding::ShortPackets(1300)]);
    let text = found[0].advice(Family::Ipv6);
    assert!(text.contains("more than 1300 bytes") && text.contains("a cast has 1496"), "{text}");
    let texts = Family::ALL.map(|family| ProbeFinding::GroupFiltered.advice(family));
    assert!(texts[0].contains("IGMP") && texts[0].contains("239.255.0.0/16"), "{}", texts[0]);
    assert!(texts[1].contains("MLD") && texts[1].contains("ff12::efff:0/112"), "{}", texts[1]);
}

#[test]
fn each_bad_network_is_recognised() {
    use ProbeFinding::{GroupFiltered, NoMulticast, NoUdp, NotAnnounced, Repeated, Router, ShortPackets};
    use ProbeTarget::{Discovery, Group, LinkLocal, Neighbour, Unicast};
    let none: Network = |index, _, _, _| u32::from(index != 0);
    assert_eq!(finding_in(none), vec![NoUdp]);
    let router: Network = |index, to, _, _| u32::from(index != 0 || matches!(to, Unicast(_)));
    assert_eq!(finding_in(router), vec![Router]);
    let filtered: Network = |index, to, _, _| u32::from(index != 0 || !matches!(to, Group | Discovery));
    assert_eq!(finding_in(filtered), vec![GroupFiltered]);
    let blocked: Network = |index, to, _, _| u32::from(index != 0 || matches!(to, Unicast(_) | Neighbour(_)));
    assert_eq!(finding_in(blocked), vec![NoMulticast]);
    let short: Network = |index, _, datagram, _| u32::from(index != 0 || datagram.len() <= 1300);
    assert_eq!(finding_in(short), vec![ShortPackets(1280)]);
    let unannounced: Network = |index, to, _, _| u32::from(index != 0 || !matches!(to, Discovery));
    assert_eq!(finding_in(unannounced), vec![NotAnnounced]);
    let looped: Network = |index, to, _, _| if index == 0 && matches!(to, Group | LinkLocal) { 2 } else { 1 };
    assert_eq!(finding_in(looped), vec![Repeated(1.0)]);
}

#[test]
fn loss_at_any_rate_differs_from_loss_at_the_rate() {
    let lossy: Network = |index, _, _, count| u32::from(index != 0 || !count.is_multiple_of(10));
    let [ProbeFinding::Lossy(share)] = finding_in(lossy)[..] else { panic!("not lossy") };
    assert!((0.09..0.11).contains(&share), "{share}");
    // The series at a tenth of the rate has fewer than 400 datagrams.
    let overrun: Network = |index, _, datagram, count| {
        let is_full = datagram[18] == ProbeSeries::Full as u8;
        u32::from(index != 0 || !is_full || count.is_multiple_of(2))
    };
    let [ProbeFinding::Overrun(bits)] = finding_in(overrun)[..] else { panic!("no overrun") };
    assert!((9_000_000..11_000_000).contains(&bits), "{bits}");
}

#[test]
fn a_firewall_of_the_sender_is_recognised() {
    let mut room = Room::new(1, |_, _, _, _| 1);
    room.feedback_works = false;
    assert_eq!(findings(&room.run()[0]), vec![ProbeFinding::NoFeedback]);
}

#[test]
fn overtaken_datagrams_are_counted() {
    let mut room = Room::new(1, |_, _, _, _| 1);
    let (receiver, _) = &mut room.receivers[0];
    receiver.handle_connected(1000);
    let hello = receiver.poll_message().unwrap();
    room.sender.handle_message(CONNECTIONS, address(0), &hello[4..]);
    let (_, welcome) = room.sender.poll_message().unwrap();
    receiver.handle_message(Duration::ZERO, &welcome[4..]);
    let mut now = Duration::ZERO;
    let mut swapped = Vec::new();
    while swapped.len() < 4 {
        now += Duration::from_millis(1);
        swapped.extend(room.sender.poll_transmit(now).filter(|it| it.target == ProbeTarget::LinkLocal));
    }
    for number in [1, 0, 2, 3, 3] {
        receiver.handle_datagram(&swapped[number].bytes);
    }
    let arrivals = receiver.report(None).of(ProbeSeries::LinkLocal);
    assert_eq!((arrivals.received, arrivals.overtaken, arrivals.repeated), (4, 1, 1));
}

#[test]
fn strangers_are_refused_and_change_nothing() {
    // Another key, none, and one too many: none of these receivers takes part.
    for (of_sender, of_receivers) in [(key(1), key(2)), (key(1), None), (None, key(1))] {
        assert!(
            Room::with_keys(2, |_, _, _, _| 1, of_sender.as_ref(), of_receivers.as_ref()).run().is_empty()
        );
    }
    // Datagrams without the key, or changed, are not counted.
    let forged: Network = |index, _, _, _| u32::from(index == 0);
    let mut room = Room::new(2, forged);
    room.receivers[1].0.handle_datagram(&[1, 6, 0, 0, 0, 0, 0, 0]);
    let receivers = room.run();
    assert_eq!(findings(&receivers[1]), vec![ProbeFinding::NoUdp]);
    let mut room = Room::new(1, |_, _, _, _| 0);
    let (receiver, _) = &mut room.receivers[0];
    receiver.handle_connected(1000);
    let hello = receiver.poll_message().unwrap();
    room.sender.handle_message(CONNECTIONS, address(0), &hello[4..]);
    let (_, welcome) = room.sender.poll_message().unwrap();
    receiver.handle_message(Duration::ZERO, &welcome[4..]);
    let right = loop {
        if let Some(sent) = room.sender.poll_transmit(Duration::from_secs(9)) {
            break sent.bytes;
        }
    };
    for bit in 0..right.len() * 8 {
        let mut changed = right.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        receiver.handle_datagram(&changed);
    }
    let counts = receiver.report(None);
    assert_eq!(counts.of(ProbeSeries::Announcement).received, 0);
}
