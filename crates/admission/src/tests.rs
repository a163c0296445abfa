//! Floods of connections from one address and from many, together with clients that identify themselves.

use super::*;

const LIMITS: Limits = Limits {
    strangers_max: 6,
    strangers_of_one_max: 3,
    stranger_time: Duration::from_secs(10),
    known_max: 4,
    known_of_one_max: 2,
};

fn address(number: u8) -> Source {
    Source::V4([192, 0, 2, number].into())
}

/// Admits `count` strangers from that source, none of which displaces another, and returns their tickets.
fn crowd(admission: &mut Admission, source: Source, count: usize, now: Instant) -> Vec<Ticket> {
    let entered = std::iter::repeat_with(|| admission.enter(source, now)).take(count);
    entered.inspect(|entered| assert_eq!(entered.displaced, None)).map(|entered| entered.ticket).collect()
}

#[test]
fn strangers_of_one_address_displace_only_each_other() {
    let (mut admission, now) = (Admission::new(LIMITS), Instant::now());
    let other = crowd(&mut admission, address(2), 1, now)[0];
    let crowd = crowd(&mut admission, address(1), 3, now);
    let mut displaced = Vec::new();
    for _ in 0..100 {
        displaced.extend(admission.enter(address(1), now).displaced);
    }
    assert_eq!(displaced.len(), 100, "each one displaces an older one");
    assert_eq!(displaced[..3], crowd[..], "oldest first");
    assert_eq!(admission.strangers(), 4);
    assert_eq!(admission.make_known(other), Ok(()));
    // A client from the same address that identifies itself before it is displaced.
    let honest = admission.enter(address(1), now).ticket;
    assert_eq!(admission.make_known(honest), Ok(()));
    for _ in 0..100 {
        assert_ne!(admission.enter(address(1), now).displaced, Some(honest));
    }
    assert!(!admission.is_over(honest, now + 10 * LIMITS.stranger_time));
}

#[test]
fn with_all_places_taken_the_largest_source_loses_its_oldest_stranger() {
    let (mut admission, now) = (Admission::new(LIMITS), Instant::now());
    let lonely = crowd(&mut admission, address(1), 1, now)[0];
    let pair = crowd(&mut admission, address(2), 2, now);
    let three = crowd(&mut admission, address(3), 3, now);
    assert_eq!(admission.enter(address(4), now).displaced, Some(three[0]));
    // Now two sources have two strangers each: the oldest of these strangers is displaced.
    assert_eq!(admission.enter(address(5), now).displaced, Some(pair[0]));
    assert_eq!(admission.make_known(three[0]), Err(Refusal::Gone));
    assert_eq!(admission.make_known(lonely), Ok(()));
    assert_eq!((admission.strangers(), admission.known()), (5, 1));
}

#[test]
fn strangers_expire_and_known_connections_do_not() {
    let (mut admission, now) = (Admission::new(LIMITS), Instant::now());
    let tickets = crowd(&mut admission, address(1), 2, now);
    admission.make_known(tickets[0]).unwrap();
    let early = now + LIMITS.stranger_time - Duration::from_millis(1);
    assert!(!admission.is_over(tickets[1], early));
    assert!(admission.is_over(tickets[1], now + LIMITS.stranger_time));
    assert!(!admission.is_over(tickets[0], now + LIMITS.stranger_time));
    assert_eq!((admission.strangers(), admission.known()), (0, 1));
    assert!(admission.is_over(tickets[1], now), "it has lost its place");
    assert_eq!(admission.make_known(tickets[1]), Err(Refusal::Gone));
}

#[test]
fn expire_returns_all_overdue_strangers() {
    let (mut admission, start) = (Admission::new(LIMITS), Instant::now());
    let early = crowd(&mut admission, address(1), 3, start);
    admission.make_known(early[1]).unwrap();
    let late = crowd(&mut admission, address(2), 1, start + Duration::from_secs(1));
    assert_eq!(admission.expire(start + Duration::from_secs(9)), []);
    assert_eq!(admission.expire(start + LIMITS.stranger_time), [early[0], early[2]]);
    assert_eq!((admission.strangers(), admission.known()), (1, 1));
    assert_eq!(admission.expire(start + 10 * LIMITS.stranger_time), late);
    assert_eq!((admission.strangers(), admission.known()), (0, 1));
}

#[test]
fn known_connections_are_limited_per_source_and_in_total() {
    let (mut admission, now) = (Admission::new(LIMITS), Instant::now());
    for source in [1, 2] {
        for ticket in crowd(&mut admission, address(source), 2, now) {
            admission.make_known(ticket).unwrap();
            admission.make_known(ticket).unwrap();
        }
    }
    let third = admission.enter(address(1), now).ticket;
    assert_eq!(admission.make_known(third), Err(Refusal::FullForSource(2)));
    let other = admission.enter(address(3), now).ticket;
    assert_eq!(admission.make_known(other), Err(Refusal::Full(4)));
    assert_eq!((admission.strangers(), admission.known()), (2, 4), "both are still strangers");
    admission.leave(Ticket(0));
    assert_eq!(admission.make_known(other), Ok(()));
}

#[test]
fn nothing_is_kept_after_connections_leave() {
    let (mut admission, now) = (Admission::new(LIMITS), Instant::now());
    for number in 0..200 {
        let ticket = admission.enter(address(number), now).ticket;
        if number % 2 == 0 {
            admission.make_known(ticket).unwrap();
        }
        admission.leave(ticket);
        admission.leave(ticket);
    }
    assert_eq!((admission.strangers(), admission.known()), (0, 0));
    assert!(admission.places.is_empty() && admission.sources.is_empty());
}
