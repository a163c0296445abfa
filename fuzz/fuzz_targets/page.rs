//! Pages: a page that decodes is canonical (it encodes to the same bytes), its entries ascend, and they lie within the
//! page's range.

#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_fuzz::bug_free;
use platter_image::page::{Child, Contents, PAGE_LENGTH_MAX, decode, encode_branch, encode_leaf};
use platter_image::{BlockId, Extent};

fuzz_target!(|input: &[u8]| {
    // The parent names the range that the page claims, because any other is refused at once.
    let Some(head) = input.get(..16) else { return };
    let start = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
    let child = Child { start, span_log2: head[6], id: BlockId([1; 32]) };
    let Some((level, contents)) = bug_free(decode(&child, input)) else { return };
    assert!(input.len() <= PAGE_LENGTH_MAX);
    let range = child.range();
    let extents: Vec<Extent> = match &contents {
        Contents::Leaf(entries) => {
            assert_eq!(level, 0);
            assert_eq!(encode_leaf(range, entries), input, "a leaf that is not canonical");
            entries.iter().map(|entry| entry.extent).collect()
        }
        Contents::Branch(children) => {
            assert!(level > 0);
            assert_eq!(encode_branch(level, range, children), input, "a branch that is not canonical");
            children.iter().map(Child::range).collect()
        }
    };
    assert!(!extents.is_empty());
    let mut position = range.offset;
    for extent in extents {
        assert!(extent.offset >= position && extent.length > 0 && extent.end() <= range.end());
        position = extent.end();
    }
    let elsewhere = Child { start: start ^ range.length, ..child };
    assert!(decode(&elsewhere, input).is_err(), "a page taken for another range");
});
