//! Tests `diff` against sector maps of both disks, and checks which pages are read.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;
use crate::recipe::{CutPolicy, RecipeBuilder};
use crate::{Domain, Kind, SECTOR, Score};

#[derive(Default)]
struct Pages {
    pages: RefCell<HashMap<BlockId, Vec<u8>>>,
    reads: Cell<usize>,
}

impl PageSource for Pages {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        self.reads.set(self.reads.get() + 1);
        self.pages.borrow().get(id).cloned().ok_or_else(|| Error::missing(id.to_string()))
    }
}

fn build(pages: &Pages, length: u64, entries: &[Entry]) -> Score {
    let sink = |id, bytes: &[u8]| {
        pages.pages.borrow_mut().insert(id, bytes.to_vec());
        Ok(())
    };
    let mut builder =
        RecipeBuilder::new(length, 512, CutPolicy::FILE_ALIGNED_64K_GRID_32K, Domain::SHARED, sink);
    for entry in entries {
        builder.push(*entry).unwrap();
    }
    builder.finish().unwrap().0
}

fn block(number: u64) -> BlockId {
    BlockId::of(Kind::Data, &number.to_le_bytes())
}

fn entry(sector: u64, sectors: u64, state: State) -> Entry {
    Entry { extent: Extent::new(sector * SECTOR, sectors * SECTOR), state }
}

fn data(number: u64, offset_sectors: u32) -> State {
    State::Data { block: block(number), offset: offset_sectors * 512 }
}

fn states(entries: &[Entry], sectors: usize) -> Vec<State> {
    let mut states = vec![State::Free; sectors];
    for entry in entries {
        for sector in entry.extent.offset / SECTOR..entry.extent.end() / SECTOR {
            let one = entry.clip(Extent::new(sector * SECTOR, SECTOR)).unwrap();
            states[sector as usize] = one.state;
        }
    }
    states
}

/// Compares the differences sector by sector with those of the sector maps.
fn check(sectors: u64, first: &[Entry], second: &[Entry]) {
    let pages = Pages::default();
    let open = |entries| Recipe::open(build(&pages, sectors * SECTOR, entries), &pages).unwrap();
    let (a, b) = (open(first), open(second));
    let (states_a, states_b) = (states(first, sectors as usize), states(second, sectors as usize));
    let mut found = vec![None; sectors as usize];
    let (mut sums, mut end, mut last) = (Differences::default(), 0, None);
    let told = diff(&a, &b, &mut |difference| {
        assert!(difference.extent.offset >= end && difference.extent.length > 0);
        assert_eq!(last.and_then(|last: Difference| last.join(difference)), None, "two ranges could be one");
        (end, last) = (difference.extent.end(), Some(*difference));
        sums.add(difference);
        for sector in difference.extent.offset / SECTOR..end / SECTOR {
            let part = Extent::new(sector * SECTOR, SECTOR);
            let clip = |state| Entry { extent: difference.extent, state }.clip(part).unwrap().state;
            found[sector as usize] = Some((clip(difference.a), clip(difference.b)));
        }
        Ok(())
    });
    assert_eq!(told.unwrap(), sums);
    let pairs = states_a.iter().zip(&states_b);
    let wanted: Vec<_> = pairs.map(|(a, b)| (a != b).then_some((*a, *b))).collect();
    assert_eq!(found, wanted);

    let ids = |states: &[State]| -> BTreeSet<BlockId> {
        states
            .iter()
            .filter_map(|state| match state {
                State::Data { block, .. } => Some(*block),
                _ => None,
            })
            .collect()
    };
    let new = ids(&states_b).difference(&ids(&states_a)).count() as u64;
    for at_once_max in [BLOCKS_AT_ONCE_MAX, 3] {
        assert_eq!(count_new(&a, &b, at_once_max).unwrap().blocks, new);
    }
}

fn arbitrary_entries(sectors: u64) -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec((0..6u64, 1..40u64, 0..4u8, 0..50u64, 0..64u32), 0..1500).prop_map(move |items| {
        let mut entries = Vec::new();
        let mut position = 0;
        for (gap, length, state, number, offset) in items {
            if position + gap + length > sectors {
                break;
            }
            let state = if state == 0 { State::Zero } else { data(number, offset) };
            entries.push(entry(position + gap, length, state));
            position += gap + length;
        }
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Unrelated disks.
    #[test]
    fn unrelated_disks(a in arbitrary_entries(70_000), b in arbitrary_entries(70_000)) {
        check(70_000, &a, &b);
    }

    /// A disk, and a copy in which a few entries were changed or removed, so that leaves may be split
    /// differently.
    #[test]
    fn edited_copies(a in arbitrary_entries(70_000), edits in prop::collection::vec((any::<prop::sample::Index>(), 0..3u8), 0..8)) {
        let mut b = a.clone();
        for (at, edit) in edits {
            if b.is_empty() {
                break;
            }
            let at = at.index(b.len());
            match edit {
                0 => b[at].state = State::Zero,
                1 => b[at].state = data(1000 + at as u64, 0),
                _ => drop(b.remove(at)),
            }
        }
        check(70_000, &a, &b);
    }
}

/// For two large disks that differ in one place, only one path of pages is read.
#[test]
fn equal_pages_stay_unread() {
    let pages = Pages::default();
    let mut entries: Vec<Entry> = (0..100_000).map(|i| entry(i * 128, 128, data(i, 0))).collect();
    let a = Recipe::open(build(&pages, 1 << 40, &entries), &pages).unwrap();
    entries[50_000].state = data(1 << 40, 0);
    let b = Recipe::open(build(&pages, 1 << 40, &entries), &pages).unwrap();
    pages.reads.set(0);
    let mut found = Vec::new();
    let sums = diff(&a, &b, &mut |difference| {
        found.push(*difference);
        Ok(())
    });
    assert_eq!(sums.unwrap(), Differences { changed: 65536, ..Differences::default() });
    let extent = entries[50_000].extent;
    assert_eq!(found, [Difference { extent, a: data(50_000, 0), b: data(1 << 40, 0) }]);
    assert!(pages.reads.get() <= 8, "{} of {} pages", pages.reads.get(), pages.pages.borrow().len());
    assert_eq!(new_blocks(&a, &b).unwrap(), NewBlocks { blocks: 1, bytes: 65536 });
}

/// The end of the longer disk is compared with free space; a block that is elsewhere on the first disk is not
/// new.
#[test]
fn disks_of_different_lengths() {
    let pages = Pages::default();
    let short = [entry(0, 8, data(1, 0)), entry(8, 8, data(2, 0))];
    let long = [entry(0, 8, data(1, 8)), entry(8, 8, State::Zero), entry(1 << 20, 8, data(2, 0))];
    let a = Recipe::open(build(&pages, 1 << 20, &short), &pages).unwrap();
    let b = Recipe::open(build(&pages, 1 << 30, &long), &pages).unwrap();
    let sums = diff(&a, &b, &mut |_| Ok(())).unwrap();
    assert_eq!(sums, Differences { changed: 4096, only_a: 4096, only_b: 4096, freed: 0 });
    assert_eq!(new_blocks(&a, &b).unwrap(), NewBlocks::default());
    assert_eq!(diff(&a, &a, &mut |_| Ok(())).unwrap(), Differences::default());
}

/// A recipe with entries past the end of its disk is refused, as in the reader.
#[test]
fn an_entry_past_the_end_is_corrupt() {
    let pages = Pages::default();
    let good = Recipe::open(build(&pages, 1 << 20, &[entry(0, 8, data(1, 0))]), &pages).unwrap();
    let mut root = *good.root();
    root.disk_length = 512;
    pages.pages.borrow_mut().insert(root.score().unwrap().0, root.encode());
    let bad = Recipe::open(root.score().unwrap(), &pages).unwrap();
    let empty = Recipe::open(build(&pages, 1 << 20, &[]), &pages).unwrap();
    let error = diff(&bad, &empty, &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
}
