//! Roots of recipes, and the walk below them. The input is a root, followed by one page to which every id leads.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_fuzz::bug_free;
use platter_image::recipe::{PageSource, Recipe, Root};
use platter_image::{BlockId, Extent, Kind, Result, Score};

const ROOT_LENGTH: usize = 84;
/// Limit of visited entries: a hostile recipe may have many.
const ENTRIES_TRIED: usize = 4096;

struct Pages<'a> {
    root: &'a [u8],
    score: Score,
    page: &'a [u8],
}

impl PageSource for Pages<'_> {
    fn page(&self, id: &BlockId) -> Result<Vec<u8>> {
        Ok(if *id == self.score.0 { self.root } else { self.page }.to_vec())
    }
}

fuzz_target!(|input: &[u8]| {
    let (root, page) = input.split_at(input.len().min(ROOT_LENGTH));
    let score = Score(BlockId::of(Kind::Page, root));
    let Some(decoded) = bug_free(Root::decode(score, root)) else { return };
    assert_eq!(decoded.encode(), root, "a root that is not canonical");
    if !decoded.domain.is_encrypted() {
        assert_eq!(decoded.score().expect("needs no key"), score);
    }
    let Some(recipe) = bug_free(Recipe::open(score, Pages { root, score, page })) else { return };
    assert_eq!(*recipe.root(), decoded);
    let mut position = 0;
    for entry in recipe.entries(Extent::new(0, decoded.disk_length)).take(ENTRIES_TRIED) {
        let Some(entry) = bug_free(entry) else { break };
        assert!(entry.extent.offset >= position && entry.extent.length > 0, "entries out of order");
        assert!(entry.extent.end() <= decoded.disk_length, "an entry past the end of the disk");
        position = entry.extent.end();
    }
    bug_free(recipe.visit_pages(Extent::new(0, u64::MAX), &mut |_| Ok(())));
});
