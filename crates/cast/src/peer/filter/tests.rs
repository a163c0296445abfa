//! Tests of filters: every version at every reader claims all blocks that are held, and hardly any others.

use proptest::prelude::*;

use super::*;

fn id(number: u64) -> BlockId {
    BlockId(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

/// Brings a reader up to date with the messages of a stream.
fn catch_up(holdings: &Holdings, reader: &mut RemoteFilter, cursor: &mut PieceCursor) {
    let generation = reader.version().map(|version| version.generation);
    if generation != Some(holdings.version().generation) {
        while let Some(piece) = holdings.next_piece(cursor) {
            reader.handle_piece(piece).unwrap();
        }
        assert_eq!(reader.version(), Some(cursor.version()));
        *cursor = PieceCursor::default();
    }
    while let Some(changes) = holdings.changes_since(reader.version().unwrap()) {
        assert!(changes.keys.len() <= CHANGES_MAX && !changes.keys.is_empty());
        reader.handle_changes(&changes).unwrap();
    }
    assert_eq!(reader.version(), Some(holdings.version()));
}

fn false_rate(reader: &RemoteFilter) -> f64 {
    let asked = 100_000;
    let wrong = (0..asked).filter(|number| reader.contains(&id(1_000_000_000 + number))).count();
    wrong as f64 / asked as f64
}

#[test]
fn at_most_one_percent_is_claimed_by_chance() {
    for blocks in [1, 100, 1024, 1025, 3000, 9000, 9300, 40_000] {
        let mut holdings = Holdings::new(blocks);
        let (mut reader, mut cursor) = (RemoteFilter::default(), PieceCursor::default());
        for number in 0..blocks {
            holdings.insert(&id(number));
            if number % 700 == 0 {
                catch_up(&holdings, &mut reader, &mut cursor);
            }
        }
        catch_up(&holdings, &mut reader, &mut cursor);
        let rate = false_rate(&reader);
        assert!(rate < 0.0125, "{blocks} blocks: {rate} claimed by chance");
        assert!((0..blocks).all(|number| reader.contains(&id(number))));
    }
}

#[test]
fn a_reader_of_changes_has_the_same_filter_as_a_reader_of_the_whole() {
    let mut holdings = Holdings::new(7);
    let (mut follower, mut cursor) = (RemoteFilter::default(), PieceCursor::default());
    for number in 0..6000 {
        holdings.insert(&id(number));
        if number % 97 == 0 {
            catch_up(&holdings, &mut follower, &mut cursor);
        }
    }
    catch_up(&holdings, &mut follower, &mut cursor);
    let (mut newcomer, mut cursor) = (RemoteFilter::default(), PieceCursor::default());
    catch_up(&holdings, &mut newcomer, &mut cursor);
    for number in 0..200_000 {
        assert_eq!(follower.contains(&id(number)), newcomer.contains(&id(number)));
    }
}

#[test]
fn blocks_added_between_pieces_are_not_lost() {
    let mut holdings = Holdings::new(8);
    (0..60_000).for_each(|number| holdings.insert(&id(number)));
    let (mut reader, mut cursor) = (RemoteFilter::default(), PieceCursor::default());
    let mut next = 60_000;
    let mut pieces = 0;
    while let Some(piece) = holdings.next_piece(&mut cursor) {
        reader.handle_piece(piece).unwrap();
        pieces += 1;
        // First enough blocks to open a layer in between.
        let more = if pieces == 1 { 40_000 } else { 100 };
        (next..next + more).for_each(|number| holdings.insert(&id(number)));
        next += more;
    }
    assert!(pieces > 2, "{pieces}");
    catch_up(&holdings, &mut reader, &mut PieceCursor::default());
    assert!((0..next).all(|number| reader.contains(&id(number))));
}

#[test]
fn evicted_blocks_are_eventually_no_longer_claimed() {
    let mut holdings = Holdings::new(9);
    (0..5000).for_each(|number| holdings.insert(&id(number)));
    let before = holdings.version();
    (0..4000).for_each(|number| holdings.remove(&id(number)));
    assert!(holdings.version() > before && holdings.version().generation > before.generation);
    assert_eq!(holdings.changes_since(before), None, "a reader of the old filter gets the new one whole");
    let mut reader = RemoteFilter::default();
    catch_up(&holdings, &mut reader, &mut PieceCursor::default());
    let claimed = (0..3000).filter(|number| reader.contains(&id(*number))).count();
    assert!(claimed < 100, "{claimed}");
    assert!((4000..5000).all(|number| reader.contains(&id(number))));
}

#[test]
fn the_salt_determines_which_blocks_collide() {
    let hits = |salt| {
        let mut holdings = Holdings::new(salt);
        (0..1000).for_each(|number| holdings.insert(&id(number)));
        let mut reader = RemoteFilter::default();
        catch_up(&holdings, &mut reader, &mut PieceCursor::default());
        (10_000..60_000).filter(|number| reader.contains(&id(*number))).collect::<Vec<_>>()
    };
    let (one, other) = (hits(1), hits(2));
    let both = one.iter().filter(|number| other.contains(number)).count();
    assert!(one.len() > 50 && both <= one.len() / 10, "{} and {}, {both} of both", one.len(), other.len());
}

#[test]
fn a_filter_that_claims_everything_is_refused() {
    let mut holdings = Holdings::new(3);
    (0..1024).for_each(|number| holdings.insert(&id(number)));
    let piece = holdings.next_piece(&mut PieceCursor::default()).unwrap();
    let mut all = piece.clone();
    all.bytes.fill(0xff);
    let mut reader = RemoteFilter::default();
    assert!(reader.handle_piece(all).is_err());
    assert_eq!(reader.version(), None);
    assert!(reader.handle_piece(piece).unwrap(), "a full layer of an honest owner is accepted");
    // Changes cannot fill a layer past its capacity either.
    let changes =
        FilterChanges { generation: 1, from: 1024, opens: 0, keys: (0..2000).map(|n| n * 1000).collect() };
    assert!(reader.handle_changes(&changes).is_err());
}

proptest! {
    #[test]
    fn no_held_block_is_ever_denied(
        steps in proptest::collection::vec((0u64..4000, 0u8..8), 1..3000),
        follow in 1usize..300,
    ) {
        let mut holdings = Holdings::new(5);
        let mut held = std::collections::BTreeSet::new();
        let (mut reader, mut cursor) = (RemoteFilter::default(), PieceCursor::default());
        for (place, (number, what)) in steps.into_iter().enumerate() {
            if what < 6 {
                holdings.insert(&id(number));
                held.insert(number);
            } else {
                holdings.remove(&id(number));
                held.remove(&number);
            }
            if place % follow == 0 {
                catch_up(&holdings, &mut reader, &mut cursor);
                prop_assert!(held.iter().all(|number| reader.contains(&id(*number))));
            }
        }
    }

    #[test]
    fn keys_round_trip(mut keys in proptest::collection::vec(any::<u32>(), 0..500)) {
        keys.sort_unstable();
        let mut bytes = Vec::new();
        put_keys(&mut bytes, &keys);
        prop_assert_eq!(parse_keys(keys.len(), &bytes).unwrap(), keys.clone());
        bytes.push(0);
        prop_assert!(parse_keys(keys.len(), &bytes).is_err());
    }

    #[test]
    fn hostile_keys_are_bounded(count in 0usize..70_000, bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        if let Ok(keys) = parse_keys(count, &bytes) {
            prop_assert_eq!(keys.len(), count);
            prop_assert!(keys.is_sorted());
        }
    }
}
