//! Scheduler by itself: who is asked, what follows an answer, and that everything ends.

use std::collections::VecDeque;
use std::time::Duration;

use platter_image::{BlockId, Kind, Score};

use super::*;
use crate::peer::filter::{FilterVersion, Holdings, PieceCursor};
use crate::peer::{ASK_IDS_MAX, NodeId};

const MS: Duration = Duration::from_millis(1);

fn node(number: u8) -> NodeId {
    NodeId([number; 16])
}

fn id(number: u32) -> BlockId {
    BlockId(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

/// In a group of their own.
fn want(ids: std::ops::Range<u32>) -> Want {
    let group = u64::from(ids.start);
    let ids: Vec<BlockId> = ids.map(id).collect();
    Want {
        score: Score(id(0)),
        kind: Kind::Data,
        group,
        ids,
        origin_only: false,
        can_wait: false,
        exact: false,
        patience: PIECE_TIME_MAX,
    }
}

fn scheduler(homes: bool) -> Scheduler {
    Scheduler::new(ScheduleOptions {
        seed: 1,
        own: node(0),
        bytes_in_flight_max: 64 << 20,
        homes,
        ahead_bytes_max: 64 << 20,
    })
}

/// A peer that says to hold these.
fn tell(scheduler: &mut Scheduler, peer: u8, ids: std::ops::Range<u32>) -> FilterVersion {
    let mut holdings = Holdings::new(u64::from(peer));
    ids.for_each(|number| holdings.insert(&id(number)));
    scheduler.add_peer(node(peer));
    let mut cursor = PieceCursor::default();
    while let Some(piece) = holdings.next_piece(&mut cursor) {
        scheduler.handle_filter(node(peer), piece).unwrap();
    }
    holdings.version()
}

fn next_ask(scheduler: &mut Scheduler, now: Duration) -> Ask {
    match scheduler.poll_event(now) {
        Some(ScheduleEvent::Ask(ask)) => ask,
        other => panic!("no question but {other:?}"),
    }
}

#[test]
fn who_says_to_have_it_is_asked_and_the_origin_else() {
    let mut scheduler = scheduler(false);
    tell(&mut scheduler, 1, 0..100);
    scheduler.want(MS, want(0..8)).unwrap();
    let ask = next_ask(&mut scheduler, MS);
    assert_eq!((ask.source, ask.fetch), (Source::Peer(node(1)), false));
    let other = scheduler.want(MS, want(200..208)).unwrap();
    let ask = next_ask(&mut scheduler, MS);
    assert_eq!(ask.source, Source::Origin);
    scheduler.handle_arrived(2 * MS, ask.request, &ask.ids[..3]);
    assert_eq!(scheduler.poll_event(2 * MS), None);
    scheduler.handle_arrived(2 * MS, ask.request, &ask.ids[3..]);
    assert_eq!(scheduler.poll_event(2 * MS), Some(ScheduleEvent::Done(other)));
}

#[test]
fn what_a_peer_lacks_is_asked_of_another_and_forgiven() {
    let mut scheduler = scheduler(false);
    let version = tell(&mut scheduler, 1, 0..100);
    tell(&mut scheduler, 2, 0..100);
    scheduler.want(MS, want(0..8)).unwrap();
    let first = next_ask(&mut scheduler, MS);
    scheduler.handle_arrived(2 * MS, first.request, &first.ids[..5]);
    scheduler.handle_answered(2 * MS, first.request, &first.ids[5..], Some(version));
    let second = next_ask(&mut scheduler, 2 * MS);
    assert_ne!(first.source, second.source);
    assert_eq!(second.ids, first.ids[5..]);
    let newer = FilterVersion { additions: 1000, ..version };
    scheduler.handle_answered(3 * MS, second.request, &second.ids, Some(newer));
    let last = next_ask(&mut scheduler, 3 * MS);
    assert_eq!(last.source, Source::Origin, "nobody is asked twice");
    let statistics = scheduler.statistics();
    assert_eq!((statistics.false_positives, statistics.stale), (3, 3));
    scheduler.want(4 * MS, want(10..12)).unwrap();
    assert_ne!(
        next_ask(&mut scheduler, 4 * MS).source,
        Source::Origin,
        "both are asked again for something else"
    );
}

#[test]
fn load_and_speed_decide_how_often_a_peer_is_asked() {
    let mut scheduler = scheduler(false);
    for peer in 1..=2 {
        tell(&mut scheduler, peer, 0..60);
    }
    let mut asked = [0; 3];
    let mut now = MS;
    for round in 0..400 {
        scheduler.want(now, want(round % 50..round % 50 + 4)).unwrap();
        let ask = next_ask(&mut scheduler, now);
        let Source::Peer(peer) = ask.source else { panic!("the origin") };
        let number = usize::from(peer.0[0]);
        asked[number] += 1;
        // The first is ten times as slow; both stay within what makes a hedge.
        now += if number == 1 { 10 * MS } else { MS };
        scheduler.handle_arrived(now, ask.request, &ask.ids);
        assert!(matches!(scheduler.poll_event(now), Some(ScheduleEvent::Done(_))));
    }
    assert!(asked[2] > 3 * asked[1] && asked[1] > 10, "{asked:?}");
}

#[test]
fn the_slow_is_hedged_and_the_loser_cancelled() {
    let mut scheduler = scheduler(false);
    tell(&mut scheduler, 1, 0..100);
    tell(&mut scheduler, 2, 0..100);
    let piece = scheduler.want(MS, want(0..8)).unwrap();
    let first = next_ask(&mut scheduler, MS);
    assert_eq!(scheduler.poll_event(MS), None);
    let later = scheduler.poll_timeout().unwrap();
    assert!(later <= Duration::from_secs(1), "{later:?}");
    let second = next_ask(&mut scheduler, later);
    assert_ne!(first.source, second.source);
    scheduler.handle_arrived(later + MS, second.request, &second.ids);
    let cancel = ScheduleEvent::Cancel { source: first.source, request: first.request };
    assert_eq!(scheduler.poll_event(later + MS), Some(cancel));
    assert_eq!(scheduler.poll_event(later + MS), Some(ScheduleEvent::Done(piece)));
    assert_eq!(scheduler.statistics().hedges, 1);
}

/// Its failures make others be tried again, but not who has not answered yet.
#[test]
fn while_the_origin_is_away_the_slow_is_asked_once_at_a_time() {
    let mut scheduler = scheduler(false);
    tell(&mut scheduler, 1, 0..100);
    scheduler.want(MS, want(0..8)).unwrap();
    let (mut now, mut asked, mut origin) = (MS, 0, 0);
    while now < Duration::from_secs(9) {
        match scheduler.poll_event(now) {
            Some(ScheduleEvent::Ask(Ask { source: Source::Peer(_), .. })) => asked += 1,
            Some(ScheduleEvent::Ask(ask)) => {
                origin += 1;
                scheduler.handle_failed(now, ask.request, Failure::Gone);
            }
            Some(other) => panic!("{other:?}"),
            None => now = scheduler.poll_timeout().unwrap().max(now + MS),
        }
    }
    assert_eq!(asked, 1);
    assert!(origin > 1, "{origin}");
}

/// One hedge of a whole group made the origin send half of a small disk twice.
#[test]
fn a_large_piece_is_hedged_at_the_origin_only_when_its_home_is_silent() {
    for (length, least) in [(8, Duration::ZERO), (200, Duration::from_secs(2))] {
        let mut scheduler = scheduler(false);
        tell(&mut scheduler, 1, 0..200);
        scheduler.want(MS, want(0..length)).unwrap();
        let ask = next_ask(&mut scheduler, MS);
        assert_ne!(ask.source, Source::Origin);
        let mut now = MS;
        let hedge = loop {
            now = scheduler.poll_timeout().unwrap().max(now);
            if let Some(ScheduleEvent::Ask(ask)) = scheduler.poll_event(now) {
                break ask;
            }
        };
        assert_eq!(hedge.source, Source::Origin);
        assert!(now >= MS + least && now < 3000 * MS, "{length} ids after {now:?}");
    }
}

#[test]
fn a_liar_is_never_asked_again_and_the_failing_later() {
    let mut scheduler = scheduler(false);
    tell(&mut scheduler, 1, 0..100);
    scheduler.want(MS, want(0..8)).unwrap();
    let ask = next_ask(&mut scheduler, MS);
    scheduler.handle_failed(MS, ask.request, Failure::Lied);
    assert_eq!(next_ask(&mut scheduler, MS).source, Source::Origin);
    assert!(scheduler.is_banned(&node(1)));
    scheduler.remove_peer(MS, node(1));
    let never = Duration::from_secs(1_000_000);
    tell(&mut scheduler, 1, 0..100);
    scheduler.want(never, want(0..8)).unwrap();
    while let Some(event) = scheduler.poll_event(never) {
        assert!(!matches!(event, ScheduleEvent::Ask(Ask { source: Source::Peer(_), .. })), "the liar");
    }
    tell(&mut scheduler, 2, 0..100);
    scheduler.peer_gone(never, node(2));
    tell(&mut scheduler, 2, 0..100);
    scheduler.want(never, want(20..28)).unwrap();
    assert_eq!(next_ask(&mut scheduler, never).source, Source::Origin);
    let later = never + Duration::from_secs(2);
    scheduler.want(later, want(30..38)).unwrap();
    let asked: Vec<_> = std::iter::from_fn(|| scheduler.poll_event(later)).collect();
    assert!(
        asked.iter().any(|event| matches!(event, ScheduleEvent::Ask(Ask { source: Source::Peer(_), .. }))),
        "{asked:?}"
    );
}

#[test]
fn a_filter_that_is_wrong_too_often_is_not_asked_any_more() {
    let mut scheduler = scheduler(false);
    let version = tell(&mut scheduler, 1, 0..1000);
    let (mut now, mut asked) = (MS, 0);
    for round in 0..100 {
        scheduler.want(now, want(round * 8..round * 8 + 8)).unwrap();
        now += MS;
        while let Some(event) = scheduler.poll_event(now) {
            let ScheduleEvent::Ask(ask) = event else { continue };
            if ask.source == Source::Origin {
                scheduler.handle_arrived(now, ask.request, &ask.ids);
            } else {
                asked += 1;
                scheduler.handle_answered(now, ask.request, &ask.ids, Some(version));
            }
        }
    }
    assert!((20..50).contains(&asked), "{asked}");
}

#[test]
fn all_nodes_agree_on_a_home_and_its_groups_move_only_when_it_goes() {
    let mut owns = 0;
    for group in 0..200 {
        let home_seen_by = |own: u8, without: Option<u8>| {
            let options = ScheduleOptions {
                seed: 1,
                own: node(own),
                bytes_in_flight_max: 64 << 20,
                homes: true,
                ahead_bytes_max: 64 << 20,
            };
            let mut scheduler = Scheduler::new(options);
            (1..=7).filter(|peer| Some(*peer) != without).for_each(|peer| scheduler.add_peer(node(peer)));
            scheduler.want(MS, Want { group, ..want(0..8) }).unwrap();
            let ask = next_ask(&mut scheduler, MS);
            assert_eq!(ask.fetch, ask.source != Source::Origin);
            // The home itself goes to the origin.
            if let Source::Peer(peer) = ask.source { peer } else { node(own) }
        };
        let home = home_seen_by(1, None);
        assert!((2..=7).all(|own| home_seen_by(own, None) == home));
        let gone = if home == node(3) { 4 } else { 3 };
        assert_eq!(home_seen_by(1, Some(gone)), home);
        owns += usize::from(home == node(1));
    }
    assert!((15..45).contains(&owns), "{owns} of 200 at one of seven");
}

#[test]
fn without_anybody_every_piece_ends() {
    let mut scheduler = scheduler(true);
    (1..20).for_each(|peer| scheduler.add_peer(node(peer)));
    for round in 0..50 {
        scheduler.want(MS, Want { group: round, ..want(round as u32 * 8..round as u32 * 8 + 8) }).unwrap();
    }
    let (mut now, mut failed) = (MS, 0);
    while let Some(deadline) = scheduler.poll_timeout() {
        now = deadline.max(now);
        while let Some(event) = scheduler.poll_event(now) {
            failed += usize::from(matches!(event, ScheduleEvent::Failed { .. }));
        }
        assert!(now <= MS + PIECE_TIME_MAX, "{now:?}");
    }
    assert_eq!(failed, 50);
}

#[test]
fn what_is_under_way_is_bounded() {
    let options = ScheduleOptions {
        seed: 1,
        own: node(0),
        bytes_in_flight_max: 1 << 18,
        homes: false,
        ahead_bytes_max: 1 << 18,
    };
    let mut scheduler = Scheduler::new(options);
    scheduler.add_peer(node(9));
    for round in 0..20 {
        scheduler.want(MS, want(round * 8..round * 8 + 8)).unwrap();
    }
    let asks: Vec<_> = std::iter::from_fn(|| scheduler.poll_event(MS)).collect();
    assert_eq!(asks.len(), 2, "eight ids of 16 KiB each, twice");
    assert!(scheduler.want(MS, want(0..0)).is_err());
    assert!(scheduler.want(MS, want(0..ASK_IDS_MAX as u32 + 1)).is_err());
    let wanted = (20..=PIECES_MAX).take_while(|_| scheduler.want(MS, want(0..8)).is_ok()).count();
    assert_eq!(wanted, PIECES_MAX - 20);
}

#[test]
fn a_run_has_the_same_groups_wherever_it_stands() {
    let ids: Vec<BlockId> = (0..20_000).map(id).collect();
    let all = groups(&ids);
    let mut sizes: Vec<usize> = all.chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
    sizes.sort_unstable();
    assert!(sizes.iter().all(|size| *size <= GROUP_BLOCKS_MAX));
    let mean = all.len() / sizes.len();
    assert!((13..19).contains(&mean), "{mean}");
    let part = groups(&ids[5000..9000]);
    let same = part.iter().zip(&all[5000..]).filter(|(a, b)| a == b).count();
    assert!(same > 3900, "{same} of 4000");
}

/// A frame lies in one group: two questions for parts of it would bring it twice.
#[test]
fn the_origin_is_asked_for_one_part_of_a_group_at_a_time() {
    let mut scheduler = scheduler(false);
    scheduler.add_peer(node(9));
    for part in 0..3 {
        scheduler.want(MS, Want { group: 7, ..want(part * 8..part * 8 + 8) }).unwrap();
    }
    scheduler.want(MS, Want { group: 8, ..want(100..108) }).unwrap();
    let asks: Vec<Ask> = [next_ask(&mut scheduler, MS), next_ask(&mut scheduler, MS)].into();
    assert_eq!((&asks[0].ids, &asks[1].ids), (&want(0..8).ids, &want(100..108).ids));
    assert_eq!(scheduler.poll_event(MS), None);
    // A frame on the border between two parts.
    scheduler.handle_arrived(2 * MS, asks[0].request, &want(0..10).ids);
    scheduler.strike(PieceId(1), &want(8..10).ids);
    assert!(matches!(scheduler.poll_event(2 * MS), Some(ScheduleEvent::Done(_))));
    assert_eq!(next_ask(&mut scheduler, 2 * MS).ids, want(10..16).ids);
    assert_eq!(scheduler.poll_event(2 * MS), None);
}

/// Else another would fetch the rest from the origin beside the home, which is about to have it.
#[test]
fn a_home_that_holds_a_part_is_asked_to_fetch_the_rest() {
    let mut scheduler = scheduler(true);
    (2..=5).for_each(|peer| scheduler.add_peer(node(peer)));
    // Its home, where nobody holds anything; a group of which this node is the home has none.
    let home_of = |scheduler: &mut Scheduler, group| {
        let piece = scheduler.want(MS, Want { group, ..want(0..4) }).unwrap();
        let ask = next_ask(scheduler, MS);
        scheduler.strike(piece, &want(0..4).ids);
        while scheduler.poll_event(MS).is_some() {}
        ask.source
    };
    let homes: Vec<(u64, Source)> = (0..20).map(|group| (group, home_of(&mut scheduler, group))).collect();
    let (group, home) = homes.into_iter().find(|(_, home)| *home != Source::Origin).unwrap();
    let Source::Peer(NodeId([number, ..])) = home else { panic!("{home:?}") };
    let version = tell(&mut scheduler, number, 0..5);
    scheduler.want(MS, Want { group, ..want(0..8) }).unwrap();
    let ask = next_ask(&mut scheduler, MS);
    assert_eq!((ask.source, ask.fetch), (home, false));
    scheduler.handle_arrived(2 * MS, ask.request, &ask.ids[..5]);
    scheduler.handle_answered(2 * MS, ask.request, &ask.ids[5..], Some(version));
    let ask = next_ask(&mut scheduler, 2 * MS);
    assert_eq!((ask.source, ask.fetch), (home, true));
    assert_eq!(ask.ids, want(5..8).ids);
}

#[test]
fn what_can_wait_waits_for_a_peer_that_has_it() {
    let mut scheduler = scheduler(false);
    scheduler.add_peer(node(9));
    let wanted: Vec<PieceId> = (0..10)
        .map(|round| scheduler.want(MS, Want { can_wait: true, ..want(round * 8..round * 8 + 8) }).unwrap())
        .collect();
    let asked = |scheduler: &mut Scheduler, now| {
        let events = std::iter::from_fn(|| scheduler.poll_event(now));
        events
            .map(|event| match event {
                ScheduleEvent::Ask(ask) => ask,
                other => panic!("no question but {other:?}"),
            })
            .collect::<Vec<Ask>>()
    };
    let first = asked(&mut scheduler, MS);
    assert_eq!(first.len(), 4);
    assert!(first.iter().all(|ask| ask.source == Source::Origin));
    tell(&mut scheduler, 1, 48..72);
    let second = asked(&mut scheduler, MS);
    assert_eq!(second.len(), 3);
    assert!(second.iter().all(|ask| ask.source == Source::Peer(node(1))));
    scheduler.hurry(MS, wanted[9]);
    let third = asked(&mut scheduler, MS);
    assert_eq!(third.len(), 1);
    assert_eq!(third[0].ids, want(72..80).ids);
}

/// What can wait comes from the origin at its home; then at who stands in for the home, from the other end; and when nobody says to have
/// the rest for long enough, its homes are asked.
#[test]
fn who_is_done_with_its_own_stands_in_for_others() {
    let mut scheduler = scheduler(true);
    (1..=3).for_each(|peer| scheduler.add_peer(node(peer)));
    for round in 0..64 {
        scheduler.want(MS, Want { can_wait: true, ..want(round * 2..round * 2 + 2) }).unwrap();
    }
    let (mut now, mut from_origin, mut from_homes) = (MS, Vec::new(), Vec::new());
    while from_origin.len() + from_homes.len() < 64 {
        let ask = match scheduler.poll_event(now) {
            Some(ScheduleEvent::Ask(ask)) => ask,
            Some(_) => continue,
            None => {
                now = scheduler.poll_timeout().unwrap();
                continue;
            }
        };
        match ask.source {
            Source::Origin => from_origin.push(ask.ids[0]),
            Source::Peer(_) => from_homes.push((now, ask.ids[0])),
        }
        now += MS;
        scheduler.handle_arrived(now, ask.request, &ask.ids);
    }
    let number = |wanted: &BlockId| (0..64_u32).find(|round| id(round * 2) == *wanted).unwrap();
    let numbers: Vec<u32> = from_origin.iter().map(number).collect();
    // A fourth is at home here, and stood in for is a third of the rest.
    let turn = numbers.windows(2).position(|pair| pair[1] < pair[0]).unwrap() + 1;
    assert!((8..24).contains(&turn) && (8..24).contains(&(numbers.len() - turn)), "{numbers:?}");
    assert!(numbers[turn..].is_sorted_by(|a, b| a > b), "{numbers:?}");
    assert!(from_homes.iter().all(|(at, _)| *at > 2000 * MS) && from_homes.len() > 16);
}

#[test]
fn a_long_way_is_filled_and_a_queue_is_not_made_longer() {
    let mut scheduler = scheduler(false);
    scheduler.add_peer(node(9));
    for group in 0..3000 {
        scheduler.want(MS, Want { can_wait: true, ..want(group * 10..group * 10 + 1) }).unwrap();
    }
    let (mut now, mut asked) = (MS, VecDeque::new());
    // Answers come after the way there and back, and what is before each on the link. Gives how many are under way after so many.
    let mut under_way_after = |way: Duration, each: Duration, answers: usize| {
        for _ in 0..answers {
            while let Some(event) = scheduler.poll_event(now) {
                if let ScheduleEvent::Ask(ask) = event {
                    asked.push_back((now, ask));
                }
            }
            let (at, ask) = asked.pop_front().unwrap();
            now = (now + each).max(at + way);
            scheduler.handle_arrived(now, ask.request, &ask.ids);
        }
        asked.len() + 1
    };
    let near = under_way_after(MS, 20 * MS, 300);
    assert_eq!(near, 4, "a slow link that is near is full with few");
    assert_eq!(under_way_after(200 * MS, 5 * MS, 2000), 16, "the way became long: so many fill it");
    let shared = under_way_after(200 * MS, 200 * MS, 200);
    assert!((4..6).contains(&shared), "a long way that others use too: {shared}");
}

/// A disk that is read on demand for ever leaves nothing behind.
#[test]
fn what_came_is_in_no_list_any_more() {
    let mut scheduler = scheduler(true);
    (1..=3).for_each(|peer| scheduler.add_peer(node(peer)));
    for round in 0..3000_u32 {
        let now = MS * 10 * round;
        let piece = scheduler.want(now, Want { can_wait: true, ..want(round * 2..round * 2 + 2) }).unwrap();
        while scheduler.poll_event(now).is_some() {}
        scheduler.strike(piece, &want(round * 2..round * 2 + 2).ids);
        while scheduler.poll_event(now).is_some() {}
    }
    assert!(scheduler.waiting.len() < 20 && scheduler.pieces.is_empty());
}

/// Who has a part of it now has all of it soon: the rest is neither a question to the home nor to the origin.
#[test]
fn what_can_wait_goes_on_waiting_when_a_peer_had_a_part() {
    let mut scheduler = scheduler(true);
    let version = tell(&mut scheduler, 1, 0..8);
    (2..=5).for_each(|peer| scheduler.add_peer(node(peer)));
    let group = (0..).find(|group| {
        let piece = scheduler.want(MS, Want { group: *group, can_wait: true, ..want(100..102) }).unwrap();
        let is_elsewhere = scheduler.poll_event(MS).is_none();
        scheduler.strike(piece, &want(100..102).ids);
        while scheduler.poll_event(MS).is_some() {}
        is_elsewhere
    });
    scheduler.want(MS, Want { group: group.unwrap(), can_wait: true, ..want(0..8) }).unwrap();
    let ask = next_ask(&mut scheduler, MS);
    assert_eq!((ask.source, ask.fetch), (Source::Peer(node(1)), false));
    scheduler.handle_arrived(2 * MS, ask.request, &ask.ids[..5]);
    scheduler.handle_answered(2 * MS, ask.request, &ask.ids[5..], Some(version));
    assert_eq!(scheduler.poll_event(2 * MS), None);
    let due = scheduler.poll_timeout().unwrap();
    let ask = next_ask(&mut scheduler, due);
    assert_eq!((ask.source, ask.ids.len()), (Source::Peer(node(1)), 3));
}

#[test]
fn what_came_otherwise_is_not_asked_for() {
    let mut scheduler = scheduler(false);
    let piece = scheduler.want(MS, want(0..8)).unwrap();
    scheduler.strike(piece, &[id(0), id(1)]);
    let ask = next_ask(&mut scheduler, MS);
    assert_eq!(ask.ids.len(), 6);
    scheduler.strike(piece, &ask.ids);
    let cancelled = ScheduleEvent::Cancel { source: Source::Origin, request: ask.request };
    assert_eq!(scheduler.poll_event(MS), Some(cancelled));
    assert_eq!(scheduler.poll_event(MS), Some(ScheduleEvent::Done(piece)));
    assert_eq!((scheduler.poll_event(MS), scheduler.poll_timeout()), (None, None));
}

#[test]
fn a_peer_that_comes_by_itself_is_there_again() {
    let mut scheduler = scheduler(true);
    scheduler.add_peer(node(1));
    scheduler.peer_gone(MS, node(1));
    assert_eq!(scheduler.neighbours_wanted(2 * MS, 16), []);
    scheduler.peer_came(node(1));
    assert_eq!(scheduler.neighbours_wanted(2 * MS, 16), [node(1)]);
    scheduler.ban(3 * MS, node(1));
    scheduler.peer_came(node(1));
    assert_eq!(scheduler.neighbours_wanted(4 * MS, 16), []);
}
