//! Tests the scheduler alone: its choice of sources, its reaction to replies, and that every piece ends.

use std::collections::VecDeque;
use std::time::Duration;

use platter_image::{BlockId, Kind, Score};

use super::home::{affinity, node_hash};
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

/// A piece of these ids, in a separate group.
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

/// Adds a peer whose filter claims these ids.
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
fn pieces_are_requested_from_holders_otherwise_from_the_origin() {
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
fn blocks_missing_at_a_peer_are_requested_elsewhere_without_penalty() {
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
fn slow_and_loaded_peers_get_fewer_requests() {
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
        // The first is ten times as slow; both are fast enough not to be hedged.
        now += if number == 1 { 10 * MS } else { MS };
        scheduler.handle_arrived(now, ask.request, &ask.ids);
        assert!(matches!(scheduler.poll_event(now), Some(ScheduleEvent::Done(_))));
    }
    assert!(asked[2] > 3 * asked[1] && asked[1] > 10, "{asked:?}");
}

#[test]
fn a_slow_request_is_hedged_and_the_slower_one_cancelled() {
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

/// When the origin fails, peers are tried again, except those that have not replied yet.
#[test]
fn while_the_origin_is_down_a_slow_peer_gets_one_request_at_a_time() {
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

/// Hedging whole groups at the origin made it send half of a small disk twice.
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

/// A home that receives a piece from the origin takes longer than others. Neither another home nor this node fetches it meanwhile,
/// because the origin would then send it twice. A peer that has it is asked.
#[test]
fn a_piece_is_fetched_once_more_only_when_its_home_is_silent() {
    for (holder, least) in [(false, Duration::from_secs(2)), (true, Duration::ZERO)] {
        let mut scheduler = scheduler(true);
        scheduler.add_peer(node(1));
        scheduler.add_peer(node(2));
        let group = (0..).find(|first| {
            let mine = node_hash(&node(0));
            let others = [node(1), node(2)].map(|other| affinity(node_hash(&other), u64::from(*first)));
            others.iter().all(|other| *other > affinity(mine, u64::from(*first)))
        });
        let first = group.unwrap();
        scheduler.want(MS, want(first..first + 1)).unwrap();
        let ask = next_ask(&mut scheduler, MS);
        assert!(ask.fetch, "{ask:?}");
        if holder {
            tell(&mut scheduler, 3, first..first + 1);
        }
        let mut now = MS;
        let hedge = loop {
            now = scheduler.poll_timeout().unwrap().max(now);
            if let Some(ScheduleEvent::Ask(ask)) = scheduler.poll_event(now) {
                break ask;
            }
        };
        assert_eq!(hedge.source == Source::Peer(node(3)), holder, "{hedge:?}");
        assert!(now >= MS + least && now < 3000 * MS, "{holder} after {now:?}");
    }
}

#[test]
fn a_lying_peer_is_never_used_again_and_a_failing_one_later() {
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
fn a_filter_that_is_wrong_too_often_is_ignored() {
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
fn all_nodes_agree_on_homes_and_groups_move_only_when_their_home_leaves() {
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
            // The home itself requests from the origin.
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
fn without_sources_every_piece_ends() {
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
fn the_bytes_in_flight_are_limited() {
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
fn a_run_of_ids_has_the_same_groups_at_any_position() {
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

/// A frame belongs to one group: two requests for parts of a group would transfer it twice.
#[test]
fn the_origin_gets_one_request_per_group_at_a_time() {
    let mut scheduler = scheduler(false);
    scheduler.add_peer(node(9));
    for part in 0..3 {
        scheduler.want(MS, Want { group: 7, ..want(part * 8..part * 8 + 8) }).unwrap();
    }
    scheduler.want(MS, Want { group: 8, ..want(100..108) }).unwrap();
    let asks: Vec<Ask> = [next_ask(&mut scheduler, MS), next_ask(&mut scheduler, MS)].into();
    assert_eq!((&asks[0].ids, &asks[1].ids), (&want(0..8).ids, &want(100..108).ids));
    assert_eq!(scheduler.poll_event(MS), None);
    // This reply has a frame on the border between two parts.
    scheduler.handle_arrived(2 * MS, asks[0].request, &want(0..10).ids);
    scheduler.strike(PieceId(1), &want(8..10).ids);
    assert!(matches!(scheduler.poll_event(2 * MS), Some(ScheduleEvent::Done(_))));
    assert_eq!(next_ask(&mut scheduler, 2 * MS).ids, want(10..16).ids);
    assert_eq!(scheduler.poll_event(2 * MS), None);
}

/// Otherwise another node would fetch the rest from the origin, although the home will soon have it.
#[test]
fn a_home_that_holds_a_part_is_asked_to_fetch_the_rest() {
    let mut scheduler = scheduler(true);
    (2..=5).for_each(|peer| scheduler.add_peer(node(peer)));
    // Returns the home of a group while no peer claims anything; `None` if this node is the home.
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
fn pieces_that_can_wait_wait_for_a_holder() {
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

/// Pieces that can wait are requested from the origin by their home, then by the second choice for the home, from the
/// other end. If no peer claims the rest for long enough, it is requested from its homes.
#[test]
fn a_node_that_has_finished_its_own_pieces_stands_in_for_other_homes() {
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
    // This node is the home of a quarter of the pieces, and stands in for a third of the rest.
    let turn = numbers.windows(2).position(|pair| pair[1] < pair[0]).unwrap() + 1;
    assert!((8..24).contains(&turn) && (8..24).contains(&(numbers.len() - turn)), "{numbers:?}");
    assert!(numbers[turn..].is_sorted_by(|a, b| a > b), "{numbers:?}");
    assert!(from_homes.iter().all(|(at, _)| *at > 2000 * MS) && from_homes.len() > 16);
}

#[test]
fn a_long_link_is_filled_and_a_queue_does_not_grow() {
    let mut scheduler = scheduler(false);
    scheduler.add_peer(node(9));
    for group in 0..3000 {
        scheduler.want(MS, Want { can_wait: true, ..want(group * 10..group * 10 + 1) }).unwrap();
    }
    let (mut now, mut asked) = (MS, VecDeque::new());
    // Replies arrive after the round trip and the replies queued before them. Returns the number of requests in flight after `answers`.
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

/// Reading a disk on demand leaves no entries behind.
#[test]
fn finished_pieces_are_removed_from_all_lists() {
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

/// A peer that has a part of a piece will soon have all of it: the rest is requested neither from the home nor from the origin.
#[test]
fn a_piece_that_can_wait_continues_to_wait_after_a_peer_sent_a_part() {
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
fn blocks_that_arrived_otherwise_are_not_requested() {
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
fn a_peer_that_connects_is_available_again() {
    let mut scheduler = scheduler(true);
    scheduler.add_peer(node(1));
    scheduler.peer_gone(MS, node(1));
    assert_eq!(scheduler.neighbours_wanted(2 * MS, 16), []);
    scheduler.peer_came(2 * MS, node(1));
    assert_eq!(scheduler.neighbours_wanted(2 * MS, 16), [node(1)]);
    scheduler.ban(3 * MS, node(1));
    scheduler.peer_came(2 * MS, node(1));
    assert_eq!(scheduler.neighbours_wanted(4 * MS, 16), []);
}
