//! The groups of blocks ([`platter_cast::peer::groups`]): all nodes must derive the same groups, from the pages that
//! name the blocks.
//!
//! Groups are learned from pages as they arrive, and from held pages when a recipe is opened. A block whose page was
//! not seen forms a group of its own: it may then have another home here than on other nodes, and be fetched twice from
//! the origin.

use parking_lot::Mutex;
use std::collections::HashMap;

use platter_cast::peer::groups;
use platter_image::frame::{DecoderPool, FrameHeader, Verify};
use platter_image::page::{Contents, decode, named_blocks};
use platter_image::recipe::Root;
use platter_image::{BlockId, Kind, Score};

use super::holdings::Holdings;

/// Most blocks with known groups; beyond that, all are learned again. 28 MiB.
const BLOCKS_MAX: usize = 1 << 20;

/// Groups of blocks.
#[derive(Debug, Default)]
pub(super) struct Groups {
    known: Mutex<HashMap<u64, u64>>,
    decoders: DecoderPool,
}

impl Groups {
    /// Returns the group of a block, if a page that names it was seen.
    pub(super) fn find(&self, id: &BlockId) -> Option<u64> {
        self.known.lock().get(&word(id, 0)).copied()
    }

    /// Returns the group of a block or page. Each page is a group of its own.
    pub(super) fn of(&self, kind: Kind, id: &BlockId) -> u64 {
        let found = if kind == Kind::Data { self.find(id) } else { None };
        found.unwrap_or_else(|| word(id, 2))
    }

    /// Learns from the pages of a verified frame. `contents` has its blocks, one after another.
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

    /// Learns from the pages of a stored frame, which was verified before.
    pub(super) fn learn_stored(&self, stored: &[u8]) {
        // Without its pages, its blocks form groups of their own.
        let _ = self.decoders.with(|decoder| {
            let (header, contents) = decoder.decode(stored, Verify::Checksum)?;
            self.learn_frame(&header, contents);
            Ok(())
        });
    }

    /// Learns from a page. A recipe's root is not a page and is skipped.
    fn learn_page(&self, page: &[u8]) {
        let Ok(blocks) = named_blocks(page) else { return };
        let mut known = self.known.lock();
        if known.len() + blocks.len() > BLOCKS_MAX {
            known.clear();
        }
        for (id, group) in blocks.iter().zip(groups(&blocks)) {
            // A block in several places gets the same group on all nodes, in whatever order they see the pages.
            known.entry(word(id, 0)).and_modify(|other| *other = group.min(*other)).or_insert(group);
        }
    }

    /// Learns from the held pages of a recipe.
    pub(super) fn learn_held(&self, score: Score, holdings: &dyn Holdings) {
        let Some(root) = self.held_page(holdings, &score.0) else { return };
        let Ok(root) = Root::decode(score, &root) else { return };
        let mut pages: Vec<_> = root.top.into_iter().map(|(_, page)| page).collect();
        while let Some(child) = pages.pop() {
            let Some(page) = self.held_page(holdings, &child.id) else { continue };
            match decode(&child, &page) {
                Ok((_, Contents::Branch(children))) => pages.extend(children),
                Ok((_, Contents::Leaf(_))) => self.learn_page(&page),
                Err(_) => {}
            }
        }
    }

    /// Returns a held page; `None` for a damaged one.
    fn held_page(&self, holdings: &dyn Holdings, id: &BlockId) -> Option<Vec<u8>> {
        let stored = holdings.frame(Kind::Page, id)?;
        let header = FrameHeader::parse(&stored).ok()?;
        let slot = header.blocks.iter().position(|block| block.id == *id)? as u32;
        let page = self
            .decoders
            .with(|decoder| decoder.decode_block(&stored, Kind::Page, slot, id).map(<[u8]>::to_vec));
        page.ok()
    }
}

/// Returns a word of an id. Ids are hashes, so one word is enough to distinguish blocks here.
fn word(id: &BlockId, index: usize) -> u64 {
    let (words, _) = id.0.as_chunks::<8>();
    u64::from_le_bytes(words[index])
}
