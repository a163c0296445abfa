//! Compares two recipes: finds where their disks differ, without reading blocks.
//!
//! Two places are equal if they have the same state and, for data, the same part of the same block. Equal
//! contents that were cut differently count as different; a caller that must know reads them. Pages with
//! equal ids are skipped unread, so the work grows with the differences. Memory is one path down each tree
//! and one leaf of each. Beyond the end of the shorter disk everything counts as free.

use std::collections::HashMap;

use super::reader::{PageSource, Recipe, Work};
use crate::page::{Entry, State};
use crate::{BlockId, Error, Extent, Result};

/// The most blocks that [`new_blocks`] looks for at once: they take about 20 MiB of memory.
const BLOCKS_AT_ONCE_MAX: usize = 1 << 18;

/// A range in which two disks differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Difference {
    /// The range.
    pub extent: Extent,
    /// What the first disk has there.
    pub a: State,
    /// What the second disk has there.
    pub b: State,
}

impl Difference {
    /// Joins this difference with the next one if the two continue each other on both disks.
    fn join(&self, next: &Self) -> Option<Self> {
        let entry = |difference: &Self, state| Entry { extent: difference.extent, state };
        let joined = entry(self, self.a).join(&entry(next, next.a))?;
        entry(self, self.b).join(&entry(next, next.b))?;
        Some(Self { extent: joined.extent, ..*self })
    }
}

/// How much two disks differ, in bytes of the disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Data on both disks, but from different blocks or different parts of one.
    pub changed: u64,
    /// Data on the first disk, zeros or free space on the second.
    pub only_a: u64,
    /// Zeros or free space on the first disk, data on the second.
    pub only_b: u64,
    /// Zeros on one disk, free space on the other: both read as zeros.
    pub freed: u64,
}

impl Differences {
    /// Adds one range.
    pub fn add(&mut self, difference: &Difference) {
        let is_data = |state| matches!(state, State::Data { .. });
        let sum = match (is_data(difference.a), is_data(difference.b)) {
            (true, true) => &mut self.changed,
            (true, false) => &mut self.only_a,
            (false, true) => &mut self.only_b,
            (false, false) => &mut self.freed,
        };
        *sum += difference.extent.length;
    }

    /// Bytes with different data, or with data on one disk only.
    pub fn data(&self) -> u64 {
        self.changed + self.only_a + self.only_b
    }
}

/// Blocks that the second disk has and the first one has nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewBlocks {
    /// Number of distinct blocks.
    pub blocks: u64,
    /// Their bytes, each block counted once, as far as the disk uses it.
    pub bytes: u64,
}

/// Calls `visit` with every range in which `b` differs from `a`, ascending and as long as possible, and
/// returns the sums.
///
/// # Errors
/// `Missing` or `Corrupt`, naming the page; errors of `visit`.
pub fn diff<P: PageSource, Q: PageSource>(
    a: &Recipe<P>,
    b: &Recipe<Q>,
    visit: &mut dyn FnMut(&Difference) -> Result<()>,
) -> Result<Differences> {
    let (mut a, mut b) = (Walk::new(a), Walk::new(b));
    let mut sums = Differences::default();
    let mut waiting: Option<Difference> = None;
    let mut position = 0;
    while let Some(found) = next_difference(&mut a, &mut b, &mut position)? {
        sums.add(&found);
        match waiting.as_mut().and_then(|last| last.join(&found)) {
            Some(joined) => waiting = Some(joined),
            None => {
                if let Some(last) = waiting.replace(found) {
                    visit(&last)?;
                }
            }
        }
    }
    waiting.map_or(Ok(()), |last| visit(&last))?;
    Ok(sums)
}

/// Counts the blocks of `b` that are nowhere on `a`: what storing `b` costs in addition to `a`. Reads all
/// pages of `a`, several times if the differences are large.
///
/// # Errors
/// `Missing` or `Corrupt`, naming the page.
pub fn new_blocks<P: PageSource, Q: PageSource>(a: &Recipe<P>, b: &Recipe<Q>) -> Result<NewBlocks> {
    count_new(a, b, BLOCKS_AT_ONCE_MAX)
}

fn count_new<P: PageSource, Q: PageSource>(
    a: &Recipe<P>,
    b: &Recipe<Q>,
    at_once_max: usize,
) -> Result<NewBlocks> {
    let mut new = NewBlocks::default();
    // Ids are evenly distributed: search for those whose first 16 bits lie in one range together.
    let (mut first, mut count) = (0_u32, 1_u32 << 16);
    while first < 1 << 16 {
        let range = first..first + count;
        let is_in_range = |id: &BlockId| range.contains(&u32::from(u16::from_be_bytes([id.0[0], id.0[1]])));
        let mut blocks: HashMap<BlockId, u64> = HashMap::new();
        let mut is_too_many = false;
        diff(a, b, &mut |difference| {
            if let State::Data { block, offset } = difference.b
                && !is_too_many
                && is_in_range(&block)
            {
                let used = blocks.entry(block).or_default();
                *used = (*used).max(u64::from(offset) + difference.extent.length);
                is_too_many = blocks.len() > at_once_max && count > 1;
            }
            Ok(())
        })?;
        if is_too_many {
            count /= 2;
            continue;
        }
        if !blocks.is_empty() {
            for entry in a.entries(Extent::new(0, a.root().disk_length)) {
                if let State::Data { block, .. } = entry?.state {
                    blocks.remove(&block);
                }
            }
        }
        new.blocks += blocks.len() as u64;
        new.bytes += blocks.values().sum::<u64>();
        first += count;
    }
    Ok(new)
}

/// The next range from `position` on in which the disks differ, with one state on each side.
fn next_difference<P: PageSource, Q: PageSource>(
    a: &mut Walk<'_, P>,
    b: &mut Walk<'_, Q>,
    position: &mut u64,
) -> Result<Option<Difference>> {
    loop {
        let starts = [a.start(), b.start()].into_iter().flatten();
        let Some(start) = starts.min() else { return Ok(None) };
        *position = (*position).max(start);
        if skip_or_open(a, b, *position)? {
            continue;
        }
        let (now_a, end_a) = a.here(*position);
        let (now_b, end_b) = b.here(*position);
        let extent = Extent::between(*position, end_a.min(end_b));
        let found = Difference { extent, a: now_a, b: now_b };
        *position = extent.end();
        a.pass(*position);
        b.pass(*position);
        if now_a != now_b {
            return Ok(Some(found));
        }
    }
}

/// Skips a page that both have, or opens the pages that begin here: of two, the wider one, because it may
/// contain the other.
fn skip_or_open<P: PageSource, Q: PageSource>(
    a: &mut Walk<'_, P>,
    b: &mut Walk<'_, Q>,
    position: u64,
) -> Result<bool> {
    match (a.page_at(position), b.page_at(position)) {
        (None, None) => return Ok(false),
        // The id is the hash of the page's bytes, which include its range.
        (Some(page_a), Some(page_b)) if page_a == page_b => {
            a.stack.pop();
            b.stack.pop();
        }
        (Some((_, span_a)), Some((_, span_b))) if span_a > span_b => a.open()?,
        (Some((_, span_a)), Some((_, span_b))) if span_a < span_b => b.open()?,
        (page_a, page_b) => {
            if page_a.is_some() {
                a.open()?;
            }
            if page_b.is_some() {
                b.open()?;
            }
        }
    }
    Ok(true)
}

/// A walk over one recipe from its start: a path down the tree and the rest of one leaf, the next item last.
struct Walk<'a, P> {
    recipe: &'a Recipe<P>,
    stack: Vec<Work>,
}

impl<'a, P: PageSource> Walk<'a, P> {
    fn new(recipe: &'a Recipe<P>) -> Self {
        let top = recipe.root().top.map(|(level, child)| Work::Page(level, child));
        Self { recipe, stack: top.into_iter().collect() }
    }

    /// Start of the next item.
    fn start(&self) -> Option<u64> {
        self.stack.last().map(|next| match next {
            Work::Page(_, child) => child.start,
            Work::Entry(entry) => entry.extent.offset,
        })
    }

    /// Id and span of the next page, if it begins at or before `position`.
    fn page_at(&self, position: u64) -> Option<(BlockId, u8)> {
        match self.stack.last()? {
            Work::Page(_, child) if child.start <= position => Some((child.id, child.span_log2)),
            _ => None,
        }
    }

    fn open(&mut self) -> Result<()> {
        if let Some(Work::Page(level, child)) = self.stack.pop() {
            let everything = Extent::new(0, u64::MAX);
            self.recipe.open_page((level, &child), everything, &mut self.stack)?;
        }
        let length = self.recipe.root().disk_length;
        match self.stack.last() {
            Some(Work::Entry(_)) if self.leaf_end() > length => Err(Error::corrupt(format!(
                "recipe {}: an entry reaches past the end of the disk",
                self.recipe.score()
            ))),
            _ => Ok(()),
        }
    }

    /// End of the last entry of the leaf that was just opened.
    fn leaf_end(&self) -> u64 {
        let entries = self.stack.iter().rev().map_while(|next| match next {
            Work::Entry(entry) => Some(entry.extent.end()),
            Work::Page(..) => None,
        });
        entries.max().unwrap_or(0)
    }

    /// The state at `position`, and the end of the range with that state.
    fn here(&self, position: u64) -> (State, u64) {
        match self.stack.last() {
            Some(Work::Entry(entry)) if entry.extent.offset <= position => {
                let rest = entry.clip(Extent::between(position, u64::MAX));
                (rest.map_or(State::Free, |rest| rest.state), entry.extent.end())
            }
            _ => (State::Free, self.start().unwrap_or(u64::MAX)),
        }
    }

    /// Drops an entry that ends at or before `position`.
    fn pass(&mut self, position: u64) {
        if matches!(self.stack.last(), Some(Work::Entry(entry)) if entry.extent.end() <= position) {
            self.stack.pop();
        }
    }
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
