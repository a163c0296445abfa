//! Casts that share a link with each other, or with a TCP flow: fair shares, and a link that is used.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test: it fails by panicking, and prints tables"
)]

mod simulated;

use std::time::Duration;

use simulated::shared::{SharedLink, TcpFlow};
use simulated::{Link, Room, sender_options};

const SECOND: Duration = Duration::from_secs(1);

/// A shared link.
#[derive(Clone, Copy)]
struct Place {
    megabits: u64,
    queue_ms: u64,
    round_trip_ms: u64,
}

impl Place {
    fn bits_per_second(self) -> u64 {
        self.megabits * 1_000_000
    }

    fn receiver(self) -> Link {
        let delay = Duration::from_micros(self.round_trip_ms * 500);
        Link { delay, buffer_chunks: 64, never_ends: true, ..Link::default() }
    }

    /// A cast that lasts longer than `seconds`, to two receivers, with the link's rate as its ceiling.
    fn room(self, number: usize, seconds: u64) -> Room {
        let chunks = self.bits_per_second() * seconds / 8 / 1_000_000 + 64;
        let mut options = sender_options(number as u8, self.bits_per_second());
        options.wait_receivers = 2;
        Room::new(number as u64 + 1, vec![1_000_000; chunks as usize], options, &[self.receiver(); 2])
    }
}

/// The shares that flows get of a link: casts that start `apart`, and a TCP flow, in that order. Measured over `window`, which
/// starts after `settle` from the start of the last cast.
struct Sharing {
    casts: usize,
    apart: Duration,
    tcp: Option<(bool, Duration)>,
    settle: Duration,
    window: Duration,
}

impl Sharing {
    fn run(&self, place: Place) -> Vec<f64> {
        let link = SharedLink::new(
            place.bits_per_second(),
            Duration::from_millis(place.queue_ms),
            self.casts + usize::from(self.tcp.is_some()),
        );
        let from = self.apart * (self.casts as u32 - 1) + self.settle;
        let to = from + self.window;
        let mut rooms: Vec<Room> = (0..self.casts)
            .map(|number| {
                let mut room = place.room(number, to.as_secs() / 2 + 2);
                // The casts do not start in the same microsecond.
                room.now = self.apart * number as u32 + Duration::from_micros(1371 * number as u64);
                room.uplink = Some((std::rc::Rc::clone(&link), number));
                room
            })
            .collect();
        let round_trip = Duration::from_millis(place.round_trip_ms);
        let mut tcp = self.tcp.map(|(is_cubic, start)| {
            TcpFlow::new(std::rc::Rc::clone(&link), self.casts, is_cubic, round_trip, start)
        });
        let mut before = None;
        loop {
            let next = (0..rooms.len()).min_by_key(|at| rooms[*at].now).unwrap();
            let now = tcp.as_ref().map_or(rooms[next].now, |tcp| tcp.now.min(rooms[next].now));
            if now >= from && before.is_none() {
                before = Some(link.borrow().passed.clone());
            }
            if now >= to {
                break;
            }
            match &mut tcp {
                Some(tcp) if tcp.now <= rooms[next].now => tcp.step(),
                _ => rooms[next].step(),
            }
        }
        let most = place.bits_per_second() as f64 / 8.0 * self.window.as_secs_f64();
        let link = link.borrow();
        link.passed.iter().zip(before.unwrap()).map(|(to, from)| (to - from) as f64 / most).collect()
    }
}

/// Jain's index: 1 if all shares are equal, 1/n if one has everything.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Casts on one link. Returns Jain's index and the used share of the link.
fn casts(place: Place, casts: usize, apart: Duration) -> (f64, f64) {
    let sharing = Sharing { casts, apart, tcp: None, settle: SECOND * 8, window: SECOND * 8 };
    let shares = sharing.run(place);
    let (index, used) = (jain(&shares), shares.iter().sum::<f64>());
    let Place { megabits, queue_ms, round_trip_ms } = place;
    println!(
        "{megabits} Mbit/s, queue {queue_ms} ms, round trip {round_trip_ms} ms: {casts} casts {apart:?} apart: \
         Jain {index:.3}, used {used:.3}, {shares:.2?}"
    );
    (index, used)
}

/// A cast and a TCP flow on one link. Returns their shares.
fn beside_tcp(place: Place, is_cubic: bool, tcp_starts: Duration) -> (f64, f64) {
    let settle = SECOND * 10;
    let tcp = Some((is_cubic, tcp_starts));
    let shares = Sharing { casts: 1, apart: Duration::ZERO, tcp, settle, window: SECOND * 30 }.run(place);
    let Place { megabits, queue_ms, round_trip_ms } = place;
    let kind = if is_cubic { "CUBIC" } else { "Reno" };
    println!(
        "{megabits} Mbit/s, queue {queue_ms} ms, round trip {round_trip_ms} ms, {kind} from {tcp_starts:?}: \
         cast {:.2}, TCP {:.2}",
        shares[0], shares[1]
    );
    (shares[0], shares[1])
}

const ROOM: Place = Place { megabits: 100, queue_ms: 50, round_trip_ms: 1 };

#[test]
fn a_cast_alone_uses_the_link() {
    let (_, used) = casts(ROOM, 1, Duration::ZERO);
    assert!(used > 0.98, "{used}");
}

#[test]
fn casts_on_one_link_get_equal_shares() {
    // Two that start at once are the least equal, because their first cuts decide for a while.
    for (number, apart, least) in [(2, Duration::ZERO, 0.93), (4, SECOND, 0.95), (8, SECOND, 0.95)] {
        let (index, used) = casts(ROOM, number, apart);
        assert!(index >= least && used >= 0.92, "{number} casts: {index} {used}");
    }
}

#[test]
fn a_cast_beside_tcp_takes_its_share_and_leaves_the_rest() {
    let place = Place { round_trip_ms: 20, ..ROOM };
    let (cast, tcp) = beside_tcp(place, true, SECOND * 2);
    assert!(cast >= 0.4 && tcp >= 0.3, "{cast} {tcp}");
}

/// Tables of many links, queues and round trips. Part of `make test-full`.
#[test]
#[ignore = "minutes"]
fn tables_of_shares() {
    let mut low = Vec::new();
    for megabits in [25, 100, 1000] {
        for queue_ms in [20, 50, 200] {
            for round_trip_ms in [1, 20] {
                let place = Place { megabits, queue_ms, round_trip_ms };
                for (number, apart) in
                    [(2, 0), (2, 2), (4, 0), (4, 2), (8, 0), (8, 2)].map(|(n, s)| (n, SECOND * s))
                {
                    let (index, used) = casts(place, number, apart);
                    low.extend((index < 0.95 || used < 0.92).then_some((megabits, queue_ms, number)));
                }
                for (is_cubic, start) in [(true, 2), (true, 0), (false, 2)] {
                    beside_tcp(place, is_cubic, SECOND * start);
                }
            }
        }
    }
    println!("not fair or not used: {low:?}");
}
