//! The wanted contents of a range of the disk: the entries of the recipe, and zeros for free space if that is to be
//! zeroed.

use platter_image::page::{Entry, State};
use platter_image::recipe::{OnLost, PageSource, Recipe};
use platter_image::{Extent, Result};

use super::FreeSpace;

/// The entries of `range` in disk order. Free space is left out, or is zeros.
pub(super) fn described<'a, P: PageSource>(
    recipe: &'a Recipe<P>,
    range: Extent,
    free: FreeSpace,
    on_lost: Option<&'a OnLost<'a>>,
) -> impl Iterator<Item = Result<Entry>> + 'a {
    let mut entries = match on_lost {
        Some(on_lost) => recipe.readable_entries(range, on_lost),
        None => recipe.entries(range),
    };
    let mut position = range.offset;
    let mut waiting = None;
    std::iter::from_fn(move || {
        if let Some(entry) = waiting.take() {
            return Some(Ok(entry));
        }
        let (start, next) = (position, entries.next());
        let end = match &next {
            Some(Ok(entry)) => entry.extent.offset,
            Some(Err(_)) => start,
            None => range.end(),
        };
        position = match &next {
            Some(Ok(entry)) => entry.extent.end(),
            _ => end,
        };
        if free == FreeSpace::Zero && start < end {
            waiting = next.and_then(Result::ok);
            return Some(Ok(Entry { extent: Extent::between(start, end), state: State::Zero }));
        }
        next
    })
}
