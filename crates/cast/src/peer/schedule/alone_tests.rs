//! Tests fetching from the origin alone.

use std::time::Duration;

use platter_image::{BlockId, Kind, Score};

use super::*;
use crate::peer::NodeId;

const SECOND: Duration = Duration::from_secs(1);
/// Number of ids per piece.
const IDS: u32 = 16;

fn id(number: u32) -> BlockId {
    BlockId(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

fn want(piece: u32, can_wait: bool) -> Want {
    let ids = (piece * IDS..(piece + 1) * IDS).map(id).collect();
    let (group, patience) = (u64::from(piece), 10 * SECOND);
    let (score, kind) = (Score(id(0)), Kind::Data);
    Want { score, kind, group, ids, origin_only: false, can_wait, exact: true, patience }
}

fn alone(ahead_bytes_max: u64) -> Scheduler {
    let own = NodeId([0; 16]);
    let (seed, bytes_in_flight_max, homes) = (1, 64 << 20, false);
    Scheduler::new(ScheduleOptions { seed, own, bytes_in_flight_max, homes, ahead_bytes_max })
}

fn next_ask(scheduler: &mut Scheduler, now: Duration) -> Ask {
    match scheduler.poll_event(now) {
        Some(ScheduleEvent::Ask(ask)) => ask,
        other => panic!("no request but {other:?}"),
    }
}

fn ids_of(ask: &Ask) -> Vec<u32> {
    ask.ids.iter().map(|wanted| (0..10_000).find(|number| id(*number) == *wanted).unwrap()).collect()
}

#[test]
fn announced_pieces_share_requests_in_order_until_the_link_is_full() {
    let mut scheduler = alone(64 << 20);
    (0..100).for_each(|piece| _ = scheduler.want(SECOND, want(piece, true)).unwrap());
    let asks: Vec<Ask> = (0..4).map(|_| next_ask(&mut scheduler, SECOND)).collect();
    assert_eq!(asks.iter().flat_map(ids_of).collect::<Vec<_>>(), (0..256).collect::<Vec<_>>());
    assert!(asks.iter().all(|ask| ask.ids.len() == 64 && ask.exact && ask.source == Source::Origin));
    assert_eq!(scheduler.poll_event(SECOND), None, "4 MiB are under way");
    // When bytes arrive, more requests can be sent.
    scheduler.handle_bytes(SECOND, asks[0].request, 1 << 20);
    assert_eq!(scheduler.poll_event(SECOND), None, "four requests are");
    scheduler.handle_arrived(SECOND, asks[0].request, &asks[0].ids);
    let ends = (0..4).map(|_| scheduler.poll_event(SECOND));
    assert!(ends.into_iter().all(|event| matches!(event, Some(ScheduleEvent::Done(_)))));
    assert_eq!(ids_of(&next_ask(&mut scheduler, SECOND))[0], 256);
}

#[test]
fn unread_bytes_stop_reading_ahead() {
    let mut scheduler = alone(1 << 20);
    (0..100).for_each(|piece| _ = scheduler.want(SECOND, want(piece, true)).unwrap());
    scheduler.set_unread(1 << 20);
    assert_eq!(scheduler.poll_event(SECOND), None);
    scheduler.set_unread(1 << 10);
    assert_eq!(next_ask(&mut scheduler, SECOND).ids.len(), 64);
    assert_eq!(scheduler.poll_event(SECOND), None);
}

#[test]
fn random_reads_are_immediate_and_sequential_reads_wait_for_the_link() {
    let mut scheduler = alone(64 << 20);
    let pieces: Vec<PieceId> =
        (0..100).map(|piece| scheduler.want(SECOND, want(piece, true)).unwrap()).collect();
    let asks: Vec<Ask> = (0..4).map(|_| next_ask(&mut scheduler, SECOND)).collect();
    scheduler.hurry(SECOND, pieces[50]);
    assert_eq!(scheduler.poll_event(SECOND), None);
    scheduler.want(SECOND, want(200, false)).unwrap();
    assert_eq!(ids_of(&next_ask(&mut scheduler, SECOND)), (3200..3216).collect::<Vec<_>>());
    asks.iter().for_each(|ask| scheduler.handle_bytes(SECOND, ask.request, 1 << 20));
    let hurried = ids_of(&next_ask(&mut scheduler, SECOND));
    assert_eq!(hurried[..16], (800..816).collect::<Vec<_>>(), "{hurried:?}");
}

#[test]
fn threads_of_one_reader_do_not_make_gaps_between_requests() {
    let mut scheduler = alone(64 << 20);
    let pieces: Vec<PieceId> =
        (0..100).map(|piece| scheduler.want(SECOND, want(piece, true)).unwrap()).collect();
    // Four threads wait, the last of them first.
    [3, 2, 1, 0].into_iter().for_each(|piece: usize| scheduler.hurry(SECOND, pieces[piece]));
    let mut requested = ids_of(&next_ask(&mut scheduler, SECOND));
    [7, 5, 9].into_iter().for_each(|piece: usize| scheduler.hurry(SECOND, pieces[piece]));
    (0..3).for_each(|_| requested.extend(ids_of(&next_ask(&mut scheduler, SECOND))));
    assert_eq!(requested, (0..requested.len() as u32).collect::<Vec<_>>());
}

#[test]
fn the_rest_of_an_interrupted_request_is_requested_again_after_a_pause() {
    let mut scheduler = alone(64 << 20);
    let piece = scheduler.want(SECOND, want(0, false)).unwrap();
    let ask = next_ask(&mut scheduler, SECOND);
    scheduler.handle_arrived(SECOND, ask.request, &ask.ids[..5]);
    scheduler.handle_failed(SECOND, ask.request, Failure::Gone);
    scheduler.want(SECOND, want(1, false)).unwrap();
    assert_eq!(scheduler.poll_event(SECOND), None, "nor is anything else requested meanwhile");
    let later = scheduler.poll_timeout().unwrap();
    assert!(later > SECOND && later < 2 * SECOND, "{later:?}");
    let again = next_ask(&mut scheduler, later);
    assert_eq!(ids_of(&again), (5..32).collect::<Vec<_>>());
    scheduler.handle_arrived(later, again.request, &again.ids[..11]);
    assert_eq!(scheduler.poll_event(later), Some(ScheduleEvent::Done(piece)));
}

#[test]
fn pieces_fail_after_the_readers_patience_if_the_origin_stays_down() {
    let mut scheduler = alone(64 << 20);
    let piece = scheduler.want(SECOND, want(0, false)).unwrap();
    let (mut now, mut tries) = (SECOND, 0);
    loop {
        match scheduler.poll_event(now) {
            Some(ScheduleEvent::Ask(ask)) => {
                tries += 1;
                scheduler.handle_failed(now, ask.request, Failure::Gone);
            }
            Some(ScheduleEvent::Failed { piece: failed, ids }) => {
                assert_eq!((failed, ids.len()), (piece, IDS as usize));
                break;
            }
            Some(event) => panic!("{event:?}"),
            None => now = scheduler.poll_timeout().unwrap(),
        }
    }
    assert!(now >= 11 * SECOND && now < 14 * SECOND && (5..20).contains(&tries), "{tries} tries, {now:?}");
    scheduler.want(now, want(1, false)).unwrap();
    let later = now + 3 * SECOND;
    assert_eq!(next_ask(&mut scheduler, later).ids.len(), IDS as usize, "later readers are tried for again");
}

#[test]
fn blocks_that_the_origin_refuses_or_omits_are_not_requested_again() {
    let mut scheduler = alone(64 << 20);
    let refused = scheduler.want(SECOND, want(0, false)).unwrap();
    let ask = next_ask(&mut scheduler, SECOND);
    scheduler.handle_failed(SECOND, ask.request, Failure::Refused);
    let failed = ScheduleEvent::Failed { piece: refused, ids: ask.ids };
    assert_eq!(scheduler.poll_event(SECOND), Some(failed));
    let missing = scheduler.want(SECOND, want(1, false)).unwrap();
    let ask = next_ask(&mut scheduler, SECOND);
    scheduler.handle_arrived(SECOND, ask.request, &ask.ids[..15]);
    scheduler.handle_answered(SECOND, ask.request, &ask.ids[15..], None);
    let failed = ScheduleEvent::Failed { piece: missing, ids: ask.ids[15..].to_vec() };
    assert_eq!(scheduler.poll_event(SECOND), Some(failed));
}
