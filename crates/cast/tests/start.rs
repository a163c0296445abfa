//! When a sender starts: as soon as all receivers are known to hear the group, or after a limited time. And when it ends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test: it fails by panicking")]

mod simulated;

use std::time::Duration;

use platter_cast::{CastFilter, Receiver, ReceiverOptions, Sender, SenderOptions, Transmit, Wanted};
use simulated::{description, sender_options};

const ANNOUNCE: u8 = 1;
const REPORT: u8 = 5;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn receiver(number: u8) -> Receiver {
    Receiver::new(ReceiverOptions {
        seed: u64::from(number),
        wanted: Wanted::Any,
        filter: CastFilter::default(),
        join_key: None,
        nonce_seed: [number; 32],
        hello: format!("pc{number}"),
        buffer_chunks: 4,
        everything: true,
    })
}

/// A receiver, when it joins, and which datagrams reach it.
struct Machine {
    receiver: Receiver,
    joins_at: Duration,
    hears: fn(u8) -> bool,
}

impl Machine {
    fn new(number: u8, joins_at: Duration, hears: fn(u8) -> bool) -> Self {
        Self { receiver: receiver(number), joins_at, hears }
    }

    fn join(&mut self, now: Duration, sender: &mut Sender, connection: u64) {
        self.receiver.handle_connected(now);
        let join = self.receiver.poll_message().unwrap();
        sender.handle_message(now, connection, [10, 0, 0, 9].into(), &join[4..]);
        let (_, welcome) = sender.poll_message().unwrap();
        self.receiver.handle_message(now, &welcome[4..]);
    }
}

/// Runs until data is sent, and returns when that is.
fn started(options: SenderOptions, machines: &mut [Machine]) -> Duration {
    let mut sender = Sender::new(options, &description(vec![3000, 20_000])).unwrap();
    let mut now = Duration::ZERO;
    let (mut transmit, mut feedback) = (Transmit::new(), Vec::new());
    while now < ms(10_000) {
        for (number, machine) in machines.iter_mut().enumerate() {
            if machine.joins_at == now {
                machine.join(now, &mut sender, number as u64);
            }
        }
        while sender.poll_transmit(now, &mut transmit) {
            for datagram in transmit.datagrams() {
                for machine in machines.iter_mut().filter(|machine| (machine.hears)(datagram[1])) {
                    machine.receiver.handle_datagram(now, datagram);
                }
            }
        }
        if sender.progress().started {
            return now;
        }
        let mut next = sender.next_deadline(now);
        for machine in machines.iter_mut() {
            while machine.receiver.poll_transmit(now, &mut feedback).is_some() {
                sender.handle_datagram(now, &feedback);
            }
            next = next.min(machine.receiver.next_deadline().unwrap_or(next));
            next = next.min(Some(machine.joins_at).filter(|at| *at > now).unwrap_or(next));
        }
        now = next.max(now + Duration::from_micros(1));
    }
    panic!("it does not start");
}

#[test]
fn it_starts_as_soon_as_all_hear_the_group() {
    let mut machines = [Machine::new(1, ms(10), |_| true), Machine::new(2, ms(15), |_| true)];
    let options = SenderOptions { wait_receivers: 2, ..sender_options(1, 100_000_000) };
    let at = started(options, &mut machines);
    assert!(at < ms(30), "{at:?}");
}

#[test]
fn a_receiver_that_hears_no_group_holds_it_for_a_tenth_of_a_second() {
    // Announcements reach it through the discovery group.
    let deaf = Machine::new(1, ms(10), |kind| kind == ANNOUNCE);
    let mut machines = [deaf, Machine::new(2, ms(10), |_| true)];
    assert_eq!(started(sender_options(1, 100_000_000), &mut machines), ms(110));
}

#[test]
fn it_starts_when_the_wait_for_more_is_over() {
    let mut machines = [Machine::new(1, ms(10), |_| true)];
    let options = SenderOptions { wait_receivers: 2, wait: ms(1777), ..sender_options(1, 100_000_000) };
    let at = started(options, &mut machines);
    assert!((ms(1777)..ms(1790)).contains(&at), "{at:?}");
}

/// Each of them is a new machine that hears nothing.
#[test]
fn joins_without_end_put_it_off_for_half_a_second() {
    let mut machines: Vec<_> =
        (0..60).map(|number| Machine::new(number, ms(10 + 90 * u64::from(number)), |_| false)).collect();
    assert_eq!(started(sender_options(1, 100_000_000), &mut machines), ms(510));
}

/// The sender runs only when it has to, as its driver does.
#[test]
fn it_ends_when_the_linger_time_is_over() {
    let linger = ms(777);
    let options = SenderOptions { linger, ..sender_options(1, 100_000_000) };
    let mut sender = Sender::new(options, &description(vec![3000, 20_000])).unwrap();
    let mut machine = Machine::new(1, ms(10), |_| true);
    machine.join(ms(10), &mut sender, 1);
    let mut transmit = Transmit::new();
    let mut now = ms(10);
    let mut run = |sender: &mut Sender, from: Duration, until: Duration| {
        now = from;
        while now < until && !sender.is_finished(now) {
            while sender.poll_transmit(now, &mut transmit) {}
            now = sender.next_deadline(now).max(now + Duration::from_micros(1));
        }
        now
    };
    run(&mut sender, ms(10), ms(1000));
    assert!(sender.progress().started);
    run(&mut sender, ms(1000), ms(1001));
    machine.receiver.finish(ms(1003), Err("the disk is full".into()), 0);
    let result = machine.receiver.poll_message().unwrap();
    sender.handle_message(ms(1003), 1, [10, 0, 0, 9].into(), &result[4..]);
    assert_eq!(run(&mut sender, ms(1003), ms(9000)), ms(1003) + linger);
}

#[test]
fn it_ends_exactly_when_nobody_has_joined_in_time() {
    let options = SenderOptions { give_up: Some(ms(1234)), ..sender_options(1, 100_000_000) };
    let mut sender = Sender::new(options, &description(vec![3000])).unwrap();
    let mut now = Duration::ZERO;
    while !sender.is_finished(now) {
        while sender.poll_transmit(now, &mut Transmit::new()) {}
        now = sender.next_deadline(now).max(now + Duration::from_micros(1));
    }
    assert_eq!(now, ms(1234));
}

#[test]
fn reports_are_rarer_in_a_large_room() {
    let options = SenderOptions { wait_receivers: 1000, ..sender_options(1, 100_000_000) };
    let mut sender = Sender::new(options, &description(vec![3000])).unwrap();
    let mut intervals = Vec::new();
    let mut first = Machine::new(2, ms(10), |_| true);
    first.join(ms(10), &mut sender, 0);
    for number in 1..=250 {
        if number > 1 {
            Machine::new(1, ms(10), |_| true).join(ms(10), &mut sender, number);
        }
        while sender.poll_transmit(ms(10), &mut Transmit::new()) {}
        if [1, 16, 17, 100, 250].contains(&number) {
            intervals.push(sender.announce().timers.others_us / 1000);
        }
    }
    assert_eq!(intervals, [200, 800, 850, 5_000, 12_500]);
    // The first heeds it, too, although it joined an empty room.
    let (mut reports, mut feedback) = (Vec::new(), Vec::new());
    for at in (500..35_500).step_by(50) {
        let mut transmit = Transmit::new();
        while sender.poll_transmit(ms(at), &mut transmit) {
            if transmit.bytes[1] == ANNOUNCE {
                first.receiver.handle_datagram(ms(at), &transmit.bytes);
            }
        }
        while first.receiver.poll_transmit(ms(at), &mut feedback).is_some() {
            reports.extend((feedback[1] == REPORT).then_some(at));
        }
    }
    assert!((2..=4).contains(&reports.len()), "{reports:?}");
}
