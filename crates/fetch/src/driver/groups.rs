//! Which group a block belongs to ([`platter_cast::peer::groups`]): all nodes must come to the same, from the pages that name
//! it.
//!
//! Pages are looked at as they come, and those that are held when a recipe is opened. A block whose page was not seen counts
//! as a group of its own: then it may have another home here than elsewhere, and come from the origin twice.

use parking_lot::Mutex;
use std::collections::HashMap;

use platter_cast::peer::groups;
use platter_image::frame::{FrameDecoder, FrameHeader, Verify};
use platter_image::page::{Contents, decode, named_blocks};
use platter_image::recipe::Root;
use platter_image::{BlockId, Kind, Score};

use super::holdings::Holdings;

/// Most blocks whose groups are known; then they are learned anew. 28 MiB.
const BLOCKS_MAX: usize = 1 << 20;

/// Groups of blocks.
#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<HashMap<u64, u64>>);

impl Groups {
    /// The group of a block, if a page that names it was seen.
    pub(super) fn find(&self, id: &BlockId) -> Option<u64> {
        self.0.lock().get(&word(id, 0)).copied()
    }

    /// The group of a block or page. Pages are groups of their own.
    pub(super) fn of(&self, kind: Kind, id: &BlockId) -> u64 {
        let found = if kind == Kind::Data { self.find(id) } else { None };
        found.unwrap_or_else(|| word(id, 2))
    }

    /// Looks at the pages of a verified frame: its blocks, one after another.
    pub(super) fn learn_frame(&self, header: &FrameHeader, mut contents: &[u8]) {
        if header.kind != Kind::Page {
            return;
        }
        for block in &header.blocks {
            let Some((page, rest)) = contents.split_at_checked(block.length as usize) else { return };
            contents = rest;
            self.learn_page(page);
        }
    }

    /// Looks at a page. A recipe's root is none, and teaches nothing.
    fn learn_page(&self, page: &[u8]) {
        let Ok(blocks) = named_blocks(page) else { return };
        let mut known = self.0.lock();
        if known.len() + blocks.len() > BLOCKS_MAX {
            known.clear();
        }
        for (id, group) in blocks.iter().zip(groups(&blocks)) {
            // One that stands in several places is in the same group on all nodes, whichever page they saw first.
            known.entry(word(id, 0)).and_modify(|other| *other = group.min(*other)).or_insert(group);
        }
    }

    /// Looks at those pages of a recipe that are held.
    pub(super) fn learn_held(&self, score: Score, holdings: &dyn Holdings) {
        let Some(root) = held_page(holdings, &score.0) else { return };
        let Ok(root) = Root::decode(score, &root) else { return };
        let mut pages: Vec<_> = root.top.into_iter().map(|(_, page)| page).collect();
        while let Some(child) = pages.pop() {
            let Some(page) = held_page(holdings, &child.id) else { continue };
            match decode(&child, &page) {
                Ok((_, Contents::Branch(children))) => pages.extend(children),
                Ok((_, Contents::Leaf(_))) => self.learn_page(&page),
                Err(_) => {}
            }
        }
    }
}

/// A page that is held. One that is damaged is not.
fn held_page(holdings: &dyn Holdings, id: &BlockId) -> Option<Vec<u8>> {
    let stored = holdings.frame(Kind::Page, id)?;
    let mut decoder = FrameDecoder::new().ok()?;
    let (header, contents) = decoder.decode(&stored, Verify::Checksum).ok()?;
    let mut start = 0;
    for block in &header.blocks {
        let end = start + block.length as usize;
        if block.id == *id {
            return contents.get(start..end).map(<[u8]>::to_vec);
        }
        start = end;
    }
    None
}

/// A word of an id. An id is a hash: one is enough to tell blocks apart here.
fn word(id: &BlockId, index: usize) -> u64 {
    let (words, _) = id.0.as_chunks::<8>();
    u64::from_le_bytes(words[index])
}
