//! Builds a recipe from entries in disk order. Its memory does not grow with the disk.

use super::{CutPolicy, Root};
use crate::page::{
    Child, Entry, FANOUT_LOG2, LEAF_SPAN_LOG2, LEVEL_MAX, PAGE_LENGTH_MAX, State, encode_branch, encode_leaf,
    encode_zeros, span_log2_max, zeros_level,
};
use crate::{BlockId, Domain, Error, Extent, Kind, Result, Score};

/// Receives the pages of a recipe as they are built: children always before their parents.
pub trait PageSink {
    /// Stores one page.
    ///
    /// # Errors
    /// Errors of storing it; they end the building.
    fn page(&mut self, id: BlockId, bytes: &[u8]) -> Result<()>;
}

impl<F: FnMut(BlockId, &[u8]) -> Result<()>> PageSink for F {
    fn page(&mut self, id: BlockId, bytes: &[u8]) -> Result<()> {
        self(id, bytes)
    }
}

/// Keeps the pages in memory, for a caller that takes them out from time to time.
impl PageSink for Vec<(BlockId, Vec<u8>)> {
    fn page(&mut self, id: BlockId, bytes: &[u8]) -> Result<()> {
        self.push((id, bytes.to_vec()));
        Ok(())
    }
}

/// A recipe being built.
pub struct RecipeBuilder<S> {
    sink: S,
    root: Root,
    /// The entries of the current leaf range, and the start of that range.
    entries: Vec<Entry>,
    leaf_start: u64,
    /// All-zero leaf ranges before the current one that are not in any page yet.
    zeros: Extent,
    /// For each level above the leaves, the pages that wait for their parent.
    waiting: Vec<Vec<Child>>,
}

impl<S: PageSink> RecipeBuilder<S> {
    /// A builder for a disk with that length and sector size in bytes.
    pub fn new(disk_length: u64, sector_size: u32, cut_policy: CutPolicy, domain: Domain, sink: S) -> Self {
        let root = Root { disk_length, sector_size, cut_policy, domain, top: None };
        Self {
            sink,
            root,
            entries: Vec::new(),
            leaf_start: 0,
            zeros: Extent::new(0, 0),
            waiting: vec![Vec::new(); usize::from(LEVEL_MAX) + 1],
        }
    }

    /// Adds the next entry. Entries must ascend; gaps between them are free.
    ///
    /// # Errors
    /// `Bug` when the entry overlaps the last one or reaches past the end of the disk; errors of the sink.
    pub fn push(&mut self, entry: Entry) -> Result<()> {
        let position = self.entries.last().map_or(self.leaf_start, |last| last.extent.end());
        if entry.extent.offset < position || entry.extent.end() > self.root.disk_length {
            return Err(Error::bug(format!(
                "recipe entry {:?} is out of order after offset {position} or past the end of the disk",
                entry.extent
            )));
        }
        if entry.state == State::Free {
            return Ok(());
        }
        let mut rest = Some(entry);
        while let Some(entry) = rest {
            let leaf = leaf_of(entry.extent.offset);
            if leaf.offset != self.leaf_start {
                self.close_leaf()?;
                self.leaf_start = leaf.offset;
            }
            if let Some(whole) = whole_leaves_of_zeros(&entry) {
                self.add_zeros(whole)?;
                self.leaf_start = whole.end();
                rest = entry.clip(Extent::between(whole.end(), u64::MAX));
                continue;
            }
            if let Some(part) = entry.clip(leaf) {
                match self.entries.last_mut() {
                    Some(last) if last.join(&part).is_some() => last.extent.length += part.extent.length,
                    _ => self.entries.push(part),
                }
            }
            rest = entry.clip(Extent::between(leaf.end(), u64::MAX));
        }
        Ok(())
    }

    /// The sink, to take out the pages that it keeps.
    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Finishes the recipe and returns the disk's score and the sink.
    ///
    /// # Errors
    /// Errors of the sink.
    pub fn finish(mut self) -> Result<(Score, S)> {
        self.close_leaf()?;
        self.close_zeros()?;
        for level in 1..=LEVEL_MAX {
            let above_empty = self.waiting[usize::from(level) + 1..].iter().all(Vec::is_empty);
            if let ([only], true) = (&self.waiting[usize::from(level)][..], above_empty) {
                self.root.top = Some((level - 1, *only));
                break;
            }
            self.close_branch(level)?;
        }
        let bytes = self.root.encode();
        let score = self.root.score()?;
        self.sink.page(score.0, &bytes)?;
        Ok((score, self.sink))
    }

    fn close_leaf(&mut self) -> Result<()> {
        let leaf = leaf_of(self.leaf_start);
        if self.entries == [Entry { extent: leaf, state: State::Zero }] {
            self.entries.clear();
            return self.add_zeros(leaf);
        }
        let entries = std::mem::take(&mut self.entries);
        let closed = if entries.is_empty() { Ok(()) } else { self.close_zeros() };
        let result = closed.and_then(|()| self.add_leaves(leaf, &entries));
        self.entries = entries;
        self.entries.clear();
        result
    }

    /// Adds all-zero leaf ranges.
    fn add_zeros(&mut self, range: Extent) -> Result<()> {
        if self.zeros.end() != range.offset {
            self.close_zeros()?;
            self.zeros = Extent::new(range.offset, 0);
        }
        self.zeros.length += range.length;
        Ok(())
    }

    /// Turns the collected zeros into pages. Each page is the widest that can start at its offset, so that
    /// there are few.
    fn close_zeros(&mut self) -> Result<()> {
        let mut rest = std::mem::replace(&mut self.zeros, Extent::new(0, 0));
        while rest.length > 0 {
            let span_log2 = rest.offset.trailing_zeros().min(rest.length.ilog2()) as u8;
            let (level, range) = (zeros_level(span_log2), Extent::new(rest.offset, 1 << span_log2));
            // Pages that wait on lower levels lie before this one.
            for below in 1..=level {
                self.close_branch(below)?;
            }
            self.add_page(level, range, &encode_zeros(level, range))?;
            rest = Extent::between(range.end(), rest.end());
        }
        Ok(())
    }

    /// Encodes the leaf for `range`, or leaves for its halves if it would be too long.
    fn add_leaves(&mut self, range: Extent, entries: &[Entry]) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let bytes = encode_leaf(range, entries);
        if bytes.len() <= PAGE_LENGTH_MAX {
            return self.add_page(0, range, &bytes);
        }
        for half in halves(range) {
            let part: Vec<Entry> = entries.iter().filter_map(|entry| entry.clip(half)).collect();
            self.add_leaves(half, &part)?;
        }
        Ok(())
    }

    /// Encodes the branch of `level` for `range`, or branches for its halves if it would be too long.
    fn add_branches(&mut self, level: u8, range: Extent, children: &[Child]) -> Result<()> {
        if children.is_empty() {
            return Ok(());
        }
        let bytes = encode_branch(level, range, children);
        if bytes.len() <= PAGE_LENGTH_MAX {
            return self.add_page(level, range, &bytes);
        }
        let [low, high] = halves(range);
        let (below, above) = children.split_at(children.partition_point(|child| child.start < high.offset));
        self.add_branches(level, low, below)?;
        self.add_branches(level, high, above)
    }

    fn add_page(&mut self, level: u8, range: Extent, bytes: &[u8]) -> Result<()> {
        let id = self.root.domain.id_of(Kind::Page, bytes)?;
        self.sink.page(id, bytes)?;
        let child = Child { start: range.offset, span_log2: range.length.trailing_zeros() as u8, id };
        let parent = level + 1;
        let waits = self.waiting[usize::from(parent)].first();
        if waits.is_some_and(|first| branch_of(parent, first.start) != branch_of(parent, child.start)) {
            self.close_branch(parent)?;
        }
        self.waiting[usize::from(parent)].push(child);
        Ok(())
    }

    fn close_branch(&mut self, level: u8) -> Result<()> {
        let children = std::mem::take(&mut self.waiting[usize::from(level)]);
        match children.first() {
            Some(first) => self.add_branches(level, branch_of(level, first.start), &children),
            None => Ok(()),
        }
    }
}

const _: () = assert!(LEAF_SPAN_LOG2 + FANOUT_LOG2 * (LEVEL_MAX - 1) < 64, "a page's range fits 64 bits");

/// The whole leaf ranges at the start of a zero entry.
fn whole_leaves_of_zeros(entry: &Entry) -> Option<Extent> {
    let leaf = leaf_of(entry.extent.offset);
    let length = entry.extent.length / leaf.length * leaf.length;
    let is_whole = entry.state == State::Zero && entry.extent.offset == leaf.offset && length > 0;
    is_whole.then(|| Extent::new(leaf.offset, length))
}

fn leaf_of(offset: u64) -> Extent {
    branch_of(0, offset)
}

/// The widest range that a page of that level around `offset` may cover.
fn branch_of(level: u8, offset: u64) -> Extent {
    let span = 1_u64 << span_log2_max(level);
    Extent::new(offset / span * span, span)
}

fn halves(range: Extent) -> [Extent; 2] {
    let half = range.length / 2;
    [Extent::new(range.offset, half), Extent::new(range.offset + half, half)]
}
