//! Reads a recipe top-down from its score, one page at a time.

use super::Root;
use crate::page::{Child, Contents, Entry, State, decode};
use crate::{BlockId, Error, Extent, Result, Score};

/// A source of pages. It returns only pages that were verified against their ids.
pub trait PageSource {
    /// The page with that id.
    ///
    /// # Errors
    /// `Missing` or `Corrupt`, naming the page.
    fn page(&self, id: &BlockId) -> Result<Vec<u8>>;

    /// Announces that these pages will be requested soon, in this order. Only a hint, like
    /// [`crate::FrameSource::will_need`].
    fn will_need_pages(&self, _ids: &[BlockId]) {}
}

impl<P: PageSource + ?Sized> PageSource for &P {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        (**self).page(id)
    }

    fn will_need_pages(&self, ids: &[BlockId]) {
        (**self).will_need_pages(ids);
    }
}

/// An opened recipe: of a whole disk, or of a part of it that is treated like a disk.
#[derive(Clone, Debug)]
pub struct Recipe<P> {
    /// The root of the whole disk.
    whole: Root,
    /// The same, with the length of the part.
    root: Root,
    /// The range of the whole disk that is shown.
    part: Extent,
    score: Score,
    pages: P,
}

impl<P: PageSource> Recipe<P> {
    /// Opens the recipe with that score.
    ///
    /// # Errors
    /// `Missing` or `Corrupt`.
    pub fn open(score: Score, pages: P) -> Result<Self> {
        let root = Root::decode(score, &pages.page(&score.0)?)?;
        Ok(Self { whole: root, root, part: Extent::new(0, root.disk_length), score, pages })
    }

    /// The recipe of a range of the disk, such as a partition: a disk of that length, whose offsets count from the
    /// start of the range. What lies past the end of the disk is cut off.
    #[must_use]
    pub fn of_part(self, range: Extent) -> Self {
        let part = self.on_disk(range);
        Self { root: Root { disk_length: part.length, ..self.root }, part, ..self }
    }

    /// Its root, with the properties of the disk. For a part, `disk_length` is that of the part.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Its score, which is that of the whole disk.
    pub fn score(&self) -> Score {
        self.score
    }

    /// The data and zero entries inside `range`, ascending and clipped to it. Gaps are free space.
    pub fn entries(&self, range: Extent) -> Entries<'_, P> {
        let stack = self.whole.top.map(|(level, child)| Work::Page(level, child)).into_iter().collect();
        Entries { recipe: self, range: self.on_disk(range), stack, on_lost: None }
    }

    /// The readable entries of a damaged recipe. `on_lost` is called with the range of each unreadable page
    /// and the error; the walk then goes on.
    pub fn readable_entries<'a>(&'a self, range: Extent, on_lost: &'a OnLost<'a>) -> Entries<'a, P> {
        Entries { on_lost: Some(on_lost), ..self.entries(range) }
    }

    /// Calls `visit` with the id of every page needed to read `range`: the root first, parents before
    /// children.
    ///
    /// # Errors
    /// Errors of the page source and of `visit`.
    pub fn visit_pages(&self, range: Extent, visit: &mut dyn FnMut(&BlockId) -> Result<()>) -> Result<()> {
        visit(&self.score.0)?;
        let range = self.on_disk(range);
        let mut stack: Vec<(u8, Child)> = self.whole.top.into_iter().collect();
        while let Some((level, child)) = stack.pop() {
            if child.range().intersect(&range).is_none() {
                continue;
            }
            visit(&child.id)?;
            // A leaf names no further pages, but reading it checks that it is there.
            if let Contents::Branch(children) = self.read(level, &child)? {
                stack.extend(children.into_iter().rev().map(|child| (level - 1, child)));
            }
        }
        Ok(())
    }

    /// Pushes a page's contents inside `range` onto the stack, the first on top. Free space is left out.
    pub(super) fn open_page(
        &self,
        (level, child): (u8, &Child),
        range: Extent,
        stack: &mut Vec<Work>,
    ) -> Result<()> {
        match self.read(level, child)? {
            Contents::Branch(children) => {
                let wanted = children.into_iter().filter(|child| child.range().intersect(&range).is_some());
                let wanted: Vec<Child> = wanted.collect();
                let ids: Vec<BlockId> = wanted.iter().map(|child| child.id).collect();
                self.pages.will_need_pages(&ids);
                stack.extend(wanted.into_iter().rev().map(|child| Work::Page(level - 1, child)));
            }
            Contents::Leaf(entries) => {
                let inside = entries.iter().rev().filter_map(|entry| entry.clip(range));
                stack.extend(inside.filter(|entry| entry.state != State::Free).map(Work::Entry));
            }
        }
        Ok(())
    }

    /// A range of the part, as a range of the whole disk.
    fn on_disk(&self, range: Extent) -> Extent {
        let moved = Extent::between(
            self.part.offset.saturating_add(range.offset),
            self.part.offset.saturating_add(range.end()),
        );
        moved.intersect(&self.part).unwrap_or(Extent::new(self.part.end(), 0))
    }

    /// A range of the whole disk, as one of the part.
    fn in_part(&self, extent: Extent) -> Extent {
        Extent { offset: extent.offset.saturating_sub(self.part.offset), ..extent }
    }

    fn read(&self, level: u8, child: &Child) -> Result<Contents> {
        let (found, contents) = decode(child, &self.pages.page(&child.id)?)?;
        if found != level {
            return Err(Error::corrupt(format!("recipe page {} has level {found}, not {level}", child.id)));
        }
        self.whole.check_page(child, &contents)?;
        Ok(contents)
    }
}

/// A page or entry still to be visited.
#[derive(Clone, Copy)]
pub(super) enum Work {
    Page(u8, Child),
    Entry(Entry),
}

/// The entries of a range of a disk, in order. Ends after an error.
pub struct Entries<'a, P> {
    recipe: &'a Recipe<P>,
    range: Extent,
    /// What is left to visit, next on top: a path down the tree and the rest of one leaf.
    stack: Vec<Work>,
    on_lost: Option<&'a OnLost<'a>>,
}

/// Called with a range of the disk whose contents cannot be read, and the error.
pub type OnLost<'a> = dyn Fn(Extent, &Error) + Sync + 'a;

impl<P: PageSource> Iterator for Entries<'_, P> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.stack.pop()? {
                Work::Entry(entry) => {
                    return Some(Ok(Entry { extent: self.recipe.in_part(entry.extent), ..entry }));
                }
                Work::Page(level, child) => {
                    let opened = self.recipe.open_page((level, &child), self.range, &mut self.stack);
                    let Err(error) = opened else { continue };
                    let on_lost = self.on_lost.filter(|_| error.is_data_loss());
                    let Some(on_lost) = on_lost else {
                        self.stack.clear();
                        return Some(Err(error));
                    };
                    let lost = child.range().intersect(&self.range);
                    lost.into_iter().for_each(|lost| on_lost(self.recipe.in_part(lost), &error));
                }
            }
        }
    }
}
